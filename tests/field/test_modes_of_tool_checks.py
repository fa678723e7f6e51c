"""Checks of tool calls have modes, several names and goals, as promptfoo's users write them.

A call has one argument more than the check names. By promptfoo's documentation the mode `partial`,
which is the default there, lets it pass and `exact` does not; of several forbidden tools none may
be called; and the value of goal-success is the goal that the grader is asked about. What a check
does not read has to be refused by its name.
"""

import pytest

import textevolve
from textevolve.errors import InputError
from textevolve.loops.checks import read_check

SEARCH = {"name": "search", "arguments": {"order": "1", "page": {"at": 2, "of": 9}, "ids": [1, 2]}}
MATCH = "trajectory:tool-args-match"
USED = "trajectory:tool-used"
ARGUMENTS = SEARCH["arguments"]


def judge(*checks, **options):
    """Return the result of one output by each check."""
    row = {"input": "Find order 1.", "output": "Found.", "tool_calls": [SEARCH]}
    rows = [{**row, "checks": [check]} for check in checks]
    cases = textevolve.evaluate_batch(rows, judge="checks", ordered=True, **options)
    return [case.result[0] for case in cases]


MODES = [
    ({"order": "1"}, None, True),
    ({"order": "1"}, "partial", True),
    ({"order": "1"}, "exact", False),
    (ARGUMENTS, "exact", True),
    (ARGUMENTS, "partial", True),
    ({"order": 1}, "partial", False),
    ({"order": "1", "limit": 5}, "partial", False),
    # Objects within the arguments may have further fields, too; lists have no further items.
    ({"page": {"at": 2}}, "partial", True),
    ({"page": {"at": 3}}, "partial", False),
    ({"page": 2}, "partial", False),
    ({"ids": [1, 2]}, "partial", True),
    ({"ids": [1]}, "partial", False),
    ({"ids": {"0": 1}}, "partial", False),
    ({}, "partial", True),
    ({}, "exact", False),
]


def test_modes_of_arguments(home):
    checks = []
    for expected, mode, _ in MODES:
        value = {"name": "search", "args": expected} | ({} if mode is None else {"mode": mode})
        checks += [{"type": MATCH, "value": value}, {"type": f"not-{MATCH}", "value": value}]
    found = zip(MODES, *[iter(judge(*checks))] * 2, strict=True)
    for (expected, mode, holds), result, turned in found:
        assert (expected, mode, result.score, result.passed) == (expected, mode, holds, holds)
        assert turned.passed != holds


def test_our_own_check_is_exact(home):
    value = {"name": "search", "args": {"order": "1"}}
    exact, partial = judge({"tool-args": value}, {"tool-args": {**value, "mode": "partial"}})
    assert not exact.passed
    assert partial.passed


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({"tool-called": {"name": "search", "mode": "exact"}}, "no field 'mode'"),
        ({MATCH: {"name": "search"}}, "without `steps` or `args`"),
        ({"tool-sequence": {"steps": ["search"], "name": "search"}}, "no field 'name'"),
        ({MATCH: {"name": "search", "args": {}, "mode": "loose"}}, "exact or partial, not 'loose'"),
        ({MATCH: {"name": "search", "args": {}, "ignore": "page"}}, "no field 'ignore'"),
        ({MATCH: {"pattern": "sea*", "args": {}}}, "no field 'pattern'"),
        ({MATCH: {"name": "sea*", "args": {}}}, "whole name"),
        ({USED: {"name": "search", "type": "span"}}, "no field 'type'"),
        # A pattern would be the name of no tool, so that a forbidden one always passes.
        ({f"not-{USED}": "sea*"}, "whole name"),
        ({"trajectory:tool-sequence": ["search", "pay_*"]}, "whole names"),
        ({"trajectory:tool-sequence": {"steps": [{"pattern": "sea*"}]}}, "whole names"),
        ({"max-steps": {"max": 2, "type": "tool"}}, "no field 'type'"),
        # A score is no value of a check without one.
        ("faithfulness: 0.8", "faithfulness(0.8)"),
        ({"answer-relevance": 0.7}, "takes no value"),
    ],
    ids=str,
)
def test_what_is_not_read_is_refused(home, check, told):
    with pytest.raises(InputError, match=told.replace("(", r"\(").replace(")", r"\)")):
        judge(check)


@pytest.mark.parametrize("check", [USED, "tool-called"])
def test_none_of_several_tools(home, check):
    tools = [["drop", "search"], ["drop", "pay"], ["search"]]
    results = judge(*({f"not-{check}": names} for names in tools))
    assert [(result.score, result.passed) for result in results] == [
        (0, False),
        (1, True),
        (0, False),
    ]


def test_thresholds_without_values():
    assert read_check("faithfulness(0.8)")["threshold"] == 0.8


def test_goals_are_asked_about(home, server, model):
    judge({"type": "trajectory:goal-success", "value": "Order 1 is cancelled."}, model=model)
    questions = [str(body["messages"]) for body in server.requests]
    assert questions
    assert all("reached this goal: Order 1 is cancelled." in question for question in questions)
    server.requests.clear()
    judge("trajectory", model=model)
    assert len(server.requests) > 1
    assert "reached this goal" not in str(server.requests)
