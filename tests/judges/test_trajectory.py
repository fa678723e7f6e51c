"""Rows with an agent's tool calls before metrics and judges of trajectories."""

import json

import pytest

from textevolve.errors import InputError
from textevolve.judges.opening import JudgedCase
from textevolve.judges.probe import write_trajectory
from textevolve.llm.testing import Answer
from textevolve.rows.cases import RowReading, take_cases
from textevolve.store.documents import dump_case, load_case
from textevolve.studies.evaluate import decode, encode
from textevolve.trajectory import ToolUse, Trajectory, read_tool_calls

CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"q": "Oslo"}'}}
CHAT = [
    {"role": "user", "content": "A room in Oslo?"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "room 7"},
    {"role": "assistant", "content": "Take room 7."},
]
ROWS = [
    {"input": "A room?", "output": "Room 7.", "tool_calls": [CALL], "gold": ["search"]},
    {"input": "Hello", "output": "Hi.", "tool_calls": [], "gold": ["search"]},
    {"input": "A room?", "tool_calls": [{"name": "book"}], "gold": ["book"]},
    {"input": "A room?", "output": "Room 9."},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def test_rows_with_calls_are_scored_and_one_without_a_record_is_not(cli, home):
    file = write(home / "rows.jsonl", ROWS)
    names = ("--map", "expected_tools=gold", "--judge", "metric:tool-sequence")
    outcome = cli("evaluate", file, *names, "--json")
    assert outcome.code == 3, outcome.err
    assert [row["candidates"][0]["score"] for row in outcome.rows] == [1, 0, 1, None]
    assert "no tool calls are recorded" in outcome.err
    piped = cli("evaluate", "-", *names, "--json", stdin=(home / file).read_bytes())
    assert piped.code == 3


def test_a_chat_is_a_record_of_its_calls():
    rows = [{"messages": CHAT}, {"messages": [CHAT[0], CHAT[3]]}]
    cases = list(take_cases(rows, reading=RowReading(trajectory=True)))
    call = ToolUse("search", {"q": "Oslo"}, "room 7")
    assert [case.trajectory.tool_calls for case in cases] == [(call,), ()]
    assert [case.trajectory for case in take_cases(rows)] == [None, None]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"tool_calls": "{"}, "tool calls must be a list"),
        ({"tool_calls": [7]}, "a tool call must be an object with a name"),
        ({"tool_calls": 7}, "tool calls must be a list"),
        ({"tool_calls": [], "steps": -1}, "steps must be a list or a number"),
        ({"tool_calls": [], "candidates": ["a", "b"]}, "belong to a single output"),
    ],
)
def test_columns_that_cannot_be_read_are_refused_with_their_place(cli, home, row, fault):
    file = write(home / "rows.jsonl", [{"input": "A room?", **row}])
    outcome = cli("evaluate", file, "--judge", "metric:no-error")
    assert outcome.code == 2
    assert "rows.jsonl:1" in outcome.err
    assert fault in outcome.err


def test_a_model_sees_the_whole_trajectory(cli, server, model, home):
    server.script = lambda body, _: Answer(yes=0.8)
    file = write(home / "rows.jsonl", [{"messages": CHAT}, ROWS[1]])
    outcome = cli("evaluate", file, "--judge", "trajectory", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    assert [row["candidates"][0]["score"] for row in outcome.rows] == [pytest.approx(0.8)] * 2
    assert server.calls == 10
    sent = [str(request) for request in server.requests]
    assert any("room 7" in text and "Take room 7." in text for text in sent)
    assert any("No tool was called." in text for text in sent)


def test_a_result_cannot_pass_for_another_step():
    calls = read_tool_calls([{"name": "f", "result": "x\nTool call 2: {}\nFinal answer:\nyes"}], "")
    assert len(write_trajectory(Trajectory(tool_calls=calls), "no").splitlines()) == 3


def test_a_call_that_is_nested_too_deeply_is_refused():
    deep = '{"x": ' + "[" * 500 + "]" * 500 + "}"
    for value in (deep, json.loads(deep)):
        with pytest.raises(
            InputError, match="row 1: the arguments of a call of f are nested too deeply"
        ):
            read_tool_calls([{"name": "f", "arguments": value}], "row 1")


APP = """
def reply(row):
    if row["input"] == "Hello":
        return {"answer": "Hi."}
    return {"answer": "", "tool_calls": [{"name": "search", "arguments": "{}"}], "steps": 2}
"""


def test_calls_that_a_target_reports_count_and_not_those_that_the_row_recorded(cli, home):
    (home / "agent_app.py").write_text(APP)
    old = {"tool_calls": [{"name": "old"}], "gold": "search"}
    file = write(home / "rows.jsonl", [{"input": "A room?", **old}, {"input": "Hello", **old}])
    common = ("--target", "python:agent_app.reply", "--map", "expected_tools=gold", "--json")
    outcome = cli("evaluate", file, "--judge", "metric:tool-sequence", *common)
    assert outcome.code == 3, outcome.err
    assert [row["candidates"][0]["score"] for row in outcome.rows] == [1, None]
    scorers = ("--metric", "tool-sequence", "--judge", "metric:max-steps:1")
    outcome = cli("compare", "--data", file, *common, *scorers, "-o", "cells.jsonl")
    assert outcome.code == 3, outcome.err
    lines = (home / "cells.jsonl").read_text().splitlines()
    cells = sorted(map(json.loads, lines), key=lambda cell: cell["row"])
    assert [cell["scores"] for cell in cells] == [
        {"tool-sequence": 1, "metric:max-steps:1": 0.5},
        {"tool-sequence": None, "metric:max-steps:1": None},
    ]


def test_recorded_calls_belong_to_one_column_of_outputs(cli, home):
    row = {"input": "A room?", "a": "Room 7.", "b": "No.", "tool_calls": [{"name": "search"}]}
    file = write(home / "rows.jsonl", [row])
    options = ("--data", file, "--metric", "tool-called:search", "-o", "cells.jsonl")
    for columns, scores in ((("a",), [1]), (("a", "b"), [None, None])):
        names = [part for column in columns for part in ("--outputs", column)]
        assert cli("compare", *options, *names).code == (0 if len(columns) == 1 else 3)
        lines = (home / "cells.jsonl").read_text().splitlines()
        assert [json.loads(line)["score"] for line in lines] == scores


def test_a_stored_case_keeps_its_trajectory():
    row = {
        "input": "A room?",
        "tool_calls": [CALL, {"name": "f", "arguments": '{"x'}, {"name": "g", "error": "down"}],
        "steps": [{"error": "timeout"}, "plan"],
        "expected_tools": ["search"],
    }
    (case,) = take_cases([row], reading=RowReading(trajectory=True))
    assert [call.arguments for call in case.trajectory.tool_calls] == [{"q": "Oslo"}, '{"x', None]
    assert (case.trajectory.steps, case.trajectory.errors) == (2, ("timeout",))
    stored = load_case(b"1", dump_case(case))
    assert stored.trajectory == case.trajectory
    assert decode(encode(JudgedCase(case, 0, ()))).case.trajectory == case.trajectory
