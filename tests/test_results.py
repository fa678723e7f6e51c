"""Logs of Inspect and results of promptfoo are rows."""

import json
import sys
import zipfile
from pathlib import Path

import pytest

from textevolve.errors import InputError, SettingsError
from textevolve.rows import read_rows
from textevolve.trajectory import ToolUse, read_tool_calls

SAMPLE = {
    "id": 1,
    "epoch": 1,
    "input": "Why are there tides?",
    "target": "the moon",
    "messages": [{"role": "user", "content": "Why are there tides?"}],
    "output": {"model": "m", "choices": [], "completion": "The moon pulls on the sea."},
    "scores": {"match": {"value": "C"}},
}
CHAT = {
    **SAMPLE,
    "epoch": 2,
    "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tides?"}],
    "target": ["moon", "sun"],
    "messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": "look"}]}],
}
ROWS = [
    {
        "id": "1",
        "input": "Why are there tides?",
        "output": "The moon pulls on the sea.",
        "reference": "the moon",
    },
    {
        "id": "1",
        "epoch": 2,
        "input": "System: Be brief.\nUser: Tides?",
        "output": "The moon pulls on the sea.",
        "reference": ["moon", "sun"],
        "tool_calls": CHAT["messages"],
    },
]
RESULT = {
    "promptIdx": 0,
    "testIdx": 3,
    "testCase": {"vars": {}, "assert": [{"type": "contains", "value": "{{ hour }}"}]},
    "prompt": {"raw": "When is high water at Brest?", "label": "When is high water at {{port}}?"},
    "provider": {"id": "openai:gpt"},
    "response": {"output": "At noon."},
    "vars": {"port": "Brest", "hour": "noon"},
    "success": True,
}
ASKED = {"input": "When is high water at Brest?", "output": "At noon."}
JUDGED = {
    **ASKED,
    "id": "3-0-openai:gpt",
    "reference": "noon",
    "group": '{"hour": "noon", "port": "Brest"}',
}


def read(path):
    return [row for _, row in read_rows(str(path), "case", lambda _name: True)]


def test_an_archive_of_inspect(tmp_path):
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as log:
        log.writestr("header.json", json.dumps({"version": 2, "eval": {}}))
        log.writestr("samples/1_epoch_1.json", json.dumps(SAMPLE))
        log.writestr("samples/1_epoch_2.json", json.dumps(CHAT))
    assert read(path) == ROWS
    path.write_text("no archive")
    with pytest.raises(InputError, match="cannot be read as a log of Inspect"):
        read(path)


def test_an_archive_as_inspect_itself_writes_it():
    """Version 0.3.285 compresses by Zstandard, which Python itself reads from 3.14 on."""
    if sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    path = Path(__file__).parent / "node_eval" / "fixtures" / "exports" / "inspect.eval"
    first, second = read(path)
    calls = read_tool_calls(first.pop("tool_calls"), "row 1")
    assert calls == (ToolUse("tide_table", {"port": "Brest"}, "12:00"),) * 2
    assert first == {**ASKED, "id": "1", "output": "High water is at noon.", "reference": "noon"}
    choices = "EMPTY: what pulls the sea?\nA) the moon\nB) the wind"
    assert second == {"id": "2", "input": choices, "reference": "A"}


def test_an_archive_names_the_package_that_it_needs(monkeypatch):
    path = Path(__file__).parent / "node_eval" / "fixtures" / "exports" / "inspect.eval"
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "backports.zstd.zipfile", None)
    if sys.version_info < (3, 14):
        with pytest.raises(SettingsError, match=r"textevolve\[inspect\]"):
            read(path)


def test_a_log_of_inspect(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"version": 2, "eval": {}, "samples": [SAMPLE, CHAT]}))
    assert read(path) == ROWS


@pytest.mark.parametrize(
    "document",
    [
        {"eval": {}, "samples": [1, None]},
        {"eval": {}, "samples": [{**SAMPLE, "output": "text", "messages": 3}]},
        {"results": [{**RESULT, "response": [], "provider": 1}]},
        {"results": [None]},
    ],
)
def test_results_of_another_shape_are_refused(tmp_path, document):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError):
        read(path)


def test_results_of_promptfoo(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"evalId": "e", "results": {"version": 3, "results": [RESULT]}}))
    assert read(path) == [JUDGED]
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(RESULT) + "\n")
    assert read(path) == [JUDGED]


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("port,[openai:gpt] When is high water at {{port}}?,Status,Score", "Brest,At noon.,PASS,1"),
        (
            "port,[a] When is high water at {{port}}?,Status,[b] {{ port }}?,Status",
            'Brest,At noon.,PASS,"Late.",FAIL',
        ),
        ("port,[a] When is high water at {{port}}?,Status", "Brest,At noon.,PASS\nBrest?,,ERROR"),
        (
            "port,[openai:gpt] When is high water at {{port}}?",
            'Brest,"[PASS] (1.00)\n\nAt noon.\n\nPass Reason: All assertions passed"',
        ),
    ],
)
def test_tables_of_promptfoo(tmp_path, header, cells):
    path = tmp_path / "results.csv"
    path.write_text(f"{header}\n{cells}\n")
    first, *more = read(path)
    assert first == {**ASKED, "group": '{"port": "Brest"}'}
    assert [row.pop("group") for row in more] in ([], ['{"port": "Brest"}'], ['{"port": "Brest?"}'])
    without_output = {"input": "When is high water at Brest??", "output": ""}
    assert more in ([], [{"input": "Brest?", "output": "Late."}], [without_output])


def test_columns_of_rows_of_promptfoo_are_renamed(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("port,[a] {{port}}?\nBrest,Late.\n")
    rows = read_rows(str(path), "case", lambda _: True, {"question": "input"})
    group = '{"port": "Brest"}'
    assert [row for _, row in rows] == [{"question": "Brest?", "output": "Late.", "group": group}]
    with pytest.raises(InputError, match="no row has a column 'port'"):
        list(read_rows(str(path), "case", lambda _: True, {"question": "port"}))
