"""Two stages of an evaluation of a memory system: it is fed users, and what comes of it is judged.

They run side by side, as one stream over all users. What a run of them is, is in `memory_eval.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Evaluator, Failure, failure_of
from textevolve.events import Event, RecordsExpected, StepFinished
from textevolve.llm.model import Model
from textevolve.llm.usage_meter import UsageMeter
from textevolve.memory_eval.answering import answer_question
from textevolve.memory_eval.deciding import judge_by_decider
from textevolve.memory_eval.dialogues import User
from textevolve.memory_eval.evaluation import EvaluationRecord, SessionTimes, clip_texts
from textevolve.memory_eval.evaluator_judging import judge_by_evaluator
from textevolve.memory_eval.items_to_judge import PieceToJudge, Timed, Unanswered, with_answer
from textevolve.memory_eval.judgement import MemoryJudgement, Subject
from textevolve.memory_eval.judging import judge_subject
from textevolve.memory_eval.recorded import RecordedKinds, read_recorded
from textevolve.memory_eval.survey import Survey
from textevolve.memory_eval.system import Capabilities, MemorySystem
from textevolve.memory_eval.system_operations import FEEDING, Health, feed, open_instance
from textevolve.memory_eval.systems.rehearsed import Rehearsed
from textevolve.wiring import Workbench

Work: TypeAlias = Subject | Unanswered | SessionTimes


@dataclass
class Stages:
    """What both stages share. `name`: what the system is named by. `can` is None where results were
    recorded. `system` is None there, in a replay, and where a made-up one is to be rehearsed.
    `judge`, `decider`: neither where each judgement is one structured call. `expected`: how many
    records are to come, as far as is known."""

    bench: Workbench
    survey: Survey
    name: str
    can: Capabilities | None
    system: MemorySystem | None
    judge: Evaluator | None
    decider: Model | None
    answering: Model
    seed: int
    health: Health = field(default_factory=Health)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    expected: int = 0

    def __post_init__(self) -> None:
        survey = self.survey
        self._expect(survey.planned(self.name) + survey.sessions + len(survey.malformed) + 1)

    def _expect(self, more: int) -> None:
        self.expected += more
        if self.expected:
            self.bench.listener(RecordsExpected(self.expected))

    def _hear(self, event: Event) -> None:
        if isinstance(event, StepFinished) and event.step == FEEDING:
            self._expect(event.value)
        self.bench.listener(event)

    def produce(self, numbered: tuple[int, User]) -> AsyncGenerator[Work]:
        number, user = numbered
        key = f"{self.bench.run}-{number}"
        pieces = _read(user, self.survey.kept) if self.can is None else self._feed(user, key)
        return self._until_stopped(_count_sessions(pieces))

    async def _feed(self, user: User, key: str) -> AsyncGenerator[PieceToJudge]:
        assert self.can is not None
        bench, name, can = self.bench, self.name, self.can
        system = self.system or Rehearsed(user, can, longest=bench.mode == "longest")
        made = await open_instance(system, name, user, key, bench.journal, self.health)
        async with aclosing(feed(user, key, can, bench.keep(made), self._hear)) as pieces:
            async for piece in pieces:
                yield piece

    async def _until_stopped(self, pieces: AsyncGenerator[Work]) -> AsyncGenerator[Work]:
        """The pieces until a limit is reached: nothing is fed that would not be judged. A replay
        ends where the journal does."""
        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    if self.stopped.is_set():
                        return
                    yield piece
            except BudgetError:
                return

    async def settle(self, piece: Work) -> EvaluationRecord:
        """The record of a piece; the question in it is answered first."""
        if isinstance(piece, SessionTimes):
            if piece.stopped:
                self.stopped.set()
            return piece
        if isinstance(piece, Subject):
            made = await self._judge(piece)
        else:
            metered = UsageMeter(self.answering)
            answer = await self._answer(piece, metered)
            made = await self._judge(with_answer(piece.subject, answer))
            usage = made.usage + metered.usage
            made = replace(made, usage=usage, answering=metered.seconds)
        skipped = isinstance(made.outcome, Failure) and made.outcome.kind == "skipped"
        if skipped and self.bench.mode != "replay":
            self.stopped.set()
        return clip_texts(made)

    async def _answer(self, piece: Unanswered, model: Model) -> str | Failure:
        question = piece.subject.texts["question"]
        try:
            self._check_time()
            found = await answer_question(model, question, piece.memories, seed=self.seed)
        except FatalModelError:
            raise
        except (ModelError, BudgetError) as error:
            return replace(failure_of(error), reason=f"no answer to judge: {error}")
        return found.text

    async def _judge(self, subject: Subject) -> MemoryJudgement:
        try:
            self._check_time()
            if self.judge is not None:
                return await judge_by_evaluator(self.judge, subject)
            if self.decider is not None:
                return await judge_by_decider(self.decider, subject, seed=self.seed)
            return await judge_subject(self.bench.model, subject, seed=self.seed)
        except (BudgetError, InputError) as error:  # a limit; a text that it cannot be given
            return MemoryJudgement(subject, failure_of(error))

    def _check_time(self) -> None:
        if self.bench.seconds_left == 0:
            raise BudgetError("the time limit is reached")


async def _read(user: User, kept: RecordedKinds) -> AsyncGenerator[PieceToJudge]:
    for piece in read_recorded(user, kept):
        yield piece


async def _count_sessions(pieces: AsyncGenerator[PieceToJudge]) -> AsyncGenerator[Work]:
    """What is to be judged as it comes, and after each session what it took."""
    done: SessionTimes | None = None
    async with aclosing(pieces):
        async for piece in pieces:
            if not isinstance(piece, Timed):
                assert done is not None
                done = replace(done, judgements=done.judgements + 1)
                yield piece
                continue
            if done is None or done.session != piece.session:
                if done is not None:
                    yield done
                done = SessionTimes(piece.user, piece.session)
            spent = {name: _add(getattr(done, name), getattr(piece, name)) for name in _TIMES}
            done = replace(done, **spent, stopped=piece.stopped or done.stopped)
    if done is not None:
        yield done


_TIMES = ("adding", "searching", "answering", "tokens")


def _add(one: float | None, other: float | None) -> float | None:
    return one if other is None else (one or 0.0) + other
