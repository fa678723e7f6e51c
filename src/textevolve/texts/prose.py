"""Words, signs and sentences of prose, in every script.

A sign is what a reader sees as one letter: a letter with its marks, or an emoji, which may consist
of several characters (Unicode's extended grapheme cluster).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from textevolve.loading import late_regex, regex

# Forms of a text that look the same, or that differ in capitals only.

_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u2060\ufeff")
"""Soft hyphens, and the spaces and joiners of no width that pages and PDFs leave within words."""
_WIDE = late_regex(r"[\uff01-\uffee\u3000]+")
_DOTTED_I = "i\u0307"
"""What Python makes of the Turkish capital İ, as a small letter."""
_TURKISH = str.maketrans({"I": "ı", "İ": "i"})


def compose(text: str) -> str:
    """Return a text in Unicode's composed form (NFC). File names of macOS and some keyboards have
    the decomposed form, which looks the same."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def join_lines(text: str) -> str:
    """Return a text on one line: each run of white space becomes one blank."""
    return " ".join(text.split())


def fold_widths(text: str) -> str:
    """Return a text in the composed form, with full- and half-width letters and digits as usual
    ones, and without soft hyphens and spaces of no width. Superscripts stay what they are: 10² is
    not 102."""
    if text.isascii():
        return text
    usual = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return compose(usual.translate(_INVISIBLE))


def fold_case(text: str) -> str:
    """Return a text in the composed form and in small letters; `ß` and `SS` are equal, and so are
    `İ` and `i`."""
    return compose(compose(text).casefold().replace(_DOTTED_I, "i"))


def fold_turkish_case(text: str) -> str:
    """Return a text in small letters by the rules of Turkish, where `I` is the capital of `ı`."""
    return fold_case(compose(text).translate(_TURKISH))


CASE_FOLDS = (fold_case, fold_turkish_case)
"""The ways to ignore capitals. Two texts are equal but for capitals if they are so in either way,
since a text does not state its language."""

# Words.

Grain = Literal["whole", "parts", "facts"]
"""How fine words are: `whole` (`don't`, `mother-in-law`, `snake_case` and `3.5` are one word each),
`parts` (runs of letters and digits, as ROUGE takes them), or `facts` (letters and numbers apart, so
that `5kg` and `5 kg` are equal; a date or a time is one number)."""

_UNSPACED = r"\p{Han}\p{scx=Hiragana}\p{scx=Katakana}\p{Line_Break=SA}"
"""The letters of scripts that are written without spaces: Chinese, Japanese, Thai, Lao, Khmer,
Burmese and others. Each sign counts as a word, as in ROUGE and BLEU for Chinese, since real words
would need a dictionary for each language."""
_ALONE = rf"(?=[[{_UNSPACED}]&&[\p{{L}}\p{{N}}]])\X"
# Marks, and the joiners of Indian scripts and Persian, belong to the word around them.
_LETTER = rf"[\p{{L}}--[{_UNSPACED}]]"
_NEXT = rf"[[\p{{L}}\p{{N}}\p{{M}}\u200c\u200d]--[{_UNSPACED}]]"
_RUN = rf"[[\p{{L}}\p{{N}}]--[{_UNSPACED}]]{_NEXT}*+"
_LETTERS = rf"{_LETTER}[[\p{{L}}\p{{M}}\u200c\u200d]--[{_UNSPACED}]]*+"
_PATTERNS = {
    "whole": rf"{_ALONE}|{_RUN}(?:['’.,_-]{_RUN})*+",
    "parts": rf"{_ALONE}|{_RUN}",
    "facts": rf"{_ALONE}|\p{{N}}+(?:[.,:/-]\p{{N}}+)*+|{_LETTERS}(?:['’-]{_LETTERS})*+",
}
_WORDS = {grain: late_regex(f"(?V1){pattern}") for grain, pattern in _PATTERNS.items()}
_ASCII_PARTS = re.compile(r"[A-Za-z0-9]+")
"""The same as the words `parts` of a text in ASCII, in a tenth of the time."""
_ALONE_IN_TEXT = late_regex(f"(?V1){_ALONE}")
_INSIDE = rf"[[\p{{L}}\p{{N}}\p{{M}}_\u200c\u200d]--[{_UNSPACED}]]"
# A word may begin or end at a sign of a script without spaces, whatever stands beside it.
_BEGIN = rf"(?:(?<!{_INSIDE})|(?=[{_UNSPACED}]))"
_END = rf"(?:(?!{_INSIDE})|(?<=[{_UNSPACED}]\p{{M}}*))(?!\p{{M}})"


def find_words(text: str, grain: Grain = "whole") -> Iterator[regex.Match[str]]:
    """Yield the matches of the words of a text, with their places in it."""
    yield from _WORDS[grain].finditer(text)


def split_words(text: str, grain: Grain = "whole") -> list[str]:
    """Return the words of a text in the composed form. In scripts without spaces each sign is a
    word."""
    if grain == "parts" and text.isascii():
        return _ASCII_PARTS.findall(text)
    return _WORDS[grain].findall(fold_widths(text))


def space_out(text: str) -> str:
    """Return a text in the composed form with spaces around the signs of scripts without spaces, so
    that software which splits at spaces finds them."""
    return _ALONE_IN_TEXT.sub(r" \g<0> ", compose(text))


def has_phrase(text: str, phrase: str) -> bool:
    """Return whether a text contains a word or phrase that is not a part of a longer word. White
    space within the phrase may be a line break in the text. Both are in the composed form."""
    words = r"\s+".join(map(regex.escape, phrase.split()))
    return regex.search(f"(?V1){_BEGIN}{words}{_END}", text) is not None


_MARKED_WORD = late_regex(rf"(?V1){_ALONE}|(?:(?!{_ALONE})\S)+")


def find_marked_words(text: str) -> list[tuple[int, int]]:
    """Return the places of the words of a text, each with the marks beside it; in scripts without
    spaces each sign is a word."""
    return [match.span() for match in _MARKED_WORD.finditer(text)]


# Sentences.

OTHER_STOPS = r"[\p{Sentence_Terminal}--[.!?]]"
"""The marks that end a sentence in other scripts than Latin, for patterns of `regex.V1`."""
_QUOTES = r"[\"'”’»›)\]」』】》〉]*+"
_STOP = rf"(?:[.!?…]{_QUOTES}\s|{OTHER_STOPS}{_QUOTES})"
"""The end of a sentence: a mark of Latin script with a space, since `3.5` does not end one, or the
mark of another script, such as `。`, `।` and `؟`, which needs none."""


def cut_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each with its closing punctuation and the white space behind
    it, and last what ends no sentence, which may be empty. A line break also ends a sentence."""
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    return [text[start:end] for start, end in pairwise((0, *ends, len(text)))]


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text with their closing punctuation, without pieces that have no
    word."""
    return [piece.strip() for piece in cut_sentences(text) if _WORDS["parts"].search(piece)]


# Splitting of long texts into pieces of a bounded size, which are cut at the ends of paragraphs,
# or else before rows of tables and items of lists, or else at the ends of sentences, or else at
# spaces (together called seams), or else between signs.
#
# No text is left out: the joined pieces are the original text. `excerpt` shows parts of a text
# that is too long to show it all.

_PARAGRAPH = late_regex(r"\n[^\S\n]*\n\s*")
_SENTENCE = late_regex(rf"(?V1)(?:{_STOP}|\n)\s*")
_SPACE = late_regex(r"(?:\s|[，、；：،؛၊])\s*")
"""A space, or the mark behind a part of a sentence in scripts that may have no spaces."""
_ROW = late_regex(r"\n(?=[^\S\n]*(?:\||[-*+•][^\S\n]|\d{1,9}[.)][^\S\n]))")
_LINE = late_regex(r"\n")
_SIGN = late_regex(r"\X")


def split_text(text: str, size: int, *, by_lines: bool = False) -> Iterator[str]:
    """Split a text into pieces of at most `size` characters; if there are several, each has at
    least a third of `size`. A word is cut only if it is longer than a third of a piece. `by_lines`:
    whether lines are kept whole before sentences are, as code needs it.

    Raises:
        ValueError: `size` is below 3.
    """
    if size < 3:
        raise ValueError("size must be 3 or more")
    start = 0
    third = size // 3
    seams = (_PARAGRAPH, _LINE if by_lines else _ROW, _SENTENCE, _SPACE)
    while (remaining := len(text) - start) > size:
        latest = start + min(size, remaining - third)
        end = _find_seam(text, seams, start + third, latest)
        if end is None:
            end = _find_sign(text, start, start + third, latest)
        yield text[start:end]
        start = end

    if start < len(text):
        yield text[start:]


def _find_seam(text: str, seams: Sequence[regex.Pattern[str]], low: int, high: int) -> int | None:
    """Return the last position from `low` to `high` that follows a seam of the strongest kind in
    that range; None if there is none."""
    for seam in seams:
        seam_end = 0
        # One character before, so that a seam that ends just at `low` is seen.
        for match in seam.finditer(text, low - 1, high):
            seam_end = match.end()
        if seam_end >= low:
            return seam_end

    return None


def _find_sign(text: str, start: int, low: int, high: int) -> int:
    """Return the last position from `low` to `high` between two signs; `high` if there is none.
    `start`: an earlier position where a sign begins; flags, for example, are pairs of letters, and
    only the letters before tell which is the second one."""
    last = 0
    if text[start : high + 1].isascii():
        # Of ASCII characters only a line break can be two that are one sign.
        last = min(high, len(text)) - text.startswith("\r\n", high - 1)
    else:
        for match in _SIGN.finditer(text, start):
            if match.end() > high:
                break
            last = match.end()

    return last if last >= low else high


def cut_at_seam(text: str, size: int) -> str:
    """Return the beginning of a text, at most `size` characters: whole sentences if the first one
    fits, otherwise whole words, otherwise whole signs. Trailing spaces are removed."""
    if len(text) <= size:
        return text
    for seam in (_SENTENCE, _SPACE):
        # The space behind the last sentence may lie behind the last character that fits.
        ends = [match.end() for match in seam.finditer(text, 0, size + 1)]
        for end in reversed(ends):
            if 0 < len(head := text[:end].rstrip()) <= size:
                return head

    return text[: _find_sign(text, 0, 1, size)]


def excerpt(text: str, most: int, focus: int | None = None) -> str:
    """Return a text of at most `most` characters unchanged. Of a longer one return the beginning
    and the end, and the part around the position `focus` if that is set, together about `most`
    characters; marks in addition state how much is left out."""
    if len(text) <= most:
        return text
    part = most // 2 if focus is None else most // 4
    places = [0, part, len(text) - part, len(text)]
    if focus is not None:
        start = min(max(focus - part, part), len(text) - 3 * part)
        places[2:2] = [start, start + 2 * part]
    whole_places = [_find_sign(text, 0, 0, place) for place in places]
    result = ""
    end = 0

    for start, stop in zip(whole_places[::2], whole_places[1::2], strict=True):
        omitted = start - end
        result += (f"\n[... {omitted} characters left out ...]\n" if omitted else "") + text[
            start:stop
        ]
        end = stop

    return result
