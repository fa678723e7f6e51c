"""What people are shown of an evaluation of a memory system, and of two side by side."""

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
    "update_other": "updates otherwise wrong",
    "question_correct": "answers correct",
    "question_hallucination": "answers hallucinated",
    "question_omission": "answers omitting",
    "memory_accuracy": "memory accuracy",
}
TYPE_SHOWN = ("recall", "fmr", "update_correct", "memory_accuracy")
"""What is shown for each memory type: false memory resistance always beside recall."""
QUESTION_SHOWN = ("question_correct", "question_hallucination", "question_omission")
"""What is shown for each question type."""
HEADLINES = ("recall", "fmr", "accuracy", "update_correct", "question_correct")
"""The metrics that are told in one sentence."""

MEANING = (
    "“All” counts what has no verdict as not reached; “valid” leaves it out. Intervals (95 %) are"
    " drawn over users. False memory resistance rises when nothing is kept: read it beside recall."
)
REASONS_SHOWN = 20

Pairs: TypeAlias = Sequence[tuple[str, MetricPair]]


def report(spec: MemoryEvaluationSpec, found: MemoryEvaluation) -> Report:
    return Report(
        f"Memory of {spec.system_name}", _sentence(found), _blocks(found), _facts(spec, found)
    )


def _sentence(found: MemoryEvaluation) -> str:
    overall = found.metrics.overall
    told = [
        f"{TITLES[name]} {wording.percent(overall[name].all.value, 1)}"
        for name in HEADLINES
        if overall[name].all.value is not None
    ]
    said = f"{', '.join(told)}." if told else "nothing could be measured."
    unfinished = "" if found.complete else "Not finished; of what was judged so far: "
    return unfinished + said if unfinished else said[0].upper() + said[1:]


def _facts(spec: MemoryEvaluationSpec, found: MemoryEvaluation) -> dict[str, str]:
    """Where the figures come from and what they took."""
    minutes = found.metrics.minutes
    spent = {"adding": minutes.adding, "searching": minutes.searching}
    spent |= {"adding and searching": minutes.total}
    took = [f"{name} {wording.duration(60 * m)}" for name, m in spent.items() if m is not None]
    users = wording.count(found.scope.users, "user")
    sessions = wording.count(found.scope.sessions, "session")
    malformed = f"; {len(found.malformed)} malformed, skipped" if found.malformed else ""
    return {
        "System": spec.system_name,
        "Data": f"{spec.data}: {users}, {sessions}{malformed}",
        "Judge": spec.judge or "",
        "Answers by": spec.answer_model or "",
        "Time": ", ".join(took),
    }


def _blocks(found: MemoryEvaluation) -> Iterator[Block]:
    metrics = found.metrics
    rows = [(TITLES[n], metrics.overall[n]) for n in METRICS if _is_known(metrics.overall[n])]
    if rows:
        yield _table("Metrics", rows, MEANING)
    for names, reason in _unmeasured(found).items():
        yield Note(f"Not measured: {names}: {reason}", "warning")
    for title, parts, shown in (
        ("By memory type", metrics.by_type, TYPE_SHOWN),
        ("By question type", metrics.by_question_type, QUESTION_SHOWN),
    ):
        rows = [
            (f"{part}: {TITLES[name]}", pairs[name])
            for part, pairs in parts.items()
            for name in shown
            if _is_known(pairs[name])
        ]
        if rows:
            yield _table(title, rows)
    yield _coverage(found)
    if found.failures:
        yield _failures(found)


def _is_known(pair: MetricPair) -> bool:
    return pair.all.value is not None or pair.valid.value is not None


def _cell(one: MetricEstimate) -> Estimate:
    return Estimate(one.value, one.low, one.high)


def _table(title: str, rows: Pairs, note: str = "") -> Table:
    columns = (
        Column(""),
        Column("all", "number", 3),
        Column("valid", "number", 3),
        Column("of", "count", 1),
    )
    cells = [(name, _cell(pair.all), _cell(pair.valid), pair.all.of) for name, pair in rows]
    return Table(title, columns, cells, note=note)


def _unmeasured(found: MemoryEvaluation) -> dict[str, str]:
    """Why metrics are not measured, by their titles, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for name in METRICS:
        pair = found.metrics.overall[name]
        if not _is_known(pair):
            reason = pair.all.reason or pair.valid.reason
            reasons.setdefault(reason.removeprefix("not measured: "), []).append(TITLES[name])
    return {", ".join(titles): reason for reason, titles in reasons.items()}


def _coverage(found: MemoryEvaluation) -> Table:
    shown = {t: one for t, one in found.metrics.coverage.items() if one.asked or one.skipped}
    counts = [Column(name, "count") for name in ("judged", "failed", "not asked")]
    columns = (Column("judgements"), *counts, Column("coverage", "percent"))
    rows = [(task, one.valid, one.failed, one.skipped, one.share) for task, one in shown.items()]
    return Table("Coverage", columns, rows)


def _failures(found: MemoryEvaluation) -> Table:
    rows = [
        (number, f"{task}: {wording.shorten(reason, 300)}")
        for task, reason, number in found.failures[:REASONS_SHOWN]
    ]
    left = sum(number for *_, number in found.failures[REASONS_SHOWN:])
    note = f"{left:,} more for other reasons." if left else ""
    columns = (Column("judgements", "count"), Column("failed"))
    return Table("Why there is no verdict", columns, rows, note=note)
