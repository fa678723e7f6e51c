"""The benchmark's metrics out of judgements, each with an interval over users. Pure arithmetic.

Every metric is made of sums, which are collected in `judgement_sums.py`.

`all` divides by all that was asked, so that what failed counts as not reached; `valid` leaves out
what failed. What was skipped (not asked: a limit) is in neither; it lowers coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from textevolve.memory_eval.judgement import TASKS, Task
from textevolve.memory_eval.judgement_sums import (
    OUTCOMES,
    Array,
    JudgementSums,
    Side,
    Sums,
    totals_at,
)
from textevolve.statistics.intervals import DRAWS, resampling_interval
from textevolve.statistics.resampling import draw_weights

MetricKind = Literal["all", "valid"]

KINDS: tuple[MetricKind, ...] = ("all", "valid")
TABLES_AT_ONCE = 20

METRICS: Mapping[str, Task] = {
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
"""All metrics, with the task whose judgements they are made of (`f1` needs integrity too)."""

TYPE_METRICS: Mapping[str, Task] = {
    "kept": "integrity",
    "updated": "integrity",
    "memory_accuracy": "integrity",
    **{name: task for name, task in METRICS.items() if task in ("integrity", "update")},
}
"""What there is for each memory type. The benchmark's own three have all points of the type, of
integrity and update, as their denominator: `kept` is the share with score 2 (an interference point
that was kept counts too, as published), `updated` that of correct updates, `memory_accuracy` both.
"""

QUESTION_METRICS: Mapping[str, Task] = {n: t for n, t in METRICS.items() if t == "question"}
"""What there is for each question type and difficulty."""

SIDE_METRICS: Mapping[Side, Mapping[str, Task]] = {
    "type": TYPE_METRICS,
    "question_type": QUESTION_METRICS,
    "difficulty": QUESTION_METRICS,
}


@dataclass(frozen=True, slots=True)
class MetricEstimate:
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
class MetricPair:
    """One metric of all that was asked, and of what has a verdict."""

    all: MetricEstimate
    valid: MetricEstimate


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
class AnswerMetrics:
    """How questions of one kind were answered: `metrics` by the names in `QUESTION_METRICS`."""

    metrics: Mapping[str, MetricPair]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class MemoryMetrics:
    """`overall` by the names in `METRICS`; `by_type` by memory type, then those in `TYPE_METRICS`;
    a type of which there is no point has no entry. The other two are by what the data says of its
    questions, an empty name being that of those of which it says nothing; where it says nothing of
    any, there is no entry."""

    users: int
    overall: Mapping[str, MetricPair]
    by_type: Mapping[str, Mapping[str, MetricPair]]
    by_question_type: Mapping[str, AnswerMetrics]
    by_difficulty: Mapping[str, AnswerMetrics]
    coverage: Mapping[Task, Coverage]
    minutes: Minutes


def compute_metrics(
    tally: JudgementSums,
    not_measured: Mapping[Task, str] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> MemoryMetrics:
    """All metrics. `not_measured`: why a task was not asked about at all, as far as it is known,
    such as "the system does not say what it extracts"."""
    reasons = not_measured or {}
    parts = tally.parts
    tables = [tally.table(), *(tally.table(part) for part in parts)]
    drawn = draw_tables(tables, draws, seed)
    whole = _pairs(tables[0], next(drawn), METRICS, reasons)
    pairs: dict[Side, dict[str, dict[str, MetricPair]]] = {side: {} for side in SIDE_METRICS}
    answers: dict[Side, dict[str, AnswerMetrics]] = {side: {} for side in SIDE_METRICS}
    for (side, name), table, found in zip(parts, tables[1:], drawn, strict=True):
        pairs[side][name] = _pairs(table, found, SIDE_METRICS[side], reasons)
        answers[side][name] = AnswerMetrics(pairs[side][name], _coverage(table, "question"))
    seconds = {name: round(spent / 60, 9) for name, spent in tally.seconds.items()}
    return MemoryMetrics(
        users=len(tables[0]),
        overall=whole,
        by_type=pairs["type"],
        by_question_type=answers["question_type"],
        by_difficulty=answers["difficulty"],
        coverage={task: _coverage(tables[0], task) for task in TASKS},
        minutes=Minutes(**seconds),
    )


def _coverage(table: Array, task: Task) -> Coverage:
    totals = totals_at(table.sum(axis=0))
    return Coverage(*(round(float(totals(f"{task}_{outcome}"))) for outcome in OUTCOMES))


def ratios(at: Sums, kind: MetricKind) -> dict[str, tuple[Array, Array]]:
    """Every metric as numerator and denominator; `f1` with its harmonic mean over 1."""
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
    for name, task in METRICS.items():
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
) -> dict[str, MetricPair]:
    by_kind: dict[MetricKind, dict[str, MetricEstimate]] = {}
    for kind in KINDS:
        now = ratios(totals_at(table.sum(axis=0)), kind)
        then = {} if drawn is None else ratios(totals_at(drawn), kind)
        by_kind[kind] = {
            name: _estimate(name, task, now[name], then.get(name), table, reasons)
            for name, task in names.items()
        }
    return {name: MetricPair(by_kind["all"][name], by_kind["valid"][name]) for name in names}


def _estimate(
    name: str,
    task: Task,
    now: tuple[Array, Array],
    drawn: tuple[Array, Array] | None,
    table: Array,
    reasons: Mapping[Task, str],
) -> MetricEstimate:
    value, of = tidy(divide(*now)), None if name == "f1" else tidy(now[1])
    if math.isnan(value) or task in reasons:  # of a type, what is known of updates is but a part
        return MetricEstimate(
            None, reason=_why_missing(name, task, totals_at(table), reasons), of=of
        )
    if drawn is None:
        return MetricEstimate(value, reason="no interval: one user only", of=of)
    low, high, reason = interval_of(divide(*drawn))
    return MetricEstimate(value, low, high, reason, of)


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


def draw_tables(tables: Sequence[Array], draws: int, seed: int) -> Iterator[Array | None]:
    """For each table, all of one shape, the sums (resamples, sums) of resampled users, the same
    ones for every table; None where there is no second user. A few tables at a time, since data may
    name any number of question types."""
    for start in range(0, len(tables), TABLES_AT_ONCE):
        few = tables[start : start + TABLES_AT_ONCE]
        if len(few[0]) < 2:
            yield from (None for _ in few)
            continue
        together = np.concatenate(few, axis=1)
        weighed = draw_weights(len(together), draws, seed)
        found = np.concatenate([weights @ together for weights in weighed])
        yield from np.split(found, len(few), axis=1)


def interval_of(found: Array, least: float = 0.0) -> tuple[float | None, float | None, str]:
    """The ends of the interval of a metric's draws, cut at the `least` that it can be and at 1, or
    why there is none."""
    ends = resampling_interval(found)
    if ends.reason:
        return None, None, f"no interval: {ends.reason.replace('groups', 'users')}"
    return tidy(max(least, ends.low)), tidy(min(1.0, ends.high)), ""


def tidy(value: Array | float) -> float:
    """Without the last digits, in which the order of the judgements shows."""
    return round(float(value), 12)


def to_json(metrics: MemoryMetrics) -> dict[str, Any]:
    """Plain data; what is not measured is null, and says why."""
    made = asdict(metrics)
    for task, one in metrics.coverage.items():
        made["coverage"][task] |= {"failed": one.failed, "share": one.share}
    for side in ("by_question_type", "by_difficulty"):
        for name, answers in getattr(metrics, side).items():
            one = answers.coverage
            made[side][name]["coverage"] |= {"failed": one.failed, "share": one.share}
    made["minutes"]["total"] = metrics.minutes.total
    return made
