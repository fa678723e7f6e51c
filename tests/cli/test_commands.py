"""The commands as they are used, each to its end, on the scripted server."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from parameter_sets import slow_but_first
from textevolve.llm.testing import Fault, ScriptedServer

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


def same_figures(one, other):
    """Two results but for how long their calls took."""
    drop = {"seconds"}
    return {k: v for k, v in one["metrics"].items() if k not in drop} == {
        k: v for k, v in other["metrics"].items() if k not in drop
    }


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


def test_cases_come_from_every_kind_of_file(home, cli, server, model, batch):
    rows = cli("evaluate", batch, "-m", model, "--json").rows
    calls = server.calls
    (home / "cases.json").write_text(json.dumps(ROWS))
    nested = [{**row, "parameters": json.dumps(row.get("parameters", {}))} for row in ROWS]
    with (home / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        names = ["id", "input", "candidates", "rounds", "weights", "parameters"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in nested:
            cells = {k: json.dumps(v) for k, v in row.items() if k in ("candidates", "weights")}
            writer.writerow(row | cells)
    columns = {
        "id": ["one", None, None],
        "input": [row["input"] for row in ROWS],
        "candidate_1": ["a", "c", "f"],
        "candidate_2": ["b", "d", None],
        "candidate_3": [None, "e", None],
        "rounds": [None, 1, None],
        "parameters": [None, {"weights": {"accuracy": 0.5}}, None],
        "seed": [None, None, 9],
    }
    parquet.write_table(pa.table(columns), home / "cases.parquet")
    for name in ("cases.json", "cases.csv", "cases.parquet"):
        found = cli("evaluate", name, "-m", model, "--json").rows
        assert [r["case"]["input"] for r in found] == ["1?", "2?", "3?"]
        assert [r["case"]["candidates"] for r in found] == [row["candidates"] for row in ROWS]
        assert [r["profile"]["seed"] for r in found] == [0, 0, 9]
        assert all(same_figures(a, b) for a, b in zip(found[:2], rows[:2], strict=True))
    piped = cli("evaluate", "-", "-m", model, "--json", stdin=batch.read_bytes())
    assert piped.rows == rows
    # The journal knows the questions, whichever file they come from.
    assert server.calls == calls


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


def test_results_go_to_every_kind_of_file(home, cli, model, batch):
    command = ("evaluate", batch, "-m", model, "--threshold", "0")
    rows = cli(*command, "--json").rows
    for name in ("r.jsonl", "r.csv", "r.parquet"):
        ended = cli(*command, "-o", name)
        assert ended.code == 0
        assert f"written to {name}" in ended.err
    assert [json.loads(line) for line in (home / "r.jsonl").read_text().splitlines()] == rows
    with (home / "r.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["text"] for row in table] == ["a", "b", "c", "d", "e", "f"]
    scores = [score for row in rows for score in row["metrics"]["scores"]]
    assert [float(row["score"]) for row in table] == pytest.approx(scores)
    assert parquet.read_table(home / "r.parquet").column("score").to_pylist() == scores
    assert cli("runs", "export", "last", "-").rows == rows
    for name in ("e.csv", "e.parquet"):
        assert cli("runs", "export", "last", name).code == 0
        assert (home / name).read_bytes() == (home / f"r{name[1:]}").read_bytes()


@pytest.mark.slow
def test_a_dry_run_asks_nothing_and_says_what_the_run_then_takes(home, cli, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [
        {
            "input": f"Why {n}? " * 40,
            "candidates": [f"Because of {k}. " * 30 for k in range(n)],
            "rounds": n,
            "protocol": p,
        }
        for n, p in ((1, "sequential"), (2, "simultaneous-summary"), (3, "independent"))
    ]
    rows += [
        {
            **rows[1],
            "input": f"Why {3 + b}? " * 40,
            "protocol": "escalation",
            "escalate_below": b,
            "convergence": None,
        }
        for b in (0, 1)
    ]
    path = write_lines(home / "cases.jsonl", rows)
    model = f"{server.url}#priced"
    (home / "textevolve.toml").write_text(f'[prices."{model}"]\ninput = 1.0\noutput = 4.0\n')
    for readout in ("verbalized", "after-argument"):
        command = ("evaluate", path, "-m", model, "--readout", readout)
        calls = server.calls
        (foreseen,) = cli(*command, "--dry-run", "--json").rows
        said = cli(*command, "--dry-run").out
        assert server.calls == calls
        assert max(map(len, said.splitlines())) <= 80
        assert cli("runs", "list", "--json").rows == [] or readout == "after-argument"
        assert foreseen["cases"] == 5
        assert re.search(r"cost +\$0\.\d+ \(\$0\.\d+ to \$0\.\d+\)", said)
        assert re.search(r"^ +your prices$", said, re.MULTILINE)
        results = cli(*command, "--json", "--store", f"{readout}.db").rows
        spent = {
            "calls": sum(r["metrics"]["calls"] for r in results),
            "cost": sum(r["metrics"]["cost"] for r in results),
        }
        for kind in ("prompt_tokens", "completion_tokens"):
            used = [t["usage"] for r in results for t in r["turns"]]
            used += [r["extra_usage"] for r in results]
            spent[kind] = sum(u[kind] for u in used)
        for name, number in spent.items():
            middle = foreseen["expected"][name]["median"]
            assert 0.5 * middle < number < 2 * middle, name


def test_a_package_that_writes_is_missed_before_anything_is_asked(cli, server, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = cli("evaluate", *CASE, "-m", model, "-o", "r.parquet")
    assert ended.code == 2
    assert "textevolve[parquet]" in ended.err
    assert server.calls == 0


LIMITS = {"--max-calls": "20", "--max-cost": "0.03"}


@pytest.mark.parametrize("limit", slow_but_first(LIMITS))
def test_a_limit_stops_the_run_cleanly_and_it_can_be_gone_on_with(home, cli, server, limit):
    rows = [{"input": f"{n}?", "candidates": ["a", "b"]} for n in range(8)]
    path = write_lines(home / "cases.jsonl", rows)
    model = f"{server.url}#priced"
    (home / "textevolve.toml").write_text(f'[prices."{model}"]\ninput = 1.0\noutput = 4.0\n')
    command = ("evaluate", path, "-m", model, "--convergence", "none")
    whole = cli(*command, "--json", "--store", "whole.db").rows
    calls = server.calls
    ended = cli(*command, limit, LIMITS[limit])
    assert ended.code == 3
    said = r"(\d) records? not finished within the limits .* textevolve runs resume (\S+)"
    run = re.search(said, ended.err)
    assert "Traceback" not in ended.err
    asked = server.calls - calls
    assert 0 < asked < 48
    if limit == "--max-calls":
        assert asked == 20
    (kept,) = cli("runs", "list", "--json").rows
    assert (kept["status"], kept["id"]) == ("interrupted", run[2])
    if limit == "--max-cost":
        assert kept["cost"] < 0.03 + 0.005
    assert cli("runs", "resume", limit, "1e-6" if limit == "--max-cost" else "1").code == 3
    assert cli("runs", "resume").code == 0
    asked_again = {n for n in server.seen.values() if n != 2}
    assert asked_again == set()  # once for each of the two stores
    shown = cli("runs", "show", "--json").rows
    assert all(same_figures(a, b) for a, b in zip(shown, whole, strict=True))
    assert cli("runs", "list", "--json").rows[0]["status"] == "finished"


COSTED = {
    "evaluate": ("evaluate", *CASE),
    "optimize": ("optimize", "Say hello."),
}


@pytest.mark.parametrize("name", COSTED)
def test_a_limit_of_cost_needs_a_price_before_anything_is_asked(cli, monkeypatch, name):
    with ScriptedServer(key="sk-some-key-of-mine") as server:
        monkeypatch.setenv("TEXTEVOLVE_API_KEY", "sk-some-key-of-mine")
        model = f"{server.url}#m"
        ended = cli(*COSTED[name], "-m", model, "--max-cost", "1")
        assert server.calls == 0
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert re.match(r"error: the cost is limited, but what .* under \[prices", last)
    assert f'[prices."{model}"]' in last


def test_why_a_model_was_taken_is_said(cli, model, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-only-for-a-dry-run")
    taken = cli("evaluate", *CASE, "--dry-run").out
    assert "openai/gpt-6-luna (OPENAI_API_KEY is set)" in taken
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    assert f"{model} (configured)" in cli("evaluate", *CASE, "--dry-run").out
    assert f"{model} (configured)" in cli("evaluate", *CASE).out


def test_runs_are_listed_shown_and_removed(cli, server, model, batch):
    assert cli("runs", "list").out.startswith("no runs in ")
    cli("evaluate", *CASE, "-m", model, "--name", "first")
    cli("evaluate", batch, "-m", model, "--name", "second")
    rows = cli("runs", "list", "--json").rows
    assert [(r["name"], r["status"], r["cases"]) for r in rows] == [
        ("second", "finished", 3),
        ("first", "finished", 1),
    ]
    assert [r["name"] for r in cli("runs", "list", "--json", "--limit", 1).rows] == ["second"]
    listed = cli("runs", "list").out
    assert all(row["id"] in listed for row in rows)
    calls = server.calls
    for which in ("first", rows[1]["id"], "last"):
        shown = cli("runs", "show", which)
        assert shown.code == 0
        assert "Model " in shown.out
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
    gone = cli("runs", "show", "first")
    assert (gone.code, gone.err.count("\n")) == (1, 1)


def test_replay_scores_anew_without_a_call_like_a_run_under_those_weights(
    cli, server, model, batch
):
    cli("evaluate", batch, "-m", model)
    calls = server.calls
    changed = ("--weights", "accuracy=1,relevance=0.5", "--aggregation", "median")
    replayed = cli("runs", "replay", "--json", *changed, "--temperature", "2").rows
    cli("runs", "replay", *changed, "--temperature", "2", "-o", "replayed.jsonl")
    assert "All records" in cli("runs", "replay", *changed).out
    assert server.calls == calls
    fresh = cli("evaluate", batch, "-m", model, "--json", *changed, "--temperature", "2").rows
    for number in (0, 2):  # case 2 has weights of its own, which win over those of a run
        assert same_figures(replayed[number], fresh[number])
        assert replayed[number]["profile"] == fresh[number]["profile"]
    assert replayed[1]["profile"]["weights"] == {"accuracy": 1, "relevance": 0.5}
    refused = cli("runs", "replay", "--weights", "wit=1")
    assert refused.code == 2
    assert re.match("error: weights: unknown component 'wit'", refused.err)


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
    assert re.search(r"log-probabilities +no ", ended.out)
    assert "store:" in ended.out


def test_doctor_ends_with_1_where_a_model_does_not_answer(cli):
    with ScriptedServer() as gone:
        url = gone.url
    ended = cli("doctor", f"{url}#m", "openai/gpt-6-luna", "nobody/m")
    assert ended.code == 1
    assert "cannot connect" in ended.out
    assert "needs a key: set OPENAI_API_KEY" in ended.out
    assert "there is no provider 'nobody'" in ended.out


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


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("options", slow_but_first([["--json"]]), ids=str)
def test_output_that_cannot_be_written_is_one_line_and_nothing_is_lost(home, model, options, cli):
    command = [sys.executable, "-m", "textevolve", "evaluate", *CASE, "-m", model, *options]
    with FULL.open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "error: standard output: No space left on device"
    assert "Traceback" not in ended.stderr
    assert cli("runs", "resume").code == 0
