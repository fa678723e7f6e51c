"""Selection: the same rows for all, ties to the older."""

from hypothesis import given
from hypothesis import strategies as st

from textevolve.loops.calibration.search import (
    ArmStatistics,
    choose_beam,
    draw_rows,
    try_fast,
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
