"""Recall, M(a, x, y, xi): what an agent remembers that bears on what is before it.

Searches by meaning and by keywords are joined by their ranks; then relevance, importance and
recency are each normalised over what was found, and weighed. Reading changes nothing: whoever wants
uses to be noted calls `MemoryStore.use`. The arithmetic is in `ranking.py`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import TypeAlias

from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.llm.token_count import CHARACTERS_A_TOKEN, count_tokens
from textevolve.memory.cue import Cue, Memory
from textevolve.memory.cue_queries import CueQuery, make_queries
from textevolve.memory.index import Embed, MemoryQuery, MemoryStore
from textevolve.memory.ranking import (
    RANK_CONSTANT,
    decay,
    fit_budget,
    fuse_ranks,
    normalise,
    weigh,
)
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import MemoryRecord, Origin

LEAST_SEARCHED = 50
"""Of each search so many memories are looked at, or as many as are wanted where those are more."""
ASSOCIATED_SHARE = 0.9
"""Of the highest relevance, what the nearest associated memory has. Reciprocal ranks are flat: with
half of it none would come before the fiftieth of those that were found."""
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
    """A memory that was found. `relevance` is the sum of its reciprocal ranks."""

    memory: MemoryRecord
    collection: str
    relevance: float
    similarity: float | None = None


async def _search(
    source: RecallSource,
    embed: Embed | None,
    settings: RecallSettings,
    queries: Sequence[CueQuery],
    now: float | None,
) -> list[_Candidate]:
    """What one collection has: ranks are within it, so that a large one does not drown a small."""
    collection = await source.store.collection(source.collection)
    rankings: list[tuple[float, dict[str, int]]] = []
    found: dict[str, MemoryRecord] = {}
    similarity: dict[str, float] = {}
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
        for rank in ("dense_rank", "keyword_rank"):
            ranks = {one.memory.id: n for one in matches if (n := getattr(one, rank)) is not None}
            rankings.append((query.weight, ranks))
        for one in matches:
            found[one.memory.id] = one.memory
            if one.similarity is not None:
                similarity[one.memory.id] = max(one.similarity, similarity.get(one.memory.id, -1.0))
    if (least := settings.min_similarity) is not None:
        found = {id: one for id, one in found.items() if similarity.get(id, -math.inf) >= least}
    fused = fuse_ranks(rankings)
    if settings.associate and found:
        for one, relevance in await _associate(source, wanted, found, fused, settings):
            found.setdefault(one.id, one)
            fused[one.id] = max(relevance, fused.get(one.id, 0.0))
    return [
        _Candidate(one, collection.full_name, fused[id], similarity.get(id))
        for id, one in found.items()
    ]


async def _associate(
    source: RecallSource,
    wanted: MemoryQuery,
    found: Mapping[str, MemoryRecord],
    relevance: Mapping[str, float],
    settings: RecallSettings,
) -> list[tuple[MemoryRecord, float]]:
    """Memories that share entities, over two hops, with the best of those that were found, nearest
    first, and their relevance: of the n-th, 0.9 x the highest x 61 / (60 + n). How similar they are
    is not asked: that they need not be is what they are wanted for."""
    starts = sorted(found, key=lambda each: (-relevance[each], each))[: settings.limit]
    near = await source.store.associate(wanted, starts)
    trusted = [one for one in near if one.origin.trust >= settings.least_trust]
    best = ASSOCIATED_SHARE * relevance[starts[0]]
    return [
        (one, best * (RANK_CONSTANT + 1) / (RANK_CONSTANT + n)) for n, one in enumerate(trusted, 1)
    ]


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
        "relevance": normalise([one.relevance for one in candidates]),
        "importance": normalise([one.memory.importance for one in candidates]),
        "recency": normalise([recency(one.memory) for one in candidates]),
    }
    ranked: list[tuple[tuple[float, float, float, str], Memory]] = []
    for place, one in enumerate(candidates):
        parts = {name: column[place] for name, column in columns.items()}
        made = Memory(
            one.memory.text,
            name_source(one.collection, one.memory.origin),
            weigh(parts, settings.weights),
            parts,
            one.memory.id,
            one.memory.origin.trust,
            one.similarity,
            one.memory.created,
        )
        order = (-(made.score or 0.0), -one.relevance, -one.memory.created, one.memory.id)
        ranked.append((order, made))
    return [made for _, made in sorted(ranked, key=lambda each: each[0])]


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
