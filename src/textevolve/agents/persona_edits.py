"""Edits of a persona: its sentences, what makes a small edit, and the text that edits give.

By code alone: the first sentence stays, at most half of the others change, and what is new is a
sentence or two at a time. Which edits are wanted is the business of `persona.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, TypeAlias

from textevolve.llm.fence import sanitize
from textevolve.llm.token_count import count_tokens

LONGEST_SENTENCE = 300
"""Characters of what an edit puts in."""
MOST_SENTENCES = 2
"""That one edit may put in."""
ALIKE = 0.9
"""From this similarity of characters on two sentences say the same."""

EditAction: TypeAlias = Literal["add", "replace", "remove"]


@dataclass(frozen=True, slots=True)
class PersonaChange:
    """One edit. `sentence`: which is replaced or removed, from 1; 0 where one is added. `before`:
    that sentence. `memories`: ids of those behind it."""

    action: EditAction
    sentence: int
    text: str
    reason: str
    memories: tuple[str, ...]
    before: str = ""


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that is not made, and why."""

    action: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComposedPersona:
    """A persona with those edits that fit together."""

    text: str
    changes: tuple[PersonaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PersonaSentence:
    """`gap`: the white space behind it."""

    text: str
    gap: str = ""


_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(\s+)|(?<![。！？])[。！？]++(\s*)|([ \t]*\n\s*)"
)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|[a-z])\.\s+$", re.IGNORECASE
)


def split_persona(text: str) -> tuple[PersonaSentence, ...]:
    """The sentences of a persona, which join up to it; each line is one at least."""
    found, begun = list[PersonaSentence](), 0
    bare = text.strip()
    for end in _END.finditer(bare):
        whole = bare[begun : end.end()]
        if "\n" not in end[0] and _ABBREVIATED.search(whole):
            continue
        gap = end[1] or end[2] or end[3] or ""
        found.append(PersonaSentence(whole[: len(whole) - len(gap)], gap))
        begun = end.end()
    if begun < len(bare):
        found.append(PersonaSentence(bare[begun:]))
    return tuple(found)


def finish_sentence(text: str) -> str:
    """On one line, with an end."""
    line = " ".join(text.split())
    return line + "." if line and line[-1].isalnum() else line


def find_edit_fault(
    action: EditAction, sentence: int, text: str, sentences: Sequence[PersonaSentence]
) -> str:
    """Why it is no small edit; empty where it is one."""
    if action != "add":
        if not 1 <= sentence <= len(sentences):
            return f"there is no sentence {sentence}"
        if sentence == 1:
            return "the first sentence says who the agent is, and stays"
    if action == "remove":
        return ""
    if not text:
        return "has no text"
    if len(text) > LONGEST_SENTENCE or len(split_persona(text)) > MOST_SENTENCES:
        return f"is longer than {MOST_SENTENCES} sentences or {LONGEST_SENTENCE} characters"
    if sanitize(text, "\0")[1]:
        return "holds marks that steer a model"
    if any(alike(text, known.text) for known in sentences):
        return "the persona says it already"
    return ""


def alike(one: str, other: str) -> bool:
    """Whether two sentences are in nearly the same words, with the same numbers."""
    first, second = (" ".join(text.casefold().split()) for text in (one, other))
    if re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    return SequenceMatcher(None, first, second, autojunk=False).ratio() >= ALIKE


def compose_persona(
    text: str, changes: Sequence[PersonaChange], most_tokens: int
) -> ComposedPersona:
    """The persona with the changes, the first of them first, for as long as they fit together, at
    most half of its sentences are replaced or removed, and it is short enough."""
    sentences = split_persona(text)
    most = max(most_tokens, count_tokens(text.strip()))
    made, refused = list[PersonaChange](), list[RefusedChange]()
    for one in changes:
        tried = _apply_edits(sentences, [*made, one])
        touched = {each.sentence for each in made if each.sentence}
        fault = ""
        if one.sentence and one.sentence in touched:
            fault = f"sentence {one.sentence} is changed already"
        elif one.sentence and 2 * (len(touched) + 1) > len(sentences):
            fault = "more than half of the sentences would change"
        elif count_tokens(tried) > most:
            fault = f"the persona would have {count_tokens(tried)} tokens of at most {most}"
        if fault:
            refused.append(RefusedChange(one.action, one.text or one.before, fault))
        else:
            made.append(one)
    return ComposedPersona(_apply_edits(sentences, made), tuple(made), tuple(refused))


def _apply_edits(sentences: Sequence[PersonaSentence], changes: Sequence[PersonaChange]) -> str:
    edits = {one.sentence: one for one in changes if one.sentence}
    parts = list[str]()
    for number, sentence in enumerate(sentences, 1):
        edit = edits.get(number)
        if edit is None or edit.action == "replace":
            parts += [sentence.text if edit is None else edit.text, sentence.gap]
    added = [one.text for one in changes if one.action == "add"]
    kept = "".join(parts).rstrip()
    last = sentences[-2].gap if len(sentences) > 1 and "\n" in sentences[-2].gap else " "
    return last.join([kept, *added])
