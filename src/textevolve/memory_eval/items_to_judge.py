"""Build the subjects, which are the units to judge, of a session from its expected memories and the
system's outcomes.

The module is pure and calls no system. Outcomes come from a memory system (`system_operations.py`),
or are recorded in the data, as in the benchmark's own result files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import Failure, empty_default
from textevolve.memory_eval.dataset import (
    Malformed,
    MemoryPoint,
    MemoryQuestion,
    Session,
    User,
    read_users,
    write_dialogue,
)
from textevolve.memory_eval.evaluation import SessionTimes
from textevolve.memory_eval.judgement import Label, Subject, Task
from textevolve.memory_eval.system import Capabilities

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


def judge_extraction(user: str, session: Session, extracted: FoundMemories) -> Iterator[Subject]:
    """Yield the subjects of a session's extraction: integrity of every point that is no update, and
    accuracy of every extracted memory."""
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
    """Build the subject that asks whether a point is among the extracted memories. If no memory was
    extracted, its label is 0 by rule."""
    subject = _subject_of("integrity", user, session, place, point)
    return _with_memories(subject, extracted, 0)


def judge_update(
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
        return judge_integrity(user, session, place, point, extracted)
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


def judge_answer(
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
        yield from judge_extraction(user, session, extracted)
    for place, point in enumerate(session.points, 1):
        if point.is_update and (point.returned is not None or extracted is not None):
            yield judge_update(user, session, place, point, point.returned or (), extracted)
    for place, question in enumerate(session.questions, 1) if survey.has_answers else ():
        answer = question.recorded_answer
        lacking = Failure("failed", "no answer is recorded for this question")
        yield judge_answer(user, session, place, question, lacking if answer is None else answer)


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


def find_unmeasured(survey: Survey, can: Capabilities | None) -> dict[Task, str]:
    """Return the unmeasured tasks, each with the reason. `can`: the features of the system; None
    for recorded results."""
    if can is None:
        extracts, asks = survey.has_extracted, survey.has_answers
        silent, mute = "no extracted memories are recorded", "no answers are recorded"
    else:
        extracts, asks = can.extracts, can.searches
        silent = "the system does not say what it extracts"
        mute = "the system cannot be searched"
    reasons: dict[Task, str] = {}
    if not extracts:
        reasons |= {"integrity": silent, "accuracy": silent}
    if not asks:
        reasons["question"] = mute
        if can is not None:
            reasons["update"] = mute
    return reasons
