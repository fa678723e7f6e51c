"""Random changes of two namespaces, held against a store that is nothing but lists.

Nothing crosses: each namespace is compared with lists of its own, and sees ids of the other one.
"""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plain_store import PlainMemories

from textevolve.errors import ConflictError, InputError
from textevolve.memory.record import (
    Add,
    ChangeSource,
    Forget,
    MemoryQuery,
    NewMemory,
    Origin,
    Relation,
    Supersede,
)

WORDS = ("tea", "sea", "moon", "wind")
NAMES = ("Ann", "Bob", "Cid")
NOW = 1.7e9
DIMENSION = 6

times = st.sampled_from((None, NOW - 200, NOW - 100))
memories = st.builds(
    lambda words, number, trust, names, begins, lasts: NewMemory(
        text=" ".join(words),
        embedding=np.eye(DIMENSION, dtype=np.float32)[number % DIMENSION],
        origin=Origin(trust=trust),
        entities=names,
        relations=tuple(Relation(name, "is", "x") for name in names[:1]),
        created=NOW,
        valid_from=begins,
        valid_to=None if lasts is None else (begins or NOW) + lasts,
    ),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    st.integers(0, 100),
    st.sampled_from((0.2, 1.0)),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
    times,
    st.sampled_from((None, None, 50.0, 1e9)),
)
places = st.integers(0, 30)
"""Which of the memories there are, in either namespace, counted around."""
changes = st.one_of(
    st.tuples(st.just("add"), memories),
    st.tuples(st.just("add"), memories),
    st.tuples(st.just("supersede"), st.lists(places, min_size=1, max_size=2), memories),
    st.tuples(st.just("forget"), places, st.booleans()),
)
steps = st.one_of(
    st.tuples(st.just("apply"), st.lists(changes, min_size=2, max_size=4), st.none()),
    st.tuples(st.just("apply"), st.lists(changes, max_size=3), st.sampled_from((None, "k", "l"))),
    st.tuples(st.just("use"), st.lists(places, min_size=1, max_size=2), st.integers(1, 99)),
)
runs = st.lists(st.tuples(st.sampled_from((0, 1)), steps), min_size=4, max_size=9)


class Pair:
    """A namespace in the store, and the same in lists. `ids` are those of both, in their order."""

    def __init__(self, place):
        self.name = f"n{secrets.token_hex(6)}"
        place.create(self.name, "c", DIMENSION)
        self.real, self.plain = place.open(self.name), PlainMemories(self.name)
        self.plain.create("c", DIMENSION)
        self.ids: list[tuple[str, str]] = []

    def translate(self, record):
        """A record of lists with the ids and times of the real one's."""
        real = {plain: real for real, plain in self.ids}
        return replace(
            record,
            id=real[record.id],
            supersedes=tuple(sorted(real[id] for id in record.supersedes)),
            superseded_by=real.get(record.superseded_by),
            superseded_at=None if record.superseded_at is None else round(record.superseded_at, -2),
        )

    def trim(self, record):
        at = None if record.superseded_at is None else round(record.superseded_at, -2)
        return replace(record, supersedes=tuple(sorted(record.supersedes)), superseded_at=at)


def make_change(change, side, ids):
    match change:
        case ("add", memory):
            return Add(memory)
        case ("supersede", which, memory):
            return Supersede(tuple(ids[n % len(ids)][side] for n in which), memory)
        case (_, which, erase):
            return Forget(ids[which % len(ids)][side], erase)


async def attempt(asked):
    try:
        return await asked, None
    except (InputError, ConflictError) as error:
        return None, type(error)


async def take(pair, step, ids):
    """One step of both; they agree on what it gives, or on why it is refused."""
    if step[0] == "use":
        for side, store in enumerate((pair.real, pair.plain)):
            chosen = [ids[n % len(ids)][side] for n in step[1]] if ids else ["me_none"]
            with suppress(InputError):
                await store.use(chosen, NOW + step[2])
        return
    expected_eaches = [each for each in step[1] if each[0] == "add" or ids]
    source = None if step[2] is None else ChangeSource(step[2])
    real, why = await attempt(
        pair.real.apply("c", [make_change(each, 0, ids) for each in expected_eaches], source)
    )
    plain, also = await attempt(
        pair.plain.apply("c", [make_change(each, 1, ids) for each in expected_eaches], source)
    )
    assert why == also
    if real is not None:
        assert plain is not None
        assert replace(real, ids=()) == replace(plain, ids=())
        if not real.repeated:
            pair.ids += zip(real.ids, plain.ids, strict=True)


async def compare(pair):
    version = (await pair.real.collection("c")).version
    assert version == (await pair.plain.collection("c")).version
    for known in {None, *range(1, version + 1)}:
        for closed in (False, True):
            real = await pair.real.page("c", version=known, closed=closed)
            plain = await pair.plain.page("c", version=known, closed=closed)
            assert [pair.trim(one) for one in real] == [pair.translate(one) for one in plain]
        for query in list_queries(known):
            await compare_search(pair, query)


def list_queries(version):
    some = MemoryQuery(
        collection="c",
        text="tea moon",
        embedding=np.ones(DIMENSION, dtype=np.float32) / DIMENSION**0.5,
        version=version,
    )
    yield some
    yield replace(some, least_trust=0.5)
    if version is None:
        yield from (replace(some, time=NOW + shift) for shift in (-150, -75, 1e9))


async def compare_search(pair, query):
    real, plain = await pair.real.search(query), await pair.plain.search(query)

    def seen(matches, change):
        return {
            (hits.id, match.dense_rank is None, match.keyword_rank is None, hits.times_used)
            for match in matches
            for hits in [change(match.memory)]
        }

    assert seen(real, pair.trim) == seen(plain, pair.translate)
    nearest = replace(query, text="", embedding=np.eye(DIMENSION, dtype=np.float32)[0], limit=3)
    hits, other = await pair.real.search(nearest), await pair.plain.search(nearest)
    best = [sorted((m.similarity for m in each), reverse=True) for each in (hits, other)]
    np.testing.assert_allclose(best[0], best[1], atol=1e-6)
    for start in pair.ids[:2]:
        near = await pair.real.associate(query, [start[0]])
        also = await pair.plain.associate(query, [start[1]])
        assert {pair.trim(m).id for m in near} == {pair.translate(m).id for m in also}


def test_two_namespaces_hold_what_lists_hold(place):
    most = 5 if place.location.startswith("postgresql") else 20  # where each step is dear

    @settings(
        max_examples=min(most, settings().max_examples // 3),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(runs)
    def hold(steps_taken):
        async def go():
            pairs = Pair(place), Pair(place)
            for whose, step in steps_taken:
                # Ids of the other namespace are tried, too: they are not found.
                await take(pairs[whose], step, pairs[0].ids + pairs[1].ids)
            for pair in pairs:
                await compare(pair)
                for id, _ in pairs[pair is pairs[0]].ids:
                    assert issubclass((await attempt(pair.real.get([id])))[1], InputError)

        asyncio.run(go())

    hold()
