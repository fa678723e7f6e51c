"""What there is in a data set, before anything of it is judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from textevolve.errors import InputError
from textevolve.memory_eval.dataset import Malformed, read_users
from textevolve.memory_eval.dialogues import User
from textevolve.memory_eval.judgement import Task
from textevolve.memory_eval.recorded import RECORDED, RecordedKinds
from textevolve.memory_eval.system import Capabilities


@dataclass(slots=True)
class Survey:
    """Points, questions, memories recorded as extracted, and updates with what a search returned
    are those of sessions that are scored."""

    users: int = 0
    sessions: int = 0
    points: int = 0
    questions: int = 0
    extracted: int = 0
    returned: int = 0
    kept: RecordedKinds = field(default_factory=RecordedKinds)
    malformed: list[Malformed] = field(default_factory=list[Malformed])

    def note(self, found: User | Malformed) -> None:
        if isinstance(found, Malformed):
            self.malformed.append(found)
            return
        self.users += 1
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

    def check_recorded(self, path: str) -> None:
        """Raises InputError where the data holds no results that could be judged."""
        if not (self.kept.extracted or self.kept.answered or self.returned):
            raise InputError(
                f"{path}: nothing is recorded in it: no session has extracted_memories, no update"
                " memories_from_system, no question a system_response; name a system to measure"
            )


def read_data(path: str, users: int | None, sessions: int | None) -> Iterator[User | Malformed]:
    """The first so many users with their first so many sessions, and the lines up to the last of
    them that are no users.

    Raises:
        InputError: the file cannot be read, or has no user.
    """
    left = users
    for found in read_users(path):
        if isinstance(found, Malformed):
            yield found
            continue
        yield replace(found, sessions=tuple(islice(found.sessions, sessions)))
        left = None if left is None else left - 1
        if left == 0:
            return


def find_unmeasured(survey: Survey, can: Capabilities | None) -> dict[Task, str]:
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
