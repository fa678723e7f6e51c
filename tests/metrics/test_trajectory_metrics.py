"""Metrics of tool calls against a table of cases whose scores were worked out by hand."""

import json

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Failure
from textevolve.metrics.label_metrics import describe_metric, grade, needs_label, open_metric

SEARCH = {"name": "search", "arguments": {"city": "Oslo"}}
BOOK = {"name": "book", "arguments": {"hotel": 7, "nights": 2}}
PAY = {"name": "pay", "arguments": {}}
OPENAI = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"n": 1}'}}
BROKEN = {"function": {"name": "search", "arguments": '{"city": "Os'}}
FAILED = {**PAY, "error": "card declined"}
DEEP = {"name": "search", "arguments": {"where": {"city": "Oslo", "zip": ["0150", 1]}, "n": None}}
CHAT = [
    {"role": "user", "content": "A room in Oslo?"},
    {"role": "assistant", "content": None, "tool_calls": [OPENAI]},
    {"role": "tool", "tool_call_id": "1", "content": "timeout", "status": "error"},
    {"role": "assistant", "content": "Not now."},
]
THREE = [SEARCH, BOOK, PAY]
NONE = None


def expect(*tools, **more):
    return {"expected_tools": list(tools), **more}


# The metric, the column of tool calls, the other columns, and the score; None: no score.
CASES = [
    # which tool, how often
    ("tool-called:search", THREE, {}, 1),
    ("tool-called:Search", THREE, {}, 0),
    ("tool-called:cancel", THREE, {}, 0),
    ("tool-called:search", [], {}, 0),
    ("tool-called:search", NONE, {}, None),
    ("tool-called:search", "", {}, None),
    ("tool-called:search", [OPENAI], {}, 1),
    ("tool-called:search", json.dumps(THREE), {}, 1),
    ("tool-called:search", [BROKEN], {}, 1),
    ("tool-called:search", "book, search", {}, 1),
    ("tool-called:search", CHAT, {}, 1),
    ("tool-called:search", CHAT[:1], {}, 0),
    ("tool-called:search", [{"arguments": {}}], {}, None),
    ("tool-called:search", {"name": "search"}, {}, None),
    ("tool-called:search=2", [SEARCH, BOOK, SEARCH], {}, 1),
    ("tool-called:search=2", [SEARCH], {}, 0),
    ("tool-called:search=2", [SEARCH] * 3, {}, 0),
    ("tool-called:search=0", [BOOK], {}, 1),
    ("tool-called:search=0", THREE, {}, 0),
    ("tool-called:search=2..", [SEARCH] * 3, {}, 1),
    ("tool-called:search=..2", [SEARCH] * 3, {}, 0),
    ("tool-called:search=1..3", [SEARCH] * 3, {}, 1),
    # in which order
    ("tool-sequence:search,book,pay", THREE, {}, 1),
    ("tool-sequence:search,book", THREE, {}, 0),
    ("tool-sequence:book,search,pay", THREE, {}, 0),
    ("tool-sequence", THREE, expect("search", "book", "pay"), 1),
    ("tool-sequence", THREE, expect(SEARCH, BOOK, PAY), 1),
    ("tool-sequence", THREE, {"expected_tools": "search,book,pay"}, 1),
    ("tool-sequence", THREE, {}, None),
    ("tool-sequence", [], expect(), 1),
    ("tool-sequence", THREE, expect(), 0),
    ("tool-sequence:exact", [SEARCH, SEARCH], expect("search"), 0),
    ("tool-sequence:in-order:search,pay", THREE, {}, 1),
    ("tool-sequence:in-order:pay,search", THREE, {}, 0),
    ("tool-sequence:in-order:cancel,search,pay", THREE, {}, 0),
    ("tool-sequence:any-order:cancel,search,pay", THREE, {}, 2 / 3),
    ("tool-sequence:in-order:search,search", [SEARCH, BOOK], {}, 0),
    ("tool-sequence:in-order:search,search", [SEARCH, BOOK, SEARCH], {}, 1),
    ("tool-sequence:in-order", [], expect("search"), 0),
    ("tool-sequence:any-order:pay,search", THREE, {}, 1),
    ("tool-sequence:any-order:search,search", THREE, {}, 1 / 2),
    ("tool-sequence:any-order:cancel,refund", THREE, {}, 0),
    ("tool-sequence:any-order", NONE, expect("search"), None),
    # with which arguments
    ('tool-args:search={"city": "Oslo"}', THREE, {}, 1),
    ('tool-args:search={"city": "oslo"}', THREE, {}, 0),
    ('tool-args:book={"nights": 2.0, "hotel": 7}', THREE, {}, 1),
    ('tool-args:book={"hotel": 7}', THREE, {}, 0),
    ("tool-args:book=5", [{"name": "book", "arguments": 5}], {}, 1),
    ('tool-args:search={"n": true}', [OPENAI], {}, 0),
    ('tool-args:search={"n": 1.0}', [OPENAI], {}, 1),
    ('tool-args:search={"n": 1}', [BROKEN, OPENAI], {}, 1),
    ('tool-args:search={"city": "Oslo"}', [BROKEN], {}, 0),
    (f"tool-args:search={json.dumps(DEEP['arguments'])}", [DEEP], {}, 1),
    ('tool-args:search={"where": {"city": "Oslo", "zip": ["0150", "1"]}}', [DEEP], {}, 0),
    ("tool-args:pay={}", [{"function": {"name": "pay", "arguments": ""}}], {}, 1),
    ("tool-args:pay={}", [{"name": "pay"}], {}, None),
    ("tool-args", [BOOK, SEARCH], expect(SEARCH, {**BOOK, "arguments": {"hotel": 8}}), 1 / 2),
    ("tool-args", [BOOK, BOOK, SEARCH], expect(SEARCH, BOOK), 1),
    ("tool-args", THREE, expect("search"), None),
    # how many steps, with which errors
    ("max-steps:3", THREE, {}, 1),
    ("max-steps:2", THREE, {}, 2 / 3),
    ("max-steps:2", NONE, {"steps": 4}, 1 / 2),
    ("max-steps:2", THREE, {"steps": [{"text": "plan"}, {"error": "timeout"}]}, 1),
    ("max-steps:0", [], {}, 1),
    ("max-steps:2", NONE, {}, None),
    ("no-error", THREE, {}, 1),
    ("no-error", [SEARCH, FAILED], {}, 0),
    ("no-error", THREE, {"steps": [{"text": "plan"}, {"error": "timeout"}]}, 0),
    ("no-error", CHAT, {}, 0),
    ("no-error", [{**PAY, "error": None, "result": "error: none"}], {}, 1),
    ("no-error", [], {}, 1),
    ("no-error", NONE, {}, None),
]


@pytest.mark.parametrize("as_texts", [False, True], ids=["values", "texts"])
@pytest.mark.parametrize(("metric", "calls", "row", "score"), CASES)
def test_the_table_of_cases(metric, calls, row, score, as_texts):
    """Rows of a comparison hold texts, those of an evaluation values."""
    row = {"input": "A room?", "tool_calls": calls, **row}
    if as_texts:
        row = {
            n: v if isinstance(v, str) else "" if v is None else json.dumps(v)
            for n, v in row.items()
        }
    result = grade(open_metric(metric), "Done.", None, row=row)
    if score is None:
        assert isinstance(result, Failure)
        assert result.reason
    else:
        assert result.score == pytest.approx(score)
        assert result.passed == (score == 1)
        assert bool(result.feedback) == (score < 1)


def test_arguments_by_a_schema(tmp_path):
    file = tmp_path / "search.json"
    schema = {"properties": {"city": {"type": "string", "pattern": "^[A-Z]"}}, "required": ["city"]}
    file.write_text(json.dumps(schema))
    metric = f"tool-args:search:{file}"
    lower = {"name": "search", "arguments": {"city": "oslo"}}
    for calls, score in (([SEARCH], 1), ([SEARCH, lower, BROKEN, PAY], 1 / 3), ([PAY], 0)):
        result = grade(open_metric(metric), "", None, row={"tool_calls": calls})
        assert result.score == pytest.approx(score)
    assert "search was not called" in result.feedback
    assert describe_metric(metric) == file.read_text()
    assert not needs_label(metric)
    file.write_text("[")
    with pytest.raises(InputError, match="not valid JSON"):
        open_metric(metric)


@pytest.mark.parametrize(
    "metric",
    [
        *("tool-called", "tool-called:", "tool-called:search=", "tool-called:search=two"),
        *(
            "tool-called:search=1234567890",
            "tool-args:search",
            "tool-args:search={",
            "tool-args:=1",
        ),
        *("tool-args:search:missing.json", "max-steps", "max-steps:-1", "no-error:x"),
        "tool-sequence:inorder:search",
    ],
)
def test_options_that_cannot_be_used_are_refused(metric):
    with pytest.raises(InputError):
        open_metric(metric)
