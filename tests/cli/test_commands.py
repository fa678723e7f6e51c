"""The commands as they are used, each to its end, on the scripted server."""

import csv
import json
import os
import re
import subprocess
import sys

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from textevolve.llm.testing import Fault, ScriptedServer
from textevolve.studies.case_rows import read_cases

CASE = ("Is 7 prime?", "Yes, it is.", "No, it is 1 x 7.")
ROWS = [
    {"id": "one", "input": "1?", "candidates": ["a", "b"]},
    {"input": "2?", "candidates": ["c", "d", "e"], "rounds": 1, "weights": {"accuracy": 0.5}},
    {"input": "3?", "candidates": ["f"], "parameters": {"seed": 9, "convergence": None}},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def batch(home):
    return write_lines(home / "cases.jsonl", ROWS)


def test_texts_come_from_files_from_standard_input_and_as_they_are(home, cli, model):
    (home / "a.txt").write_text("from a file\n", encoding="utf-8-sig")
    ended = cli("evaluate", "@a.txt", "-", "@@name", "-m", model, "--json", stdin="grün".encode())
    case = ended.rows[0]["case"]
    assert case["input"] == "from a file\n"
    assert case["candidates"] == ["grün", "@name"]


def test_options_reach_the_debate(cli, server, model):
    given = {
        "rounds": 3,
        "protocol": "simultaneous",
        "readout": "verbalized",
        "order": "swap",
        "aggregation": "median",
        "temperature": 2.0,
        "threshold": 0.25,
        "seed": 5,
        "select": "sample",
        "convergence": 0.0,
        "profile": "prompt-tuning",
    }
    options = [part for name, value in given.items() for part in (f"--{name}", value)]
    (row,) = cli("evaluate", *CASE, "-m", model, "--json", *options).rows
    used = row["profile"]
    assert used.pop("readout") == "stated"  # as records call it, so that runs stay what they are
    assert given.pop("readout") == "verbalized"
    assert {n: used[n.replace("-", "_")] for n in given if n != "profile"} == {
        n: v for n, v in given.items() if n != "profile"
    }
    assert used["name"] == "prompt-tuning"
    assert len(used["agents"]) == 4
    assert all(body["seed"] == 5 for body in server.requests)


def test_a_batch_keeps_its_order_and_each_case_its_own_parameters(cli, server, model, batch):
    ended = cli("evaluate", batch, "-m", model, "--json", "--convergence", "none")
    assert ended.code == 0
    rows = ended.rows
    assert [r["case"]["id"] for r in rows] == ["one", "2", "3"]
    assert [r["index"] for r in rows] == [0, 1, 2]
    assert [r["metrics"]["rounds"] for r in rows] == [2, 1, 2]
    assert [r["profile"]["seed"] for r in rows] == [0, 0, 9]
    assert rows[1]["profile"]["weights"] == {"accuracy": 0.5}
    assert server.calls == 6 + 3 + 6
    assert "3 of 3 done, 15 calls" in ended.err


def test_one_bad_case_fails_alone(home, cli, server, model):
    rows = [ROWS[0], {"input": "?", "candidates": [" "]}, ROWS[1] | {"rounds": 0}, ROWS[2]]
    ended = cli("evaluate", write_lines(home / "cases.jsonl", rows), "-m", model, "--json")
    assert ended.code == 3
    assert [r["metrics"]["status"] for r in ended.rows] == ["scored", "failed", "failed", "scored"]
    assert "2 failed" in ended.err
    assert "case 2 lacks a score: candidate 1 is blank" in ended.err
    assert "case 3 lacks a score: rounds: " in ended.err
    shown = cli("runs", "show")
    assert "4 cases: 2 scored, 2 failed" in shown.out
    # Doing it again asks nothing, and fails alike.
    calls = server.calls
    assert cli("runs", "resume").code == 3
    assert server.calls == calls


def test_cases_come_from_every_kind_of_file(home):
    rows = [{**row, "id": str(n)} for n, row in enumerate(ROWS, 1)]
    write_lines(home / "cases.jsonl", rows)
    (home / "cases.json").write_text(json.dumps(rows))
    with (home / "cases.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "input", "candidates", "rounds", "parameters"])
        writer.writeheader()
        for row in rows:
            names = ("candidates", "parameters")
            cells = {name: json.dumps(row[name]) for name in names if name in row}
            writer.writerow({"id": row["id"], "input": row["input"], **cells})
    columns = {
        "id": ["1", "2", "3"],
        "input": ["1?", "2?", "3?"],
        "candidate_1": ["a", "c", "f"],
        "candidate_2": ["b", "d", None],
        "candidate_3": [None, "e", None],
        "seed": [None, None, 9],
    }
    parquet.write_table(pa.table(columns), home / "cases.parquet")
    for name in ("cases.jsonl", "cases.json", "cases.csv", "cases.parquet"):
        cases = list(read_cases(name))
        assert [(c.id, c.input) for c in cases] == [("1", "1?"), ("2", "2?"), ("3", "3?")]
        assert [list(c.candidates) for c in cases] == [row["candidates"] for row in ROWS]
        assert cases[2].parameters["seed"] == 9


def test_a_package_that_writes_is_missed_before_anything_is_asked(cli, server, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = cli("evaluate", *CASE, "-m", model, "-o", "r.parquet")
    assert ended.code == 2
    assert "textevolve[parquet]" in ended.err
    assert server.calls == 0


def test_a_limit_stops_the_run_cleanly_and_it_can_be_gone_on_with(batch, cli, server, model):
    command = ("evaluate", batch, "-m", model, "--convergence", "none")
    ended = cli(*command, "--max-calls", 10)
    assert ended.code == 3
    assert server.calls == 10
    assert re.search(r"not finished within the limits .* textevolve runs resume (\S+)", ended.err)
    assert cli("runs", "resume", "--max-calls", "1").code == 3
    assert cli("runs", "resume").code == 0
    assert set(server.seen.values()) == {1}
    assert cli("runs", "list", "--json").rows[0]["status"] == "finished"


def test_a_limit_of_cost_needs_a_price_before_anything_is_asked(cli, monkeypatch):
    with ScriptedServer(key="sk-some-key-of-mine") as server:
        monkeypatch.setenv("TEXTEVOLVE_API_KEY", "sk-some-key-of-mine")
        ended = cli("evaluate", *CASE, "-m", f"{server.url}#m", "--max-cost", "1")
    assert (ended.code, server.calls) == (2, 0)
    assert f'[prices."{server.url}#m"]' in ended.err


def test_runs_are_listed_shown_and_removed(cli, server, model, batch):
    assert cli("runs", "list").out.startswith("no runs in ")
    cli("evaluate", *CASE, "-m", model, "--name", "first")
    cli("evaluate", batch, "-m", model, "--name", "second")
    rows = cli("runs", "list", "--json").rows
    assert [(r["name"], r["status"], r["cases"]) for r in rows] == [
        ("second", "finished", 3),
        ("first", "finished", 1),
    ]
    listed = cli("runs", "list").out
    assert all(row["id"] in listed for row in rows)
    calls = server.calls
    assert "Feedback on A" in cli("runs", "show", "first").out
    assert len(cli("runs", "show", "second", "--json").rows) == 3
    assert server.calls == calls
    kept = cli("runs", "delete", "first", stdin=b"n\n")
    assert kept.code == 1
    assert len(cli("runs", "list", "--json").rows) == 2
    removed = cli("runs", "delete", "first", stdin=b"y\n")
    assert "1 cases, 6 calls" in removed.out
    assert cli("runs", "delete", "last", "-y").code == 0
    assert cli("runs", "list", "--json").out == ""


def test_other_weights_are_another_run_that_asks_nothing(cli, server, model, batch):
    first = cli("evaluate", batch, "-m", model, "--json").rows
    calls = server.calls
    changed = ("--weights", "accuracy=1,relevance=0.5", "--aggregation", "median")
    fresh = cli("evaluate", batch, "-m", model, "--json", *changed).rows
    assert server.calls == calls
    assert fresh[0]["profile"]["weights"] == {"accuracy": 1, "relevance": 0.5}
    assert fresh[0]["metrics"]["scores"] != first[0]["metrics"]["scores"]


def test_doctor_tells_what_an_endpoint_can_do(cli, server, model):
    (report,) = [json.loads(cli("doctor", model, "--json").out)]
    (row,) = report["models"]
    assert row["answers"] is True
    assert {k: v["value"] for k, v in row["capabilities"].items()} == {
        "JSON schema": True,
        "log-probabilities": True,
        "decisions": True,
    }
    assert row["serves"] == ["scripted"]
    assert server.calls <= 7
    server.script = lambda body, _n: Fault.NO_LOGPROBS if body.get("logprobs") else None
    ended = cli("doctor", model)
    assert ended.code == 0
    (row,) = yaml.safe_load(ended.out)["models"]
    assert row["capabilities"]["log-probabilities"]["value"] is False
    assert "store:" in ended.out


def test_config_tells_where_each_setting_comes_from(home, cli, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_CONCURRENCY", "7")
    (home / "textevolve.toml").write_text('model = "local/smollm2-135m"\n')
    found = json.loads(cli("config", "--json").out)
    assert found["settings"]["concurrency"] == 7
    assert found["sources"]["concurrency"] == "TEXTEVOLVE_CONCURRENCY"
    assert found["sources"]["model"] == "textevolve.toml"
    said = cli("config").out
    assert re.search(r"concurrency +7  \(TEXTEVOLVE_CONCURRENCY\)", said)
    assert re.search(r"profile +general  \(default\)", said)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device here is always full")
@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line(home):
    command = [sys.executable, "-m", "textevolve", "runs", "list"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240)
    assert ended.returncode == 1
    assert ended.stderr == "error: standard output: No space left on device\n"
