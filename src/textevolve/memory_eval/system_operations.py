"""What a memory system is asked to do: sessions in time, searches and answers in between.

An operation stands in the journal like a call of a model, so a finished one is never done twice. A
system that forgets when the program ends is given again what it had, as soon as something is
missing that needs it. What becomes of the outcomes is in `items_to_judge.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, cast

from textevolve.errors import AnswerError, BudgetError, FatalModelError, ModelError, SettingsError
from textevolve.evaluation import Failure, Usage
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.journal import Journal
from textevolve.llm.model import Message, Model, Request, Response, request_key
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.dialogues import DialogueTurn, Session, User
from textevolve.memory_eval.items_to_judge import (
    FoundMemories,
    PieceToJudge,
    Timed,
    Unanswered,
    count_planned,
    judge_answer,
    judge_extraction,
    judge_update,
)
from textevolve.memory_eval.system import Capabilities, MemorySystem, ReportsTokens

UPDATE_LIMIT = 10
QUESTION_LIMIT = 20
"""How many memories are asked for."""

FAILURES_IN_A_ROW = 10
"""After so many operations without one that succeeded, a system is taken to be broken."""

FEEDING = "feeding"
"""The step of a session. Its end has as value how many judgements it gives more than planned."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`session` counts from 0. `arguments` are those of the system's method, as JSON."""

    verb: str
    user: str
    session: int
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def request(self) -> Request:
        said = {"operation": self.verb, "user": self.user, "session": self.session}
        text = json.dumps({**said, **self.arguments}, sort_keys=True, ensure_ascii=False)
        return Request(messages=(Message("user", (text,)),))


def add_session(user: str, session: Session) -> Operation:
    dialogue = [[turn.role, turn.content, turn.timestamp] for turn in session.dialogue]
    return Operation("add", user, session.index, {"dialogue": dialogue})


class Instance:
    """A memory system as a `Model` of one user, whose requests are operations; it does them.

    `latest`: the last session that a durable system was given before, None if none was.
    """

    def __init__(
        self,
        system: MemorySystem,
        spec: str,
        user: User,
        latest: int | None = None,
        health: Health | None = None,
    ) -> None:
        self.name = model_name(spec)
        self._system = system
        self._sessions = user.sessions
        self._latest = -1 if latest is None else latest
        self._given = 0
        self._health = health or Health()

    async def __call__(self, request: Request, /) -> Response:
        try:
            response = await self._answer(request)
        except (FatalModelError, TooLate):
            raise
        except ModelError as error:
            self._health.note(error)
            raise
        except BudgetError as error:  # the system asks models of the run
            raise LimitReached(str(error)) from None
        self._health.note(None)
        return response

    async def _answer(self, request: Request) -> Response:
        asked: dict[str, Any] = json.loads(request.messages[0].text)
        verb, session = str(asked["operation"]), int(asked["session"])
        try:
            await self._prepare(verb, session, asked["user"])
            began = perf_counter()
            said = await self._do(verb, asked)
        except (FatalModelError, SettingsError, BudgetError):
            raise
        except ModelError as error:
            raise _named(verb, error) from error
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise
            kind = type(error).__name__  # whatever a system raises is its failure
            raise AnswerError(f"{verb}: {kind}: {one_line(str(error))}"[:500]) from error
        if verb == "add" and isinstance(self._system, ReportsTokens):
            said = {"found": said, "tokens": self._system.spent(asked["user"])}
        text = json.dumps(said, ensure_ascii=False)
        return Response(text, "stop", Usage(), seconds=perf_counter() - began)

    async def _prepare(self, verb: str, session: int, user: str) -> None:
        """Brings the system to where the operation belongs.

        Raises:
            TooLate: it is past that already, and the outcome would not be that of then.
        """
        if verb == "answer":  # from the memories that it is given, whatever the system holds
            return
        if self._system.capabilities.durable:
            if session < self._latest:
                raise TooLate(
                    "it got no answer in its time, and later sessions are in the memory now;"
                    " to feed everything anew, use --fresh TEXT"
                )
            return
        while self._given < session + (verb != "add"):
            if dialogue := self._sessions[self._given].dialogue:
                await self._system.add(dialogue, user)
            self._given += 1

    async def _do(self, verb: str, asked: dict[str, Any]) -> list[str] | str:
        user = str(asked["user"])
        if verb == "add":
            self._given = asked["session"] + 1
            turns = [DialogueTurn(*turn) for turn in asked["dialogue"]]
            return _check(verb, await self._system.add(turns, user))
        if verb == "search":
            found = await self._system.search(asked["query"], user, asked["limit"])
            return _check(verb, found)
        said = await self._system.answer(asked["question"], asked["memories"])
        if not isinstance(said, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AnswerError(f"gave {type(said).__name__}, not a text")
        return said


class TooLate(AnswerError):
    """An operation was not tried: the system is past the moment that it belongs to."""


class LimitReached(BudgetError):
    """An operation was not done, since it would have cost more than the run may use."""


@dataclass(slots=True)
class Health:
    """How many operations of a system have failed since one succeeded, over all users."""

    failures: int = 0

    def note(self, error: ModelError | None) -> None:
        """
        Raises:
            FatalModelError: too many have failed in a row: going on would only take time.
        """
        self.failures = 0 if error is None else self.failures + 1
        if self.failures >= FAILURES_IN_A_ROW:
            raise FatalModelError(
                f"the memory system failed {self.failures} times in a row, so the run stops; what"
                f" was done is kept. The last: {error}"
            )


def model_name(spec: str) -> str:
    """The name under which a system's operations stand in the journal."""
    return f"memory/{spec}"


def _check(verb: str, found: object) -> list[str]:
    if isinstance(found, str) or not isinstance(found, Sequence):
        raise AnswerError(f"gave {type(found).__name__}, not a list of texts")
    memories = list(cast(Sequence[object], found))
    for memory in memories:
        if not isinstance(memory, str):
            raise AnswerError(f"gave a list with {type(memory).__name__} in it, not of texts")
    return [memory for memory in cast(list[str], memories) if memory.strip()]


def _is_being_cancelled() -> bool:
    """Whether it is we that are to end, and not a task of the system's own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _named(verb: str, error: ModelError) -> ModelError:
    """The same kind of error, saying which operation it was."""
    error.args = (f"{verb}: {error}",)
    return error


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """What an operation gave: a list of memories, an answer, or why there is none."""

    value: Any
    seconds: float | None = None
    tokens: int | None = None

    @property
    def found(self) -> FoundMemories:
        return self.value if isinstance(self.value, Failure) else tuple(self.value)


async def open_instance(
    system: MemorySystem,
    spec: str,
    user: User,
    key: str,
    journal: Journal,
    health: Health | None = None,
) -> Instance:
    """The system for one user, whom it knows by `key`; `spec`: what the system was named by;
    `health`: shared by all users of one system."""
    latest = None
    if system.capabilities.durable:
        latest = await _find_latest(user, key, spec, journal)
    return Instance(system, spec, user, latest, health)


async def feed(
    user: User, key: str, can: Capabilities, instance: Model, listener: Listener = silence
) -> AsyncGenerator[PieceToJudge]:
    """Give a system a user's sessions, and yield what is to be judged as soon as it is known.

    `instance`: what `open_instance` gives, behind a journal. `can`: what the system can do.

    Raises:
        FatalModelError, SettingsError: no operation of this system can succeed.
        StoreError: an outcome cannot be kept.
    """
    for session in user.sessions:
        told = {"session": session.index + 1, "sessions": len(user.sessions)}
        listener(StepStarted(user.id, FEEDING, told))
        number = 0
        try:
            fed = _feed_session(user.id, key, session, can, instance)
            async with aclosing(fed) as pieces:
                async for piece in pieces:
                    number += not isinstance(piece, Timed)
                    yield piece
        except LimitReached as error:
            yield Timed(user.id, session.index, stopped=str(error))
            return
        listener(StepFinished(user.id, FEEDING, number - count_planned(session)))


async def _feed_session(
    user: str, key: str, session: Session, can: Capabilities, instance: Model
) -> AsyncGenerator[PieceToJudge]:
    added = OperationOutcome(())
    if session.dialogue:
        added = await _operate(instance, add_session(key, session))
    yield Timed(user, session.index, adding=added.seconds, tokens=added.tokens)
    if not session.is_generated_qa:
        asked = _ask_session(user, key, session, added.found, can, instance)
        async with aclosing(asked) as pieces:
            async for piece in pieces:
                yield piece


async def _ask_session(
    user: str,
    key: str,
    session: Session,
    added: FoundMemories,
    can: Capabilities,
    instance: Model,
) -> AsyncGenerator[PieceToJudge]:
    """Everything that is judged of a session that was fed."""
    extracted = added if can.extracts else None
    if extracted is not None:
        for subject in judge_extraction(user, session, extracted):
            yield subject
    for place, point in enumerate(session.points, 1):
        if point.is_update:
            returned: FoundMemories = ()
            if not can.searches:
                if extracted is None:
                    continue
            elif isinstance(added, Failure):
                returned = added
            else:
                done = await _search(instance, key, session, point.content, UPDATE_LIMIT)
                yield Timed(user, session.index, searching=done.seconds)
                returned = done.found
            yield judge_update(user, session, place, point, returned, extracted)
    if not can.searches:
        return
    for place, question in enumerate(session.questions, 1):
        if isinstance(added, Failure):
            yield judge_answer(user, session, place, question, added)
            continue
        done = await _search(instance, key, session, question.question, QUESTION_LIMIT)
        yield Timed(user, session.index, searching=done.seconds)
        if isinstance(done.found, Failure):
            yield judge_answer(user, session, place, question, done.found)
        elif can.answers:
            asked = {"question": question.question, "memories": done.found}
            said = await _operate(instance, Operation("answer", key, session.index, asked))
            yield Timed(user, session.index, answering=said.seconds)
            yield judge_answer(user, session, place, question, said.value)
        else:
            subject = judge_answer(user, session, place, question, None)
            yield Unanswered(subject, done.found)


async def _search(
    instance: Model, key: str, session: Session, query: str, limit: int
) -> OperationOutcome:
    asked = {"query": query, "limit": limit}
    return await _operate(instance, Operation("search", key, session.index, asked))


async def _operate(instance: Model, operation: Operation) -> OperationOutcome:
    try:
        response = await instance(operation.request)
    except FatalModelError:
        raise
    except ModelError as error:
        return OperationOutcome(Failure("failed", str(error)))
    said: Any = json.loads(response.text)
    if isinstance(said, dict):
        found = cast("dict[str, Any]", said)
        return OperationOutcome(found["found"], response.seconds, found["tokens"])
    return OperationOutcome(said, response.seconds)


async def _find_latest(user: User, key: str, spec: str, journal: Journal) -> int | None:
    """The last session that the journal says a durable system was given."""
    for session in reversed(user.sessions):
        operation = add_session(key, session)
        if await journal.find(request_key(model_name(spec), operation.request)):
            return session.index
    return None
