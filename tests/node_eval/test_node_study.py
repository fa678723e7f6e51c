"""Nodes as a study like any other: found, shown, resumed, exported, compared, deleted."""

import json

import pytest

from textevolve import EvaluationResult, Failure
from textevolve.llm.testing import Answer
from textevolve.node_eval.history import HistoryItem
from textevolve.studies.node_records import JudgedNode, find_row

TEXTS = {"one": "The moon pulls.", "two": "Wind.", "three": "The moon, and the sun."}


def opinion(body, _number):
    return Answer(yes=0.9 if "moon" in body["messages"][-1]["content"].lower() else 0.2)


@pytest.fixture
def trace(home):
    lines = [
        {"episode": "a", "node": name, "input": "Explain tides.", "output": {"text": text}}
        for name, text in TEXTS.items()
    ]
    (home / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return home / "trace.jsonl"


@pytest.fixture
def evaluate(cli, server, model, trace):
    server.script = opinion

    def go(*more):
        return cli("nodes", "evaluate", trace.name, "--judge", "probe", "-m", model, *more)

    return go


def test_a_run_that_a_limit_stopped_is_resumed_and_asks_nothing_twice(evaluate, cli, server):
    assert evaluate("--max-calls", 3).code == 3
    ended = cli("runs", "resume", "last")
    assert ended.code == 0, ended.err
    assert server.calls == len({json.dumps(r, sort_keys=True) for r in server.requests})
    assert cli("runs", "list", "--json").rows[0]["status"] == "finished"


def test_an_item_without_a_score_is_no_failure_and_one_that_failed_has_no_mean():

    def row(unasked="", **results):
        item = HistoryItem(timestamp=1, node="n", evaluation_results=results)
        return find_row(JudgedNode("a", 0, 1, item, 1, unasked))

    good, poor = EvaluationResult(1.0, True), EvaluationResult(0.5, False)
    assert (row(x=good, y=poor).score, row(x=good, y=poor).status) == (0.75, "scored")
    nothing = row(x=Failure("skipped", "the node failed"))
    assert (nothing.score, nothing.status, nothing.reason) == (None, "scored", "the node failed")
    failed = row(x=good, y=Failure("failed", "no answer"))
    assert (failed.score, failed.status, failed.reason) == (None, "failed", "y: no answer")
    assert row("the limit", x=good, y=Failure("skipped", "the limit")).status == "skipped"
