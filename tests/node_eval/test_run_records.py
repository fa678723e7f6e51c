"""Every node belongs to a run: history, feedback, evaluators and exports go by it."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import EvaluationResult
from textevolve.node_eval import GENERATE, Monitor, NodeEvaluator, ThresholdEvaluator
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.run_records import NodeRecords, NodeRun
from textevolve.node_eval.traces import read_episodes, write_history


class Counts(NodeEvaluator):
    """How many nodes it saw, all of one run."""

    def evaluate(self, history):
        items = list(history.items)
        assert len({item.run_id for item in items}) == 1
        return EvaluationResult(0.0, False, f"{len(items)} nodes")


@pytest.fixture
def monitor():
    with Monitor([Counts("counts")]) as opened:
        yield opened


def record(monitor, name="answer", **output):
    with monitor.node(GENERATE, name=name) as node:
        node.output = output
    return node.item


def test_a_run_has_its_own_history_and_feedback(monitor):
    record(monitor)
    with monitor.run("a", thread_id="t") as run_id:
        item = record(monitor)
        assert (run_id, monitor.current_run) == ("a", "a")
        assert monitor.last_feedback("answer").text == "counts: 1 nodes"
        assert monitor.last_feedback("answer", run="1").run_id == "1"
        with monitor.run() as inner:
            assert monitor.last_feedback("answer") is None
    assert (item.run_id, item.thread_id) == ("a", "t")
    assert inner not in monitor.history.runs
    record(monitor)
    with monitor.run("a"):  # gone on with
        record(monitor)
        assert monitor.last_feedback("answer").text == "counts: 2 nodes"
    assert {key: len(list(run.items)) for key, run in monitor.history.runs.items()} == {
        "1": 2,
        "a": 2,
    }
    assert monitor.last_feedback("answer").run_id == "a"  # of all: the last to end
    assert monitor.last_feedback("answer", run="1").run_id == "1"
    assert monitor.last_feedback("answer", run="nobody") is None


async def test_tasks_and_threads_with_runs_of_their_own_are_not_mixed(monitor):
    @monitor.node(GENERATE)
    async def answer(n):
        await asyncio.sleep(0)
        return n

    async def agent(n):
        with monitor.run(f"run {n}"):
            for _ in range(n):
                await answer(n)
            return await asyncio.to_thread(monitor.last_feedback, "answer", 20)

    results = await asyncio.gather(*map(agent, range(1, 5)))
    assert [single_id.text for single_id in results] == [f"counts: {n} nodes" for n in range(1, 5)]

    def plain(n):
        with monitor.run() as run_id:
            record(monitor, n=n)
            return run_id

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(plain, range(8)))
    runs = monitor.history.runs
    assert [next(runs[single_id].items).output_state for single_id in ids] == [
        {"n": n} for n in range(8)
    ]


def test_the_history_of_one_run_can_be_taken(monitor):
    for run in ("a", "b"):
        with monitor.run(run):
            record(monitor)
    history = monitor.take_history("a")
    assert [item.run_id for item in history.items] == ["a"]
    assert list(monitor.history.runs) == ["b"]
    assert monitor.last_feedback("answer").run_id == "b"
    assert monitor.take_history("a").entries == []
    with monitor.run("a"):
        record(monitor)
        assert monitor.last_feedback("answer").text == "counts: 1 nodes"
    assert list(monitor.take_history().runs) == ["b", "a"]
    assert monitor.history.runs == {}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 1, 2, 3])), max_size=12))
def test_whatever_ends_when_evaluators_see_their_own_run_with_their_node_last(ends):
    records, jobs = NodeRecords(), []
    for number, (run, step) in enumerate(ends):
        item = HistoryItem(1.0, node=str(number), run_id=run)
        jobs.append(records.place(item, NodeRun(run), step))
    for number, job in enumerate(jobs):
        seen = job.see().entries
        before = {str(n) for n in range(number + 1) if ends[n][0] == ends[number][0]}
        assert {i.node for step in seen for i in step} == before
        assert seen[-1][-1].node == str(number)
        assert all(list(step) for step in seen)
    assert sum(len(step) for step in records.find_history().entries) == len(ends)
    for run in {run for run, _ in ends}:
        last = [step[-1].order for step in records.by_id[run].entries]
        assert last == sorted(last)


# Exports.


def watched():
    monitor = Monitor([ThresholdEvaluator("sure", "sure", 0.5)])
    record(monitor, sure=1.0)
    for run in ("a", "b"):
        with monitor.run(run, thread_id=f"thread of {run}"):
            record(monitor, sure=0.25)
            record(monitor, "again", sure=0.75)
    monitor.drain_sync()
    return monitor.history


def test_a_file_has_an_episode_for_each_run(tmp_path):
    history = watched()
    write_history(history, tmp_path / "trace.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()][1:]
    assert [
        (episode["episode"], episode["run_id"], episode["thread_id"], episode["step"])
        for episode in lines
    ] == [
        ("1", "1", None, 0),
        *[("a", "a", "thread of a", step) for step in (0, 1)],
        *[("b", "b", "thread of b", step) for step in (0, 1)],
    ]
    episodes = list(read_episodes(tmp_path / "trace.jsonl"))
    assert {episode.id: episode.history for episode in episodes} == history.runs


def test_nothing_in_a_history_moves_the_terminal():
    history = History([[HistoryItem(1.0, node="<b>bold</b>\x1b[2J", error="<script>")]])
    assert "\x1b" not in str(history)
