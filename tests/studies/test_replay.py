"""A run read back from the journal alone: it says what it said, failures included."""

import json
import re

import pytest

from flat_verbs import aevaluate_batch
from textevolve import InputError, Settings
from textevolve.engine import sync
from textevolve.errors import MismatchError
from textevolve.evaluation import Case
from textevolve.llm.testing import Fault, misbehave
from textevolve.memory.cue import Memory
from textevolve.runs.driver import Launch, perform, replay
from textevolve.runs.stored import StudyRun
from textevolve.settings import Retries
from textevolve.store.repository import open_store
from textevolve.store.upkeep import erase_texts
from textevolve.user_code import name_object

CASES = [Case(f"Which is {n}?", (f"{n}", f"{n + 1}"), f"c{n}") for n in range(4)]


@pytest.fixture
def settings(home):
    return Settings(store=home / "store.db", retries=Retries(attempts=1))


async def every(results):
    return [result async for result in results]


async def judge(model, settings, **options):
    return await every(
        aevaluate_batch(CASES, model=model, settings=settings, ordered=True, **options)
    )


async def again(settings, **parameters):
    """The newest run, read from the journal."""
    with open_store(settings.store) as store:
        found = await every(replay(store, StudyRun(store.get_run("last")), settings))
        return [result.rescore(**parameters) if parameters else result for result in found]


KINDS = [
    {"protocol": "escalation", "escalate_below": 0.6},
    {"protocol": "simultaneous-summary", "convergence": None},
    {"readout": "after-argument", "rounds": 1},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_run_reads_back_as_it_was(server, model, settings, kind):
    first_judgement = await judge(model, settings, **{"rounds": 3, **kind})
    calls = server.calls
    read = await again(settings)
    assert read == first_judgement
    assert server.calls == calls
    assert [r.best for r in read] == [r.best for r in first_judgement]


async def test_a_failed_turn_reads_back_as_failed_and_the_debate_goes_on(server, model, settings):
    """Calls without any answer, and answers that cannot be used."""

    def script(body, _number):
        text = body["messages"][1]["content"]
        case = re.search(r"Which is (\d)", text)[1]
        if case == "1" and text.rfind("You are Critic") > 0:
            return misbehave(Fault.SERVER_ERROR)
        return misbehave(Fault.EMPTY) if case == "2" and "round 2" in text else None

    server.script = script
    first_judgement = await judge(model, settings, convergence=None)
    assert [len(r.turns) for r in first_judgement] == [6, 6, 6, 6]
    assert [round(r.coverage, 2) for r in first_judgement] == [1, 0.67, 0.5, 1]
    with open_store(settings.store) as store:
        run_totals = store.run_totals(store.get_run("last").id)
    assert await again(settings) == first_judgement
    with open_store(settings.store) as store:
        assert store.run_totals(store.get_run("last").id) == run_totals


async def test_a_call_that_failed_is_asked_again_and_its_answer_then_counts(
    server, model, settings
):
    server.script = lambda _body, number: Fault.SERVER_ERROR if number == 2 else None
    first_judgement = await judge(model, settings, convergence=None)
    assert sum(t.failure is not None for r in first_judgement for t in r.turns) == 1
    server.script = None
    second_judgement = await judge(model, settings, convergence=None)
    assert all(r.coverage == 1 for r in second_judgement)
    assert await again(settings) == second_judgement


async def test_reading_a_run_under_other_parameters_is_a_new_run_under_them(
    server, model, settings
):
    """Those that decide nothing of what is asked; a new run then finds all answers."""
    await judge(model, settings, rounds=3, convergence=None)
    calls = server.calls
    changed = {
        "weights": {"accuracy": 1.0, "relevance": 0.25},
        "temperature": 3.0,
        "aggregation": "trimmed",
        "threshold": 0.9,
    }
    early = sorted(min(r.convergence[:-1]) for r in await again(settings, **changed))
    changed["convergence"] = early[1]  # under which some of the debates end before the last round
    reread = await again(settings, **changed)
    assert server.calls == calls
    fresh = await judge(model, settings, rounds=3, **changed)
    assert server.calls == calls
    assert reread == fresh
    assert {r.stopped for r in fresh} == {"rounds", "converged"}


async def test_a_run_that_recalls_is_gone_on_with_only_by_the_same_recall(server, model, settings):
    async def recall(cue):
        return (Memory(f"{cue.agent} knows."),)

    first_judgement = await judge(model, settings, rounds=1, recall=recall)
    assert all(t.memories for r in first_judgement for t in r.turns)
    calls = server.calls
    with open_store(settings.store) as store:
        run = StudyRun(store.get_run("last"))
        with_recall = Launch(objects={name_object(recall): recall})
        assert await every(replay(store, run, settings, with_recall)) == first_judgement
        for work in (replay, perform):
            with pytest.raises(InputError, match=r"recall: names an object of a Python program"):
                await every(work(store, run, settings))
    assert server.calls == calls
    assert len(await judge(model, settings, rounds=1)) == 4
    assert server.calls == 2 * calls


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompts": {"rules": "old"}}, "prompts.alone was null and is now"),
        ({"version": 3}, "made by a later version of TextEvolve"),
        ({"spec": None}, "made by an earlier version of TextEvolve"),
    ],
)
def test_a_run_of_another_version_is_refused(home, settings, change, reason):
    profile = {"name": "p", "agents": [{"name": "A", "persona": "You judge."}]}
    record = {"kind": "evaluate", "spec": {"profile": profile}, "model": "local/smollm2-135m"}
    spec = {**record, **change}
    with open_store(settings.store) as store:
        run = store.create_run(json.loads(json.dumps(spec)), "f")
        store.add_cases(run.id, CASES)
        for work in (replay, perform):
            with pytest.raises(MismatchError, match=reason):
                list(sync.iterate(work(store, StudyRun(run), settings)))
        assert store.get_run(run.id).status == "interrupted"


@pytest.mark.parametrize("cause", ["prompts", "erased"])
async def test_records_that_cannot_be_made_anew_are_shown_as_they_were_kept(
    server, model, settings, cli, cause
):
    await judge(model, settings, rounds=1)
    calls = server.calls
    before = cli("runs", "show", "--json", "--store", str(settings.store)).rows
    with open_store(settings.store) as store:
        run = store.get_run("last")
        store.finish_run(run.id, "interrupted")
        if cause == "prompts":
            store.respecify(run.id, {"prompts": {"rules": "old"}})
        else:
            erase_texts(settings.store, ["Which is 2?"])
    outcome = cli("runs", "show", run.id, "--json", "--store", str(settings.store))
    assert outcome.code == 0
    for figures in ("convergence", "metrics", "failure"):
        assert [row[figures] for row in outcome.rows] == [row[figures] for row in before]
    inputs = {row["case"]["input"] for row in outcome.rows}
    assert ("[erased]" in inputs) == ("Which is 2?" not in inputs) == (cause == "erased")
    assert f"the report shows the records as they were stored: run {run.id}" in outcome.err
    assert cli("runs", "export", run.id, "x.csv", "--store", str(settings.store)).code == 0
    if cause == "prompts":
        final_outcome = cli("runs", "resume", run.id, "--store", str(settings.store))
        assert final_outcome.code == 2
        assert "version of TextEvolve that it was started with" in final_outcome.err
    assert server.calls == calls
