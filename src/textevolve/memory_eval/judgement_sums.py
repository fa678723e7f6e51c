"""What has been judged, as sums: for each user, and each memory type, question type and difficulty.

Texts are not kept, so they stay small however long the dialogues are, and a bootstrap draw is a
product of matrices. What metrics are made of the sums is in `metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from textevolve.evaluation import Failure
from textevolve.memory_eval.judgement import LABELS, TASKS, MemoryJudgement, MemoryVerdict, Subject
from textevolve.statistics.resampling import Array

Sums: TypeAlias = Callable[[str], Array]
"""From the name of a sum to its values."""

Side = Literal["type", "question_type", "difficulty"]
SIDES: tuple[Side, ...] = ("type", "question_type", "difficulty")
"""What judgements are told apart by: the memory type of a point, and two things of a question."""

SideValue: TypeAlias = tuple[Side, str]
"""The judgements of one value of a side; the value is empty for the questions that have none where
others have one."""

OUTCOMES = ("asked", "valid", "skipped")
CLASSES: tuple[str, ...] = tuple(
    f"{task}_{str(label).lower()}" for task in ("update", "question") for label in LABELS[task]
)
SUMS: tuple[str, ...] = (
    *(f"{task}_{outcome}" for task in TASKS for outcome in OUTCOMES),
    *("points", "points_valid", "full"),
    *("weight", "weight_valid", "weighted"),
    *("traps", "traps_valid", "refused", "trapped"),
    *("score", "included", "included_score"),
    *CLASSES,
)
_PLACE = {name: place for place, name in enumerate(SUMS)}


@dataclass(slots=True)
class JudgementSums:
    """Sums by user and by the values of all sides. Judgements may come in any order."""

    sums: dict[str, dict[tuple[str, ...], Array]] = field(
        default_factory=dict[str, dict[tuple[str, ...], Array]]
    )
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(sorted(self.sums))  # whatever their order was, the same draws are made

    @property
    def parts(self) -> tuple[SideValue, ...]:
        """All there is something of, sorted on each side; nothing on a side that is never named."""
        cells = {cell for row in self.sums.values() for cell in row}
        found: list[SideValue] = []
        for place, side in enumerate(SIDES):
            names = sorted({cell[place] for cell in cells if cell[place]})
            if side != "type" and names and self._has_unnamed(side):
                names.append("")
            found.extend((side, name) for name in names)
        return tuple(found)

    def _has_unnamed(self, side: Side) -> bool:
        at = totals_at(self.table((side, "")))
        return bool(at("question_asked").any() or at("question_skipped").any())

    def add(self, judgement: MemoryJudgement) -> None:
        subject = judgement.subject
        row = self.sums.setdefault(subject.user, {})
        cell = tuple(getattr(subject, side) for side in SIDES)
        sums = row.setdefault(cell, np.zeros(len(SUMS)))
        for name, amount in _contributions(subject, judgement.outcome):
            sums[_PLACE[name]] += amount

    def add_time(
        self,
        user: str,
        *,
        adding: float | None = None,
        searching: float | None = None,
        answering: float | None = None,
    ) -> None:
        """Seconds that a system took for one operation of a user; None where it is not known."""
        self.sums.setdefault(user, {})
        times = {"adding": adding, "searching": searching, "answering": answering}
        for name, seconds in times.items():
            if seconds is not None:
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def table(self, part: SideValue | None = None, users: tuple[str, ...] | None = None) -> Array:
        """The sums, (users, sums), of one part or of all; in the order of `users`."""
        rows = [self.sums.get(user, {}) for user in (self.users if users is None else users)]
        made = np.zeros((len(rows), len(SUMS)))
        for place, row in enumerate(rows):
            for cell, sums in row.items():
                if part is None or cell[SIDES.index(part[0])] == part[1]:
                    made[place] += sums
        return made


def _contributions(
    subject: Subject, outcome: MemoryVerdict | Failure
) -> Iterator[tuple[str, float]]:
    """What one judgement adds to which sums."""
    task = subject.task
    if isinstance(outcome, Failure) and outcome.kind == "skipped":
        yield f"{task}_skipped", 1
        return
    verdict = outcome if isinstance(outcome, MemoryVerdict) else None
    yield f"{task}_asked", 1
    if verdict is not None:
        yield f"{task}_valid", 1
    if task == "integrity":
        yield from _integrity(subject, verdict)
    elif verdict is None:
        return
    elif task == "accuracy":
        score = 0.5 * float(verdict.label)
        yield "score", score
        if verdict.included:
            yield "included", 1
            yield "included_score", score
    else:
        yield f"{task}_{str(verdict.label).lower()}", 1


def _integrity(subject: Subject, verdict: MemoryVerdict | None) -> Iterator[tuple[str, float]]:
    label = None if verdict is None else verdict.label
    if subject.source == "interference":
        yield "traps", 1
        yield "traps_valid", label is not None
        yield "refused", label == 0
        yield "trapped", label == 2
        return
    yield "points", 1
    yield "points_valid", label is not None
    yield "full", label == 2
    yield "weight", subject.importance
    if label is not None:
        yield "weight_valid", subject.importance
        yield "weighted", 0.5 * float(label) * subject.importance


def totals_at(values: Array) -> Sums:
    """The sums in an array (..., sums), by name."""
    return lambda name: values[..., _PLACE[name]]
