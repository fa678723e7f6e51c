"""The benchmark's figures out of judgements, each with an interval over users. Pure arithmetic.

Every figure is made of sums, which are kept for each user and memory type; texts are not. So a
tally stays small however long the dialogues are, and a bootstrap draw is a product of matrices.

`all` divides by all that was asked, so that what failed counts as not reached; `valid` leaves out
what failed. What was skipped (not asked: a limit) is in neither; it lowers coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.evaluation import Failure
from textevolve.memory_eval.judgement import TASKS, Judgement, Subject, Task, Verdict
from textevolve.statistics.resampling import draw_weights

Array: TypeAlias = NDArray[np.float64]
Kind = Literal["all", "valid"]
Sums: TypeAlias = Callable[[str], Array]
"""From the name of a sum to its values."""

KINDS: tuple[Kind, ...] = ("all", "valid")
DRAWS = 2000
LEVEL = 0.95
MOST_UNDEFINED = 0.05  # share of draws without a value above which no interval is given
SAME = 1e-9

FIGURES: Mapping[str, Task] = {
    "recall": "integrity",
    "weighted_recall": "integrity",
    "fmr": "integrity",
    "target_precision": "accuracy",
    "accuracy": "accuracy",
    "f1": "accuracy",
    "update_correct": "update",
    "update_hallucination": "update",
    "update_omission": "update",
    "update_other": "update",
    "question_correct": "question",
    "question_hallucination": "question",
    "question_omission": "question",
}
"""All figures, with the task whose judgements they are made of (`f1` needs integrity too)."""

TYPE_FIGURES: Mapping[str, Task] = {
    "kept": "integrity",
    "updated": "integrity",
    "memory_accuracy": "integrity",
    **{name: task for name, task in FIGURES.items() if task in ("integrity", "update")},
}
"""What there is for each memory type. The benchmark's own three have all points of the type, of
integrity and update, as their denominator: `kept` is the share with score 2 (an interference point
that was kept counts too, as published), `updated` that of correct updates, `memory_accuracy` both.
"""

_OUTCOMES = ("asked", "valid", "skipped")
SUMS: tuple[str, ...] = (
    *(f"{task}_{outcome}" for task in TASKS for outcome in _OUTCOMES),
    *("points", "points_valid", "full"),
    *("weight", "weight_valid", "weighted"),
    *("traps", "traps_valid", "refused", "trapped"),
    *("score", "included", "included_score"),
    *(name for name in FIGURES if name.startswith(("update_", "question_"))),
)
_PLACE = {name: place for place, name in enumerate(SUMS)}


@dataclass(frozen=True, slots=True)
class Figure:
    """A share in [0, 1], with the ends of its 95 % interval.

    `value` is None where it is not measured, `low` and `high` where there is no interval; `reason`
    says why. `of` is the denominator: how many were counted, or for `weighted_recall` their
    importance; None for `f1`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    of: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure of all that was asked, and of what has a verdict."""

    all: Figure
    valid: Figure


@dataclass(frozen=True, slots=True)
class Coverage:
    """What became of a task's subjects: asked = valid + failed; `skipped` were not asked."""

    asked: int = 0
    valid: int = 0
    skipped: int = 0

    @property
    def failed(self) -> int:
        return self.asked - self.valid

    @property
    def share(self) -> float | None:
        """Share in [0, 1] of the task's subjects that have a verdict; None where it has none."""
        whole = self.asked + self.skipped
        return self.valid / whole if whole else None


@dataclass(frozen=True, slots=True)
class Minutes:
    """None where no time is known. `total` is adding and searching, as published."""

    adding: float | None = None
    searching: float | None = None
    answering: float | None = None

    @property
    def total(self) -> float | None:
        known = [part for part in (self.adding, self.searching) if part is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Figures:
    """`figures` by the names in `FIGURES`; `by_type` by memory type, then those in `TYPE_FIGURES`;
    a type of which there is no point has no entry."""

    users: int
    figures: Mapping[str, Pair]
    by_type: Mapping[str, Mapping[str, Pair]]
    coverage: Mapping[Task, Coverage]
    minutes: Minutes


@dataclass(slots=True)
class Tally:
    """What has been judged, as sums by user and memory type. Judgements may come in any order."""

    sums: dict[str, dict[str, Array]] = field(default_factory=dict[str, dict[str, Array]])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(sorted(self.sums))  # whatever their order was, the same draws are made

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted({type for row in self.sums.values() for type in row if type}))

    def add(self, judgement: Judgement) -> None:
        subject = judgement.subject
        row = self.sums.setdefault(subject.user, {})
        sums = row.setdefault(subject.type, np.zeros(len(SUMS)))
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

    def table(self, type: str | None = None, users: tuple[str, ...] | None = None) -> Array:
        """The sums, (users, sums), of one memory type or of all; in the order of `users`."""
        rows = [self.sums.get(user, {}) for user in (self.users if users is None else users)]
        made = np.zeros((len(rows), len(SUMS)))
        for place, row in enumerate(rows):
            for name, sums in row.items():
                if type is None or name == type:
                    made[place] += sums
        return made


def _contributions(subject: Subject, outcome: Verdict | Failure) -> Iterator[tuple[str, float]]:
    """What one judgement adds to which sums."""
    task = subject.task
    if isinstance(outcome, Failure) and outcome.kind == "skipped":
        yield f"{task}_skipped", 1
        return
    verdict = outcome if isinstance(outcome, Verdict) else None
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


def _integrity(subject: Subject, verdict: Verdict | None) -> Iterator[tuple[str, float]]:
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


def figures_of(
    tally: Tally,
    not_measured: Mapping[Task, str] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Figures:
    """All figures. `not_measured`: why a task was not asked about at all, as far as it is known,
    such as "the system does not say what it extracts"."""
    reasons = not_measured or {}
    whole = tally.table()
    parts = {type: tally.table(type) for type in tally.types}
    tables = [whole, *parts.values()]
    drawn = draw_users(np.concatenate(tables, axis=1), draws, seed) if len(whole) > 1 else None

    def measured(place: int, names: Mapping[str, Task]) -> dict[str, Pair]:
        own = slice(place * len(SUMS), (place + 1) * len(SUMS))
        found = None if drawn is None else drawn[:, own]
        return _pairs(tables[place], found, names, reasons)

    totals = totals_at(whole.sum(axis=0))
    seconds = {name: round(spent / 60, 9) for name, spent in tally.seconds.items()}
    return Figures(
        users=len(whole),
        figures=measured(0, FIGURES),
        by_type={type: measured(1 + n, TYPE_FIGURES) for n, type in enumerate(parts)},
        coverage={
            task: Coverage(*(round(float(totals(f"{task}_{o}"))) for o in _OUTCOMES))
            for task in TASKS
        },
        minutes=Minutes(**seconds),
    )


def totals_at(values: Array) -> Sums:
    """The sums in an array (..., sums), by name."""
    return lambda name: values[..., _PLACE[name]]


def ratios(at: Sums, kind: Kind) -> dict[str, tuple[Array, Array]]:
    """Every figure as numerator and denominator; `f1` with its harmonic mean over 1."""
    valid = "_valid" if kind == "valid" else ""
    judged = "valid" if kind == "valid" else "asked"
    of_type = at(f"integrity_{judged}") + at(f"update_{judged}")
    kept = at("full") + at("trapped")
    made = {
        "recall": (at("full"), at("points" + valid)),
        "weighted_recall": (at("weighted"), at("weight" + valid)),
        "fmr": (at("refused"), at("traps" + valid)),
        "target_precision": (at("included_score"), at("included")),
        "accuracy": (at("score"), at(f"accuracy_{judged}")),
        "kept": (kept, of_type),
        "updated": (at("update_correct"), of_type),
        "memory_accuracy": (kept + at("update_correct"), of_type),
    }
    for name, task in FIGURES.items():
        if task in ("update", "question"):
            made[name] = (at(name), at(f"{task}_{judged}"))
    precision, recall = divide(*made["target_precision"]), divide(*made["recall"])
    both = divide(2 * precision * recall, precision + recall)
    # Precision and recall of 0 are measured: what their harmonic mean comes to there is 0.
    both = np.where((precision == 0) & (recall == 0), 0.0, both)
    made["f1"] = (both, np.ones_like(both))
    return made


def divide(part: Array, whole: Array) -> Array:
    """part / whole, NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole != 0)


def _pairs(
    table: Array, drawn: Array | None, names: Mapping[str, Task], reasons: Mapping[Task, str]
) -> dict[str, Pair]:
    by_kind: dict[Kind, dict[str, Figure]] = {}
    for kind in KINDS:
        now = ratios(totals_at(table.sum(axis=0)), kind)
        then = {} if drawn is None else ratios(totals_at(drawn), kind)
        by_kind[kind] = {
            name: _figure(name, task, now[name], then.get(name), table, reasons)
            for name, task in names.items()
        }
    return {name: Pair(by_kind["all"][name], by_kind["valid"][name]) for name in names}


def _figure(
    name: str,
    task: Task,
    now: tuple[Array, Array],
    drawn: tuple[Array, Array] | None,
    table: Array,
    reasons: Mapping[Task, str],
) -> Figure:
    value, of = tidy(divide(*now)), None if name == "f1" else tidy(now[1])
    if math.isnan(value) or task in reasons:  # of a type, what is known of updates is but a part
        return Figure(None, reason=_why_missing(name, task, totals_at(table), reasons), of=of)
    if drawn is None:
        return Figure(value, reason="no interval: one user only", of=of)
    low, high, reason = interval_of(divide(*drawn))
    return Figure(value, low, high, reason, of)


def _why_missing(name: str, task: Task, at: Sums, reasons: Mapping[Task, str]) -> str:
    tasks: tuple[Task, ...] = ("accuracy", "integrity") if name == "f1" else (task,)
    for needed in tasks:
        if reason := reasons.get(needed):
            return f"not measured: {reason}"
    for needed in tasks:
        if not at(f"{needed}_asked").any():
            return f"not measured: nothing of {needed} was asked"
        if not at(f"{needed}_valid").any():
            return f"not measured: no judgement of {needed} is usable"
    what = {
        "fmr": "there is no interference point with a verdict",
        "target_precision": "no memory is included in the gold",
        "f1": "there is no target precision or no recall",
        "weighted_recall": "no point has an importance",
    }
    return f"not measured: {what.get(name, 'there is no point to count')}"


def draw_users(table: Array, draws: int, seed: int) -> Array:
    """Sums (draws, sums) of so many users drawn with replacement."""
    return np.concatenate([weights @ table for weights in draw_weights(len(table), draws, seed)])


def interval_of(found: Array) -> tuple[float | None, float | None, str]:
    """The ends of the percentile interval of a figure's draws, or why there is none."""
    defined = found[~np.isnan(found)]
    if defined.size < found.size * (1 - MOST_UNDEFINED):
        missing = 1 - defined.size / found.size
        return None, None, f"no interval: undefined in {missing:.0%} of the draws"
    if np.ptp(defined) <= SAME:
        return None, None, "no interval: no variation between the users"
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return tidy(low), tidy(high), ""


def tidy(value: Array) -> float:
    """Without the last digits, in which the order of the judgements shows."""
    return round(float(value), 12)


def to_json(figures: Figures) -> dict[str, Any]:
    """Plain data; what is not measured is null, and says why."""
    made = asdict(figures)
    for task, one in figures.coverage.items():
        made["coverage"][task].update(failed=one.failed, share=one.share)
    made["minutes"]["total"] = figures.minutes.total
    return made
