"""Recall, M(a, x, y, xi): what an agent remembers that bears on what is before it.

Relevance is similarity of meaning. Keywords find candidates, decide between memories of the same
similarity, and rank alone where nothing is embedded. Relevance, importance and recency are each
normalised over what was found, and weighed. Reading changes nothing: whoever wants uses to be noted
calls `MemoryStore.use`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import TypeAlias

from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.llm.token_count import CHARACTERS_A_TOKEN, count_tokens
from textevolve.memory.cue import Cue, Memory
from textevolve.memory.index import Embed, MemoryQuery, MemoryStore
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Collection, MemoryRecord, Origin
from textevolve.memory.sameness import is_label, words_of
from textevolve.spans import span

QUERY_CHARACTERS = 800
"""Of a query: about 200 tokens of English."""
CANDIDATE_CHARACTERS = 400
MOST_CANDIDATES = 8
INPUT_WEIGHT, CANDIDATES_WEIGHT, HISTORY_WEIGHT = 1.0, 1.0, 0.25
"""Candidates weigh as much as the input: what they claim is what is to be checked, and an input may
name nothing that could be found (`benchmarks/recall_cue.py`)."""


@dataclass(frozen=True, slots=True)
class CueQuery:
    """A text to search by, and what its ranks weigh."""

    text: str
    weight: float


def make_queries(
    input: str, candidates: Sequence[str] = (), history: str = ""
) -> tuple[CueQuery, ...]:
    """The queries of a cue, none of them blank, each text once; of more than eight candidates the
    first eight, of the history its end."""
    last = history.strip()[-QUERY_CHARACTERS:]
    groups = (
        (INPUT_WEIGHT, _ends(input)),
        (CANDIDATES_WEIGHT, [_begin(text) for text in candidates[:MOST_CANDIDATES]]),
        (HISTORY_WEIGHT, [last if last == history.strip() else _from_word(last)]),
    )
    found: dict[str, float] = {}
    for weight, texts in groups:
        distinct = [text for text in dict.fromkeys(texts) if text]
        for text in distinct:
            found[text] = found.get(text, 0.0) + weight / len(distinct)
    return tuple(CueQuery(text, weight) for text, weight in found.items())


def _ends(text: str) -> list[str]:
    """A text as it is where it is short; else its beginning and its end, where questions stand."""
    text = text.strip()
    if len(text) <= QUERY_CHARACTERS:
        return [text]
    return [_to_word(text[:QUERY_CHARACTERS]), _from_word(text[-QUERY_CHARACTERS:])]


def _begin(text: str) -> str:
    text = text.strip()
    return text if len(text) <= CANDIDATE_CHARACTERS else _to_word(text[:CANDIDATE_CHARACTERS])


def _to_word(text: str) -> str:
    """Without the piece of a word at its end, where it has more than that one."""
    return text.rpartition(" ")[0].strip() or text.strip()


def _from_word(text: str) -> str:
    return text.partition(" ")[2].strip() or text.strip()


HOURLY_DECAY = 0.995
"""What is left of recency after an hour: Park et al., Generative Agents, UIST 2023, section 4.1."""

SECONDS_AN_HOUR = 3600.0


def decay(since: float, now: float) -> float:
    """Recency in [0, 1]: 0.995 to the hours from `since` to `now`; 1 for what is yet to come."""
    return HOURLY_DECAY ** (max(0.0, now - since) / SECONDS_AN_HOUR)


def normalise(values: Sequence[float]) -> list[float]:
    """Min-max: the lowest becomes 0 and the highest 1. Where all are equal each becomes 1: none of
    them is worse than another, and a memory that is found alone is not held down for that."""
    if not values:
        return []
    low, high = min(values), max(values)
    if not low < high:
        return [1.0] * len(values)
    # Halved, so that the width of numbers at both ends of the range stays finite.
    width = high / 2 - low / 2
    if width <= 0:  # so near to each other that they cannot be told apart
        return [1.0] * len(values)
    return [min(1.0, max(0.0, (value / 2 - low / 2) / width)) for value in values]


def weigh(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The weighted mean of the parts, in [0, 1] where they are. At least one weight is above 0."""
    total = sum(weights.values())
    return min(1.0, max(0.0, sum(weights[name] / total * parts[name] for name in weights)))


def fit_budget(sizes: Sequence[int], budget: int) -> list[int]:
    """The indices, in their order, of what has room: one after another, whole. What has no room is
    passed over, and a later one may still have some."""
    chosen: list[int] = []
    left = budget
    for index, size in enumerate(sizes):
        if size <= left:
            chosen.append(index)
            left -= size
    return chosen


LEAST_SEARCHED = 50
"""Of each search so many memories are looked at, or as many as are wanted where those are more."""
TIE_DIGITS = 2
"""Similarities that are equal when rounded to so many digits tie. With 2 keywords helped on 60 made
questions and on LoCoMo; with 1 they did harm on the made ones (docs/measurements.md)."""
BEFORE_ASSOCIATED = 7
"""So many of the most relevant memories come before the nearest associated one."""
SEARCHES_AT_ONCE = 8
LEAST_SUMMARY = 16
"""Tokens: a shorter summary says nothing."""

Summarize: TypeAlias = Callable[[Sequence[str], int], Awaitable[str]]
"""Makes texts into one of at most so many tokens."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was recalled, best first, a summary last. Counts of the rest: `considered`: all that
    were found and may be shown; `below`: of them, how many had too low a score; `over_limit`,
    `over_budget`: left out for their number or their tokens; `summarised`: made into the last one.
    """

    memories: tuple[Memory, ...] = ()
    considered: int = 0
    below: int = 0
    over_limit: int = 0
    over_budget: int = 0
    summarised: int = 0

    @property
    def tokens(self) -> int:
        return sum(count_tokens(memory.text) for memory in self.memories)


@dataclass(frozen=True, slots=True)
class RecallSource:
    """A collection to recall from, as it is now or as one of its versions held it."""

    store: MemoryStore
    collection: str
    version: int | None = None


async def recall_memories(
    store: MemoryStore,
    embed: Embed | None,
    settings: RecallSettings,
    cue: Cue | str,
    *,
    now: float | None = None,
    versions: Mapping[str, int] | None = None,
    summarize: Summarize | None = None,
) -> Recalled:
    """What the collections of `settings` hold that bears on a cue, or on a text.

    `embed`: None where only keywords are to be looked for. `versions`: by full names, which version
    of each collection is read; the same call then gives the same for ever. `now`: recall as of that
    time, in place of the time of the call. `summarize` is asked where the settings want a summary.

    Raises:
        InputError: there is no such collection here, it has no version in `versions`, the cue is
            blank, or a summary is wanted and there is no `summarize`.
        ModelError: the cue cannot be embedded. StoreError: nothing can be read.
    """
    sources: list[RecallSource] = []
    for name in dict.fromkeys(settings.collections):
        space, _, own = name.rpartition("/")
        if space and space != store.namespace:
            raise InputError(f"no collection '{name}' in the namespace '{store.namespace}'")
        sources.append(RecallSource(store, own, pinned(versions, f"{store.namespace}/{own}")))
    return await recall_from(sources, embed, settings, cue, now=now, summarize=summarize)


def pinned(versions: Mapping[str, int] | None, full_name: str) -> int | None:
    """The version of a collection that is to be read; None where it is read as it is now.

    Raises:
        InputError: only pinned collections are read, and this is none.
    """
    if versions is not None and full_name not in versions:
        raise InputError(f"the collection '{full_name}' has no pinned version in this run")
    return None if versions is None else versions[full_name]


async def recall_from(
    sources: Sequence[RecallSource],
    embed: Embed | None,
    settings: RecallSettings,
    cue: Cue | str,
    *,
    now: float | None = None,
    summarize: Summarize | None = None,
) -> Recalled:
    """As `recall_memories`, from collections of any namespaces. Either all sources have a version
    or none has."""
    if not sources:
        return Recalled()
    text = cue if isinstance(cue, str) else cue.input
    with span("recall", "recall", input=text) as here:
        recalled = await _recall_from(sources, embed, settings, cue, now, summarize)
        here.note(memories=len(recalled.memories), output=[m.text for m in recalled.memories])
        return recalled


async def _recall_from(
    sources: Sequence[RecallSource],
    embed: Embed | None,
    settings: RecallSettings,
    cue: Cue | str,
    now: float | None,
    summarize: Summarize | None,
) -> Recalled:
    if settings.summarize and summarize is None:
        raise InputError("memory: summarize is set, and nothing here makes summaries; leave it out")
    asked = Cue("", (), cue) if isinstance(cue, str) else cue
    queries = make_queries(asked.input, asked.candidates, asked.history)
    if not queries:
        raise InputError("nothing can be recalled by a blank text")
    searched = await gather_bounded(
        [
            lambda source=source: _search(source, embed, settings, queries, now)
            for source in sources
        ],
        SEARCHES_AT_ONCE,
    )
    frozen = any(source.version is not None for source in sources)
    candidates = _one_of_each(found for each in searched for found in each)
    scored = _score(candidates, settings, _clock(candidates, now, frozen=frozen))
    kept = [memory for memory in scored if (memory.score or 0.0) >= settings.min_score]
    chosen = kept[: settings.limit]
    counted = Recalled((), len(scored), len(scored) - len(kept), over_limit=len(kept) - len(chosen))
    return await _keep_budget(chosen, counted, settings, summarize)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory that was found. `relevance` can be compared within an embedder, and `keywords`, the
    sum of its reciprocal ranks by them, with all others."""

    memory: MemoryRecord
    collection: Collection
    relevance: float
    keywords: float
    similarity: float | None = None


async def _search(
    source: RecallSource,
    embed: Embed | None,
    settings: RecallSettings,
    queries: Sequence[CueQuery],
    now: float | None,
) -> list[_Candidate]:
    """The candidates of one collection."""
    collection = await source.store.collection(source.collection)
    found: dict[str, MemoryRecord] = {}
    similarity: dict[str, float] = {}
    keywords: defaultdict[str, float] = defaultdict(float)
    meanings: list[tuple[float, dict[str, float]]] = []
    wanted = MemoryQuery(
        collection=collection.name,
        limit=max(LEAST_SEARCHED, settings.limit),
        version=source.version,
        time=None if source.version is not None else now,
        least_trust=settings.least_trust,
    )
    for query in queries:
        vector = None if embed is None else await embed(collection, query.text)
        matches = await source.store.search(replace(wanted, text=query.text, embedding=vector))
        for match in matches:
            found[match.memory.id] = match.memory
            if match.keyword_rank is not None:
                keywords[match.memory.id] += query.weight / match.keyword_rank
        likeness = {one.memory.id: one.similarity for one in matches if one.similarity is not None}
        similarity |= {id: max(one, similarity.get(id, -1.0)) for id, one in likeness.items()}
        meanings.append((query.weight, _prefer_named(query.text, likeness, found)))
    if (least := settings.min_similarity) is not None:
        found = {id: one for id, one in found.items() if similarity.get(id, -math.inf) >= least}
    relevance = dict(keywords) if embed is None else _sum_meanings(meanings, found)
    if settings.associate and found:
        for one, level in await _associate(source, wanted, found, relevance, settings):
            found.setdefault(one.id, one)
            relevance[one.id] = max(level, relevance.get(one.id, level))
    return [
        _Candidate(one, collection, relevance[id], keywords[id], similarity.get(id))
        for id, one in found.items()
    ]


def _prefer_named(
    query: str, likeness: Mapping[str, float], found: Mapping[str, MemoryRecord]
) -> dict[str, float]:
    """The similarities to a query. Embeddings hardly tell names and numbers apart, so where a query
    is nothing else, memories that hold all of its words come before those that do not."""
    words = set(words_of(query)) if is_label(query) else None
    return {
        id: one + (words is not None and words <= set(words_of(found[id].text)))
        for id, one in likeness.items()
    }


def _sum_meanings(
    meanings: Sequence[tuple[float, Mapping[str, float]]], found: Iterable[str]
) -> dict[str, float]:
    """The weighted sums of the similarities to the queries. A memory that is not among those that
    were found by a query is as similar to it as the least similar one of these."""
    least = [min(likeness.values(), default=0.0) for _, likeness in meanings]
    return {
        id: sum(w * one.get(id, low) for (w, one), low in zip(meanings, least, strict=True))
        for id in found
    }


async def _associate(
    source: RecallSource,
    wanted: MemoryQuery,
    found: Mapping[str, MemoryRecord],
    relevance: Mapping[str, float],
    settings: RecallSettings,
) -> list[tuple[MemoryRecord, float]]:
    """Memories that share entities, over two hops, with the best of those that were found, nearest
    first, and their relevance: that of the n-th is that of the (6 + n)-th of those, or of the last.
    How similar they are is not asked: that they need not be is what they are wanted for."""
    ranked = sorted(found, key=lambda each: (-relevance[each], each))
    near = await source.store.associate(wanted, ranked[: settings.limit])
    trusted = [one for one in near if one.origin.trust >= settings.least_trust]
    levels = [relevance[id] for id in ranked[BEFORE_ASSOCIATED - 1 :]] or [relevance[ranked[-1]]]
    return [(one, levels[min(n, len(levels) - 1)]) for n, one in enumerate(trusted)]


def _one_of_each(found: Iterable[_Candidate]) -> list[_Candidate]:
    """Of memories that say the same the one that fits best, and none together with another that
    took its place. In an order that does not depend on the order in which they were found."""
    ranked = sorted(
        found,
        key=lambda one: (
            *(-one.relevance, -one.memory.origin.trust, -one.memory.importance),
            *(-one.memory.created, one.memory.id),
        ),
    )
    replaced = {id for one in ranked for id in one.memory.supersedes}
    ids = {one.memory.id for one in ranked}
    kept: dict[str, _Candidate] = {}
    for one in ranked:
        if one.memory.id in replaced or one.memory.superseded_by in ids:
            continue
        kept.setdefault(" ".join(one.memory.text.casefold().split()), one)
    return list(kept.values())


def _clock(
    candidates: Sequence[_Candidate], now: float | None, *, frozen: bool
) -> Callable[[MemoryRecord], float]:
    """From a memory to its recency. Uses are not versioned, so in a version only creation counts,
    seen from the newest memory: which moment it is seen from makes no difference once recency is
    normalised, and the same version has to give the same for ever."""
    if frozen:
        newest = max((one.memory.created for one in candidates), default=0.0)
        return lambda memory: decay(memory.created, newest)
    moment = time() if now is None else now

    def recency(memory: MemoryRecord) -> float:
        used = memory.last_used
        return decay(memory.created if used is None or used > moment else used, moment)

    return recency


def _score(
    candidates: Sequence[_Candidate],
    settings: RecallSettings,
    recency: Callable[[MemoryRecord], float],
) -> list[Memory]:
    """All of them with their scores, best first."""
    columns = {
        "relevance": _normalise_relevance(candidates),
        "importance": normalise([one.memory.importance for one in candidates]),
        "recency": normalise([recency(one.memory) for one in candidates]),
    }
    ranked: list[tuple[tuple[float, float, float, float, str], Memory]] = []
    for place, one in enumerate(candidates):
        parts = {name: column[place] for name, column in columns.items()}
        made = Memory(
            one.memory.text,
            name_source(one.collection.full_name, one.memory.origin),
            weigh(parts, settings.weights),
            parts,
            one.memory.id,
            one.memory.origin.trust,
            one.similarity,
            one.memory.created,
        )
        tie = (-one.keywords, -one.relevance, -one.memory.created, one.memory.id)
        ranked.append(((-(made.score or 0.0), *tie), made))
    return [made for _, made in sorted(ranked, key=lambda each: each[0])]


def _normalise_relevance(candidates: Sequence[_Candidate]) -> list[float]:
    """Normalise within each embedder, since their similarities lie in different ranges."""
    relevance = [0.0] * len(candidates)
    for embedder in {one.collection.embedder for one in candidates}:
        places = [n for n, one in enumerate(candidates) if one.collection.embedder == embedder]
        values = normalise([round(candidates[n].relevance, TIE_DIGITS) for n in places])
        for place, value in zip(places, values, strict=True):
            relevance[place] = value
    return relevance


def name_source(collection: str, origin: Origin) -> str:
    """Where a memory came from, for people and prompts: `support/facts: handbook.md, turn 2, by
    Ada`."""
    said = [origin.source] if origin.source else []
    said += [f"turn {origin.turn}"] if origin.turn is not None else []
    said += [f"by {origin.author}"] if origin.author else []
    return collection + (f": {', '.join(said)}" if said else "")


async def _keep_budget(
    chosen: Sequence[Memory],
    counted: Recalled,
    settings: RecallSettings,
    summarize: Summarize | None,
) -> Recalled:
    """Whole memories, best first; one that has no room is passed over, and later ones may have
    some. With a summary the whole ones have half of the budget, and the rest is summarised."""
    budget, sizes = settings.budget, [count_tokens(memory.text) for memory in chosen]
    if budget is None or sum(sizes) <= budget:
        return replace(counted, memories=tuple(chosen))
    summed = summarize if settings.summarize else None
    whole = budget if summed is None else min(budget // 2, budget - LEAST_SUMMARY)
    places = fit_budget(sizes, whole)
    shown = tuple(chosen[place] for place in places)
    rest = [memory for place, memory in enumerate(chosen) if place not in set(places)]
    if summed is None:
        return replace(counted, memories=shown, over_budget=len(rest))
    room = budget - sum(sizes[place] for place in places)
    said = (await summed([memory.text for memory in rest], room)).strip()
    if not said:
        return replace(counted, memories=shown, over_budget=len(rest))
    told = [memory.trust for memory in rest if memory.trust is not None]
    summary = Memory(
        said[: room * CHARACTERS_A_TOKEN],
        f"a summary of {len(rest)} memories",
        trust=min(told, default=None),
    )
    return replace(counted, memories=(*shown, summary), summarised=len(rest))
