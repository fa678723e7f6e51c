"""Evaluating a memory system as a run: kept, gone on with, judged as one stream.

How a system is fed is in `textevolve.memory_eval.feeding`, what judgements count for in its
`figures`; what a run leaves behind is in `memory_records.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from textevolve.engine.pipeline import pipe
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, Failure, failure_of
from textevolve.events import Listener, silence
from textevolve.llm.journal import Entry, Journal
from textevolve.llm.meter import Meter
from textevolve.llm.model import Model, Response
from textevolve.llm.refusals import one_line
from textevolve.memory_eval.answering import answer_question
from textevolve.memory_eval.choosing import choose
from textevolve.memory_eval.dataset import Malformed, read_users
from textevolve.memory_eval.dialogues import User
from textevolve.memory_eval.feeding import Health, feed
from textevolve.memory_eval.judgement import Judgement, Subject, Task
from textevolve.memory_eval.judging import judge_subject, prompts_version
from textevolve.memory_eval.recorded import RECORDED, Kept, read_recorded
from textevolve.memory_eval.subjects import Piece, Timed, Unanswered, with_answer
from textevolve.memory_eval.system import Capabilities, MemorySystem
from textevolve.memory_eval.systems.finding import open_system
from textevolve.rows import tell_mended
from textevolve.runs.improving import Means, models_used, open_means
from textevolve.runs.spec import MeasurementSpec, specify_measurement
from textevolve.runs.work import take_in
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, choose_model

KIND = "memory-eval"
USERS_IN_FLIGHT = 8

NotMeasured: TypeAlias = Mapping[Task, str]
Judge: TypeAlias = Callable[[Subject], Awaitable[Judgement]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `judge`: an evaluator's spec; None: one structured call a judgement.
    `users` and `sessions`: only the first so many. Another `fresh` asks everything anew.

    Raises:
        InputError: a number is out of range.
    """

    system: str
    judge: str | None = None
    answer_model: str | None = None
    users: int | None = None
    sessions: int | None = None
    fresh: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("users", "sessions"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InputError(f"{name} must be 1 or more, not {number}")
        if not self.system.strip():
            raise InputError("no memory system is named; there are: none, context, recorded, ...")


@dataclass(slots=True)
class Survey:
    """What there is in a data set, as far as it has been read; points, questions, memories recorded
    as extracted, and updates with what a search returned are those of sessions that are scored."""

    path: str
    users: int = 0
    sessions: int = 0
    points: int = 0
    questions: int = 0
    extracted: int = 0
    returned: int = 0
    kept: Kept = field(default_factory=Kept)
    malformed: list[Malformed] = field(default_factory=list[Malformed])

    def note(self, found: User | Malformed) -> None:
        if isinstance(found, Malformed):
            self.malformed.append(found)
            return
        self.users += 1
        if found.mended:
            tell_mended(f"{self.path}:{found.line}: user {one_line(found.id)}")
        for session in found.sessions:
            self.sessions += 1
            if not session.is_generated_qa:
                self.points += len(session.points)
                self.questions += len(session.questions)
                self.extracted += len(session.extracted or ())
                self.returned += sum(p.is_update and p.returned is not None for p in session.points)
                self.kept = self.kept.seen(session)

    def planned(self, system: str) -> int:
        """How many judgements there will be, as far as it is known before a system is fed: without
        those of the memories that it extracts."""
        if system != RECORDED:
            return self.points + self.questions
        asked = self.points + self.extracted if self.kept.extracted else self.returned
        return asked + (self.questions if self.kept.answered else 0)


def read_data(path: str, plan: Plan) -> Iterator[User | Malformed]:
    """The users that are measured, and the lines up to the last of them that are none.

    Raises:
        InputError: the file cannot be read, or has no user.
    """
    left = plan.users
    for found in read_users(path):
        if isinstance(found, Malformed):
            yield found
            continue
        yield replace(found, sessions=tuple(islice(found.sessions, plan.sessions)))
        left = None if left is None else left - 1
        if left == 0:
            return


async def specify_memory_evaluation(
    settings: Settings,
    plan: Plan,
    model: str | None = None,
    system: MemorySystem | None = None,
) -> MeasurementSpec:
    """The specification of an evaluation, whose `model` judges where the judge names none, and
    answers questions unless the system does, or another model is named for that. A `system` whose
    name says more than the plan, such as which configuration it has, is known by its name, too.

    Raises:
        InputError: the judge cannot be used. SettingsError: no model can be had as asked.
    """
    judges = () if plan.judge is None else (plan.judge,)
    chosen, why = await choose_model(settings, model)
    parameters = {name: value for name, value in asdict(plan).items() if name != "users"}
    if plan.answer_model is not None:
        parameters["answer_model"], _ = await choose_model(settings, plan.answer_model)
    if system is not None and system.name != plan.system:
        parameters["system_name"] = system.name
    prompts = {f"memory_eval.{name}": version for name, version in prompts_version().items()}
    return specify_measurement(KIND, judges, chosen, parameters, why, prompts)


def models_asked(spec: MeasurementSpec) -> tuple[str, ...]:
    """Every model that an evaluation asks, each once."""
    answering = spec.parameters.get("answer_model")
    return tuple(dict.fromkeys((*models_used(spec), *((answering,) if answering else ()))))


def begin_memory_evaluation(
    store: Store, spec: MeasurementSpec, path: str, plan: Plan, *, name: str = ""
) -> tuple[RunRecord, Survey]:
    """The run of an evaluation, a new one or the one that is kept already, and what is in the data.

    Raises:
        InputError: the data cannot be used.
    """
    survey = Survey(path)

    def users() -> Iterator[Case]:
        for found in read_data(path, plan):
            survey.note(found)
            if isinstance(found, User):
                yield Case(found.sha256, (), found.id)
        kept = survey.kept.extracted or survey.kept.answered or survey.returned
        if plan.system == RECORDED and not kept:
            raise InputError(
                f"{path}: nothing is recorded in it: no session has extracted_memories, no update"
                " memories_from_system, no question a system_response; name a system to measure"
            )

    return take_in(store, spec, users(), name=name, source=path), survey


def find_system(plan: Plan, settings: Settings) -> MemorySystem | None:
    """The system that is measured, opened; None where results were recorded.

    Raises:
        InputError: there is no such system. SettingsError: something that it needs is missing.
    """
    return None if plan.system == RECORDED else open_system(plan.system, settings)


async def do_memory_evaluation(
    store: Store,
    run: RunRecord,
    path: str,
    plan: Plan,
    survey: Survey,
    system: MemorySystem | None,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[NotMeasured | Judgement | Timed]:
    """First what cannot be measured, then judgements and times as they come, in no order.

    `system`: what `find_system` gives; it is closed at the end.

    Raises:
        InputError: the data has changed since the run was begun.
        FatalModelError: no call can succeed, or the system fails again and again; what was
            answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    journal = store.journal(run.id)
    if plan.fresh:
        journal = _Salted(journal, plan.fresh)
    async with AsyncExitStack() as stack:
        if system is not None:
            stack.push_async_callback(close_system, system)
        means = await stack.enter_async_context(
            open_means(store, run, settings, limits, listener, journal)
        )
        judge, stopped, health = _open_judge(plan, means), asyncio.Event(), Health()
        yield _not_measured(survey, None if system is None else system.capabilities)

        def produce(numbered: tuple[int, User]) -> AsyncGenerator[Piece]:
            number, user = numbered
            if system is None:
                return _until(stopped, _read(user, survey.kept))
            key = f"{run.id}-{run.fingerprint[:8]}-{number}"
            pieces = feed(user, key, system, plan.system, journal, listener, health)
            return _until(stopped, pieces)

        async def work(piece: Piece) -> tuple[Judgement | Timed, ...]:
            return await _settle(piece, _answering(run, means), judge, plan.seed)

        stream = pipe(
            _users(store, run, path, plan),
            produce,
            work,
            sources_in_flight=min(USERS_IN_FLIGHT, means.in_flight),
            in_flight=means.in_flight,
        )
        async with aclosing(stream) as found:
            async for results in found:
                for result in results:
                    if _skipped(result):
                        stopped.set()
                    yield result
        if not stopped.is_set():
            store.finish_run(run.id, "finished")


async def close_system(system: MemorySystem) -> None:
    """What is judged is judged, whatever a system does when it is let go."""
    try:
        await system.aclose()
    except Exception as error:  # noqa: BLE001  it is told, and nothing hangs on it
        said = one_line(f"{type(error).__name__}: {error}")
        logging.getLogger("textevolve").warning("%s: cannot be closed: %s", system.name, said)


def _users(store: Store, run: RunRecord, path: str, plan: Plan) -> Iterator[tuple[int, User]]:
    """The run's users with their numbers.

    Raises:
        InputError: they are not those that it was begun with.
    """
    users = (found for found in read_data(path, plan) if isinstance(found, User))
    for number, case in enumerate(store.iterate_cases(run.id), 1):
        user = next(users, None)
        if user is None or user.sha256 != case.input:
            raise InputError(f"{path}: has been changed while it was read; start again")
        yield number, user


def _open_judge(plan: Plan, means: Means) -> Judge:
    evaluator = None if plan.judge is None else means.judges[plan.judge]

    async def judge(subject: Subject) -> Judgement:
        try:
            if evaluator is not None:
                return await choose(evaluator, subject)
            return await judge_subject(means.model, subject, seed=plan.seed)
        except (BudgetError, InputError) as error:  # a limit; a text that it cannot be given
            return Judgement(subject, failure_of(error))

    return judge


def _answering(run: RunRecord, means: Means) -> Model:
    named = run.spec["parameters"].get("answer_model")
    return means.model_of(named) if named else means.model


async def _settle(
    piece: Piece, answering: Model, judge: Judge, seed: int
) -> tuple[Judgement | Timed, ...]:
    """The judgement of a piece, after the question in it was answered."""
    if isinstance(piece, Timed):
        return (piece,)
    if isinstance(piece, Subject):
        return (await judge(piece),)
    metered = Meter(answering)
    answer = await _answer(piece, metered, seed)
    judged = await judge(with_answer(piece.subject, answer))
    judged = replace(judged, usage=judged.usage + metered.usage)
    return (judged, Timed(piece.subject.user, answering=metered.seconds))


async def _answer(piece: Unanswered, model: Model, seed: int) -> str | Failure:
    question = piece.subject.texts["question"]
    try:
        response: Response = await answer_question(model, question, piece.memories, seed=seed)
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        return replace(failure_of(error), reason=f"no answer to judge: {error}")
    return response.text


async def _read(user: User, kept: Kept) -> AsyncGenerator[Piece]:
    for piece in read_recorded(user, kept):
        yield piece


async def _until(stopped: asyncio.Event, pieces: AsyncGenerator[Piece]) -> AsyncGenerator[Piece]:
    """The pieces until a limit is reached: nothing is fed that would not be judged."""
    async with aclosing(pieces):
        async for piece in pieces:
            if stopped.is_set():
                return
            yield piece


def _skipped(result: Judgement | Timed) -> bool:
    failure = result.outcome if isinstance(result, Judgement) else None
    return isinstance(failure, Failure) and failure.kind == "skipped"


def _not_measured(survey: Survey, can: Capabilities | None) -> dict[Task, str]:
    """Why a task is not asked about; `can` is None where results were recorded."""
    reasons: dict[Task, str] = {}
    if can is None:
        if not survey.kept.extracted:
            said = "no extracted memories are recorded"
            reasons |= {"integrity": said, "accuracy": said}
        if not survey.kept.answered:
            reasons["question"] = "no answers are recorded"
        return reasons
    if not can.extracts:
        said = "the system does not say what it extracts"
        reasons |= {"integrity": said, "accuracy": said}
    if not can.searches:
        said = "the system cannot be searched"
        reasons |= {"update": said, "question": said}
    return reasons


class _Salted:
    """A journal whose answers are found by those only who ask with the same salt."""

    def __init__(self, journal: Journal, salt: str) -> None:
        self._journal = journal
        self._salt = salt

    def _key(self, key: str) -> str:
        return hashlib.sha256(f"{key} {self._salt}".encode()).hexdigest()

    async def find(self, key: str) -> Response | None:
        return await self._journal.find(self._key(key))

    async def append(self, entry: Entry) -> None:
        await self._journal.append(replace(entry, key=self._key(entry.key)))
