"""The records of an evaluation of a memory system, and the sums and metrics of all records.

Records are added one by one and not kept in memory: the metrics are computed from sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from statistics import fmean
from typing import Any, Literal, TypeAlias, TypeVar

from textevolve.evaluation import Failure, Result, Usage, empty_default
from textevolve.loading import np
from textevolve.mappings import map_values, read_fields
from textevolve.memory_eval.dataset import LOCOMO_TYPES, Malformed
from textevolve.memory_eval.judging import (
    LABELS,
    TASKS,
    Label,
    MemoryJudgement,
    MemoryVerdict,
    Subject,
    Task,
)
from textevolve.statistics.intervals import (
    DRAWS,
    TOO_FEW,
    UNIT,
    Array,
    draw_weights,
    ratio,
    resampling_interval,
)

# Compute the benchmark's metrics from judgements, each with a confidence interval over users. Pure
# arithmetic.
#
# Every metric is a ratio of sums over users, overall and for each memory type and question type.
# Texts are not kept, so the sums stay small, and a bootstrap draw is a product of matrices.
#
# The denominator of a metric's `all` value has everything that was asked, so a failure counts as
# not reached; that of its `valid` value leaves out failures. Skipped judgements (not asked because
# of a limit) are in neither, and lower the coverage.

T = TypeVar("T")

Side = Literal["type", "question_type"]
"""A grouping of judgements: by the memory type of a point, or by the type of a question."""

SideValue: TypeAlias = tuple[Side, str]
"""One group of a grouping, such as the memory type "event"."""

OUTCOMES = ("asked", "valid", "skipped")
"""The counts of judgements for each task; those without a verdict are in `asked` but not in
`valid`."""
CLASSES: tuple[str, ...] = tuple(
    f"{task}_{str(label).lower()}" for task in ("update", "question") for label in LABELS[task]
)
"""The names of the sums that count the verdicts on updates and answers."""
SUMS: tuple[str, ...] = (
    *(f"{task}_{outcome}" for task in TASKS for outcome in OUTCOMES),
    "points",
    "points_valid",
    "full",
    "weight",
    "weight_valid",
    "weighted",
    "traps",
    "traps_valid",
    "refused",
    "trapped",
    "score",
    "included",
    "included_score",
    *CLASSES,
)
"""The names of the sums for each user, in the order of the columns of their table."""
_PLACE = {name: place for place, name in enumerate(SUMS)}


@dataclass(slots=True)
class JudgementSums:
    """The sums of judgements for each user, over all judgements (key None) and for each memory or
    question type. Judgements may be added in any order. `seconds`: the time of the system's
    operations by kind."""

    sums: dict[str, dict[SideValue | None, Array]] = empty_default(dict)
    seconds: dict[str, float] = empty_default(dict)

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(sorted(self.sums))  # whatever their order was, the same draws are made

    @property
    def parts(self) -> tuple[SideValue, ...]:
        """Return all memory types and question types that have judgements, sorted."""
        return tuple(sorted({part for row in self.sums.values() for part in row if part}))

    def add(self, judgement: MemoryJudgement) -> None:
        subject = judgement.subject
        sides: dict[Side, str] = {"type": subject.type, "question_type": subject.question_type}
        parts: list[SideValue | None] = [None]
        parts.extend((side, value) for side, value in sides.items() if value)
        row = self.sums.setdefault(subject.user, {})
        for name, amount in _contributions(subject, judgement.outcome).items():
            for part in parts:
                row.setdefault(part, np.zeros(len(SUMS)))[_PLACE[name]] += amount

    def add_time(self, user: str, **times: float | None) -> None:
        """Add the seconds that a system took for operations of a user; None if unknown."""
        self.sums.setdefault(user, {})
        for name, seconds in times.items():
            if seconds is not None:
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def table(self, part: SideValue | None = None) -> Array:
        """Return the sums over the judgements of one memory or question type, or over all (None),
        shape (users, sums)."""
        rows = [self.sums.get(user, {}) for user in self.users]
        return np.array([row.get(part, np.zeros(len(SUMS))) for row in rows]).reshape(-1, len(SUMS))


def _contributions(subject: Subject, outcome: MemoryVerdict | Failure) -> dict[str, float]:
    """Return the amounts that one judgement contributes to the sums, by their names."""
    task = subject.task
    label = None
    if isinstance(outcome, MemoryVerdict):
        label = outcome.label
    elif outcome.kind == "skipped":
        return {f"{task}_skipped": 1}

    valid = label is not None
    amounts: dict[str, float] = {f"{task}_asked": 1, f"{task}_valid": valid}
    score = 0.5 * float(label or 0) if task in ("integrity", "accuracy") else 0.0

    if task == "integrity" and subject.source == "interference":
        amounts |= {"traps": 1, "traps_valid": valid}
        amounts |= {"refused": label == 0, "trapped": label == 2}
    elif task == "integrity":
        amounts |= {"points": 1, "points_valid": valid, "full": label == 2}
        weight = subject.importance
        amounts |= {"weight": weight, "weight_valid": valid * weight, "weighted": score * weight}
    elif task == "accuracy":
        amounts["score"] = score
        if isinstance(outcome, MemoryVerdict) and outcome.included:
            amounts |= {"included": 1, "included_score": score}
    elif valid:
        amounts[f"{task}_{str(label).lower()}"] = 1

    return amounts


def _at(values: Array, name: str) -> Array:
    """Return one of the sums from an array of shape (..., sums)."""
    return values[..., _PLACE[name]]


MetricKind = Literal["all", "valid"]
"""The treatment of failed judgements: they count as not reached (`all`), or are left out
(`valid`)."""

KINDS: tuple[MetricKind, ...] = ("all", "valid")
TOO_FEW_USERS = TOO_FEW.replace("groups", "users")

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
"""All metrics, with the task whose judgements they are computed from (`f1` needs those of
integrity, too)."""

TYPE_METRICS: Mapping[str, Task] = {
    "kept": "integrity",
    "updated": "integrity",
    "memory_accuracy": "integrity",
    **{name: task for name, task in METRICS.items() if task in ("integrity", "update")},
}
"""The metrics that are reported for each memory type. The denominator of the first three, which the
benchmark defines, is all points of the type, of integrity and update. `kept`: the share of points
with score 2 (interference points that were stored count as well, as published). `updated`: the
share of correct updates. `memory_accuracy`: the sum of both."""

QUESTION_METRICS: Mapping[str, Task] = {n: t for n, t in METRICS.items() if t == "question"}
"""The metrics that are reported for each type of question."""

SIDE_METRICS: Mapping[Side, Mapping[str, Task]] = {
    "type": TYPE_METRICS,
    "question_type": QUESTION_METRICS,
}
"""The metrics of each grouping."""


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """A share in [0, 1], with the ends of its 95 % interval.

    `value`: None if it is not measured; `low`, `high`: None if there is no interval; `reason` says
    why. `of`: the denominator: the number of judgements, or for `weighted_recall` the sum of their
    importance; None for `f1`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    of: float | None = None


@dataclass(frozen=True, slots=True)
class MetricPair:
    """One metric over all subjects, and over the subjects with a verdict."""

    all: MetricEstimate
    valid: MetricEstimate


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of a task's subjects: asked = valid + failed; `skipped` were not asked."""

    asked: int = 0
    valid: int = 0
    skipped: int = 0

    @property
    def failed(self) -> int:
        return self.asked - self.valid

    @property
    def share(self) -> float | None:
        """Return the share in [0, 1] of subjects with a verdict; None if there are no subjects."""
        total = self.asked + self.skipped
        return self.valid / total if total else None


@dataclass(frozen=True, slots=True)
class Minutes:
    """The minutes that a system took; None if unknown. `total`: adding and searching together, as
    published."""

    adding: float | None = None
    searching: float | None = None

    @property
    def total(self) -> float | None:
        seconds = [part for part in (self.adding, self.searching) if part is not None]
        return sum(seconds) if seconds else None


@dataclass(frozen=True, slots=True)
class MemoryMetrics:
    """The metrics of an evaluation. `overall`: by the names in `METRICS`; `by_type`: by memory
    type, then the names in `TYPE_METRICS`; types without points are left out. `by_question_type`:
    by the data set's types of questions, then the names in `QUESTION_METRICS`."""

    users: int
    overall: Mapping[str, MetricPair]
    by_type: Mapping[str, Mapping[str, MetricPair]]
    by_question_type: Mapping[str, Mapping[str, MetricPair]]
    coverage: Mapping[Task, Coverage]
    minutes: Minutes


def compute_metrics(
    tally: JudgementSums,
    not_measured: Mapping[Task, str] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> MemoryMetrics:
    """Compute all metrics. `not_measured`: the reasons why tasks were not measured, such as "the
    system does not say what it extracts"."""
    reasons = not_measured or {}
    parts = (None, *tally.parts)
    tables = list(map(tally.table, parts))
    pairs: dict[SideValue | None, dict[str, MetricPair]] = {}
    for part, table, drawn in zip(parts, tables, draw_tables(tables, draws, seed), strict=True):
        names = METRICS if part is None else SIDE_METRICS[part[0]]
        by_kind = [_estimates(table, drawn, kind, names, reasons) for kind in KINDS]
        pairs[part] = {name: MetricPair(*(of[name] for of in by_kind)) for name in names}

    # The first table is that of all judgements.
    coverage: dict[Task, Coverage] = {}
    for task in TASKS:
        counts = [round(float(_at(tables[0], f"{task}_{end}").sum())) for end in OUTCOMES]
        coverage[task] = Coverage(*counts)

    return MemoryMetrics(
        users=len(tables[0]),
        overall=pairs[None],
        by_type=_on_side("type", pairs),
        by_question_type=_on_side("question_type", pairs),
        coverage=coverage,
        minutes=Minutes(**{name: round(spent / 60, 9) for name, spent in tally.seconds.items()}),
    )


def _on_side(side: Side, parts: Mapping[Any, T]) -> dict[str, T]:
    return {
        part[1]: estimate
        for part, estimate in parts.items()
        if part is not None and part[0] == side
    }


def ratios(sums: Array, kind: MetricKind) -> dict[str, tuple[Array, Array]]:
    """Return every metric as numerator and denominator; `f1` as its harmonic mean over 1."""
    valid = "_valid" if kind == "valid" else ""
    judged = "valid" if kind == "valid" else "asked"
    at = partial(_at, sums)
    of_type = at(f"integrity_{judged}") + at(f"update_{judged}")
    remembered = at("full") + at("trapped")
    metrics = {
        "recall": (at("full"), at("points" + valid)),
        "weighted_recall": (at("weighted"), at("weight" + valid)),
        "fmr": (at("refused"), at("traps" + valid)),
        "target_precision": (at("included_score"), at("included")),
        "accuracy": (at("score"), at(f"accuracy_{judged}")),
        "kept": (remembered, of_type),
        "updated": (at("update_correct"), of_type),
        "memory_accuracy": (remembered + at("update_correct"), of_type),
    }
    for name, task in METRICS.items():
        if task in ("update", "question"):
            metrics[name] = (at(name), at(f"{task}_{judged}"))
    precision = ratio(*metrics["target_precision"])
    recall = ratio(*metrics["recall"])
    both = ratio(2 * precision * recall, precision + recall)
    # Precision and recall of 0 are measured: what their harmonic mean comes to there is 0.
    both = np.where((precision == 0) & (recall == 0), 0.0, both)
    metrics["f1"] = (both, np.ones_like(both))

    return metrics


def _estimates(
    table: Array,
    drawn: Array | None,
    kind: MetricKind,
    names: Mapping[str, Task],
    reasons: Mapping[Task, str],
) -> dict[str, MetricEstimate]:
    now = ratios(table.sum(axis=0), kind)
    resampled = {} if drawn is None else ratios(drawn, kind)
    estimates: dict[str, MetricEstimate] = {}
    for name, task in names.items():
        value = tidy(ratio(*now[name]))
        of = None if name == "f1" else tidy(now[name][1])
        if math.isnan(value) or task in reasons:  # of a type, only part is known then
            reason = f"not measured: {_missing_reason(name, task, table, reasons)}"
            estimates[name] = MetricEstimate(None, reason=reason, of=of)
        elif drawn is None:
            estimates[name] = MetricEstimate(value, reason=TOO_FEW_USERS, of=of)
        else:
            estimates[name] = MetricEstimate(value, *interval_of(ratio(*resampled[name])), of)

    return estimates


def _missing_reason(name: str, task: Task, table: Array, reasons: Mapping[Task, str]) -> str:
    tasks: tuple[Task, ...] = ("accuracy", "integrity") if name == "f1" else (task,)
    for needed in tasks:
        if needed in reasons:
            return reasons[needed]
        if not _at(table, f"{needed}_asked").any():
            return f"no {needed} subject was judged"

    return "there is no judgement to divide by"


def draw_tables(tables: Sequence[Array], draws: int, seed: int) -> Iterator[Array | None]:
    """Return the sums of resampled users for each table, shape (resamples, sums), with the same
    users for all tables; None if there are fewer than two users."""
    for table in tables:
        weighed = draw_weights(len(table), draws, seed) if len(table) > 1 else ()
        drawn = [weights @ table for weights in weighed]
        yield np.concatenate(drawn) if drawn else None


def interval_of(draws: Array) -> tuple[float | None, float | None, str]:
    """Return the ends of the interval of a metric's draws, clipped to [0, 1], or why there is
    none."""
    ends = resampling_interval(draws).clipped(*UNIT)
    if ends.reason == TOO_FEW:
        return None, None, TOO_FEW_USERS
    if ends.reason:
        return None, None, f"no interval: {ends.reason.replace('groups', 'users')}"
    return tidy(ends.low), tidy(ends.high), ""


def tidy(value: Array | float) -> float:
    """Round values so that the order in which judgements were added makes no difference."""
    return round(float(value), 12)


def to_json(metrics: MemoryMetrics) -> dict[str, Any]:
    """Return plain data; unmeasured metrics are null, with their reasons."""
    data = asdict(metrics)
    for task, coverage in metrics.coverage.items():
        data["coverage"][task] |= {"failed": coverage.failed, "share": coverage.share}
    data["minutes"]["total"] = metrics.minutes.total
    return data


# The records of an evaluation, and their sums, which are all that is kept in memory.

TEXT_KEPT = 20_000
"""The maximum number of characters of a text in a record; the journal stores the whole text."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The size of an evaluation: the numbers of users and sessions. `not_measured`: the reasons why
    tasks are not measured. `run`: the id of the run."""

    users: int
    sessions: int
    not_measured: Mapping[Task, str]
    run: str = ""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """The record of a session that the system has processed. `judgements`: the number of judgements
    to make. `adding`, `searching`: the seconds that the system took; None if unknown. `stopped`:
    the reason if a limit of the run, or of one of the system's own models, was reached in the
    session; empty otherwise."""

    user: str
    session: int
    judgements: int = 0
    adding: float | None = None
    searching: float | None = None
    stopped: str = ""


EvaluationRecord: TypeAlias = Scope | Malformed | SessionTimes | MemoryJudgement


@dataclass
class MemoryEvaluation(Result):
    """The sums of an evaluation, to which judgements are added one by one without their texts.

    `seed`: of the bootstrap. `sums`: the figures of each user, from which metrics are computed.
    `malformed`: the invalid lines of the data. `counts` and `labels`: the numbers of judgements by
    outcome, and by task and label. `token_f1`: the published figure of each answer to a question of
    LoCoMo's types, by type; `needs`: the package that it lacks. `skipped`: the limit that stopped
    the evaluation; empty if it is complete.
    """

    seed: int = 0
    scope: Scope = Scope(0, 0, {})
    sums: JudgementSums = field(default_factory=JudgementSums)
    malformed: list[Malformed] = empty_default(list)
    counts: Counter[str] = empty_default(Counter)
    labels: Counter[tuple[Task, Label]] = empty_default(Counter)
    token_f1: dict[str, list[float]] = empty_default(dict)
    needs: str = ""
    usage: Usage = Usage()
    skipped: str = ""
    _failures: Counter[tuple[Task, str]] = empty_default(Counter)
    _sessions: int = 0
    _expected: int = 0

    @cached_property
    def metrics(self) -> MemoryMetrics:
        """Return the metrics; call it once all judgements are added."""
        return compute_metrics(self.sums, self.scope.not_measured, seed=self.seed)

    @property
    def complete(self) -> bool:
        """Check whether all sessions were processed and every judgement was tried (failed ones
        count), without a limit stopping the evaluation."""
        done = self._sessions == self.scope.sessions and not self.skipped
        return done and self._expected == sum(self.counts.values())

    @property
    def published_f1(self) -> dict[str, dict[str, float]]:
        """Return the mean token F1 (`value`) and the number of answers (`of`), of all and by type
        of question."""
        return {kind: {"value": fmean(f1), "of": len(f1)} for kind, f1 in self.token_f1.items()}

    @property
    def failures(self) -> list[tuple[Task, str, int]]:
        """Return the reasons of failed judgements with their numbers by task, most frequent
        first."""
        return [(task, reason, number) for (task, reason), number in self._failures.most_common()]

    def take(self, record: EvaluationRecord) -> None:
        match record:
            case Scope():
                self.scope = record
            case Malformed():
                self.malformed.append(record)
                self.malformed.sort(key=lambda line: line.line)
            case SessionTimes():
                self._sessions += not record.stopped
                self.skipped = record.stopped or self.skipped
                self._expected += record.judgements
                self.sums.add_time(record.user, adding=record.adding, searching=record.searching)
            case MemoryJudgement():
                self._take(record)

    def _take(self, judgement: MemoryJudgement) -> None:
        task = judgement.subject.task
        outcome = judgement.outcome
        self.sums.add(judgement)
        self.usage += judgement.usage
        self._compare_words(judgement.subject)

        if isinstance(outcome, Failure):
            self.counts[outcome.kind] += 1
            if outcome.kind == "skipped":
                self.skipped = outcome.reason
            else:
                self._failures[task, outcome.reason] += 1
        else:
            self.counts["judged"] += 1
            self.labels[task, outcome.label] += 1

    def _compare_words(self, subject: Subject) -> None:
        """Add the token F1 of an answer to a question of LoCoMo, whatever a judge says of it."""
        kind = subject.question_type
        if kind not in LOCOMO_TYPES.values() or "answer" not in subject.texts or subject.failure:
            return
        try:
            score_answer = import_module("textevolve.memory_eval.token_f1").score_answer
        except ModuleNotFoundError as error:
            self.needs = str(error.name)
            return
        score = score_answer(kind, subject.texts["answer"], subject.texts["reference"])
        for part in ("all", kind):
            self.token_f1.setdefault(part, []).append(score)


def collect(records: Iterable[EvaluationRecord], seed: int = 0) -> MemoryEvaluation:
    evaluation = MemoryEvaluation(seed)
    for record in records:
        evaluation.take(record)
    return evaluation


def score_of(judgement: MemoryJudgement) -> float | None:
    """Return a score in [0, 1]: half the label, inverted for points that must not be stored; for
    classes 1 for Correct and 0 for the others. None without a verdict."""
    outcome = judgement.outcome
    if isinstance(outcome, Failure):
        return None
    if isinstance(outcome.label, str):
        return float(outcome.label == "Correct")
    share = outcome.label / 2

    return 1 - share if judgement.subject.source == "interference" else share


def clip_texts(judgement: MemoryJudgement) -> MemoryJudgement:
    """Return the judgement with long texts truncated and marked as such."""
    texts = map_values(_clip, judgement.subject.texts)
    return replace(judgement, subject=replace(judgement.subject, texts=texts))


def _clip(text: str) -> str:
    excess = len(text) - TEXT_KEPT
    return text if excess <= 0 else f"{text[:TEXT_KEPT]}… ({excess:,} more characters)"


def to_row(judgement: MemoryJudgement) -> dict[str, Any]:
    """Convert a judgement into a row of a table."""
    subject = judgement.subject
    outcome = judgement.outcome
    return {
        **read_fields(subject, "user", "session", "task", "item", "type", "source", "importance"),
        **read_fields(subject, "question_type", "difficulty"),
        "by_rule": subject.by_rule is not None,
        "score": score_of(judgement),
        "verdict": asdict(outcome) if isinstance(outcome, MemoryVerdict) else None,
        "failure": asdict(outcome) if isinstance(outcome, Failure) else None,
        "texts": dict(subject.texts),
        "usage": asdict(judgement.usage),
    }
