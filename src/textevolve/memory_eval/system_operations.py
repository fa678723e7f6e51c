"""Run the operations of a memory system for a user: add sessions in order, with searches and
answers in between.

An operation is stored in the journal like a call of a model, so a finished one is never repeated. A
system whose data do not survive the program gets its earlier sessions again when an operation needs
them. `items_to_judge.py` processes the outcomes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from textevolve.errors import AnswerError, BudgetError, FatalModelError, ModelError, SettingsError
from textevolve.evaluation import Failure, Usage, empty_default
from textevolve.llm.journal import Journal
from textevolve.llm.model import Message, Model, Request, Response, request_key
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.dataset import DialogueTurn, Session, User
from textevolve.memory_eval.evaluation import SessionTimes
from textevolve.memory_eval.items_to_judge import (
    FoundMemories,
    PieceToJudge,
    Unanswered,
    judge_answer,
    judge_extraction,
    judge_update,
)
from textevolve.memory_eval.judgement import Subject
from textevolve.memory_eval.system import Capabilities, MemorySystem

UPDATE_LIMIT = 10
QUESTION_LIMIT = 20
"""The number of memories to retrieve for an update and for a question."""

FAILURES_IN_A_ROW = 10
"""The number of consecutive failures after which a system counts as broken, which ends the run."""


def write_operation(verb: str, user: str, session: int, **arguments: Any) -> Request:
    """Write an operation as a request of the journal. `session` counts from 0; `arguments` are
    those of the system's method."""
    parts = {"operation": verb, "user": user, "session": session, **arguments}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return Request(messages=(Message("user", (text,)),))


def add_session(user: str, session: Session) -> Request:
    dialogue = [[turn.role, turn.content, turn.timestamp] for turn in session.dialogue]
    return write_operation("add", user, session.index, dialogue=dialogue)


def model_name(spec: str) -> str:
    """Return the model name under which the journal stores a system's operations."""
    return f"memory/{spec}"


class TooLate(AnswerError):
    """The error of an operation that was not tried, since the system has processed later
    sessions."""


class LimitReached(BudgetError):
    """The error of an operation that was not performed, since it would have exceeded the run's
    limits."""


@dataclass(slots=True)
class Health:
    """The number of operations of a system that failed one after another, over all users."""

    failures: int = 0

    def note(self, error: ModelError | None) -> None:
        """Count the result of an operation: an error, or None if the operation succeeded.

        Raises:
            FatalModelError: too many operations have failed in a row.
        """
        self.failures = 0 if error is None else self.failures + 1
        if self.failures >= FAILURES_IN_A_ROW:
            raise FatalModelError(
                f"the memory system failed {self.failures} times in a row, so the run stops; what"
                f" was done is kept. The last: {error}"
            )


class Instance:
    """A memory system for one user as a `Model`: it performs the operations that its requests
    describe.

    `latest`: the last session that a durable system processed in an earlier program; -1 if there
    was none.
    """

    def __init__(
        self, system: MemorySystem, spec: str, user: User, latest: int, health: Health
    ) -> None:
        self.name = model_name(spec)
        self._system = system
        self._sessions = user.sessions
        self._latest = latest
        self._fed = 0
        self._health = health

    async def __call__(self, request: Request, /) -> Response:
        operation: dict[str, Any] = json.loads(request.messages[0].text)
        verb = operation["operation"]
        try:
            await self._prepare(verb, operation["session"], operation["user"])
            began = perf_counter()
            text = json.dumps(await self._do(verb, operation), ensure_ascii=False)
        except (FatalModelError, SettingsError, TooLate):
            raise
        except BudgetError as error:  # the system asks models of the run
            raise LimitReached(str(error)) from None
        except Exception as error:
            if isinstance(error, ModelError):  # of its own kind, with the operation
                error.args = (f"{verb}: {error}",)
                failure = error
            else:
                message = one_line(str(error))
                failure = AnswerError(f"{verb}: {type(error).__name__}: {message}"[:500])
            self._health.note(failure)
            raise failure from error
        self._health.note(None)
        return Response(text, "stop", Usage(), seconds=perf_counter() - began)

    async def _prepare(self, verb: str, session: int, user: str) -> None:
        """Feed the system the earlier sessions that an operation needs.

        Raises:
            TooLate: the system has processed later sessions already.
        """
        if verb == "answer":  # from the memories that it is given, whatever the system holds
            return
        if self._system.capabilities.durable:
            if session < self._latest:
                raise TooLate(
                    f"{verb}: the system did not answer in time, and its memory has later"
                    " sessions now; to feed all sessions again, use --fresh TEXT"
                )
            return
        while self._fed < session + (verb != "add"):
            if dialogue := self._sessions[self._fed].dialogue:
                await self._system.add(dialogue, user)
            self._fed += 1

    async def _do(self, verb: str, operation: dict[str, Any]) -> Any:
        user = operation["user"]
        if verb == "search":
            return list(await self._system.search(operation["query"], user, operation["limit"]))
        if verb == "answer":
            return await self._system.answer(operation["question"], operation["memories"])
        self._fed = operation["session"] + 1
        turns = [DialogueTurn(*turn) for turn in operation["dialogue"]]
        return list(await self._system.add(turns, user))


async def open_instance(
    system: MemorySystem, spec: str, user: User, key: str, journal: Journal, health: Health
) -> Instance:
    """Open the system for one user. `key`: the user's id in the system; `spec`: the name of the
    system; `health`: shared by all users of one system."""
    latest = -1
    if system.capabilities.durable:
        for session in reversed(user.sessions):
            if await journal.find(request_key(model_name(spec), add_session(key, session))):
                latest = session.index
                break
    return Instance(system, spec, user, latest, health)


async def feed(
    user: User, key: str, can: Capabilities, instance: Model
) -> AsyncGenerator[PieceToJudge]:
    """Add a user's sessions to a system, and yield each subject to judge as soon as its outcome is
    known, and after each session its times. A limit ends the user's sessions. `instance`: the
    result of `open_instance`, behind a journal. `can`: the features of the system.

    Raises:
        FatalModelError, SettingsError: no operation of this system can succeed.
        StoreError: an outcome cannot be stored.
    """
    for session in user.sessions:
        number, stopped = 0, ""
        feeding = SessionFeeding(user.id, key, session, can, instance)
        try:
            async with aclosing(feeding.run()) as pieces:
                async for piece in pieces:
                    number += 1
                    yield piece
        except LimitReached as error:
            stopped = str(error)
        yield SessionTimes(user.id, session.index, number, **feeding.spent, stopped=stopped)
        if stopped:
            return


@dataclass
class SessionFeeding:
    """The processing of one session of a user: adding it to the system, then the searches and
    questions to judge. `key`: the user's id in the system. `spent`: the seconds of adding and of
    searching, without operations that were not performed."""

    user: str
    key: str
    session: Session
    can: Capabilities
    instance: Model
    spent: dict[str, float] = empty_default(dict)

    async def run(self) -> AsyncGenerator[Subject | Unanswered]:
        session, can = self.session, self.can
        added: Any = ()
        if session.dialogue:
            added = await self._do(add_session(self.key, session), "adding")
        if session.is_generated_qa:
            return
        extracted = added if can.extracts else None
        if extracted is not None:
            for subject in judge_extraction(self.user, session, extracted):
                yield subject
        for place, point in enumerate(session.points, 1):
            if not point.is_update or (not can.searches and extracted is None):
                continue
            returned: FoundMemories = ()
            if can.searches:
                returned = await self._search(added, point.content, UPDATE_LIMIT)
            yield judge_update(self.user, session, place, point, returned, extracted)
        for place, question in enumerate(session.questions, 1) if can.searches else ():
            answer: Any = await self._search(added, question.question, QUESTION_LIMIT)
            if not isinstance(answer, Failure):
                if not can.answers:
                    subject = judge_answer(self.user, session, place, question, None)
                    yield Unanswered(subject, answer)
                    continue
                arguments = {"question": question.question, "memories": answer}
                answer = await self._do(self._write("answer", **arguments))
            yield judge_answer(self.user, session, place, question, answer)

    async def _search(self, added: FoundMemories, query: str, limit: int) -> FoundMemories:
        """Return the retrieved memories, or why the session could not be added."""
        if isinstance(added, Failure):
            return added
        return await self._do(self._write("search", query=query, limit=limit), "searching")

    def _write(self, verb: str, **arguments: Any) -> Request:
        return write_operation(verb, self.key, self.session.index, **arguments)

    async def _do(self, request: Request, time: str = "") -> Any:
        """Return the result of an operation: memories, an answer, or the failure."""
        try:
            response = await self.instance(request)
        except FatalModelError:
            raise
        except ModelError as error:
            return Failure("failed", str(error))
        if time:
            self.spent[time] = self.spent.get(time, 0.0) + response.seconds
        outcome: Any = json.loads(response.text)
        return outcome if isinstance(outcome, str) else tuple(outcome)
