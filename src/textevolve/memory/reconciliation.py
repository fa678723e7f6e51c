"""Points held against what is remembered already: added, merged, put in another's place, dropped.

Code decides what needs no question: what is known word for word, and what nothing is near to. The
rest is asked of a model: by yes / no questions about one note each, or in one structured answer
about all of them. Its mistakes lose nothing: where it takes for known what names something new it
is asked again, where a merged text has lost a name or a number both texts are kept, and a point
about which no usable answer comes is added, with a note that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, CapabilityError, RejectedError
from textevolve.llm.model import Model
from textevolve.memory.comparing import MOST_REASON, ComparedNote, combine_notes, compare_notes
from textevolve.memory.creation_settings import CreationSettings
from textevolve.memory.extraction import MOST_TEXT, DialoguePoint
from textevolve.memory.index import Embed, MemoryMatch, MemoryQuery, MemoryStore
from textevolve.memory.record import Collection, Vector
from textevolve.memory.sameness import differ_in_dates, nearly_same

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
    if any(nearly_same(one.shown.text, point.text) for one in near):
        return _drop(point, near, "known in the same words", "rule"), None
    for one in near:
        dated = differ_in_dates(one.shown.text, point.text)
        if dated > 0:
            return _drop(point, near, "known with its date", "rule"), None
        if dated < 0 and point.trust >= one.trust:
            shown, before = tuple(each.shown for each in near), (one.shown.text,)
            why = "it names the date, too"
            made = PointDecision(point, "merge", why, "rule", shown, before, point.text)
            return made, await _put_in_place(ground, made, one, vector)
    if not near:
        return _add(point, near, vector, "nothing near is known", "rule")
    try:
        new, notes = ComparedNote(point.text, point.since), [one.note for one in near]
        relation, at, reason = await compare_notes(ground.model, ground.settings, new, notes)
        one = near[at]
        if relation == "same":
            return _drop(point, near, reason or "known already", "model"), None
        if relation == "different":
            return _add(point, near, vector, reason or "nothing of it is known", "model")
        if point.trust < one.trust:
            why = "said by somebody less trusted than what it would change"
            return _add(point, near, vector, why, "rule")
        if relation == "replaces" and _is_older(point, one):
            made, draft = _add(point, near, vector, "it held before what is known", "rule")
            return made, replace(draft, until=one.since)
        replaces = relation == "replaces"
        text = await combine_notes(ground.model, new, one.note, replaces=replaces)
    except (AnswerError, RejectedError) as error:
        why = f"added as it is, since no usable decision came: {error}"
        return _add(point, near, vector, why[:MOST_REASON], "fallback")
    if len(text) > MOST_TEXT:
        return _add(point, near, vector, "what it says more of is too long already", "rule")
    action: Action = "update" if relation == "replaces" else "merge"
    reason = reason or _REASONS[action]
    shown = tuple(each.shown for each in near)
    made = PointDecision(point, action, reason, "model", shown, (one.shown.text,), text)
    return made, await _put_in_place(ground, made, one, vector)


def _drop(
    point: DialoguePoint, near: Sequence[NearNote], reason: str, by: PointDecider
) -> PointDecision:
    return PointDecision(point, "drop", reason, by, tuple(one.shown for one in near))


def _add(
    point: DialoguePoint, near: Sequence[NearNote], vector: Vector, reason: str, by: PointDecider
) -> tuple[PointDecision, MemoryDraft]:
    shown = tuple(one.shown for one in near)
    made = PointDecision(point, "add", reason, by, shown, (), point.text)
    return made, MemoryDraft(made, vector, point.trust)


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
