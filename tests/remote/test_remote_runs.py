"""Studies at a server, from the command line and from Python: shown, written, gated and ended as
those of this machine."""

import csv
import json
import re
import signal
import time

import pytest

from flat_verbs import evaluate, evaluate_batch
from textevolve import Case, InputError
from textevolve.llm.testing import Answer, ScriptedServer

pytestmark = pytest.mark.guard

CASES = [{"id": f"c{n}", "input": f"Question {n}?", "output": f"Answer {n}."} for n in range(4)]
SAME = ("--rounds", "1", "--seed", "3")


@pytest.fixture
def cases(home):
    path = home / "cases.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in CASES))
    return path


@pytest.fixture
def url(serve):
    return serve()


@pytest.fixture
def there(cli, url, home, monkeypatch):
    """A command, at the server; this machine's own store is another one and stays empty."""
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(home / "here.db"))
    return lambda *given: cli(*given, "--server", url)


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def run_id(outcome):
    return outcome.err.split("run ", 1)[1].split(" ", 1)[0]


def read_table(path):
    """Its rows, but for what a clock says."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{n: v for n, v in row.items() if not n.endswith("seconds")} for row in rows]


@pytest.mark.slow
def test_a_study_is_shown_and_written_as_one_of_this_machine(there, cli, cases, home, model):
    outputs = [home / f"there{end}" for end in (".jsonl", ".csv", ".html", ".md", ".json")]
    wanted = [part for output in outputs for part in ("-o", output)]
    junit = ("--junit", home / "there.xml")
    outcome = there("evaluate", cases, *SAME, "-m", model, *wanted, *junit)
    assert outcome.code == 0, outcome.err
    assert "4 of 4 done" in outcome.err
    assert "mean" in outcome.out
    assert cli("runs", "list", "--json").rows == []
    own = home / "own.db"
    files = [home / "own.jsonl", home / "own.csv"]
    wanted = ("-o", files[0], "-o", files[1], "--store", own)
    local = cli("evaluate", cases, *SAME, "-m", model, *wanted)
    assert local.code == 0, local.err
    assert read_table(outputs[1]) == read_table(files[1])
    assert outputs[0].read_text().count("\n") == files[0].read_text().count("\n") == 4
    assert "c3" in (home / "there.xml").read_text()
    assert "<html" in outputs[2].read_text()


@pytest.mark.slow
def test_limits_leave_a_run_that_the_same_command_goes_on_with(there, cases, home, model):
    same = ("evaluate", cases, *SAME, "-m", model)
    stopped = there(*same, "--max-calls", "5")
    assert stopped.code == 3, stopped.err
    assert "Resume with the same command" in stopped.err
    done = there(*same, "--max-calls", "100", "-o", home / "found.jsonl")
    assert (done.code, run_id(done)) == (0, run_id(stopped)), done.err
    assert len((home / "found.jsonl").read_text().splitlines()) == 4
    refused = there(*same, "--dry-run")
    assert (refused.code, "--server none" in refused.err) == (2, True)
    refused = there("evaluate", cases, "-m", "nope/x")
    assert refused.err.startswith("error: nope/x: the server has no such model")


@pytest.mark.slow
def test_programs(url, model, home):
    same = {"model": model, "rounds": 1, "server": url, "store": home / "here.db"}
    evaluation = evaluate("2 + 2?", ["4", "5"], **same)
    assert evaluation.coverage == 1.0
    again = evaluate("2 + 2?", ["4", "5"], **same)
    assert list(again.scores) == list(evaluation.scores)
    given_cases = [
        Case(f"Question {n}?", ("yes", "no"), f"k{n}", reference="yes") for n in range(3)
    ]
    results = list(evaluate_batch(given_cases, ordered=True, **same))
    assert [result.index for result in results] == [0, 1, 2]
    assert not (home / "here.db").exists()


def test_what_is_a_programs_own_cannot_be_sent(url, model):
    def own(_case):
        return 1.0

    with pytest.raises(InputError, match="object of this program and cannot be sent"):
        evaluate("2 + 2?", ["4"], judge=own, model=model, server=url)


def test_addresses_and_keys(cli, cases, server, monkeypatch):
    for wrong in ("nowhere", "ftp://x", "http://me:secret@host"):
        outcome = cli("evaluate", cases, "--server", wrong)
        assert outcome.code != 0
        assert "secret" not in outcome.err
    monkeypatch.setenv("TEXTEVOLVE_SERVER_KEY", "te-secret-secret")
    outcome = cli("evaluate", cases, "--server", "http://example.invalid:8400")
    assert (outcome.code != 0, "https" in outcome.err, "te-secret" in outcome.err) == (
        True,
        True,
        False,
    )
    monkeypatch.delenv("TEXTEVOLVE_SERVER_KEY")
    outcome = cli("evaluate", cases, "--server", "http://127.0.0.1:1")
    assert (outcome.code, "cannot connect" in outcome.err) == (1, True)
    outcome = cli("evaluate", cases, "--server", server.url)  # of models
    assert re.search(r"error: http://127\.0\.0\.1:\d+: no such path", outcome.err)


@pytest.mark.slow
def test_ctrl_c_stops_watching_and_the_run_goes_on(spawn, ask, serve, stalling, cases, home):
    """What came is shown; the same command watches the run again until it is ended there."""
    with ScriptedServer(stalling(6, lambda _body, _call: Answer(delay=0.6))) as scripted:
        name = f"{scripted.url}#slow"
        url = serve(model=name)
        one = ("--concurrency", "1", "--rounds", "1")
        command = ("evaluate", cases, *one, "-m", name, "--server", url)
        watching = spawn(*command)
        wait_for(lambda: scripted.calls > 6)
        (run,) = [one["id"] for one in ask(f"{url}/v1/studies")[1]["data"]]
        records = f"{url}/v1/studies/{run}/records"
        wait_for(lambda: len(ask(records)[1]["data"]) == 2)
        watching.send_signal(signal.SIGINT)
        _, answer = watching.communicate(timeout=60)
        assert watching.returncode == 130, answer
        assert f"the run, which continues at {url}" in answer
        assert ask(f"{url}/v1/studies/{run}")[1]["status"] == "running"
        watching = spawn(*command, "-o", "found.jsonl")
        assert f"run {run} at {url}" in watching.stderr.readline()
        ask(f"{url}/v1/studies/{run}/cancel", {})
        _, answer = watching.communicate(timeout=60)
        assert watching.returncode == 3, answer
        assert "Resume with the same command" in answer
        assert (home / "found.jsonl").read_text().count("\n") == 2
