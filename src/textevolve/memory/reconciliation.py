"""Points held against what is remembered already: added, merged, put in another's place, dropped.

Code decides what needs no question: what is known word for word, and what nothing is near to. The
rest is asked of a model: by yes / no questions about one note each, or in one structured answer
about all of them. Its mistakes lose nothing: where it takes for known what names something new it
is asked again, where a merged text has lost a name or a number both texts are kept, and a point
about which no usable answer comes is added, with a note that says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, Field, create_model

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, CapabilityError, RejectedError
from textevolve.evaluation import Failure
from textevolve.llm.decisions import Question, decide, predicate
from textevolve.llm.fence import EXAMPLE_NONCE, draw_nonce, fence, quote, sanitize
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.llm.template import Template, load_template
from textevolve.memory.extraction import MOST_TEXT, CreationSettings, DialoguePoint
from textevolve.memory.index import Embed, MemoryMatch, MemoryQuery, MemoryStore
from textevolve.memory.record import Collection, Vector
from textevolve.memory.sameness import differ_in_dates, lacks, nearly_same, share_words
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


EMBEDDED_AT_ONCE = 8

Action: TypeAlias = Literal["add", "merge", "update", "drop"]
PointDecider: TypeAlias = Literal["rule", "model", "fallback"]

_REASONS = {"update": "it is otherwise now", "merge": "it says more"}


@dataclass(frozen=True, slots=True)
class NearMemory:
    """What a point was compared with. `id` is empty for what was found in the same dialogue."""

    text: str
    id: str = ""
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class PointDecision:
    """What became of a point, and why. `by`: whether a rule or the model decided, or neither could
    (`fallback`). `text`: what is kept in its place, empty where nothing is; `before`: the texts
    that made way for it. `id`: the memory that holds it; of several points it may be the same."""

    point: DialoguePoint
    action: Action
    reason: str
    by: PointDecider
    near: tuple[NearMemory, ...] = ()
    before: tuple[str, ...] = ()
    text: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where and how memories are made."""

    store: MemoryStore
    embed: Embed
    model: Model
    collection: Collection
    settings: CreationSettings


@dataclass(slots=True)
class MemoryDraft:
    """A memory that is to be kept. `closes`: ids of those whose place it takes. `into`: the later
    draft that took its own place. `until`: it held only up to then, as what is known is later."""

    decision: PointDecision
    embedding: Vector
    trust: float
    closes: tuple[str, ...] = ()
    until: float | None = None
    into: MemoryDraft | None = None

    @property
    def last(self) -> MemoryDraft:
        return self if self.into is None else self.into.last


Outcome: TypeAlias = tuple[PointDecision, MemoryDraft | None]


@dataclass(slots=True)
class Reconciled:
    """Decisions in the order of the points, each with its draft, and None where nothing is kept."""

    decisions: list[Outcome] = field(default_factory=list[Outcome])

    @property
    def drafts(self) -> list[MemoryDraft]:
        """Those that nothing took the place of."""
        return [draft for _, draft in self.decisions if draft is not None and draft.into is None]


@dataclass(frozen=True, slots=True)
class NearNote:
    """A memory, or a draft of the same dialogue, that is near to a point."""

    shown: NearMemory
    trust: float
    since: float | None
    draft: MemoryDraft | None = None

    @property
    def note(self) -> ComparedNote:
        return ComparedNote(self.shown.text, self.since)


async def reconcile(ground: Ground, points: Sequence[DialoguePoint], version: int) -> Reconciled:
    """What is to become of points, by what the collection held in `version` and by the points
    before them.

    Raises:
        ModelError: the model cannot be reached, or the embedder gives nothing. BudgetError.
    """
    done = Reconciled()
    wanted = [point for point in points if not point.refused]
    work = [lambda p=point: ground.embed(ground.collection, p.text) for point in wanted]
    vectors = iter(await gather_bounded(work, EMBEDDED_AT_ONCE))
    for point in points:
        if point.refused:
            done.decisions.append((PointDecision(point, "drop", point.refused, "model"), None))
            continue
        vector = next(vectors)
        near = await _find_near(ground, point, vector, version, done)
        try:
            outcome = await _settle(ground, point, vector, near)
        except CapabilityError:
            if ground.settings.compare == "structured":
                raise
            # The model gives no log-probabilities, so nothing more of the dialogue is asked so.
            asking = ground.settings.model_copy(update={"compare": "structured"})
            ground = replace(ground, settings=asking)
            outcome = await _settle(ground, point, vector, near)
        done.decisions.append(outcome)
    return done


async def _find_near(
    ground: Ground, point: DialoguePoint, vector: Vector, version: int, done: Reconciled
) -> list[NearNote]:
    """The nearest first."""
    query = MemoryQuery(
        collection=ground.collection.name,
        text=point.text,
        embedding=vector,
        limit=2 * ground.settings.neighbours,
        version=version,
    )
    closed = {id for draft in done.drafts for id in draft.closes}
    found = [
        NearNote(_show(match), match.memory.origin.trust, match.memory.valid_from)
        for match in await ground.store.search(query)
        if match.memory.id not in closed
    ]
    for draft in done.drafts:
        like, held = float(draft.embedding @ vector), draft.decision
        shown = NearMemory(held.text, "", like)
        found.append(NearNote(shown, draft.trust, held.point.since, draft))
    near = [one for one in found if (one.shown.similarity or -1.0) >= ground.settings.floor]
    near.sort(key=lambda one: (-(one.shown.similarity or 0.0), one.shown.text))
    return near[: ground.settings.neighbours]


def _show(match: MemoryMatch) -> NearMemory:
    return NearMemory(match.memory.text, match.memory.id, match.similarity)


async def _settle(
    ground: Ground, point: DialoguePoint, vector: Vector, near: Sequence[NearNote]
) -> Outcome:
    shown = tuple(one.shown for one in near)

    def drop(reason: str, by: PointDecider) -> Outcome:
        return PointDecision(point, "drop", reason, by, shown), None

    def add(reason: str, by: PointDecider, until: float | None = None) -> Outcome:
        decision = PointDecision(point, "add", reason, by, shown, (), point.text)
        return decision, MemoryDraft(decision, vector, point.trust, until=until)

    if any(nearly_same(one.shown.text, point.text) for one in near):
        return drop("known in the same words", "rule")
    for one in near:
        dated = differ_in_dates(one.shown.text, point.text)
        if dated > 0:
            return drop("known with its date", "rule")
        if dated < 0 and point.trust >= one.trust:
            why, before = "it names the date, too", (one.shown.text,)
            made = PointDecision(point, "merge", why, "rule", shown, before, point.text)
            return made, await _put_in_place(ground, made, one, vector)
    if not near:
        return add("nothing near is known", "rule")
    try:
        new, notes = ComparedNote(point.text, point.since), [one.note for one in near]
        relation, at, reason = await compare_notes(ground.model, ground.settings, new, notes)
        one = near[at]
        if relation == "same":
            return drop(reason or "known already", "model")
        if relation == "different":
            return add(reason or "nothing of it is known", "model")
        if point.trust < one.trust:
            return add("said by somebody less trusted than what it would change", "rule")
        if relation == "replaces" and _is_older(point, one):
            return add("it held before what is known", "rule", one.since)
        replaces = relation == "replaces"
        text = await combine_notes(ground.model, new, one.note, replaces=replaces)
    except (AnswerError, RejectedError) as error:
        why = f"added as it is, since no usable decision came: {error}"
        return add(why[:MOST_REASON], "fallback")
    if len(text) > MOST_TEXT:
        return add("what it says more of is too long already", "rule")
    action: Action = "update" if relation == "replaces" else "merge"
    reason = reason or _REASONS[action]
    made = PointDecision(point, action, reason, "model", shown, (one.shown.text,), text)
    return made, await _put_in_place(ground, made, one, vector)


async def _put_in_place(
    ground: Ground, made: PointDecision, one: NearNote, vector: Vector
) -> MemoryDraft:
    """A draft in the place of a memory, or of an earlier draft, whose places it takes over."""
    if made.text != made.point.text:
        vector = await ground.embed(ground.collection, made.text)
    trust = made.point.trust if made.action == "update" else min(made.point.trust, one.trust)
    closes = (one.shown.id,) if one.draft is None else one.draft.closes
    draft = MemoryDraft(made, vector, trust, closes)
    if one.draft is not None:
        one.draft.into = draft
    return draft


def _is_older(point: DialoguePoint, one: NearNote) -> bool:
    return point.since is not None and one.since is not None and point.since < one.since
