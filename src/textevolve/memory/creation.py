"""Create memories from a dialogue: extract points, reconcile them with existing memories, and store
them.

All changes of a dialogue are one transaction under the dialogue's key, so it is applied completely
or not at all, and never twice. The key is a hash of its turns: if a dialogue continues, only the
new turns are read. The decisions on earlier turns are read back from their memories.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from time import time
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, Field, create_model

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, CapabilityError, RejectedError
from textevolve.evaluation import Failure, empty_default
from textevolve.llm.catalogue import least_similarity
from textevolve.llm.decisions import Question, decide, predicate
from textevolve.llm.model import Message, Model, Request
from textevolve.llm.prompts import (
    EXAMPLE_NONCE,
    draw_nonce,
    fence,
    fenced,
    load_template,
    prompt_versions,
    quote,
    sanitize,
)
from textevolve.llm.structured import ask_structured
from textevolve.memory.extraction import MOST_TEXT, CreationSettings, DialoguePoint, extract_points
from textevolve.memory.ranking import with_tokens
from textevolve.memory.record import (
    Add,
    Applied,
    Change,
    ChangeSource,
    Collection,
    DialogueTurn,
    Embed,
    MemoryQuery,
    MemoryStore,
    NewMemory,
    Origin,
    Supersede,
    Vector,
)
from textevolve.memory.sameness import adds_details, differ_in_dates, lacks, nearly_same
from textevolve.spans import span
from textevolve.texts.dates import write_date
from textevolve.texts.prose import join_lines, split_sentences

# Reconcile points (facts from a dialogue) with existing memories: add, merge, replace or drop
# them.
#
# Rules decide the clear cases: a point that is known word for word, and a point without similar
# memories. The model decides the others, by yes / no questions about one memory each, or in one
# structured answer about all of them. Its mistakes lose no facts: a second question is asked
# before a point with new details counts as known, both texts are kept if a merged text lacks a
# name or a number, and a point without a usable decision is added, with a note.

COMPARED_TOKENS = 150
COMBINED_TOKENS = 300
"""The maximum number of tokens of a structured comparison, and of a combined text."""
MOST_REASON = 200
"""The maximum number of characters of a decision's reason."""
_QUOTATION = re.compile(r"^.{1,100}? said: “(.*)”$", re.DOTALL)

NoteRelation: TypeAlias = Literal["same", "replaces", "adds", "different"]
"""The relation of a new note to an earlier one: it says the same, replaces it, adds details to it,
or is about something different."""
A = TypeVar("A", bound=BaseModel)

REPLACED = predicate(
    "replaced",
    "Does the new note say that what the earlier note says has changed, so that both cannot be true"
    " at the same time?",
)
KNOWN = predicate("known", "Does the earlier note already say everything that the new note says?")
"""The yes / no questions about an earlier and a new note."""

SURE_ABOVE = 0.51
UNSURE_LEAST = 0.45
KNOWN_LEAST = 0.75
"""The P(yes) above which a note counts as replaced or known, and that from which the decision says
that both notes are kept since the model is unsure. Probabilities of a small model lie near a half:
a larger margin finds hardly any change (docs/measurements.md). `KNOWN_LEAST`: the P(yes) from which
a note counts as known whose first word may be a new name."""


@dataclass(frozen=True, slots=True)
class ComparedNote:
    """A note to compare with others. `since`: the time from which it holds, in seconds since 1970;
    None if unknown."""

    text: str
    since: float | None = None


class _Comparison(BaseModel):
    note: int
    relation: NoteRelation
    reason: str = ""


class _Combined(BaseModel):
    text: str


async def compare_notes(
    model: Model, settings: CreationSettings, new: ComparedNote, near: Sequence[ComparedNote]
) -> tuple[NoteRelation, int, str]:
    """Return the relation of a new note to one of the near notes, the index of that note, and the
    reason.

    Raises:
        AnswerError: the model gave no usable answer. CapabilityError: the settings need
            log-probabilities, and the model returns none.
    """
    if settings.compare == "questions":
        return await _ask_about_each(model, new, near)

    return await _compare(model, new, near)


async def _ask_about_each(
    model: Model, new: ComparedNote, near: Sequence[ComparedNote]
) -> tuple[NoteRelation, int, str]:
    """Find the note that the new one most probably replaces; otherwise check whether the nearest
    note has the same content.

    One structured answer is worse: a model of 1.5B then reports every near note as replaced
    (docs/measurements.md).
    """
    probabilities = [await probability(model, REPLACED, new, note) for note in near]
    most = max(range(len(near)), key=probabilities.__getitem__)
    highest = probabilities[most]
    if highest > SURE_ABOVE:
        return "replaces", most, f"both cannot be true (P = {highest:.2f})"
    added = adds_details(new.text, near[0].text)
    if added != "yes":
        redundancy = await probability(model, KNOWN, new, near[0])
        if redundancy > (SURE_ABOVE if added == "no" else KNOWN_LEAST):
            return "same", 0, f"known already (P = {redundancy:.2f})"

    if highest >= UNSURE_LEAST:
        still = f"it is unsure whether the earlier one still holds (P = {1 - highest:.2f})"
        return "different", most, f"both are kept, since {still}"

    return "different", most, f"both can be true (P = {1 - highest:.2f})"


async def probability(
    model: Model, question: Question, note: ComparedNote, other: ComparedNote
) -> float:
    """Return P(yes) of a question about two notes. `note`: the new one; `other`: the earlier one.

    Raises:
        AnswerError: the question has no answer.
    """
    # Each is one line, so a sign before it keeps it from passing for anything else, in few tokens.
    # With dates before them a model of 1.5B found fewer of the changes.
    # A quotation around each made the probabilities of all pairs nearly equal.
    texts = (_QUOTATION.sub(r"\1", each.text) for each in (other, note))
    earlier, new = (quote(sanitize(text, EXAMPLE_NONCE)[0]) for text in texts)
    state = f"Earlier note:\n{earlier}New note:\n{new}"
    answer = (await decide(model, state, [question], seed=0)).answers[question.name]
    if isinstance(answer, Failure):
        raise AnswerError(answer.reason)

    return answer.probabilities[1]


async def _compare(
    model: Model, new: ComparedNote, near: Sequence[ComparedNote]
) -> tuple[NoteRelation, int, str]:
    """Compare a note with all near ones in one structured answer. If the answer is `same`, but the
    near note lacks a name or number of the new one, the model is asked again without that
    choice."""
    rules = load_template("textevolve.memory", "compare").render()
    comparison = await _ask(model, rules, near, new, _comparison(len(near)), COMPARED_TOKENS)
    known = near[comparison.note - 1].text
    if comparison.relation == "same" and adds_details(new.text, known) == "yes":
        news = _comparison(len(near), news=True)
        comparison = await _ask(model, rules, near, new, news, COMPARED_TOKENS)
    reason = join_lines(comparison.reason)[:MOST_REASON]

    return comparison.relation, comparison.note - 1, reason


@cache
def _comparison(notes: int, news: bool = False) -> type[_Comparison]:
    """Return the answer's type, which allows the numbers of the existing notes only. `news`:
    whether the relation `same` is excluded, since none of them has the whole content of the new
    note."""
    fields: dict[str, Any] = {"note": (int, Field(ge=1, le=notes))}
    if news:
        fields["relation"] = (Literal["replaces", "adds", "different"], ...)
    return create_model("Comparison", __base__=_Comparison, **fields)


async def combine_notes(
    model: Model, note: ComparedNote, earlier: ComparedNote, *, replaces: bool
) -> str:
    """Combine two notes into one text. If the new note replaces an earlier one of a single
    sentence, or a quotation, its text is returned unchanged. If the model's text lacks a name or
    number, the result is the new note alone where it replaces, otherwise both texts joined.

    Raises:
        AnswerError: the model gave no usable answer.
    """
    old = earlier.text
    new = note.text
    if replaces and (len(split_sentences(old)) < 2 or "“" in old):
        return new
    rules = load_template("textevolve.memory", "combine").render(replaces=replaces)
    combined = await _ask(model, rules, [earlier], note, _Combined, COMBINED_TOKENS)
    text = join_lines(combined.text)
    if not text or "[[" in text or lacks(text, new) or (not replaces and lacks(text, old)):
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
    notes = [_format_note(str(n), near_note) for n, near_note in enumerate(near, 1)]
    new = _format_note("", note)
    nonce = draw_nonce([*notes, new], 0)
    notes_text = "\n".join(sanitize(note, nonce)[0] for note in notes)
    content = (fence("notes", notes_text, nonce), fenced("new note", new, nonce))
    request = Request(
        messages=(Message("system", (rules,)), Message("user", content)),
        temperature=0.0,
        max_tokens=most,
        seed=0,
    )

    return (await ask_structured(model, request, answer)).value


def _format_note(number: str, note: ComparedNote) -> str:
    """Format a note in one line, with the date from which it holds, if known."""
    when = "" if note.since is None else f"({write_date(note.since)})"
    return " ".join([part for part in (number, when) if part] + note.text.split())


EMBEDDED_AT_ONCE = 8
"""The maximum number of concurrent calls of the embedder."""

Action: TypeAlias = Literal["add", "merge", "update", "drop"]
"""The decision on a point: its memory is added, merged with another one, replaces one (`update`),
or is not stored."""
PointDecider: TypeAlias = Literal["rule", "model", "fallback"]
"""The source of the decision on a point: a rule, the model, or neither (`fallback`); then the point
is added."""

SAME_WORDS = "a memory has the same words"
KEPT_TURN = "no fact was extracted from the turn, so it is kept as it was said"
_REASONS = {"update": "the earlier memory is no longer true", "merge": "it adds details"}
"""The reasons that are stored if the model gives none."""


@dataclass(frozen=True, slots=True)
class NearMemory:
    """A text that a point was compared with. `id`: of the memory; empty for a point of the same
    dialogue. `similarity`: the cosine of both embeddings; None if unknown."""

    text: str
    id: str = ""
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class PointDecision:
    """The decision on a point, and its reason. `by`: whether a rule or the model decided, or
    neither could (`fallback`: the point is added). `near`: the texts with which it was compared.
    `text`: the stored text, empty for a dropped point; `before`: the texts that it replaces. `id`:
    the id of the memory with that text."""

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
    """The store, embedder, model, collection and settings with which memories are created.
    `writes`: whether memories are stored; False to decide only. `unwritten`: the drafts that would
    be stored otherwise, with which the dialogues after them are compared."""

    store: MemoryStore
    embed: Embed
    model: Model
    collection: Collection
    settings: CreationSettings
    writes: bool = True
    unwritten: list[MemoryDraft] = empty_default(list)


@dataclass(slots=True)
class MemoryDraft:
    """A memory that is about to be stored. `closes`: the ids of the memories that it supersedes.
    `until`: the end of its validity, if a memory of a later time is known already. `earlier`: the
    draft of the same dialogue that it supersedes. `superseded`: whether a later draft supersedes
    this one; both are stored, since this one held until then."""

    decision: PointDecision
    embedding: Vector
    trust: float
    closes: tuple[str, ...] = ()
    until: float | None = None
    earlier: MemoryDraft | None = None
    superseded: bool = False


Outcome: TypeAlias = tuple[PointDecision, MemoryDraft | None]
"""The decision on a point, with the draft of the memory to store; None if nothing is stored."""


def drafts_of(outcomes: Sequence[Outcome]) -> list[MemoryDraft]:
    """Return the drafts of the memories to store, in the order of their points."""
    return [draft for _, draft in outcomes if draft is not None]


@dataclass(frozen=True, slots=True)
class NearNote:
    """A memory, or a draft of the same dialogue, that is similar to a point. `trust`: in [0, 1].
    `since`: the time from which it holds; None if unknown. `draft`: None for a stored memory."""

    memory: NearMemory
    trust: float
    since: float | None
    draft: MemoryDraft | None = None

    @property
    def note(self) -> ComparedNote:
        return ComparedNote(self.memory.text, self.since)


async def reconcile(
    ground: Ground, points: Sequence[DialoguePoint], version: int, source: ChangeSource
) -> list[Outcome]:
    """Decide for each point whether it is added, merged, replaces a memory or is dropped, compared
    with the collection at `version` and with the points before it.

    Raises:
        ModelError: the model cannot be reached, or the embedder does not answer. BudgetError: a
        limit was reached.
    """
    done: list[Outcome] = []
    accepted = [point for point in points if not point.refused]
    work = [lambda p=point: ground.embed(ground.collection, p.text) for point in accepted]
    vectors = iter(await gather_bounded(work, EMBEDDED_AT_ONCE))

    for point in points:
        if point.refused:
            done.append((PointDecision(point, "drop", point.refused, "model"), None))
            continue
        vector = next(vectors)
        if point.verbatim:
            done.append(await _keep_turn(ground, point, vector, version, source))
            continue
        near = await _find_near(ground, point, vector, version, done, source)

        try:
            outcome = await _settle(ground, point, vector, near)
        except CapabilityError:
            if ground.settings.compare == "structured":
                raise
            # The model returns no log-probabilities: the rest of the dialogue is compared without.
            asking = ground.settings.model_copy(update={"compare": "structured"})
            ground = replace(ground, settings=asking)
            outcome = await _settle(ground, point, vector, near)

        done.append(outcome)

    return done


async def _keep_turn(
    ground: Ground, point: DialoguePoint, vector: Vector, version: int, source: ChangeSource
) -> Outcome:
    """Keep a turn as it was said, unless a memory of the user has the same words. It is compared no
    further, since it states no single fact."""
    query = MemoryQuery(
        collection=ground.collection.name,
        embedding=vector,
        limit=1,
        version=version,
        user=source.user,
    )
    if any(nearly_same(m.memory.text, point.text) for m in await ground.store.search(query)):
        return PointDecision(point, "drop", SAME_WORDS, "rule"), None
    decision = PointDecision(point, "add", KEPT_TURN, "rule", text=point.text)
    return decision, MemoryDraft(decision, vector, point.trust)


async def _find_near(
    ground: Ground,
    point: DialoguePoint,
    vector: Vector,
    version: int,
    done: Sequence[Outcome],
    source: ChangeSource,
) -> list[NearNote]:
    """Return the memories, and the drafts of the same dialogue, that are at least as similar as
    `settings.floor`: the nearest first, at most `settings.neighbours`."""
    query = MemoryQuery(
        collection=ground.collection.name,
        text=point.text,
        embedding=vector,
        limit=2 * ground.settings.neighbours,
        version=version,
        user=None if source.shared else source.user,
    )
    drafts = [*ground.unwritten, *drafts_of(done)]
    closed = {id for draft in drafts for id in draft.closes}
    candidates = [
        NearNote(
            NearMemory(match.memory.text, match.memory.id, match.similarity),
            match.memory.origin.trust,
            match.memory.valid_from,
        )
        for match in await ground.store.search(query)
        # What one user says changes no memory of another, and none that is common.
        if match.memory.id not in closed
        and match.memory.reason != KEPT_TURN
        and (source.shared or match.memory.user == source.user)
    ]

    for draft in drafts:
        if draft.superseded or draft.decision.point.verbatim:
            continue
        like = float(draft.embedding @ vector)
        decision = draft.decision
        near_memory = NearMemory(decision.text, "", like)
        candidates.append(NearNote(near_memory, draft.trust, decision.point.since, draft))

    floor = ground.settings.floor
    least = least_similarity(ground.collection.embedder) if floor is None else floor
    near = [note for note in candidates if (note.memory.similarity or -1.0) >= least]
    near.sort(key=lambda note: (-(note.memory.similarity or 0.0), note.memory.text))

    return near[: ground.settings.neighbours]


async def _settle(
    ground: Ground, point: DialoguePoint, vector: Vector, near: Sequence[NearNote]
) -> Outcome:
    near_memories = tuple(near_note.memory for near_note in near)

    def decide(
        action: Action, reason: str, by: PointDecider, text: str = "", *before: str
    ) -> PointDecision:
        return PointDecision(point, action, reason, by, near_memories, before, text)

    def drop(reason: str, by: PointDecider) -> Outcome:
        return decide("drop", reason, by), None

    def add(reason: str, by: PointDecider, until: float | None = None) -> Outcome:
        reasons = filter(None, (reason, point.doubt))
        decision = decide("add", "; ".join(reasons), by, point.text)
        return decision, MemoryDraft(decision, vector, point.trust, until=until)

    if any(nearly_same(near_note.memory.text, point.text) for near_note in near):
        return drop(SAME_WORDS, "rule")
    for near_note in near:
        dated = differ_in_dates(near_note.memory.text, point.text)
        if dated > 0:
            return drop("a memory says the same with its date", "rule")
        if dated < 0 and point.trust >= near_note.trust:
            earlier = near_note.memory.text
            settled = decide("merge", "it adds the date", "rule", point.text, earlier)
            return settled, await _put_in_place(ground, settled, near_note, vector)

    if not near:
        return add("there is no similar memory", "rule")
    try:
        new = ComparedNote(point.text, point.since)
        notes = [near_note.note for near_note in near]
        relation, at, reason = await compare_notes(ground.model, ground.settings, new, notes)
        near_note = near[at]
        if relation == "same":
            return drop(reason or "known already", "model")
        if relation == "different":
            return add(reason or "it is new information", "model")
        if point.trust < near_note.trust:
            return add("its speaker is less trusted than the memory that it would change", "rule")
        replaces = relation == "replaces"
        since = point.since
        known_since = near_note.since
        if replaces and since is not None and known_since is not None and since < known_since:
            return add("it was true before the known memory", "rule", known_since)
        text = await combine_notes(ground.model, new, near_note.note, replaces=replaces)
    except (AnswerError, RejectedError) as error:
        explanation = f"added unchanged, since the model made no usable decision: {error}"
        return add(explanation[:MOST_REASON], "fallback")

    if len(text) > MOST_TEXT:
        return add("the combined text would be too long", "rule")
    action: Action = "update" if relation == "replaces" else "merge"
    reason = reason or _REASONS[action]
    settled = decide(action, reason, "model", text, near_note.memory.text)

    return settled, await _put_in_place(ground, settled, near_note, vector)


async def _put_in_place(
    ground: Ground, decision: PointDecision, replaced: NearNote, vector: Vector
) -> MemoryDraft:
    """Create a draft that supersedes a memory, or an earlier draft."""
    if decision.text != decision.point.text:
        vector = await ground.embed(ground.collection, decision.text)
    trust = (
        decision.point.trust
        if decision.action == "update"
        else min(decision.point.trust, replaced.trust)
    )
    if replaced.draft is None:
        return MemoryDraft(decision, vector, trust, (replaced.memory.id,))
    replaced.draft.superseded = True

    return MemoryDraft(decision, vector, trust, earlier=replaced.draft)


@dataclass(frozen=True, slots=True)
class CreatedMemories:
    """The result of a dialogue. `decisions`: in the order of its points; for a repeated dialogue,
    read back from its memories, without the dropped points. `applied`: the change of the
    collection, None if nothing was written. `first`: the number of turns that had been processed
    before."""

    decisions: tuple[PointDecision, ...]
    applied: Applied | None = None
    first: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the facts that were stored from the dialogue, each once, without the turns that
        were kept as they were said."""
        facts = [each.text for each in self.decisions if each.reason != KEPT_TURN]
        return tuple(text for text in dict.fromkeys(facts) if text)


def creation_prompts() -> dict[str, str]:
    """Return the version of each prompt that creates memories, by the prompt's name."""
    return prompt_versions("memory", "extract", "compare", "combine")


async def create_memories(
    store: MemoryStore,
    embed: Embed,
    model: Model,
    collection: str,
    dialogue: Sequence[DialogueTurn],
    settings: CreationSettings,
    source: ChangeSource,
    *,
    context_turns: int = 0,
) -> CreatedMemories:
    """Create memories from a dialogue, and store them in a collection.

    `source`: its `label` becomes the source of the memories, its `user` their user; its `key`, if
    any, is used instead of the hash of the dialogue. `context_turns`: the number of first turns
    that are read as context only.

    Raises:
        InputError: the collection does not exist. ConflictError: another process changed the same
            memories meanwhile. ModelError: the model or the embedder gave no usable answer, and
            nothing was stored. BudgetError: a limit was reached, and nothing was stored.
    """
    ground = Ground(store, embed, model, await store.collection(collection), settings)
    start = await find_start(ground, dialogue, source)
    if start.applied is not None:
        return await read_decisions(ground, start.applied)
    with span("remember", "memories", collection=collection) as here:
        points = await extract_points(
            model, dialogue, settings, max(context_turns, start.done_turns)
        )
        created = await keep_points(ground, points, start, source, dialogue)
        here.note(memories=len(created.texts), output=created.texts)
        return created


@dataclass(frozen=True, slots=True)
class Start:
    """The point at which reading a dialogue starts. `key`: the key of the dialogue's changes.
    `done_turns`: the number of turns that were processed before. `applied`: the stored result if
    the whole dialogue was processed before; None if turns are left."""

    key: str
    done_turns: int = 0
    applied: Applied | None = None


async def find_start(
    ground: Ground, dialogue: Sequence[DialogueTurn], source: ChangeSource
) -> Start:
    """Find the longest beginning of a dialogue that was processed with the same settings `about`
    and `focus`. If the source has a key, only this key is looked up."""
    name = ground.collection.name
    applied = ground.store.applied
    if source.key:
        return Start(source.key, 0, await applied(name, source.key))
    keys = hash_beginnings(dialogue, ground.settings)
    length = len(keys) - 1
    while length and not await applied(name, keys[length - 1]):
        length -= 1

    return Start(keys[-1], length, await applied(name, keys[-1]))


def hash_beginnings(dialogue: Sequence[DialogueTurn], settings: CreationSettings) -> list[str]:
    """Return a key for the first turn, for the first two, and so on; at least one. Only the
    settings `about` and `focus` change the keys."""
    digest = hashlib.sha256(json.dumps([settings.about, settings.focus]).encode())
    keys: list[str] = []
    for turn in dialogue:
        content = [turn.role, turn.content, turn.timestamp]
        digest.update(b"\n" + json.dumps(content).encode())
        keys.append(f"dialogue {digest.hexdigest()}")

    return keys or [f"dialogue {digest.hexdigest()}"]


async def keep_points(
    ground: Ground,
    points: Sequence[DialoguePoint],
    start: Start,
    source: ChangeSource,
    dialogue: Sequence[DialogueTurn] = (),
) -> CreatedMemories:
    """Reconcile points with the collection, and apply all changes in one transaction; without
    `ground.writes`, only return the decisions. `dialogue`: whose turns the points are from. If
    another process has applied the same dialogue meanwhile, return the decisions read back from its
    memories."""
    name = ground.collection.name
    collection = await ground.store.collection(name)
    done = await reconcile(ground, points, collection.version, source)
    if not ground.writes:
        ground.unwritten.extend(drafts_of(done))
        return CreatedMemories(_decisions(done), None, start.done_turns)
    drafts = drafts_of(done)
    places = {id(draft): place for place, draft in enumerate(drafts)}
    new = [_change(draft, source, places) for draft in drafts]
    spoken = dict(enumerate((turn.content for turn in dialogue), 1))
    evidence = [spoken.get(draft.decision.point.turn or 0, "") for draft in drafts]
    changes = await with_tokens(ground.embed, collection, new, evidence)
    applied = await ground.store.apply(name, changes, ChangeSource(start.key, source.label))
    if applied.repeated:  # another process was faster with the same dialogue
        return await read_decisions(ground, applied)

    return CreatedMemories(_decisions(done, applied.ids), applied, start.done_turns)


async def read_decisions(ground: Ground, applied: Applied) -> CreatedMemories:
    """Rebuild the decisions on a dialogue that was processed before from the memories that it
    created, so dropped points are missing."""
    decisions: list[PointDecision] = []
    for memory in await ground.store.get(applied.ids):
        origin = memory.origin
        point = DialoguePoint(
            memory.text,
            origin.turn,
            origin.author,
            memory.importance,
            origin.trust,
            cites=memory.cites,
        )
        near = tuple(NearMemory(e.text, e.id) for e in await ground.store.get(memory.supersedes))
        before = tuple(each.text for each in near)
        action = "update" if before else "add"
        decision = PointDecision(
            point, action, memory.reason, "rule", near, before, memory.text, memory.id
        )
        decisions.append(decision)

    return CreatedMemories(tuple(decisions), replace(applied, repeated=True))


def _decisions(done: Sequence[Outcome], ids: Sequence[str] = ()) -> tuple[PointDecision, ...]:
    """Return the decisions, each with the id of the memory that has its text; the id stays empty
    for a dropped point, or without `ids`."""
    drafts = map(id, drafts_of(done))
    by_draft = dict(zip(drafts, ids, strict=bool(ids)))
    return tuple(
        replace(decision, id=by_draft.get(id(draft), decision.id)) for decision, draft in done
    )


def _change(draft: MemoryDraft, source: ChangeSource, places: Mapping[int, int]) -> Change:
    """Return the change that stores a draft. `places`: the position of each draft's memory among
    all that are stored, by the draft's `id`."""
    decision = draft.decision
    point = decision.point
    now = time()

    # A memory dated in the future would stay the most recent one.
    said_at = point.said if point.said is not None and point.said <= now else None
    begins = [moment for moment in (point.since, said_at) if moment is not None and moment <= now]
    reason = decision.reason
    if point.question:
        reason = f"{point.question} ({reason})"

    memory = NewMemory(
        text=decision.text,
        embedding=draft.embedding,
        importance=point.importance,
        kind="insight" if point.cites else None,
        origin=Origin(source.label, point.turn, point.author, draft.trust),
        created=said_at,
        valid_from=begins[0] if begins else now,
        valid_to=draft.until,
        entities=point.entities,
        cites=point.cites,
        reason=reason,
        user=source.user,
    )

    positions = () if draft.earlier is None else (places[id(draft.earlier)],)
    if draft.closes or positions:
        return Supersede(draft.closes, memory, positions)
    return Add(memory)
