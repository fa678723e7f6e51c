"""The commands as they are used, each to its end, on the scripted server."""

import json
import os
import re
import subprocess
import sys

import pytest

from textevolve.llm.testing import ScriptedServer

CASE = ("Is 7 prime?", "Yes, it is.", "No, it is 1 x 7.")
ROWS = [
    {"id": "one", "input": "1?", "candidates": ["a", "b"]},
    {"input": "2?", "candidates": ["c", "d", "e"], "rounds": 1, "weights": {"accuracy": 0.5}},
    {"input": "3?", "candidates": ["f"], "parameters": {"seed": 9, "convergence": None}},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_texts_come_from_files_from_standard_input_and_as_they_are(home, cli, model):
    (home / "a.txt").write_text("from a file\n", encoding="utf-8-sig")
    outcome = cli("evaluate", "@a.txt", "-", "@@name", "-m", model, "--json", stdin="grün".encode())
    case = outcome.rows[0]["case"]
    assert case["input"] == "from a file\n"
    assert case["candidates"] == ["grün", "@name"]


def test_the_last_run_is_that_of_the_last_command_and_keeps_its_own_rows(home, cli):
    for name in ("a.jsonl", "b.jsonl", "a.jsonl"):  # the third command is the first run again
        rows = write_lines(home / name, [{"input": name, "output": "x"}])
        assert cli("evaluate", name, "--judge", "look:length").code == 0
    assert cli("runs", "show", "--json").rows[0]["input"] == "a.jsonl"
    outcome = cli("runs", "export", "last", "a.jsonl")
    assert (outcome.code, "would be overwritten" in outcome.err) == (2, True)
    assert "candidate" not in rows.read_text()


def test_one_bad_case_fails_alone(home, cli, server, model):
    rows = [ROWS[0], {"input": "?", "candidates": [" "]}, ROWS[1] | {"rounds": 0}, ROWS[2]]
    outcome = cli("evaluate", write_lines(home / "cases.jsonl", rows), "-m", model, "--json")
    assert outcome.code == 3
    assert [r["metrics"]["status"] for r in outcome.rows] == [
        "scored",
        "failed",
        "failed",
        "scored",
    ]
    assert "2 failed" in outcome.err
    assert "case 2 lacks a score: candidate 1 is blank" in outcome.err
    assert "case 3 lacks a score: rounds must be" in outcome.err
    printed_outcome = cli("runs", "show")
    assert "2 of 2 cases passed" in printed_outcome.out
    assert "2 failed without a score" in " ".join(printed_outcome.out.split())
    # Doing it again asks nothing, and fails alike.
    calls = server.calls
    assert cli("runs", "resume").code == 3
    assert server.calls == calls


def test_what_cannot_be_written_is_refused_before_anything_is_asked(
    cli, server, model, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = cli("evaluate", *CASE, "-m", model, "-o", "r.parquet")
    assert outcome.code == 2
    assert "textevolve[parquet]" in outcome.err
    monkeypatch.setattr(os, "access", lambda *_: False)  # a folder that only others may change
    outcome = cli("evaluate", *CASE, "-m", model, "-o", "r.csv")
    assert (outcome.code, "r.csv: cannot be written (no right" in outcome.err) == (2, True)
    assert server.calls == 0


def test_a_limit_of_cost_needs_a_price_before_anything_is_asked(cli, monkeypatch):
    with ScriptedServer(key="sk-some-key-of-mine") as server:
        monkeypatch.setenv("TEXTEVOLVE_API_KEY", "sk-some-key-of-mine")
        outcome = cli("evaluate", *CASE, "-m", f"{server.url}#m", "--max-cost", "1")
    assert (outcome.code, server.calls) == (2, 0)
    assert f'[prices."{server.url}#m"]' in outcome.err


def test_config_tells_where_each_setting_comes_from(home, cli, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_CONCURRENCY", "7")
    (home / "textevolve.toml").write_text('model = "local/smollm2-135m"\n')
    payload = json.loads(cli("config", "--json").out)
    assert payload["settings"]["concurrency"] == 7
    assert payload["sources"]["concurrency"] == "TEXTEVOLVE_CONCURRENCY"
    assert payload["sources"]["model"] == "textevolve.toml"
    output = cli("config").out
    assert re.search(r"concurrency +7  \(TEXTEVOLVE_CONCURRENCY\)", output)
    assert re.search(r"profile +general  \(default\)", output)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device here is always full")
@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line(home):
    command = [sys.executable, "-m", "textevolve", "runs", "list"]
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240
        )
    assert process.returncode == 1
    assert process.stderr == "error: standard output: No space left on device\n"
