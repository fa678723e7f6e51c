"""Selection: the same rows for all, ties to the older."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.loops.attempt import draw_by_score
from textevolve.loops.calibration.search import (
    ArmStatistics,
    choose_beam,
    draw_rows,
    try_fast,
    try_ucb,
)


class Recorder:
    """Tries arms by a table of means, and keeps the batches that it was asked for."""

    def __init__(self, score):
        self.score = score
        self.batches = []

    async def __call__(self, trials):
        self.batches.append(list(trials))
        return [self.score(arm, row) for arm, row in trials]


async def test_fast_tries_all_on_the_same_rows_in_one_batch():
    recorder = Recorder(lambda arm, row: arm / 10)
    rows = draw_rows(30, 6, 7)
    tried = await try_fast([0, 3, 5], rows, recorder)
    assert len(recorder.batches) == 1
    assert {arm: [r for a, r in recorder.batches[0] if a == arm] for arm in (0, 3, 5)} == {
        arm: list(rows) for arm in (0, 3, 5)
    }
    assert choose_beam(tried, 2) == [5, 3]


@given(
    arms=st.integers(1, 12),
    rows=st.integers(1, 10),
    width=st.integers(1, 5),
    pulls=st.integers(1, 60),
    salt=st.integers(0, 1000),
    missing=st.integers(0, 4),
)
async def test_bandits_visit_each_arm_and_never_a_row_twice(
    arms, rows, width, pulls, salt, missing
):
    def score(arm, row):
        drawn = hash((arm, row, salt)) % 100 / 100
        return None if missing and (arm + row) % missing == 0 else drawn

    recorder = Recorder(score)
    tried = await try_ucb(range(arms), range(rows), recorder, width=width, pulls=pulls)
    trials = [trial for batch in recorder.batches for trial in batch]
    assert len(trials) == len(set(trials))
    assert {arm for arm, _ in trials} == set(range(arms))
    assert len(trials) == min(max(pulls, arms), arms * rows)
    for arm in tried:  # those that are compared share their first rows
        assert list(arm.scores) == list(range(len(arm.scores)))
    assert all(len(batch) <= max(width, arms) for batch in recorder.batches)
    assert all(len(batch) <= width for batch in recorder.batches[1:])


async def test_bandits_spend_their_pulls_on_what_is_good():
    """Far apart, the best arm is pulled most, as long as there are rows."""
    recorder = Recorder(lambda arm, row: 0.95 if arm == 4 else 0.05)
    tried = await try_ucb(range(8), range(100), recorder, width=1, pulls=120)
    pulled = {s.arm: len(s.scores) for s in tried}
    assert max(pulled, key=lambda arm: pulled[arm]) == 4
    assert pulled[4] > 3 * max(n for arm, n in pulled.items() if arm != 4)


def test_ties_go_to_the_older_and_gaps_are_no_zeros():
    even = [ArmStatistics(arm, {0: 0.5, 1: 0.5}) for arm in (4, 2, 9)]
    assert choose_beam(even, 2) == [2, 4]
    gap = ArmStatistics(1, {0: 0.9, 1: None})
    assert choose_beam([*even, gap], 1) == [1]


def test_an_arm_that_mostly_failed_cannot_be_chosen():
    lucky = ArmStatistics(1, {0: 1.0, 1: None, 2: None})
    never = ArmStatistics(2, {0: None})
    assert choose_beam([lucky, never, ArmStatistics(3, {0: 0.1})], 3) == [3]
    assert choose_beam([lucky, never], 1) == []


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 99), st.integers(0, 9))
def test_rows_are_drawn_by_seed_without_repetition(count, size, seed, label):
    drawn = draw_rows(count, size, seed, label)
    assert drawn == draw_rows(count, size, seed, label)
    assert len(set(drawn)) == len(drawn) == min(count, size)
    assert set(drawn) <= set(range(count))


def test_draws_follow_the_softmax():
    generator = Random(1)
    scores = {3: 0.6, 8: 0.5, 9: 0.0}  # 6, 5 and 0 of 10: shares .73, .27 and .002
    first = Counter(draw_by_score(scores, 1, generator)[0] for _ in range(5000))
    assert first[3] / 5000 == pytest.approx(0.7298, abs=0.02)
    assert first[8] / 5000 == pytest.approx(0.2685, abs=0.02)
    assert sorted(draw_by_score(scores, 5, generator)) == [3, 8, 9]
    assert draw_by_score({}, 1, generator) == []
