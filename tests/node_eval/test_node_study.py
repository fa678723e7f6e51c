"""Nodes as a study like any other: found, shown, resumed, exported, compared, deleted."""

import asyncio
import csv
import io
import json

import pytest

from textevolve import AsyncClient, EvaluationResult, Failure, Limits
from textevolve.llm.testing import Answer
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.traces import read_episodes
from textevolve.studies.node_records import JudgedNode, find_row
from textevolve.studies.nodes import NodesSpec

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


def test_a_run_is_exported_in_every_format(evaluate, cli, home):
    pytest.importorskip("pyarrow")
    evaluate("--latency", 1)
    for ending in ("json", "jsonl", "csv", "parquet", "md", "html"):
        ended = cli("runs", "export", "last", f"out.{ending}")
        assert ended.code == 0, ended.err
    assert json.loads((home / "out.json").read_text())["evaluators"]["probe"]["scored"] == 3
    rows = list(csv.DictReader(io.StringIO((home / "out.csv").read_text())))
    assert [row["rewards.probe"] != "" for row in rows] == [True] * 3
    assert [row["output.text"] for row in rows] == list(TEXTS.values())
    (episode,) = read_episodes(home / "out.jsonl")
    assert [list(item.evaluation_results) for item in episode.history.items] == [
        ["latency", "probe"]
    ] * 3
    for page in ("out.html", "out.md"):
        assert "The moon, and the sun." in (home / page).read_text()


def test_python_runs_the_same_study(evaluate, server, model, trace):
    async def run(judge, **options):
        async with AsyncClient(**options) as client:
            return await client._run(NodesSpec(trace=trace.name, judge=(judge,), model=model))

    found = asyncio.run(run("probe"))
    assert found.statistics.by_evaluator["probe"].mean == pytest.approx(2 / 3)
    calls = server.calls
    assert evaluate("--json").code == 0
    assert server.calls == calls
    part = asyncio.run(run("checklist", limits=Limits(calls=1)))
    assert part.statistics.by_evaluator["checklist"].skipped > 0


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
