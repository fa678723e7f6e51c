"""How a new note goes together with earlier ones, as a model says: by yes / no questions about one
note each, or in one structured answer about all of them; and the text in the place of two.

What becomes of the answer is the business of `reconciliation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, Field, create_model

from textevolve.errors import AnswerError
from textevolve.evaluation import Failure
from textevolve.llm.decisions import Question, decide, predicate
from textevolve.llm.fence import EXAMPLE_NONCE, draw_nonce, fence, quote, sanitize
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.memory.creation_settings import CreationSettings
from textevolve.memory.sameness import lacks, share_words
from textevolve.texts.dates import write_date

COMPARED_TOKENS, COMBINED_TOKENS = 150, 300
MOST_REASON = 200
"""Characters."""
_SENTENCE_END = re.compile(r"[.!?]\s+\S")

NoteRelation: TypeAlias = Literal["same", "replaces", "adds", "different"]
A = TypeVar("A", bound=BaseModel)

REPLACED = predicate(
    "replaced",
    "Does the new note say that what the earlier note says has changed, so that both cannot be true"
    " at the same time?",
)
KNOWN = predicate("known", "Does the earlier note already say everything that the new note says?")

ALIKE_LEAST = 0.48
"""Chosen on pairs of notes of made users (`benchmarks/memory_decisions.py`), where 13 of 17 changes
were found with 0.5, and 16 with this."""


@dataclass(frozen=True, slots=True)
class ComparedNote:
    """`since`: from when on it holds, where that is known."""

    text: str
    since: float | None = None


class _Comparison(BaseModel):
    note: int
    relation: NoteRelation
    reason: str = ""


class _Combined(BaseModel):
    text: str


@cache
def compare_prompt() -> Template:
    return load_template("textevolve.memory", "compare", ())


@cache
def combine_prompt() -> Template:
    return load_template("textevolve.memory", "combine", ("replaces",))


async def compare_notes(
    model: Model, settings: CreationSettings, new: ComparedNote, near: Sequence[ComparedNote]
) -> tuple[NoteRelation, int, str]:
    """How a new note goes together with which of those that are near (its place), and why.

    Raises:
        AnswerError: no usable answer came. CapabilityError: questions are to be asked of a model
            without log-probabilities.
    """
    if settings.compare == "questions":
        return await _ask_about_each(model, new, near)
    return await _compare(model, new, near)


async def _ask_about_each(
    model: Model, new: ComparedNote, near: Sequence[ComparedNote]
) -> tuple[NoteRelation, int, str]:
    """The note that is most probably replaced, where one is; else whether the nearest says it all.

    Measured with a model of 1.5B (docs/measurements.md): in one structured answer it takes every
    note for replaced by whatever is near.
    """
    asked = [await _probability(model, REPLACED, new, one) for one in near]
    over = [found - _least(new, one) for found, one in zip(asked, near, strict=True)]
    most = max(range(len(near)), key=over.__getitem__)
    highest = asked[most]
    if over[most] >= 0:
        return "replaces", most, f"both cannot hold (P = {highest:.2f})"
    if not lacks(near[0].text, new.text):
        known = await _probability(model, KNOWN, new, near[0])
        if known >= 0.5:
            return "same", 0, f"known already (P = {known:.2f})"
    return "different", most, f"all of it can hold (P = {1 - highest:.2f})"


def _least(new: ComparedNote, one: ComparedNote) -> float:
    """The P(yes) from which on a note counts as replaced. A small model leans to no, and most where
    it is right to lean to yes: of notes of one shape, such as two on who somebody's sister is."""
    return ALIKE_LEAST if share_words(one.text, new.text) else 0.5


async def _probability(
    model: Model, question: Question, note: ComparedNote, one: ComparedNote
) -> float:
    """P(yes).

    Raises:
        AnswerError: the question has no answer.
    """
    # Each is one line, so a sign before it keeps it from passing for anything else, in few tokens.
    # With dates before them a model of 1.5B found fewer of the changes.
    earlier, new = (quote(sanitize(text, EXAMPLE_NONCE)[0]) for text in (one.text, note.text))
    state = f"Earlier note:\n{earlier}New note:\n{new}"
    answer = (await decide(model, state, [question], seed=0)).answers[question.name]
    if isinstance(answer, Failure):
        raise AnswerError(answer.reason)
    return answer.probabilities[1]


async def _compare(
    model: Model, new: ComparedNote, near: Sequence[ComparedNote]
) -> tuple[NoteRelation, int, str]:
    """In one structured answer about all notes."""
    rules = compare_prompt().render()
    found = await _ask(model, rules, near, new, _comparison(len(near)), COMPARED_TOKENS)
    if found.relation == "same" and lacks(near[found.note - 1].text, new.text):
        news = _comparison(len(near), news=True)
        found = await _ask(model, rules, near, new, news, COMPARED_TOKENS)
    reason = " ".join(found.reason.split())[:MOST_REASON]
    return found.relation, found.note - 1, reason


@cache
def _comparison(notes: int, news: bool = False) -> type[_Comparison]:
    """The answer's type, in which those notes alone can be named that there are. `news`: none of
    them says all that the new one says."""
    fields: dict[str, Any] = {"note": (int, Field(ge=1, le=notes))}
    if news:
        fields["relation"] = (Literal["replaces", "adds", "different"], ...)
    return create_model("Comparison", __base__=_Comparison, **fields)


async def combine_notes(
    model: Model, note: ComparedNote, one: ComparedNote, *, replaces: bool
) -> str:
    """The text in the place of two notes. What takes the place of a single sentence is the new
    one as it is; a merged text that has lost something is both texts.

    Raises:
        AnswerError: no usable answer came.
    """
    old, new = one.text, note.text
    if replaces and not _SENTENCE_END.search(old):
        return new
    rules = combine_prompt().render(replaces=replaces)
    found = await _ask(model, rules, [one], note, _Combined, COMBINED_TOKENS)
    text = " ".join(found.text.split())
    if not text or lacks(text, new) or (not replaces and lacks(text, old)):
        return new if replaces else f"{old} {new}"
    return text


async def _ask(
    model: Model,
    rules: str,
    near: Sequence[ComparedNote],
    note: ComparedNote,
    answer: type[A],
    most: int,
) -> A:
    notes = [_note(str(n), one) for n, one in enumerate(near, 1)]
    new = _note("", note)
    nonce = draw_nonce([*notes, new], 0)
    shown = "\n".join(sanitize(note, nonce)[0] for note in notes)
    asked = (fence("notes", shown, nonce), fence("new note", sanitize(new, nonce)[0], nonce))
    request = Request(
        messages=(Message("system", (rules,)), Message("user", asked)),
        temperature=0.0,
        max_tokens=most,
        seed=0,
    )
    return (await ask_structured(model, request, answer)).value


def _note(number: str, note: ComparedNote) -> str:
    """A note in one line, with the date since when it holds where that is known."""
    when = "" if note.since is None else f"({write_date(note.since)})"
    return " ".join([part for part in (number, when) if part] + note.text.split())
