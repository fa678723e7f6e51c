"""An evaluation as a run: one stream, flat memory, stopped and gone on with, asked anew."""

from contextlib import aclosing

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Failure, Usage
from textevolve.memory_eval.dataset import (
    DialogueTurn,
    Malformed,
    MemoryPoint,
    MemoryQuestion,
    Session,
    User,
    user_to_line,
)
from textevolve.memory_eval.evaluation import MemoryEvaluation, Scope, SessionTimes, clip_texts
from textevolve.memory_eval.judging import MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.synthesis import synthesise
from textevolve.memory_eval.systems import Capabilities
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.settings import Settings
from textevolve.store.repository import open_store
from textevolve.studies.memory_eval import MemoryEvaluationSpec, decode, encode, find_row
from textevolve.user_code import name_object
from textevolve.wiring import Limits


class Lines:
    """Keeps every line of a session as a memory; each of its calls is counted."""

    name = "lines"

    def __init__(self, **can):
        self.capabilities = Capabilities(**can)
        self.calls = []
        self.held = {}

    async def add(self, dialogue, user):
        self.calls.append(("add", user))
        texts = [turn.content for turn in dialogue]
        self.held.setdefault(user, []).extend(texts)
        return texts

    async def search(self, query, user, limit):
        self.calls.append(("search", user))
        return self.held[user][-limit:]

    async def aclose(self):
        self.calls.append(("close", ""))


def write(path, users):
    path.write_text("".join(user_to_line(user) + "\n" for user in users))
    return str(path)


@pytest.fixture
def data(home):
    return write(home / "data.jsonl", synthesise(2, 3))


def specify(path, model, made, **fields):
    """The specification of an evaluation, and the objects that it names."""
    system = {} if made is None else {"system": name_object(made)}
    spec = MemoryEvaluationSpec(data=path, model=model, **{**system, **fields})
    return spec, {} if made is None else {spec.system: made}


class Run:
    """Does evaluations in one store, and says how they went."""

    def __init__(self, home, model):
        self.home, self.model = home, model

    async def __call__(self, path, made=None, *, limits=None, between=None, **fields):
        spec, objects = specify(path, self.model, made, **fields)
        settings = Settings(concurrency=8)
        collected = MemoryEvaluation()
        launch = Launch(limits=limits or Limits(), listener=lambda event: None, objects=objects)
        plan = await driver.plan_run(spec, settings, launch)
        async with open_store(self.home / "run.db") as store:
            run = plan.register(store)
            if between is not None:
                between()
            items = []
            async with aclosing(driver.perform(store, run, settings, plan.launch)) as found:
                async for item in found:
                    collected.take(item)
                    items.append(item)
            status = store.get_run(run.id).status
        judged = [item for item in items if isinstance(item, MemoryJudgement)]
        return judged, collected, status, run.record


@pytest.fixture
def evaluate(home, model):
    return Run(home, model)


def keyed(judged):
    return {(j.subject.user, j.subject.session, j.subject.task, j.subject.item): j for j in judged}


async def test_everything_is_judged_once_and_a_second_time_nothing_is_done(evaluate, data, server):
    system = Lines()
    judged, collected, status, run = await evaluate(data, system)
    assert status == "finished"
    assert len(keyed(judged)) == len(judged)
    assert collected.metrics.coverage["accuracy"].asked > 0
    assert {user for verb, user in system.calls if user} == {
        f"{run.id}-{run.fingerprint[:8]}-{n}" for n in (1, 2)
    }
    calls, again = server.calls, Lines()
    second, replayed, _, same = await evaluate(data, again)
    assert (server.calls, again.calls, same.id) == (calls, [("close", "")], run.id)
    assert keyed(second) == keyed(judged)
    assert replayed.metrics == collected.metrics  # minutes, too: they are those of then


async def test_a_limit_ends_it_and_nothing_more_is_fed(evaluate, data, server):
    system = Lines()
    judged, collected, status, _ = await evaluate(data, system, limits=Limits(calls=5))
    assert status == "interrupted"
    assert server.calls == 5
    skipped = [j for j in judged if isinstance(j.outcome, Failure)]
    assert all(j.outcome.kind == "skipped" for j in skipped)
    assert "limit of 5 calls" in collected.skipped
    assert not collected.failures
    full_lines = Lines()
    rest, collected, status, _ = await evaluate(data, full_lines)
    assert status == "finished"
    assert not collected.skipped
    assert len(rest) > len(judged)


async def test_data_that_changes_meanwhile_is_refused(evaluate, data, home):
    def change():
        write(home / "data.jsonl", synthesise(2, 3, seed=9))

    with pytest.raises(InputError, match="has changed"):
        await evaluate(data, Lines(), between=change)


async def test_recorded_results_need_no_system(evaluate, home, server):
    point = MemoryPoint(1, "likes tea", "persona", "primary", 1.0)
    question = MemoryQuestion("what?", "tea", recorded_answer="tea")
    session = Session(
        0,
        (DialogueTurn("user", "I like tea."),),
        (point,),
        (question,),
        extracted=("likes tea",),
        add_seconds=60.0,
    )
    path = write(home / "done.jsonl", [User("a", (session,))])
    judged, collected, status, _ = await evaluate(path, system="recorded")
    assert status == "finished"
    assert sorted(j.subject.task for j in judged) == ["accuracy", "integrity", "question"]
    assert collected.metrics.minutes.adding == pytest.approx(1.0)
    bare = write(home / "bare.jsonl", synthesise(1, 2))
    with pytest.raises(InputError, match="no recorded results"):
        await evaluate(bare, system="recorded")


def test_records_come_back_as_they_were():
    subject = Subject("accuracy", "u", 3, 2, {"memory": "x" * 30_000})
    made = [
        clip_texts(MemoryJudgement(subject, MemoryVerdict(1, "so", True), Usage(1, 2, 0, 3, None))),
        MemoryJudgement(
            Subject("update", "v", 0, 1, {}, "event", "primary", 0.5, by_rule="Omission"),
            Failure("failed", "no"),
        ),
        MemoryJudgement(
            Subject("integrity", "v", 0, 1, {}, by_rule=0), MemoryVerdict(0, "by rule")
        ),
        Scope(1, 2, {"question": "no answers are recorded"}, "20260101-abcd"),
        SessionTimes("u", 3, 2, 1.5),
        Malformed(7, "sessions: missing"),
    ]
    assert [decode(encode(one)) for one in made] == made
    assert len({find_row(one).key for one in made}) == len(made) - 1  # a point has one record
    assert made[0].subject.texts["memory"].endswith("(10,000 more characters)")
