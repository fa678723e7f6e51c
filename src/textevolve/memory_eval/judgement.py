"""The types of subjects and judgements, without prompts, models or arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.evaluation import Failure, Usage

Task = Literal["integrity", "accuracy", "update", "question"]
TASKS: tuple[Task, ...] = ("integrity", "accuracy", "update", "question")

Label: TypeAlias = int | str
"""0, 1 or 2 for integrity and accuracy, one of the classes for update and question."""

LABELS: Mapping[Task, tuple[Label, ...]] = {
    "integrity": (0, 1, 2),
    "accuracy": (0, 1, 2),
    "update": ("Correct", "Hallucination", "Omission", "Other"),
    "question": ("Correct", "Hallucination", "Omission"),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """One unit to judge, with all texts that the judge sees, by name:

    integrity: `expected`, `memories`. accuracy: `dialogue`, `gold`, `memory`. update: `expected`,
    `original`, `memories`. question: `question`, `reference`, `evidence`, `answer`.

    `by_rule`: the label, if no judge is needed (no memory was extracted from the session).
    `failure`: the failure of the system, which leaves no outcome to judge. `user` is the data set's
    id; `item` counts within session and task. `type`, `source` and `importance` are the memory
    point's; an accuracy or question subject has none. `question_type` and `difficulty` are the
    data set's for a question, empty if missing.
    """

    task: Task
    user: str
    session: int
    item: int
    texts: Mapping[str, str]
    type: str = ""
    source: str = ""
    importance: float = 0.0
    question_type: str = ""
    difficulty: str = ""
    by_rule: Label | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """The verdict of a judge on a subject. `included`: for accuracy, whether every field of the
    memory exists in the gold."""

    label: Label
    reason: str
    included: bool | None = None


@dataclass(frozen=True, slots=True)
class MemoryJudgement:
    """A subject with its verdict or the failure that prevented it; a failure never counts as a
    label."""

    subject: Subject
    outcome: MemoryVerdict | Failure
    usage: Usage = Usage()

    @property
    def verdict(self) -> MemoryVerdict | None:
        return self.outcome if isinstance(self.outcome, MemoryVerdict) else None
