"""Feeding a memory system: the order, what is judged of it, and what a second start does again."""

from contextlib import aclosing

import pytest

from textevolve.errors import FatalModelError
from textevolve.events import silence
from textevolve.llm.wrappers import Journaled
from textevolve.memory_eval.dataset import DialogueTurn, MemoryPoint, MemoryQuestion, Session, User
from textevolve.memory_eval.evaluation import SessionTimes
from textevolve.memory_eval.system_operations import (
    FAILURES_IN_A_ROW,
    QUESTION_LIMIT,
    UPDATE_LIMIT,
    Health,
    Survey,
    Unanswered,
    feed,
    open_instance,
    read_recorded,
)
from textevolve.memory_eval.systems import Capabilities, MemorySystem


class Memory(dict):
    """A journal in memory, which counts."""

    async def find(self, key):
        entry = self.get(key)
        return entry.response if entry else None

    async def append(self, entry):
        if entry.response is not None:
            self[entry.key] = entry


class Toy(MemorySystem):
    """Keeps each turn of the user's as it is, and does what it is told to do wrong."""

    name = "toy"

    def __init__(self, capabilities=None, wrong=None):
        self.capabilities = capabilities or Capabilities()
        self.wrong = wrong or {}
        self.did = []
        self.held = {}

    def _do(self, verb, what):
        self.did.append((verb, what))
        answer = self.wrong.get((verb, what), self.wrong.get(verb))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def add(self, dialogue, user):
        given = self._do("add", dialogue[0].content)
        contents = [turn.content for turn in dialogue if turn.role == "user"]
        self.held.setdefault(user, []).extend(contents)
        return contents if given is None else given

    async def search(self, query, user, limit):
        given = self._do("search", query)
        response = self.held.get(user, [])[-limit:]
        return response if given is None else given

    async def answer(self, question, memories):
        given = self._do("answer", question)
        return f"{len(memories)} memories" if given is None else given

    async def aclose(self):
        self.did.append(("close", ""))


def point(index, content, *, update=False, source="primary"):
    return MemoryPoint(index, content, "persona", source, 0.5, update, ("old",) * update)


def session(index, *contents, generated=False, **more):
    dialogue = tuple(DialogueTurn("user", text, "10:00") for text in contents)
    return Session(index, dialogue, is_generated_qa=generated, **more)


def make_user(sessions=3):
    new_sessions = [
        session(
            n,
            f"fact {n}",
            points=(point(1, f"fact {n}"), point(2, f"change {n}", update=True)),
            questions=(MemoryQuestion(f"what {n}?", f"fact {n}", (f"fact {n}",)),),
        )
        for n in range(sessions)
    ]
    return User("anna", tuple(new_sessions))


async def feeding(user, key, system, spec, journal, health=None):
    instance = await open_instance(system, spec, user, key, journal, health or Health())
    requests = feed(user, key, system.capabilities, Journaled(instance, journal, silence))
    async with aclosing(requests) as pieces:
        async for piece in pieces:
            yield piece


async def collect(user, system, journal=None, health=None):
    journal = Memory() if journal is None else journal
    return [piece async for piece in feeding(user, "k", system, "toy", journal, health)]


def judged(pieces):
    return [
        piece.subject if isinstance(piece, Unanswered) else piece
        for piece in pieces
        if not isinstance(piece, SessionTimes)
    ]


async def test_what_is_judged_of_a_session():
    limits = []

    class Noting(Toy):
        async def search(self, query, user, limit):
            limits.append(limit)
            return await super().search(query, user, limit)

    pieces = await collect(make_user(1), Noting())
    integrity, accuracy, update, question = judged(pieces)
    assert integrity.texts == {"expected": "fact 0", "memories": "fact 0"}
    assert (integrity.task, integrity.item, integrity.type, integrity.importance) == (
        "integrity",
        1,
        "persona",
        0.5,
    )
    assert accuracy.texts["memory"] == "fact 0"
    assert accuracy.texts["gold"] == "fact 0\nchange 0"
    assert accuracy.texts["dialogue"] == "[10:00] user: fact 0"
    assert update.texts == {"expected": "change 0", "original": "old", "memories": "fact 0"}
    assert (update.task, update.item) == ("update", 2)
    assert question.texts["reference"] == "fact 0"
    assert "answer" not in question.texts
    assert limits == [UPDATE_LIMIT, QUESTION_LIMIT]
    unanswereds = [piece for piece in pieces if isinstance(piece, Unanswered)]
    assert unanswereds[0].memories == ("fact 0",)


async def test_a_system_that_answers_is_asked_itself():
    (*_, question) = judged(await collect(make_user(1), Toy(Capabilities(answers=True))))
    assert question.texts["answer"] == "1 memories"


async def test_nothing_extracted_is_zero_by_rule_and_nothing_found_is_integrity():
    system = Toy(wrong={"add": [], "search": []})
    first_subject, update, question = judged(await collect(make_user(1), system))
    assert (first_subject.task, first_subject.by_rule) == ("integrity", 0)
    assert (update.task, update.by_rule, update.item) == ("integrity", 0, 2)
    assert question.task == "question"


async def test_what_a_system_cannot_do_is_not_judged():
    tasks = [s.task for s in judged(await collect(make_user(1), Toy(Capabilities(extracts=False))))]
    assert tasks == ["update", "question"]
    silent = Capabilities(extracts=False)
    update, _ = judged(await collect(make_user(1), Toy(silent, {"search": []})))
    assert (update.task, update.by_rule) == ("update", "Omission")
    unsearched = Toy(Capabilities(searches=False))
    tasks = [s.task for s in judged(await collect(make_user(1), unsearched))]
    assert tasks == ["integrity", "accuracy", "integrity"]
    assert ("search", "change 0") not in unsearched.did
    failing = Toy(Capabilities(searches=False), {("add", "fact 0"): OSError("gone")})
    tasks = [s.task for s in judged(await collect(make_user(1), failing))]
    assert tasks == ["integrity", "integrity"]  # no update that would count as not reached


async def test_a_failed_add_fails_its_session_alone():
    system = Toy(wrong={("add", "fact 1"): ValueError("bad\nthing")})
    subjects = judged(await collect(make_user(3), system))
    failed = [s for s in subjects if s.failure]
    assert {s.session for s in failed} == {1}
    assert [s.task for s in failed] == ["integrity", "update", "question"]
    assert all(
        s.failure.kind == "failed" and "ValueError: bad thing" in s.failure.reason for s in failed
    )
    assert all(s.failure.reason.startswith("add: ") for s in failed)
    assert ("add", "fact 2") in system.did


async def test_a_system_that_fails_again_and_again_ends_the_run():
    system, health = Toy(wrong={"add": OSError("gone")}), Health()
    with pytest.raises(FatalModelError, match=r"10 times in a row.*OSError: gone"):
        await collect(make_user(20), system, health=health)
    assert len(system.did) == FAILURES_IN_A_ROW
    system = Toy(wrong={"search": OSError("gone")})
    subjects = judged(await collect(make_user(20), system))
    assert sum(bool(s.failure) for s in subjects) == 40  # an add succeeds in between


async def test_a_second_start_does_nothing_again():
    journal, system = Memory(), Toy(Capabilities(answers=True))
    first = await collect(make_user(), system, journal)
    again = Toy(Capabilities(answers=True))
    second = await collect(make_user(), again, journal)
    assert second == first  # times included: they are those of then
    assert again.did == []


async def test_a_system_that_forgets_is_given_again_what_is_needed_and_no_more():
    journal = Memory()
    broken = Toy(wrong={("search", "what 1?"): OSError("gone")})
    await collect(make_user(), broken, journal)
    system = Toy()
    subjects = judged(await collect(make_user(), system, journal))
    assert system.did == [("add", "fact 0"), ("add", "fact 1"), ("search", "what 1?")]
    assert not any(s.failure for s in subjects)
    assert system.held == {"k": ["fact 0", "fact 1"]}


async def test_a_durable_system_is_given_only_what_is_missing():
    journal, durable = Memory(), Capabilities(durable=True)
    await collect(make_user(2), Toy(durable), journal)
    system = Toy(durable)
    await collect(make_user(3), system, journal)
    assert system.did == [("add", "fact 2"), ("search", "change 2"), ("search", "what 2?")]


def recorded_session(index=0, **more):
    return session(index, "x", points=more.pop("points", (point(1, "a"),)), **more)


def read(*sessions):
    survey, user = Survey(), User("u", sessions)
    survey.note(user)
    return judged(read_recorded(user, survey))


def test_recorded_results_give_the_same_subjects():
    update = MemoryPoint(2, "b", "event", "primary", 0.5, True, ("c",), returned=("d", "e"))
    question = MemoryQuestion("q?", "r", recorded_answer="s")
    single_session = recorded_session(
        points=(point(1, "a"), update),
        questions=(question,),
        extracted=("x", "y"),
        add_seconds=2.0,
        search_seconds=1.0,
    )
    subjects = read(single_session)
    assert [s.task for s in subjects] == ["integrity", "accuracy", "accuracy", "update", "question"]
    assert subjects[3].texts["memories"] == "d\ne"
    assert subjects[4].texts["answer"] == "s"
    (*_, times) = read_recorded(
        User("u", (single_session,)), Survey(has_extracted=True, has_answers=True)
    )
    assert times == SessionTimes("u", 0, 5, adding=2.0, searching=1.0)
