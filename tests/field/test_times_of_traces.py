"""Pictures of recorded times: bars beside their axis, steps of no length, and steps that were never
timed, as other viewers of traces drew them.

A viewer divided each bar by the duration of the outermost step, so that those of a background
task, which ends after it, stood beyond the page; another began the axis with the outermost step,
though the clock of a tool was ahead; and steps without a duration were drawn as if they took none.
"""

import re
from io import BytesIO

import pytest

from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.judging import Episode, place_nodes
from textevolve.report.html import write_html
from textevolve.studies.node_report import as_record, report, summarise_nodes
from textevolve.studies.nodes import NodesSpec


def step(name, start, seconds, *path):
    return HistoryItem(1000.0 + start, node=name, seconds=seconds, path=path)


def draw(*steps):
    """Return the start and the width of the bar of each step, in percent, and the page."""
    nodes = place_nodes([Episode("one", History([[each] for each in steps]))])
    records = [as_record(node, number) for number, node in enumerate(nodes, 1)]
    target = BytesIO()
    write_html(report(NodesSpec(), summarise_nodes(NodesSpec(), records)), target)
    page = target.getvalue().decode()
    bars = re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', page)
    return [tuple(map(float, bar)) for bar in bars], page


def test_background_work_outlives_the_agent():
    bars, _ = draw(step("store", 1, 9, "answer"), step("answer", 0, 2))
    assert bars == [(0.0, 20.0), (10.0, 90.0)]


def test_a_tool_with_a_fast_clock_begins_the_axis():
    bars, _ = draw(step("tool", -1, 2, "agent"), step("agent", 0, 3))
    assert bars == [(25.0, 75.0), (0.0, 50.0)]


def test_steps_of_no_length_are_drawn():
    bars, page = draw(step("route", 2, 0.0, "agent"), step("agent", 0, 4))
    assert bars == [(0.0, 100.0), (50.0, 0.0)]
    assert "0 ms" in page


def test_steps_never_timed_have_no_bar():
    bars, page = draw(step("route", 2, None, "agent"), step("agent", 0, 4))
    assert bars == [(0.0, 100.0)]
    assert "route" in page


@pytest.mark.parametrize("steps", [[step("only", 0, 0.0)], [step("only", 0, None)]])
def test_an_episode_without_length_has_no_axis(steps):
    bars, page = draw(*steps)
    assert bars == []
    assert "only" in page
