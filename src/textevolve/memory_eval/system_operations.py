"""Run the operations of a memory system for a user: add sessions in order, with searches and
answers in between.

An operation is stored in the journal like a call of a model, so a finished one is never repeated. A
system whose data do not survive the program gets its earlier sessions again when an operation needs
them. `items_to_judge.py` processes the outcomes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any, TypeAlias

from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    SettingsError,
)
from textevolve.evaluation import Failure, Usage, empty_default
from textevolve.llm.model import Journal, Message, Model, Request, Response, request_key
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.dataset import (
    DialogueTurn,
    Malformed,
    MemoryPoint,
    MemoryQuestion,
    Session,
    User,
    read_users,
    write_turn,
)
from textevolve.memory_eval.evaluation import SessionTimes
from textevolve.memory_eval.judging import Label, Subject, Task
from textevolve.memory_eval.systems import Capabilities, MemorySystem

# Build the subjects, which are the units to judge, of a session from its expected memories and the
# system's outcomes.
#
# The module is pure and calls no system. Outcomes come from a memory system
# (`system_operations.py`), or are recorded in the data, as in the benchmark's own result files.

FoundMemories: TypeAlias = tuple[str, ...] | Failure
"""The memories that a system extracted or retrieved, or the failure that prevented it."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that a model has yet to answer from the memories that the system retrieved."""

    subject: Subject
    memories: tuple[str, ...]


PieceToJudge: TypeAlias = Subject | Unanswered | SessionTimes
"""A unit to judge of a session, and, at the end of the session, its times."""


def count_planned(session: Session) -> int:
    """Count the judgements of a session, without those of its extracted memories."""
    return 0 if session.is_generated_qa else len(session.points) + len(session.questions)


def extraction_subjects(user: str, session: Session, extracted: FoundMemories) -> Iterator[Subject]:
    """Yield the subjects of a session's extraction: integrity of every point that is no update, and
    accuracy of every extracted memory."""
    for place, point in enumerate(session.points, 1):
        if not point.is_update:
            yield integrity_subject(user, session, place, point, extracted)
    if isinstance(extracted, Failure) or not extracted:
        return
    texts = {
        "dialogue": "\n".join(map(write_turn, session.dialogue)),
        "gold": "\n".join(p.content for p in session.points if p.source != "interference"),
    }
    for place, memory in enumerate(extracted, 1):
        yield Subject("accuracy", user, session.index, place, {**texts, "memory": memory})


def integrity_subject(
    user: str, session: Session, place: int, point: MemoryPoint, extracted: FoundMemories
) -> Subject:
    """Build the subject that asks whether a point is among the extracted memories. If no memory was
    extracted, its label is 0 by rule."""
    subject = _subject_of("integrity", user, session, place, point)
    return _with_memories(subject, extracted, 0)


def update_subject(
    user: str,
    session: Session,
    place: int,
    point: MemoryPoint,
    returned: FoundMemories,
    extracted: FoundMemories | None,
) -> Subject:
    """Build the subject for an update, from the results of a search for it; if the search found
    nothing, the subject for the point's integrity. If the extracted memories are unknown (None), an
    empty result counts as an omission by rule, so that the point is not left out."""
    if not returned and extracted is not None:
        return integrity_subject(user, session, place, point, extracted)
    subject = _subject_of("update", user, session, place, point)
    texts = {**subject.texts, "original": "\n".join(point.originals)}

    return _with_memories(replace(subject, texts=texts), returned, "Omission")


def _with_memories(subject: Subject, memories: FoundMemories, absent: Label) -> Subject:
    """Return a point's subject with the memories of a system, or the failure that prevented them.
    `absent`: its label by rule if there are no memories."""
    if isinstance(memories, Failure):
        return replace(subject, failure=memories)
    texts = {**subject.texts, "memories": "\n".join(memories)}
    return replace(subject, texts=texts, by_rule=None if memories else absent)


def answer_subject(
    user: str, session: Session, place: int, question: MemoryQuestion, answer: str | Failure | None
) -> Subject:
    """Build the subject for a question's answer; `answer` is None if it is not given yet."""
    texts = {
        "question": question.question,
        "reference": question.answer,
        "evidence": "\n".join(question.evidence),
    }
    subject = Subject(
        "question",
        user,
        session.index,
        place,
        texts,
        question_type=question.type.strip(),
        difficulty=question.difficulty.strip(),
    )

    return with_answer(subject, answer)


def with_answer(subject: Subject, answer: str | Failure | None) -> Subject:
    """Return a question's subject with its answer, or with the failure that prevented the answer.
    If `answer` is None (there is no answer yet), the subject stays unchanged."""
    if answer is None:
        return subject
    if isinstance(answer, Failure):
        return replace(subject, failure=answer)
    return replace(subject, texts={**subject.texts, "answer": answer})


def _subject_of(task: Task, user: str, session: Session, place: int, point: MemoryPoint) -> Subject:
    """Build the subject of a point. `place`: the point's position in its session, from 1, which
    does not depend on the system."""
    return Subject(
        task=task,
        user=user,
        session=session.index,
        item=place,
        texts={"expected": point.content},
        type=point.type,
        source=point.source,
        importance=point.importance,
    )


RECORDED = "recorded"
"""The name of the system if recorded results are judged and no system runs."""


@dataclass(slots=True)
class Survey:
    """The counts of a data set. Points, questions, recorded extracted memories (`extracted`), and
    updates with recorded search results (`returned`) are counted in scored sessions only.

    `has_extracted`, `has_answers`: whether such results are recorded anywhere. If so, sessions
    without them are failures; otherwise the task is not measured.
    """

    users: int = 0
    sessions: int = 0
    points: int = 0
    questions: int = 0
    extracted: int = 0
    returned: int = 0
    has_extracted: bool = False
    has_answers: bool = False
    malformed: list[Malformed] = empty_default(list)

    def note(self, entry: User | Malformed) -> None:
        if isinstance(entry, Malformed):
            self.malformed.append(entry)
            return
        self.users += 1
        self.sessions += len(entry.sessions)

        for session in entry.sessions:
            if session.is_generated_qa:
                continue
            self.points += len(session.points)
            self.questions += len(session.questions)
            self.extracted += len(session.extracted or ())
            self.returned += sum(p.is_update and p.returned is not None for p in session.points)
            self.has_extracted |= session.extracted is not None
            self.has_answers |= any(q.recorded_answer is not None for q in session.questions)

    def planned(self, system: str) -> int:
        """Return how many judgements there will be. Those of the memories that a running system
        extracts are not included, since their number is unknown; recorded ones are."""
        if system != RECORDED:
            return self.points + self.questions
        memories = self.points + self.extracted if self.has_extracted else self.returned
        return memories + (self.questions if self.has_answers else 0)

    def check_recorded(self, path: str) -> None:
        """Check that the data has recorded results to judge.

        Raises:
            InputError: the data holds no results that could be judged.
        """
        if not (self.has_extracted or self.has_answers or self.returned):
            raise InputError(
                f"{path}: the file has no recorded results: no session has extracted_memories, no"
                " update memories_from_system, no question a system_response; name a system to"
                " measure"
            )


def read_recorded(user: User, survey: Survey) -> Iterator[PieceToJudge]:
    """Yield the subjects of a user from recorded outcomes, without calling a system, and after
    those of each session its times."""
    for session in user.sessions:
        subjects = [] if session.is_generated_qa else list(_read_session(user.id, session, survey))
        yield from subjects
        yield SessionTimes(
            user.id, session.index, len(subjects), session.add_seconds, session.searching
        )


def _read_session(user: str, session: Session, survey: Survey) -> Iterator[Subject]:
    extracted: FoundMemories | None = session.extracted
    if extracted is None and survey.has_extracted:
        extracted = Failure("failed", "no extracted memories are recorded for this session")
    if extracted is not None:
        yield from extraction_subjects(user, session, extracted)
    for place, point in enumerate(session.points, 1):
        if point.is_update and (point.returned is not None or extracted is not None):
            yield update_subject(user, session, place, point, point.returned or (), extracted)
    for place, question in enumerate(session.questions, 1) if survey.has_answers else ():
        answer = question.recorded_answer
        lacking = Failure("failed", "no answer is recorded for this question")
        yield answer_subject(user, session, place, question, lacking if answer is None else answer)


def read_data(path: str, users: int | None, sessions: int | None) -> Iterator[User | Malformed]:
    """Yield the first `users` users with their first `sessions` sessions, and malformed lines among
    them.

    Raises:
        InputError: the file cannot be read, or has no user.
    """
    number = 0

    for entry in read_users(path):
        if isinstance(entry, Malformed):
            yield entry
            continue
        yield replace(entry, sessions=tuple(islice(entry.sessions, sessions)))
        number += 1
        if number == users:
            return


NO_POINTS = "the data has no expected memories"
"""The reason why extraction is not measured on questions alone, as in LoCoMo."""


def find_unmeasured(survey: Survey, can: Capabilities | None) -> dict[Task, str]:
    """Return the unmeasured tasks, each with the reason. `can`: the features of the system; None
    for recorded results."""
    if can is None:
        extracts = survey.has_extracted
        asks = survey.has_answers
        silent = "no extracted memories are recorded"
        mute = "no answers are recorded"
    else:
        extracts = can.extracts
        asks = can.searches
        silent = "the system does not say what it extracts"
        if not survey.points:
            silent = NO_POINTS
            extracts = False
        mute = "the system cannot be searched"

    reasons: dict[Task, str] = {}
    if not extracts:
        reasons |= {"integrity": silent, "accuracy": silent}
    if not asks:
        reasons["question"] = mute
        if can is not None:
            reasons["update"] = mute

    return reasons


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
        number = 0
        stopped = ""
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
        session = self.session
        can = self.can
        added: Any = ()
        if session.dialogue:
            added = await self._do(add_session(self.key, session), "adding")
        if session.is_generated_qa:
            return
        extracted = added if can.extracts else None
        if extracted is not None:
            for subject in extraction_subjects(self.user, session, extracted):
                yield subject
        for place, point in enumerate(session.points, 1):
            if not point.is_update or (not can.searches and extracted is None):
                continue
            returned: FoundMemories = ()
            if can.searches:
                returned = await self._search(added, point.content, UPDATE_LIMIT)
            yield update_subject(self.user, session, place, point, returned, extracted)

        for place, question in enumerate(session.questions, 1) if can.searches else ():
            answer: Any = await self._search(added, question.question, QUESTION_LIMIT)
            if not isinstance(answer, Failure):
                if not can.answers:
                    subject = answer_subject(self.user, session, place, question, None)
                    yield Unanswered(subject, answer)
                    continue

                arguments = {"question": question.question, "memories": answer}
                answer = await self._do(self._write("answer", **arguments))

            yield answer_subject(self.user, session, place, question, answer)

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
