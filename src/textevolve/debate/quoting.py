"""Quotations in arguments, and arguments that repeat each other: functions of texts alone."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from textevolve.loading import late_regex, regex
from textevolve.texts.prose import (
    compose,
    cut_sentences,
    find_marked_words,
    fold_case,
    join_lines,
    space_out,
    split_words,
)

QUOTED_WORDS = 4
"""The least number of words in a row that make a quotation; fewer may be a mere expression."""
LONGEST_QUOTATION = 8
MOST_QUOTED = 1 / 3
"""The share of an argument that may consist of words of the candidates."""
COPIED = 0.6
"""The share of words in common from which an argument repeats another one. Arguments of agents that
did not see each other have 0.2 to 0.35 (docs/measurements.md)."""
SAME_REMARK = 0.8
"""The share of words in common from which two short remarks say the same."""

_QUOTATION = late_regex(r"[\"“„«»「『]([^\"“”„«»「」『』]+)[\"”“«»」』]")
_MARKS = late_regex('["“”„‘’]')
_PUNCTUATION = late_regex(
    r"(?V1)(?<!\S)[\p{P}--[\p{Pd}%‰#@&*/]]+|[\p{P}--[%‰#*]]++(?:(?!\S)|(*SKIP)(*FAIL))"
)
"""The punctuation before and after words: not `-5`, `5%` or `C#`, which mean something else. What
is within a word is passed over at once, since answers may have lines of thousands of marks."""
_EDGES = " .,;:!?…\"'“”„«»「」『』"


def quotations(text: str) -> list[str]:
    """Return the texts between quotation marks that are long enough to be quotations."""
    return [words for words in _between_marks(text) if _is_long(words)]


def _between_marks(text: str) -> list[str]:
    return [match[1].strip() for match in _QUOTATION.finditer(text)]


def _is_long(words: str) -> bool:
    return len(split_words(words, "parts")) >= QUOTED_WORDS


def is_quoted(words: str, texts: Sequence[str]) -> bool:
    """Return whether the whole words of a quotation stand in one of the texts, apart from case,
    white space, and the punctuation before and after words."""
    bare = _bare(words)
    return bool(bare) and any(f" {bare} " in f" {_bare(text)} " for text in texts)


@lru_cache(maxsize=256)
def _bare(text: str) -> str:
    spaced = space_out(_MARKS.sub("'", fold_case(text)))
    return join_lines(_PUNCTUATION.sub(" ", spaced))


def is_copied(words: str, candidates: Sequence[str]) -> bool:
    """Return whether words stand in one of the candidates, and are long enough to be a quotation or
    the whole of a short candidate."""
    if _is_long(words):
        return is_quoted(words, candidates)
    bare = _bare(words)
    return bool(bare) and any(bare == _bare(text) for text in candidates)


def verbatim(text: str, candidates: Sequence[str]) -> str:
    """Return the first quotation in an argument that is copied from one of the candidates; empty if
    there is none."""
    return next((words for words in _between_marks(text) if is_copied(words, candidates)), "")


def copied_words(answer: str, candidates: Sequence[str], spoken: Sequence[str] = ()) -> str:
    """Return the longest run of words in an answer that stands in one of the candidates, at most
    `LONGEST_QUOTATION` words of it; empty if no run is long enough (`is_copied`). Runs that share a
    quotation with what was `spoken` are left out."""
    text = compose(answer)
    spans = find_marked_words(text)
    longest = 0
    quotation = ""

    for first in range(len(spans)):
        last = first + longest
        # A run that is longer than the longest so far, or none that starts here.
        while last < min(len(spans), first + LONGEST_QUOTATION):
            run = text[spans[first][0] : spans[last][1]]
            is_old = any(
                is_quoted(text[spans[n][0] : spans[n + QUOTED_WORDS - 1][1]], spoken)
                for n in range(first, last - QUOTED_WORDS + 2)
            )
            if is_old or not is_quoted(run, candidates):
                break
            longest = last - first + 1
            quotation = run
            last += 1

    quotation = quotation.strip(_EDGES)
    return quotation if is_copied(quotation, candidates) else ""


def quote_first(quotation: str, reason: str, candidates: Sequence[str]) -> str:
    """Return an argument that begins with a quotation, which is shortened where words of the
    candidates would otherwise be more than `MOST_QUOTED` of the argument. A reason that has a
    quotation of its own is returned as it is."""
    if not quotation or verbatim(reason, candidates):
        return reason
    words = quotation.split()
    text = ""

    for length in range(max(len(words), QUOTED_WORDS), QUOTED_WORDS - 1, -1):
        text = f'"{" ".join(words[:length]).strip(_EDGES)}" {reason}'
        if share_of_candidates(text, candidates) <= MOST_QUOTED:
            break

    return text


def share_of_candidates(text: str, candidates: Sequence[str]) -> float:
    """Return the share of a text's words, in [0, 1], that belong to quotations of the candidates,
    with quotation marks or without."""
    runs = {run for candidate in candidates for run in _runs(_words(candidate))}
    words = _words(text)
    quoted: set[int] = set()
    for first, run in enumerate(_runs(words)):
        if run in runs:
            quoted.update(range(first, first + QUOTED_WORDS))

    return len(quoted) / max(1, len(words))


@lru_cache(maxsize=256)
def _words(text: str) -> list[str]:
    return split_words(fold_case(text), "parts")


def _runs(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[n : n + QUOTED_WORDS]) for n in range(len(words) - QUOTED_WORDS + 1)]


def without_quotation(text: str) -> str:
    """Return an argument without the quotation that it begins with."""
    match = _QUOTATION.match(text)
    return text[match.end() :].strip() if match else text


def repeats(text: str, others: Sequence[str], limit: float = COPIED) -> bool:
    """Tell whether a text has more than a share of its words, in [0, 1], in common with one of the
    others, in the same order."""
    words = _words(text)
    matches = (SequenceMatcher(None, words, _words(other), autojunk=False) for other in others)
    # The upper bounds decide nearly all comparisons, in a fraction of the time.
    return any(
        match.real_quick_ratio() > limit and match.quick_ratio() > limit and match.ratio() > limit
        for match in matches
    )


def drop_inventions(text: str, sources: Sequence[str]) -> str:
    """Return the text without the sentences that quote words which stand in none of the sources. If
    nothing would remain, only the quotation marks are dropped, so that the words are the
    agent's."""
    sentences = cut_sentences(_unquote_inventions(text, sources, "\0"))
    remaining = "".join(sentence for sentence in sentences if "\0" not in sentence).strip()

    return remaining or _unquote_inventions(text, sources, "")


def _unquote_inventions(text: str, sources: Sequence[str], mark: str) -> str:
    invented = [words for words in quotations(text) if not is_quoted(words, sources)]

    def unquote(match: regex.Match[str]) -> str:
        words = match[1].strip()
        return f"{mark}{match[1]}" if words in invented else match[0]

    return _QUOTATION.sub(unquote, text)
