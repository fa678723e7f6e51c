"""Histories as runs of the store, and judges that stay open for any thread."""

import asyncio
import threading

import pytest

from flat_verbs import judge
from textevolve import Case, InputError, keep_history
from textevolve.engine import sync
from textevolve.llm.testing import Answer
from textevolve.node_eval import GENERATE, ConsistencyEvaluator, Monitor
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.judging import Episode
from textevolve.runs import driver
from textevolve.runs.stored import StudyRun, read_records
from textevolve.settings import Settings
from textevolve.store.repository import open_store
from textevolve.studies.node_report import decode, write_node
from textevolve.studies.nodes import NodesSpec, node_cases


@pytest.fixture
def store(home):
    with open_store(home / "store.db") as opened:
        yield opened


def item(node="n", **more):
    return HistoryItem(timestamp=1.0, node=node, instruction=GENERATE, **more)


def watch(*evaluators):
    """A monitor that has watched a small agent."""
    monitor = Monitor(evaluators)

    @monitor.node(GENERATE)
    def greet(whom):
        return {"text": f"Hello, {whom}!", "password": "hunter2"}

    @monitor.node(GENERATE)
    def break_off():
        raise ValueError("no more")

    greet("world")
    greet("moon")
    with pytest.raises(ValueError):
        break_off()
    assert monitor.drain_sync(10)
    monitor.close()
    return monitor


def test_what_a_monitor_watched_comes_back_from_the_store(store, cli, home):
    monitor = watch(ConsistencyEvaluator("alike", "text"))
    run = keep_history(monitor.history, name="greeting")
    stored_run = StudyRun(store.get_run(run))
    assert stored_run.record.status == "finished"
    nodes = list(read_records(store, stored_run)())
    assert [node.item for node in nodes] == list(monitor.history.items)
    assert [node.episode for node in nodes] == ["1"] * 3
    assert [decode(write_node(node)) for node in nodes] == nodes
    outcome = cli("runs", "show", "greeting")
    assert outcome.code == 0, outcome.err
    for answer in ("greet  GENERATE", "alike 0.50", "failed: ", "no more"):
        assert answer in outcome.out
    exported = cli("runs", "export", run, "nodes.jsonl")
    assert exported.code == 0, exported.err
    lines = (home / "nodes.jsonl").read_text().splitlines()
    assert (len(lines), "hunter2" in "".join(lines)) == (3, False)


def test_the_same_history_is_one_run_and_an_empty_one_is_none(store):
    history = History([[item(output_state="a", order=1)]])
    assert keep_history(history) == keep_history(history, name="again")
    with pytest.raises(InputError, match="the history is empty"):
        keep_history(History())
    assert len(store.list_runs()) == 1


def register(store, spec, episodes, settings):
    plan = sync.run(driver.plan_run(spec, settings, cases=node_cases(episodes)))
    return plan.register(store)


def test_many_episodes_are_judged_in_order_and_found_again(store, model, server):
    server.script = lambda body, _: Answer(yes=0.9)
    episodes = [
        Episode(str(n), History([[item(input_state="Say it.", output_state=f"text {n}", order=1)]]))
        for n in range(40)
    ]
    settings = Settings(model=model, concurrency=8)
    spec = NodesSpec(judge=("probe", "checklist"), model=model)
    run = register(store, spec, iter(episodes), settings)
    found = list(sync.iterate(driver.perform(store, run, settings)))
    assert [node.episode for node in found] == [str(n) for n in range(40)]
    for node in found:
        assert list(node.item.evaluation_results) == ["probe", "checklist"]
    run.reload(store)
    assert run.record.status == "finished"
    calls = server.calls
    assert list(read_records(store, run)()) == found
    store.drop_records(run.id)
    sync.run(driver.restore_records(store, run, settings))
    assert list(read_records(store, run)()) == found
    assert server.calls == calls


def test_a_judge_answers_any_thread_and_loop_until_it_is_closed(model, server, home):
    server.script = lambda body, _: Answer(yes=0.9)
    case = Case("Say hello.", ("Hello!",))
    matches = []
    probe = judge("probe", model=model)
    threads = [
        threading.Thread(target=lambda: matches.append(asyncio.run(probe(case)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.result[0].score for one in matches] == [pytest.approx(0.9)] * 4
    calls = server.calls
    probe.close()
    with pytest.raises(InputError, match="is closed"):
        asyncio.run(probe(case))
    with judge("probe", model=model) as again:
        asyncio.run(again(case))
    assert server.calls == calls
