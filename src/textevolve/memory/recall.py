"""Recall, M(a, x, y, xi): the agent's memories that are relevant to its current input.

Here candidates are the memories that the searches found, except that those of a cue are the texts
to be judged. Relevance is late interaction (`ranking`), or similarity of embeddings. Keywords find
candidates, break ties, and rank alone without an embedder. Relevance, importance and recency are
each normalised over the candidates, and weighted. Reading changes nothing; chats record uses.
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
from textevolve.llm.embeddings import PackedTokens
from textevolve.llm.prompts import CHARACTERS_A_TOKEN, count_tokens
from textevolve.memory.cue import Cue, Memory
from textevolve.memory.ranking import (
    COSINE_WEIGHT,
    CROSS_CANDIDATES,
    LATE_SHARE,
    MemoryModels,
    interact,
)
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import (
    Collection,
    Embed,
    MemoryQuery,
    MemoryRecord,
    MemoryStore,
    Origin,
)
from textevolve.memory.sameness import exact_words, is_label, words_of
from textevolve.spans import span
from textevolve.texts.prose import fold_case, fold_widths, join_lines

QUERY_CHARACTERS = 800
"""The maximum number of characters of a query: about 200 tokens of English."""
CANDIDATE_CHARACTERS = 400
"""The maximum number of characters of a candidate that are used as a query."""
MOST_CANDIDATES = 8
"""The maximum number of candidates that are used as queries."""
INPUT_WEIGHT = 1.0
CANDIDATES_WEIGHT = 1.0
HISTORY_WEIGHT = 0.25
"""The weights of the queries from an input, its candidates and the history. Candidates weigh as
much as the input, since their claims are to be checked, and the input may contain no word to search
for (`benchmarks/recall_cue.py`)."""


@dataclass(frozen=True, slots=True)
class CueQuery:
    """A text to search for. `weight`: of the similarities and the ranks that it gives."""

    text: str
    weight: float


def make_queries(input: str, candidates: Sequence[str], history: str) -> tuple[CueQuery, ...]:
    """Return the distinct queries of a cue, none of them blank: the input, up to eight candidates,
    and the end of the history."""
    last = history.strip()[-QUERY_CHARACTERS:]
    groups = (
        (INPUT_WEIGHT, _ends(input)),
        (CANDIDATES_WEIGHT, [_begin(text) for text in candidates[:MOST_CANDIDATES]]),
        (HISTORY_WEIGHT, [last if last == history.strip() else _from_word(last)]),
    )
    weights: dict[str, float] = {}
    for weight, texts in groups:
        distinct = [text for text in dict.fromkeys(texts) if text]
        for text in distinct:
            weights[text] = weights.get(text, 0.0) + weight / len(distinct)

    return tuple(CueQuery(text, weight) for text, weight in weights.items())


def _ends(text: str) -> list[str]:
    """Return the queries for an input: the whole text if it is short, otherwise its beginning and
    its end, where questions are."""
    text = text.strip()
    if len(text) <= QUERY_CHARACTERS:
        return [text]
    return [_to_word(text[:QUERY_CHARACTERS]), _from_word(text[-QUERY_CHARACTERS:])]


def _begin(text: str) -> str:
    text = text.strip()
    return text if len(text) <= CANDIDATE_CHARACTERS else _to_word(text[:CANDIDATE_CHARACTERS])


def _to_word(text: str) -> str:
    """Remove the last, possibly truncated word of a text, unless it is the only one."""
    return text.rpartition(" ")[0].strip() or text.strip()


def _from_word(text: str) -> str:
    return text.partition(" ")[2].strip() or text.strip()


HOURLY_DECAY = 0.995
"""The factor by which recency falls per hour: Park et al., Generative Agents, UIST 2023, section
4.1."""

SECONDS_AN_HOUR = 3600.0


def decay(since: float, now: float) -> float:
    """Return the recency in [0, 1]: 0.995 to the power of the hours from `since` to `now`; 1 for
    future times."""
    return HOURLY_DECAY ** (max(0.0, now - since) / SECONDS_AN_HOUR)


def normalise(values: Sequence[float]) -> list[float]:
    """Scale values so that the lowest becomes 0 and the highest 1. Equal values all become 1, so
    that a memory found alone has no disadvantage."""
    if not values:
        return []
    low = min(values)
    high = max(values)
    if not low < high:
        return [1.0] * len(values)
    # Halved, so that the width of numbers at both ends of the range stays finite.
    width = high / 2 - low / 2
    if width <= 0:  # so near to each other that they cannot be told apart
        return [1.0] * len(values)

    return [min(1.0, max(0.0, (value / 2 - low / 2) / width)) for value in values]


def weigh(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted mean of the parts, each in [0, 1]. At least one weight must be above
    0."""
    total = sum(weights.values())
    return min(1.0, max(0.0, sum(weights[name] / total * parts[name] for name in weights)))


def fit_budget(sizes: Sequence[int], budget: int) -> list[int]:
    """Return the indices of the entries that fit into the budget, in order. An entry that does not
    fit is skipped, and later ones may still fit."""
    chosen: list[int] = []
    room = budget
    for index, size in enumerate(sizes):
        if size <= room:
            chosen.append(index)
            room -= size

    return chosen


LEAST_SEARCHED = 50
"""The least number of memories that each search retrieves, even if fewer are to be recalled."""
TIE_DIGITS = 2
"""The number of digits to which similarities are rounded; equal ones tie, and keywords decide
between them. With 2 digits keywords helped on 60 synthetic questions and on LoCoMo; with 1 digit
they did harm on the synthetic ones (docs/measurements.md)."""
LATE_DIGITS = 6
"""The same for late interaction, whose scores lie close to each other and include the words."""
SEARCHES_AT_ONCE = 8
"""The maximum number of concurrent searches."""
LEAST_SUMMARY = 16
"""The least number of tokens of a summary; a shorter one would be of no use."""

Summarize: TypeAlias = Callable[[Sequence[str], int], Awaitable[str]]
"""A function that summarises texts in one text of at most so many tokens."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The recalled memories, best first, a summary last, and counts: `considered`: all candidates;
    `below`: candidates with too low a score; `over_limit`, `over_budget`: omitted because of the
    limit or the token budget; `summarised`: merged into the summary.
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
    """A collection to recall from. `version`: an earlier version; None: the current one."""

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
    """Recall the memories in the collections of `settings` that are relevant to a cue or a text.

    `embed`: None to search by keywords only. `versions`: the version of each collection to read, by
    full name; the same call then always returns the same. `now`: recall as of this time instead of
    the time of the call; ignored with `versions`. `summarize` is called if the settings ask for a
    summary.

    Raises:
        InputError: a collection does not exist here, it has no version in `versions`, the cue is
            blank, or the settings ask for a summary and there is no `summarize`.
        ModelError: the cue cannot be embedded. StoreError: the store cannot be read.
    """
    sources: list[RecallSource] = []

    for name in dict.fromkeys(settings.collections):
        space, _, local_name = name.rpartition("/")
        if space and space != store.namespace:
            raise InputError(f"no collection '{name}' in the namespace '{store.namespace}'")
        sources.append(
            RecallSource(store, local_name, pinned(versions, f"{store.namespace}/{local_name}"))
        )

    return await recall_from(sources, embed, settings, cue, now=now, summarize=summarize)


def pinned(versions: Mapping[str, int] | None, full_name: str) -> int | None:
    """Return the version of a collection to read; None to read its current version, if no versions
    are pinned (`versions` is None).

    Raises:
        InputError: versions are pinned, but this collection is not among them.
    """
    if versions is not None and full_name not in versions:
        raise InputError(
            f"the collection '{full_name}' is not among those whose versions this run fixed at"
            " its start"
        )

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
    """Recall like `recall_memories`, from collections of any namespaces. Either all sources have a
    version or none has."""
    if not sources:
        return Recalled()
    full_cue = Cue("", (), cue) if isinstance(cue, str) else cue
    with span("recall", "recall", input=full_cue.input) as here:
        recalled = await _recall_from(sources, embed, settings, full_cue, now, summarize)
        here.note(memories=len(recalled.memories), output=[m.text for m in recalled.memories])
        return recalled


async def _recall_from(
    sources: Sequence[RecallSource],
    embed: Embed | None,
    settings: RecallSettings,
    cue: Cue,
    now: float | None,
    summarize: Summarize | None,
) -> Recalled:
    if settings.summarize and summarize is None:
        raise InputError(
            "memory: summarize needs a model, which a search alone does not have; leave summarize"
            " out, or recall the memories in a debate or a chat"
        )

    queries = make_queries(cue.input, cue.candidates, cue.history)
    if not queries:
        raise InputError("the text by which memories are recalled is blank")
    user = None if settings.scope == "agent" else cue.user
    query = MemoryQuery(
        collection="",
        limit=max(LEAST_SEARCHED, settings.limit),
        time=now,
        least_trust=settings.least_trust,
        user=user,
    )
    searched = await gather_bounded(
        [
            lambda source=source: _search(source, embed, settings, queries, query)
            for source in sources
        ],
        SEARCHES_AT_ONCE,
    )
    frozen = any(source.version is not None for source in sources)
    candidates = _remove_duplicates(candidate for each in searched for candidate in each)
    if isinstance(embed, MemoryModels) and embed.rerank == "cross" and not embed.made_up:
        candidates = await _cross(candidates, embed, queries)
    scored = _score(candidates, settings, _recencies(candidates, now, frozen=frozen))
    above_minimum = [memory for memory in scored if (memory.score or 0.0) >= settings.min_score]
    chosen = above_minimum[: settings.limit]
    counted = Recalled(
        (),
        len(scored),
        len(scored) - len(above_minimum),
        over_limit=len(above_minimum) - len(chosen),
    )

    return await _keep_budget(chosen, counted, settings, summarize)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory that a search found. `relevance` can only be compared within one embedder;
    `keywords`, the sum of its reciprocal ranks in the keyword searches, with all others. `digits`:
    to which relevance is rounded, so that keywords decide."""

    memory: MemoryRecord
    collection: Collection
    relevance: float
    keywords: float
    similarity: float | None = None
    digits: int = TIE_DIGITS


async def _search(
    source: RecallSource,
    embed: Embed | None,
    settings: RecallSettings,
    queries: Sequence[CueQuery],
    query: MemoryQuery,
) -> list[_Candidate]:
    """Return the candidates from one collection. `query`: what all its searches have in common."""
    collection = await source.store.collection(source.collection)
    memories: dict[str, MemoryRecord] = {}
    similarity: dict[str, float] = {}
    keywords: defaultdict[str, float] = defaultdict(float)
    packed: dict[str, PackedTokens] = {}
    cosines: list[dict[str, float]] = []
    models = embed if isinstance(embed, MemoryModels) else None
    search_query = replace(
        query,
        collection=collection.name,
        version=source.version,
        time=None if source.version is not None else query.time,
        token_model="" if models is None else models.token_model(collection),
    )

    for cue_query in queries:
        vector = None if embed is None else await embed(collection, cue_query.text)
        matches = await source.store.search(
            replace(search_query, text=cue_query.text, embedding=vector)
        )
        for match in matches:
            memories[match.memory.id] = match.memory
            if match.keyword_rank is not None:
                keywords[match.memory.id] += cue_query.weight / match.keyword_rank
            if match.tokens is not None:
                packed[match.memory.id] = match.tokens

        likeness = {m.memory.id: m.similarity for m in matches if m.similarity is not None}
        similarity |= {id: max(s, similarity.get(id, -1.0)) for id, s in likeness.items()}
        cosines.append(likeness)

    if (least := settings.min_similarity) is not None:
        memories = {id: m for id, m in memories.items() if similarity.get(id, -math.inf) >= least}
        cosines = [{id: s for id, s in near.items() if id in memories} for near in cosines]
    late: list[dict[str, float]] | None = None
    if models is not None and search_query.token_model and memories:
        stored = {id: tokens for id, tokens in packed.items() if id in memories}
        late = await interact(models, [each.text for each in queries], memories, stored)
    if late is not None:
        cosines = [
            {id: score + COSINE_WEIGHT * near.get(id, 0.0) for id, score in scores.items()}
            for scores, near in zip(late, cosines, strict=True)
        ]

    meanings = [
        (each.weight, _prefer_named(each.text, likeness, memories))
        for each, likeness in zip(queries, cosines, strict=True)
    ]
    relevance = dict(keywords) if embed is None else _sum_meanings(meanings, memories)

    digits = TIE_DIGITS if late is None else LATE_DIGITS
    return [
        _Candidate(memory, collection, relevance[id], keywords[id], similarity.get(id), digits)
        for id, memory in memories.items()
    ]


async def _cross(
    candidates: Sequence[_Candidate], models: MemoryModels, queries: Sequence[CueQuery]
) -> list[_Candidate]:
    """Return the candidates with the best of them in the order of a cross-encoder, above all
    others. `candidates`: the most relevant first."""
    best = list(candidates[:CROSS_CANDIDATES])
    texts = [candidate.memory.text for candidate in best]
    sums = [0.0] * len(best)
    for query in queries:
        scores = await models.scores(query.text, texts)
        sums = [total + query.weight * score for total, score in zip(sums, scores, strict=True)]

    earlier = normalise([candidate.relevance for candidate in best])
    highest = max((candidate.relevance for candidate in candidates), default=0.0)
    ordered = [
        replace(candidate, relevance=1 + highest + score + LATE_SHARE * order, digits=LATE_DIGITS)
        for candidate, score, order in zip(best, normalise(sums), earlier, strict=True)
    ]

    return [*ordered, *candidates[CROSS_CANDIDATES:]]


def _prefer_named(
    query: str, likeness: Mapping[str, float], memories: Mapping[str, MemoryRecord]
) -> dict[str, float]:
    """Return the similarities to a query by the ids of the memories. Embeddings hardly distinguish
    names and numbers, so memories with all words of a query that consists of these alone, or with
    the exact words of another query, such as 88231 or DGIA, rank before the others."""
    is_name = is_label(query)
    exact = frozenset(words_of(query)) if is_name else exact_words(query)
    preferred = dict(likeness)
    if not exact:
        return preferred

    for id in likeness:
        text = memories[id].text
        folded = fold_case(fold_widths(text))
        # Splitting every candidate into words would take as long as a search.
        if not any(word in folded for word in exact):
            continue
        shared = exact.intersection(words_of(text))
        if is_name:
            preferred[id] += shared == exact
        else:
            preferred[id] += len(shared) / len(exact)

    return preferred


def _sum_meanings(
    meanings: Sequence[tuple[float, Mapping[str, float]]], memory_ids: Iterable[str]
) -> dict[str, float]:
    """Return, by memory id, the weighted sum of the similarities to the queries. A memory that a
    query did not retrieve counts as similar as the least similar one that it did."""
    least = [min(likeness.values(), default=0.0) for _, likeness in meanings]
    return {
        id: sum(w * near.get(id, low) for (w, near), low in zip(meanings, least, strict=True))
        for id in memory_ids
    }


def _remove_duplicates(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """Remove duplicates, keeping the most relevant one, and memories that another candidate has
    superseded. The order of the result does not depend on the order of the candidates."""
    ranked = sorted(
        candidates,
        key=lambda candidate: (
            -candidate.relevance,
            -candidate.memory.origin.trust,
            -candidate.memory.importance,
            -candidate.memory.created,
            candidate.memory.id,
        ),
    )
    replaced = {id for candidate in ranked for id in candidate.memory.supersedes}
    ids = {candidate.memory.id for candidate in ranked}
    distinct: dict[str, _Candidate] = {}
    for candidate in ranked:
        if candidate.memory.id in replaced or candidate.memory.superseded_by in ids:
            continue
        distinct.setdefault(join_lines(fold_case(candidate.memory.text)), candidate)

    return list(distinct.values())


def _recencies(candidates: Sequence[_Candidate], now: float | None, *, frozen: bool) -> list[float]:
    """Return the recency of each candidate: how long before `now` it was last used or, if never,
    created. If versions are pinned (`frozen`), only the creation counts, compared with the newest
    candidate, since uses are not versioned; so the same version always gives the same result."""
    memories = [candidate.memory for candidate in candidates]
    if frozen:
        newest = max((memory.created for memory in memories), default=0.0)
        return [decay(memory.created, newest) for memory in memories]

    moment = time() if now is None else now
    recencies: list[float] = []
    for memory in memories:
        last_used = memory.last_used
        # A use after `now` has not happened yet for a recall that looks back.
        if last_used is None or last_used > moment:
            last_used = memory.created
        recencies.append(decay(last_used, moment))

    return recencies


def _score(
    candidates: Sequence[_Candidate],
    settings: RecallSettings,
    recencies: Sequence[float],
) -> list[Memory]:
    """Return all candidates with their scores, best first."""
    columns = {
        "relevance": _normalise_relevance(candidates),
        "importance": normalise([candidate.memory.importance for candidate in candidates]),
        "recency": normalise(recencies),
    }
    ranked: list[tuple[tuple[float, float, float, float, str], Memory]] = []

    for place, match in enumerate(candidates):
        stored = match.memory
        parts = {name: column[place] for name, column in columns.items()}
        score = weigh(parts, settings.weights)
        memory = Memory(
            stored.text,
            name_source(match.collection.full_name, stored.origin),
            score,
            parts,
            stored.id,
            stored.origin.trust,
            match.similarity,
            stored.created,
        )
        # The id comes last, so that the order of equals does not depend on the store.
        rank = (-score, -match.keywords, -match.relevance, -stored.created, stored.id)
        ranked.append((rank, memory))

    return [memory for _, memory in sorted(ranked, key=lambda each: each[0])]


def _normalise_relevance(candidates: Sequence[_Candidate]) -> list[float]:
    """Return the relevance of each candidate, normalised among the candidates of the same embedder,
    since the similarities of embedders lie in different ranges."""
    relevance = [0.0] * len(candidates)
    for embedder in {candidate.collection.embedder for candidate in candidates}:
        places = [n for n, c in enumerate(candidates) if c.collection.embedder == embedder]
        values = normalise([round(candidates[n].relevance, candidates[n].digits) for n in places])
        for place, value in zip(places, values, strict=True):
            relevance[place] = value

    return relevance


def name_source(collection: str, origin: Origin) -> str:
    """Describe the source of a memory for people and prompts: `support/facts: handbook.md, turn 2,
    by Ada`."""
    details = [origin.source] if origin.source else []
    details += [f"turn {origin.turn}"] if origin.turn is not None else []
    details += [f"by {origin.author}"] if origin.author else []
    return collection + (f": {', '.join(details)}" if details else "")


async def _keep_budget(
    chosen: Sequence[Memory],
    counted: Recalled,
    settings: RecallSettings,
    summarize: Summarize | None,
) -> Recalled:
    """Return the counts with the whole memories that fit into the budget, best first; one that does
    not fit is skipped, and later ones may still fit. If not all fit and a summary is requested,
    whole memories take at most half of the budget, and the others are summarised."""
    budget = settings.budget
    sizes = [count_tokens(memory.text) for memory in chosen]
    if budget is None or sum(sizes) <= budget:
        return replace(counted, memories=tuple(chosen))
    whole_budget = min(budget // 2, budget - LEAST_SUMMARY) if settings.summarize else budget
    places = fit_budget(sizes, whole_budget)
    fitting = tuple(chosen[place] for place in places)
    overflow = [memory for place, memory in enumerate(chosen) if place not in set(places)]

    if settings.summarize and summarize is not None:
        room = budget - sum(sizes[place] for place in places)
        text = (await summarize([memory.text for memory in overflow], room)).strip()
        if text:
            summary = Memory(
                text[: room * CHARACTERS_A_TOKEN],
                f"a summary of {len(overflow)} memories",
                trust=min((m.trust for m in overflow if m.trust is not None), default=None),
            )
            return replace(counted, memories=(*fitting, summary), summarised=len(overflow))

    return replace(counted, memories=fitting, over_budget=len(overflow))
