"""Rows without a score in pictures of scores. Charts of other tools drew a missing score as a bar
at 0, broke where only some rows had one, or lost what lay beyond their axis."""

import math

import pytest

from textevolve.runs.aggregates import Aggregates, draw_histogram
from textevolve.runs.study import Row


def draw(scores, failed=0):
    figures = Aggregates()
    for n, score in enumerate(scores):
        figures.add(Row(str(n), n, str(n), score))
    for n in range(failed):
        figures.add(Row(f"f{n}", n, f"f{n}", None, "failed", "no answer"))
    return draw_histogram({"": figures})


def test_missing_scores_are_in_no_bar():
    (plot,) = draw([0.45] * 6 + [0.95] * 6, failed=8)
    bars = plot.lines[""]
    assert (bars[0], sum(bars)) == (0, 12)


@pytest.mark.parametrize("odd", [math.nan, None])
def test_scores_that_are_no_number_spoil_nothing(odd):
    (plot,) = draw([0.45] * 12 + [odd])
    assert sum(plot.lines[""]) == 12


def test_scores_beyond_the_axis_are_not_lost():
    assert draw([0.45] * 12 + [7.0]) == []
    (plot,) = draw([0.45] * 12 + [0.0, 1.0])
    assert plot.lines[""][::9] == [1, 1]
