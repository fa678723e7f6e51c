"""The report on the evaluation of a memory system: its metrics by memory type and question type,
with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from textevolve.memory_eval.evaluation import MemoryEvaluation
from textevolve.memory_eval.metrics import (
    METRICS,
    MetricEstimate,
    MetricPair,
)
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Column,
    Estimate,
    Note,
    Report,
    Table,
)

if TYPE_CHECKING:
    from textevolve.studies.memory_eval import MemoryEvaluationSpec

# The titles of the metrics in reports, by the metric's name.
TITLES: Mapping[str, str] = {
    "recall": "recall",
    "weighted_recall": "weighted recall",
    "fmr": "false memory resistance",
    "target_precision": "target precision",
    "accuracy": "accuracy",
    "f1": "extraction F1",
    "update_correct": "updates correct",
    "update_hallucination": "updates hallucinated",
    "update_omission": "updates omitted",
    "update_other": "other wrong updates",
    "question_correct": "answers correct",
    "question_hallucination": "answers hallucinated",
    "question_omission": "answers omitting",
    "memory_accuracy": "memory accuracy",
}
TYPE_SHOWN = ("recall", "fmr", "update_correct", "memory_accuracy")
"""The metrics for each memory type. False memory resistance (fmr) is always shown next to
recall."""
QUESTION_SHOWN = ("question_correct", "question_hallucination", "question_omission")
"""The metrics for each question type."""
HEADLINES = ("recall", "fmr", "accuracy", "update_correct", "question_correct")
"""The metrics of the summary sentence."""

MEANING = (
    "“All” counts missing verdicts as not reached; “valid” leaves them out. Intervals (95 %) are"
    " drawn over users. False memory resistance rises if nothing is stored: compare it with recall."
)
REASONS_SHOWN = 20

Pairs: TypeAlias = Sequence[tuple[str, MetricPair]]


def report(spec: MemoryEvaluationSpec, evaluation: MemoryEvaluation) -> Report:
    return Report(
        f"Memory of {spec.system_name}",
        _sentence(evaluation),
        _blocks(evaluation),
        _facts(spec, evaluation),
    )


def _sentence(evaluation: MemoryEvaluation) -> str:
    overall = evaluation.metrics.overall
    figures = [
        f"{TITLES[name]} {wording.percent(overall[name].all.value, 1)}"
        for name in HEADLINES
        if overall[name].all.value is not None
    ]
    sentence = f"{', '.join(figures)}." if figures else "nothing could be measured."
    unfinished = "" if evaluation.complete else "Not finished; so far: "
    return unfinished + sentence if unfinished else sentence[0].upper() + sentence[1:]


def _facts(spec: MemoryEvaluationSpec, evaluation: MemoryEvaluation) -> dict[str, str]:
    """Return the facts about the evaluation: the sources of its figures, and the time it took."""
    minutes = evaluation.metrics.minutes
    spent = {"adding": minutes.adding, "searching": minutes.searching}
    spent |= {"adding and searching": minutes.total}
    took = [f"{name} {wording.duration(60 * m)}" for name, m in spent.items() if m is not None]
    users = wording.count(evaluation.scope.users, "user")
    sessions = wording.count(evaluation.scope.sessions, "session")
    malformed = f"; {len(evaluation.malformed)} malformed, skipped" if evaluation.malformed else ""
    return {
        "System": spec.system_name,
        "Data": f"{spec.data}: {users}, {sessions}{malformed}",
        "Judge": spec.judge or "",
        "Answers by": spec.answer_model or "",
        "Time": ", ".join(took),
    }


def _blocks(evaluation: MemoryEvaluation) -> Iterator[Block]:
    metrics = evaluation.metrics
    rows = [(TITLES[n], metrics.overall[n]) for n in METRICS if _is_known(metrics.overall[n])]
    if rows:
        yield _table("Metrics", rows, MEANING)
    for names, reason in _unmeasured(evaluation).items():
        yield Note(f"Not measured: {names}: {reason}", "warning")
    for title, parts, metric_names in (
        ("By memory type", metrics.by_type, TYPE_SHOWN),
        ("By question type", metrics.by_question_type, QUESTION_SHOWN),
    ):
        rows = [
            (f"{part}: {TITLES[name]}", pairs[name])
            for part, pairs in parts.items()
            for name in metric_names
            if _is_known(pairs[name])
        ]
        if rows:
            yield _table(title, rows)
    yield _coverage(evaluation)
    if evaluation.failures:
        yield _failures(evaluation)


def _is_known(pair: MetricPair) -> bool:
    return pair.all.value is not None or pair.valid.value is not None


def _cell(figure: MetricEstimate) -> Estimate:
    return Estimate(figure.value, figure.low, figure.high)


def _table(title: str, rows: Pairs, note: str = "") -> Table:
    columns = (
        "",
        Column("all", "number", 3),
        Column("valid", "number", 3),
        Column("of", "count", 1),
    )
    cells = [(name, _cell(pair.all), _cell(pair.valid), pair.all.of) for name, pair in rows]
    return Table(title, columns, cells, note=note)


def _unmeasured(evaluation: MemoryEvaluation) -> dict[str, str]:
    """Return the reasons why metrics are not measured; the key of each reason lists the titles of
    its metrics."""
    reasons: dict[str, list[str]] = {}
    for name in METRICS:
        pair = evaluation.metrics.overall[name]
        if not _is_known(pair):
            reason = pair.all.reason or pair.valid.reason
            reasons.setdefault(reason.removeprefix("not measured: "), []).append(TITLES[name])
    return {", ".join(titles): reason for reason, titles in reasons.items()}


def _coverage(evaluation: MemoryEvaluation) -> Table:
    tasks = {
        t: coverage
        for t, coverage in evaluation.metrics.coverage.items()
        if coverage.asked or coverage.skipped
    }
    counts = [Column(name, "count") for name in ("judged", "failed", "not asked")]
    columns = ("judgements", *counts, Column("coverage", "percent"))
    rows = [
        (task, coverage.valid, coverage.failed, coverage.skipped, coverage.share)
        for task, coverage in tasks.items()
    ]
    return Table("Coverage", columns, rows)


def _failures(evaluation: MemoryEvaluation) -> Table:
    rows = [
        (number, f"{task}: {wording.shorten(reason, 300)}")
        for task, reason, number in evaluation.failures[:REASONS_SHOWN]
    ]
    hidden = sum(number for *_, number in evaluation.failures[REASONS_SHOWN:])
    note = f"{hidden:,} more for other reasons." if hidden else ""
    columns = (Column("judgements", "count"), "failed")
    return Table("Why there is no verdict", columns, rows, note=note)
