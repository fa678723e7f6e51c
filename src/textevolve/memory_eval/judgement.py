"""What is judged, and what came of it. Types only: no prompt, no model, no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """One thing to be judged, with all texts that the judgement is given, by name:

    integrity: `expected`, `memories`. accuracy: `dialogue`, `gold`, `memory`. update: `expected`,
    `original`, `memories`. question: `question`, `reference`, `evidence`, `answer`.

    `by_rule`: the label is known without asking (a session from which nothing was extracted).
    `failure`: the system failed where its outcome was to be judged, so there is nothing to judge.
    `user` is the data set's id; `item` counts within session and task. `type`, `source` and
    `importance` are the memory point's; an accuracy or question subject has none. `question_type`
    and `difficulty` are what the data says of a question, empty where it says nothing.
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
    """`included`: for accuracy, whether every field of the memory exists in the gold."""

    label: Label
    reason: str
    included: bool | None = None


@dataclass(frozen=True, slots=True)
class MemoryJudgement:
    """A subject with its verdict, or with why there is none; a failure is never a label."""

    subject: Subject
    outcome: MemoryVerdict | Failure
    usage: Usage = field(default_factory=Usage)

    @property
    def verdict(self) -> MemoryVerdict | None:
        return self.outcome if isinstance(self.outcome, MemoryVerdict) else None
