"""Watches over live traces, as other tools ran them.

An evaluator's own spans came back as traces of the application, and were judged in turn without an
end; outages of a judge entered the history as scores of 0, and raised an alarm on a fall that never
happened; a failed judgement was never made again; traces were judged before their outermost span
had arrived, or twice after a restart; a file that was cut and written anew with the same beginning
was read no further.
"""

import json
import os

import pytest

from node_eval.otlp_lines import chat, document
from textevolve.llm.testing import Answer

FOLLOW = ("nodes", "spans", "--follow", "--every", 1, "--time-limit", 0)


def trace(id, **more):
    texts = {"input__value": "When is high tide?", "output__value": f"At {id}.", **more}
    return json.dumps(document(chat(f"{id}-1", 1, 2, trace=id, **texts))) + "\n"


@pytest.fixture
def write(home):
    (home / "spans").mkdir()

    def append(text, name="a.jsonl"):
        path = home / "spans" / name
        with path.open("a") as file:
            file.write(text)
        os.utime(path, (1e9, 1e9))

    return append


def test_spans_of_the_watch_itself_are_not_judged(cli, home, write, monkeypatch):
    write(trace("a"))
    monkeypatch.setenv("TEXTEVOLVE_TRACES", str(home / "spans" / "own.jsonl"))
    assert cli(*FOLLOW, "--latency", 5).out.startswith("1 trace judged")
    os.utime(home / "spans" / "own.jsonl", (1e9, 1e9))
    outcome = cli(*FOLLOW, "--latency", 5)
    assert outcome.out == "1 of 1 (100 %) of TextEvolve's own runs\n"


def test_an_outage_of_the_judge_is_no_fall_and_can_be_made_good(cli, home, server, model, write):
    (home / "textevolve.toml").write_text("[retries]\nattempts = 1\n")
    chosen = (*FOLLOW, "--judge", "probe", "-m", model, "--expected", 0.99)
    server.script = lambda body, _: Answer(yes=0.9)
    write("".join(map(trace, "abcde")))
    assert cli(*chosen).code == 0
    server.script = lambda body, _: Answer(status=500)
    write("".join(trace(f"out-{n}") for n in range(6)), "b.jsonl")
    outcome = cli(*chosen)
    assert outcome.code == 0
    assert outcome.out.startswith("0 traces judged, 0 passed; 6 without a verdict")
    server.script = lambda body, _: Answer(yes=0.9)
    assert cli("runs", "resume", "last").code == 0
    write(trace("f"))
    assert "100.0 % of all 12 passed" in cli(*chosen).out


def test_failed_generations_are_no_evidence(cli, write):
    broken = trace("a", error__type="timeout")
    write(broken + trace("b"))
    outcome = cli(*FOLLOW, "--latency", 5)
    assert outcome.out.startswith("1 trace judged, 1 passed; 1 without a verdict")


def test_a_file_that_is_written_anew_with_the_same_beginning(cli, home, write):
    write(trace("a") + trace("b"))
    assert cli(*FOLLOW, "--latency", 5).out.startswith("2 traces judged")
    (home / "spans" / "a.jsonl").write_text("")
    write(trace("a") + trace("c") + trace("d"))
    assert cli(*FOLLOW, "--latency", 5).out.startswith("2 traces judged")
