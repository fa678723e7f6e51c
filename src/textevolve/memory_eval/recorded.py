"""Subjects of results that were recorded before, such as the benchmark's own result files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textevolve.evaluation import Failure
from textevolve.memory_eval.dialogues import Session, User
from textevolve.memory_eval.items_to_judge import (
    PieceToJudge,
    Timed,
    judge_answer,
    judge_extraction,
    judge_update,
)

RECORDED = "recorded"
"""The system's name where results are read and none is fed."""


@dataclass(frozen=True, slots=True)
class RecordedKinds:
    """What of a kind is recorded anywhere in a data set: where it is, what lacks it is a failure;
    where it is not, that kind is not measured."""

    extracted: bool = False
    answered: bool = False

    def seen(self, session: Session) -> RecordedKinds:
        """With what one more session has."""
        return RecordedKinds(
            self.extracted or session.extracted is not None,
            self.answered or any(q.recorded_answer is not None for q in session.questions),
        )


def read_recorded(user: User, kept: RecordedKinds) -> Iterator[PieceToJudge]:
    """The subjects of a user, from what is recorded beside the data; no system is asked."""
    for session in user.sessions:
        yield Timed(user.id, session.index, session.add_seconds, session.search_seconds)
        if not session.is_generated_qa:
            yield from _read_session(user.id, session, kept)


def _read_session(user: str, session: Session, kept: RecordedKinds) -> Iterator[PieceToJudge]:
    extracted = session.extracted
    if extracted is None and kept.extracted:
        extracted = Failure("failed", "no extracted memories are recorded for this session")
    if extracted is not None:
        yield from judge_extraction(user, session, extracted)
    for place, point in enumerate(session.points, 1):
        if point.is_update and (point.returned is not None or extracted is not None):
            yield judge_update(user, session, place, point, point.returned or (), extracted)
    for place, question in enumerate(session.questions, 1) if kept.answered else ():
        answer = question.recorded_answer
        if answer is None:
            answer = Failure("failed", "no answer is recorded for this question")
        yield judge_answer(user, session, place, question, answer)
