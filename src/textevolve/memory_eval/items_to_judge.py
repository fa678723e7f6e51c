"""What is to be judged of a session: subjects, made of what was expected and what was found.

Pure: no system is asked here. Where an outcome comes from a memory system, see
`system_operations.py`; where it was recorded, `recorded.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from textevolve.evaluation import Failure
from textevolve.memory_eval.dialogues import DialogueTurn, MemoryPoint, MemoryQuestion, Session
from textevolve.memory_eval.judgement import Subject

FoundMemories: TypeAlias = tuple[str, ...] | Failure
"""Memories, or why there are none to be had."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question whose answer a model has yet to give from the memories that were found."""

    subject: Subject
    memories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds that operations for a user took, and tokens that the system's models used for them;
    None for what they were not, or where unknown. `stopped`: the limit that ended the session."""

    user: str
    session: int = 0
    adding: float | None = None
    searching: float | None = None
    answering: float | None = None
    tokens: int | None = None
    stopped: str = ""


PieceToJudge: TypeAlias = Subject | Unanswered | Timed


def write_dialogue(dialogue: Sequence[DialogueTurn]) -> str:
    """A turn a line, with its time where it has one."""
    return "\n".join(
        (f"[{turn.timestamp}] " if turn.timestamp else "") + f"{turn.role}: {turn.content}"
        for turn in dialogue
    )


def count_planned(session: Session) -> int:
    """How many judgements a session gives beside those of extracted memories."""
    return 0 if session.is_generated_qa else len(session.points) + len(session.questions)


def judge_extraction(user: str, session: Session, extracted: FoundMemories) -> Iterator[Subject]:
    """Integrity of every point that is no update, and accuracy of every memory extracted."""
    for place, point in enumerate(session.points, 1):
        if not point.is_update:
            yield judge_integrity(user, session, place, point, extracted)
    if isinstance(extracted, Failure) or not extracted:
        return
    texts = {
        "dialogue": write_dialogue(session.dialogue),
        "gold": "\n".join(p.content for p in session.points if p.source != "interference"),
    }
    for place, memory in enumerate(extracted, 1):
        yield Subject("accuracy", user, session.index, place, {**texts, "memory": memory})


def judge_integrity(
    user: str, session: Session, place: int, point: MemoryPoint, extracted: FoundMemories
) -> Subject:
    """Whether a point is among what was extracted; 0 by rule where that was nothing."""
    subject = _subject_of("integrity", user, session, place, point)
    if isinstance(extracted, Failure):
        return replace(subject, texts={"expected": point.content}, failure=extracted)
    texts = {"expected": point.content, "memories": "\n".join(extracted)}
    return replace(subject, texts=texts, by_rule=None if extracted else 0)


def judge_update(
    user: str,
    session: Session,
    place: int,
    point: MemoryPoint,
    returned: FoundMemories,
    extracted: FoundMemories | None,
) -> Subject:
    """Whether an update arrived, by what a search for it returned; where that was nothing, the
    integrity of the point. Where it is not known what was extracted (None), nothing returned is an
    omission by rule, since the point would drop out otherwise."""
    subject = _subject_of("update", user, session, place, point)
    texts = {"expected": point.content, "original": "\n".join(point.originals)}
    if isinstance(returned, Failure):
        return replace(subject, texts=texts, failure=returned)
    if not returned and extracted is not None:
        return judge_integrity(user, session, place, point, extracted)
    texts["memories"] = "\n".join(returned)
    return replace(subject, texts=texts, by_rule=None if returned else "Omission")


def judge_answer(
    user: str, session: Session, place: int, question: MemoryQuestion, answer: str | Failure | None
) -> Subject:
    """Whether a question was answered right; None where the answer is yet to be given."""
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
    if isinstance(answer, Failure):
        return replace(subject, failure=answer)
    return subject if answer is None else with_answer(subject, answer)


def with_answer(subject: Subject, answer: str | Failure) -> Subject:
    """A question's subject with its answer, or with why there is none."""
    if isinstance(answer, Failure):
        return replace(subject, failure=answer)
    return replace(subject, texts={**subject.texts, "answer": answer})


def _subject_of(task: str, user: str, session: Session, place: int, point: MemoryPoint) -> Subject:
    """`place` is the point's in its session, from 1: the same whatever the system does."""
    return Subject(
        task=task,  # pyright: ignore[reportArgumentType]
        user=user,
        session=session.index,
        item=place,
        texts={},
        type=point.type,
        source=point.source,
        importance=point.importance,
    )
