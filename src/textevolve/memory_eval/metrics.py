"""The benchmark's metrics out of judgements, each with an interval over users. Pure arithmetic.

Every metric is a ratio of sums by user, and each memory type, question type and difficulty. Texts
are not kept, so the sums stay small, and a bootstrap draw is a product of matrices. Two runs are
compared on the users that both have, drawn together, so that what makes a user hard cancels out.

`all` divides by all that was asked, so that what failed counts as not reached; `valid` leaves out
what failed. What was skipped (not asked: a limit) is in neither; it lowers coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from textevolve.evaluation import Failure
from textevolve.memory_eval.judgement import (
    LABELS,
    TASKS,
    MemoryJudgement,
    MemoryVerdict,
    Subject,
    Task,
)
from textevolve.statistics.intervals import DRAWS, resampling_interval
from textevolve.statistics.resampling import Array, draw_weights

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


@dataclass(frozen=True, slots=True)
class Difference:
    """`difference` is second minus first, with its 95 % interval; values are those of the users in
    both runs. What is None is not measured; `reason` says why there is no difference or no
    interval."""

    first: float | None
    second: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class DifferencePair:
    all: Difference
    valid: Difference


@dataclass(frozen=True, slots=True)
class MemoryComparison:
    """`users` are in both runs; only they are compared. Of those who are `uneven`, the runs judged
    another number of points or questions. The metrics are told apart as in `MemoryMetrics`."""

    users: tuple[str, ...]
    uneven: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    overall: Mapping[str, DifferencePair]
    by_type: Mapping[str, Mapping[str, DifferencePair]]
    by_question_type: Mapping[str, Mapping[str, DifferencePair]]
    by_difficulty: Mapping[str, Mapping[str, DifferencePair]]


def compare_metrics(
    first: JudgementSums, second: JudgementSums, *, draws: int = DRAWS, seed: int = 0
) -> MemoryComparison:
    """The differences between two runs; without a user in common there is no metric."""
    ours, theirs = set(first.users), set(second.users)
    users = tuple(sorted(ours & theirs))
    found: dict[SideValue | None, dict[str, DifferencePair]] = {}
    if users:
        parts = (None, *dict.fromkeys((*first.parts, *second.parts)))
        tables = [[tally.table(part, users) for tally in (first, second)] for part in parts]
        measured = [_measures_integrity(side) for side in tables[0]]
        drawn = draw_tables([np.concatenate(both, axis=1) for both in tables], draws, seed)
        for part, both, then in zip(parts, tables, drawn, strict=True):
            names = METRICS if part is None else SIDE_METRICS[part[0]]
            found[part] = _compare_tables(both, then, names, measured)

    def by(side: Side) -> dict[str, dict[str, DifferencePair]]:
        names = sorted(part[1] for part in filter(None, found) if part[0] == side)
        return {name: found[side, name] for name in names}

    return MemoryComparison(
        users=users,
        uneven=_uneven(users, first.table(None, users), second.table(None, users)),
        only_first=tuple(sorted(ours - theirs)),
        only_second=tuple(sorted(theirs - ours)),
        overall=found.get(None, {}),
        by_type=by("type"),
        by_question_type=by("question_type"),
        by_difficulty=by("difficulty"),
    )


def _compare_tables(
    both: Sequence[Array], drawn: Array | None, names: Mapping[str, Task], measured: Sequence[bool]
) -> dict[str, DifferencePair]:
    """`both`: the sums of the two runs; `drawn`: those of the drawn users, side by side;
    `measured`: whether each run measures integrity."""
    drawn_sides = () if drawn is None else np.split(drawn, 2, axis=1)
    found: dict[MetricKind, dict[str, Difference]] = {}
    for kind in KINDS:
        now = [_values(table.sum(axis=0), kind) for table in both]
        for values in (now[side] for side in (0, 1) if not measured[side]):
            values |= {n: np.array(np.nan) for n, task in names.items() if task == "integrity"}
        then = [_values(sums, kind) for sums in drawn_sides]
        found[kind] = {
            name: _difference([one[name] for one in now], [one[name] for one in then])
            for name in names
        }
    return {name: DifferencePair(found["all"][name], found["valid"][name]) for name in names}


def _uneven(users: tuple[str, ...], first: Array, second: Array) -> tuple[str, ...]:
    """A task that a run did not measure makes no difference. An update is a judgement of integrity
    where nothing was found for it, so the two are counted together."""
    unlike = np.zeros(len(users), dtype=bool)
    for needed, tasks in (("integrity", ("integrity", "update")), ("question", ("question",))):
        sides = [totals_at(side) for side in (first, second)]
        if all(at(f"{needed}_asked").any() for at in sides):
            ours, theirs = (
                sum(at(f"{task}_{end}") for task in tasks for end in ("asked", "skipped"))
                for at in sides
            )
            unlike |= ours != theirs
    return tuple(user for user, differs in zip(users, unlike, strict=True) if differs)


def _measures_integrity(side: Array) -> bool:
    """Where it was never asked, what is made of integrity and updates has but a part."""
    at = totals_at(side[:, : len(SUMS)])
    return bool(at("integrity_asked").any() or at("integrity_skipped").any())


def _values(sums: Array, kind: MetricKind) -> dict[str, Array]:
    return {name: divide(*both) for name, both in ratios(totals_at(sums), kind).items()}


def _difference(now: list[Array], drawn: list[Array]) -> Difference:
    first, second = (None if np.isnan(value) else tidy(value) for value in now)
    if first is None or second is None:
        missing = [name for name, value in (("first", first), ("second", second)) if value is None]
        return Difference(
            first, second, reason=f"not measured in the {' and the '.join(missing)} run"
        )
    difference = tidy(now[1] - now[0])
    if not drawn:
        return Difference(first, second, difference, reason="no interval: one user only")
    low, high, reason = interval_of(drawn[1] - drawn[0], -1.0)
    return Difference(first, second, difference, low, high, reason)
