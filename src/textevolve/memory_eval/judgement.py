"""The data types of subjects (units to judge) and judgements, without prompts, models or
arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from textevolve.evaluation import Failure, Usage

Task = Literal["integrity", "accuracy", "update", "question"]
"""The question of a judgement: whether an expected memory was extracted (integrity), whether an
extracted memory is true (accuracy), whether an update was applied, or whether an answer is right
(question)."""
TASKS: tuple[Task, ...] = ("integrity", "accuracy", "update", "question")

Label: TypeAlias = int | str
"""The verdict: 0, 1 or 2 for integrity and accuracy, one of the classes for update and question."""

LABELS: Mapping[Task, tuple[Label, ...]] = {
    "integrity": (0, 1, 2),
    "accuracy": (0, 1, 2),
    "update": ("Correct", "Hallucination", "Omission", "Other"),
    "question": ("Correct", "Hallucination", "Omission"),
}
"""The possible labels of each task."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One unit to judge, with all texts that the judge sees, by name:

    integrity: `expected`, `memories`. accuracy: `dialogue`, `gold`, `memory`. update: `expected`,
    `original`, `memories`. question: `question`, `reference`, `evidence`, `answer`.

    `user`: the id in the data set. `session`: its index. `item`: the number within session and
    task. `type`, `source`, `importance`: of the expected memory; empty for accuracy and question.
    `question_type`, `difficulty`: of a question in the data set; empty if missing. `by_rule`: the
    label, if no judge is needed, for example because no memory was extracted from the session;
    otherwise None. `failure`: the system's failure, which leaves no outcome to judge.
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
    """The verdict of a judge on a subject. `included`: only for accuracy, whether all content of
    the memory is in the expected memories; otherwise None."""

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
