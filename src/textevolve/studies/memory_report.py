"""What people are shown of an evaluation of a memory system, and of two side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from textevolve.evaluation import Failure
from textevolve.memory_eval.evaluation import MemoryEvaluation
from textevolve.memory_eval.judgement import TASKS, MemoryJudgement, Task
from textevolve.memory_eval.metrics import (
    METRICS,
    AnswerMetrics,
    Difference,
    DifferencePair,
    MemoryComparison,
    MetricEstimate,
    MetricPair,
    compare_metrics,
)
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Cell,
    Column,
    Estimate,
    IntervalChart,
    Note,
    Report,
    Section,
    Table,
    Texts,
)
from textevolve.studies.study import Beside

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
HEADLINES = ("recall", "fmr", "accuracy", "update_correct", "question_correct")
"""The metrics that are told in one sentence."""

ASKED: Mapping[Task, str] = {
    "integrity": "Whether it was kept, of the points to remember and those that must not be kept",
    "accuracy": "Whether it is true, of the memories that were extracted",
    "update": "Whether the change arrived, by what a search returned",
    "question": "Whether the answer is right",
}
LISTED: Mapping[Task, str] = {
    "integrity": "expected",
    "accuracy": "memory",
    "update": "expected",
    "question": "question",
}
"""Which text of a judgement stands in its heading."""
TEXT_TITLES: Mapping[str, str] = {
    "expected": "expected",
    "memories": "found",
    "original": "replaces",
    "memory": "extracted memory",
    "gold": "expected memories of the session",
    "question": "question",
    "reference": "reference answer",
    "evidence": "evidence",
    "answer": "answer",
    "dialogue": "dialogue",
}
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
    unfinished = "" if found.whole else "Not finished; of what was judged so far: "
    return unfinished + said if unfinished else said[0].upper() + said[1:]


def _facts(spec: MemoryEvaluationSpec, found: MemoryEvaluation) -> dict[str, str]:
    """Where the figures come from and what they took."""
    minutes = found.metrics.minutes
    spent = {"adding": minutes.adding, "searching": minutes.searching}
    spent |= {"answering": minutes.answering, "adding and searching": minutes.total}
    took = [f"{name} {wording.duration(60 * m)}" for name, m in spent.items() if m is not None]
    users = wording.count(found.scope.users, "user")
    sessions = wording.count(found.scope.sessions, "session")
    malformed = f"; {len(found.malformed)} malformed, skipped" if found.malformed else ""
    facts = {
        "System": spec.system_name,
        "Data": f"{spec.data}: {users}, {sessions}{malformed}",
        "Judge": spec.judge or "",
        "Answers by": spec.answer_model or "",
        "Time": ", ".join(took),
        "A session took": _say_session(found),
        "Used": wording.spent(found.usage),
    }
    return {name: said for name, said in facts.items() if said}


def _say_session(found: MemoryEvaluation) -> str:
    """What feeding one session took in the mean."""
    number, minutes = found.sessions_fed, found.metrics.minutes.adding
    if not number or minutes is None:
        return ""
    tokens = found.system_tokens
    told = "" if tokens is None else f"{tokens / number:,.0f} tokens of the system's models, "
    return f"{told}{wording.duration(60 * minutes / number)} to add it"


def _blocks(found: MemoryEvaluation) -> Iterator[Block]:
    metrics = found.metrics
    rows = [(TITLES[n], metrics.overall[n]) for n in METRICS if _is_known(metrics.overall[n])]
    if rows:
        yield _table("Metrics", rows, MEANING + _why_no_interval(rows))
        yield IntervalChart("Metrics of all", [(name, _cell(pair.all)) for name, pair in rows])
    for names, reason in _unmeasured(found).items():
        yield Note(f"Not measured: {names}: {reason}", "warning")
    by_type = [
        (f"{type}: {TITLES[name]}", pairs[name])
        for type, pairs in metrics.by_type.items()
        for name in TYPE_SHOWN
        if _is_known(pairs[name])
    ]
    if by_type:
        yield _table("By memory type", by_type, brief=True)
    answers = [
        (_name_part(what, name), one)
        for what, by in {"": metrics.by_question_type, "difficulty ": metrics.by_difficulty}.items()
        for name, one in by.items()
    ]
    if answers:
        yield _answers(answers)
    yield _coverage(found)
    if found.failures:
        yield _failures(found)
    for task in TASKS:
        if found.worst(task):
            yield _judgements(found, task)


def _is_known(pair: MetricPair) -> bool:
    return pair.all.value is not None or pair.valid.value is not None


def _name_part(what: str, name: str) -> str:
    """The title of a question type or difficulty; an empty name is that of what has none."""
    return what + (name or "not said")


def _cell(one: MetricEstimate) -> Estimate:
    return Estimate(one.value, one.low, one.high)


def _table(title: str, rows: Pairs, note: str = "", *, brief: bool = False) -> Table:
    """`brief`: without the intervals of what is valid, which leaves room for longer names."""
    columns = (
        Column(""),
        Column("all", "number", 3),
        Column("valid", "number", 3),
        Column("of", "count", 1),
    )
    cells = [
        (name, _cell(pair.all), pair.valid.value if brief else _cell(pair.valid), pair.all.of)
        for name, pair in rows
    ]
    return Table(title, columns, cells, note=note)


def _why_no_interval(rows: Pairs) -> str:
    """The reasons why metrics that are there have no interval, each once."""
    every = [one for _, pair in rows for one in (pair.all, pair.valid)]
    reasons = [one.reason for one in every if one.value is not None and one.reason]
    said = "; ".join(dict.fromkeys(reason.removeprefix("no interval: ") for reason in reasons))
    return f" Where there is no interval: {said}." if said else ""


def _unmeasured(found: MemoryEvaluation) -> dict[str, str]:
    """Why metrics are not measured, by their titles, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for name in METRICS:
        pair = found.metrics.overall[name]
        if not _is_known(pair):
            reason = pair.all.reason or pair.valid.reason
            reasons.setdefault(reason.removeprefix("not measured: "), []).append(TITLES[name])
    return {", ".join(titles): reason for reason, titles in reasons.items()}


def _answers(rows: Sequence[tuple[str, AnswerMetrics]]) -> Table:
    columns = (
        Column(""),
        Column("correct", "number", 3),
        Column("valid", "number", 3),
        Column("hallucinated", "number", 3),
        Column("omitting", "number", 3),
        Column("of", "count"),
        Column("coverage", "percent"),
    )
    cells: list[tuple[Cell, ...]] = []
    for name, one in rows:
        metrics, coverage = one.metrics, one.coverage
        correct = metrics["question_correct"]
        wrong = (metrics["question_hallucination"].all, metrics["question_omission"].all)
        shares = (_cell(correct.all), correct.valid.value, *(each.value for each in wrong))
        cells.append((name, *shares, coverage.asked + coverage.skipped, coverage.share))
    return Table("Answers by question type and difficulty", columns, cells)


def _coverage(found: MemoryEvaluation) -> Table:
    shown = {t: one for t, one in found.metrics.coverage.items() if one.asked or one.skipped}
    counts = [Column(name, "count") for name in ("judged", "failed", "not asked")]
    columns = (Column("judgements"), *counts, Column("coverage", "percent"))
    rows = [(task, one.valid, one.failed, one.skipped, one.share) for task, one in shown.items()]
    return Table("Coverage", columns, rows, links=list(shown))


def _failures(found: MemoryEvaluation) -> Table:
    rows = [
        (number, f"{task}: {wording.shorten(reason, 300)}")
        for task, reason, number in found.failures[:REASONS_SHOWN]
    ]
    left = sum(number for *_, number in found.failures[REASONS_SHOWN:])
    note = f"{left:,} more for other reasons." if left else ""
    columns = (Column("judgements", "count"), Column("failed"))
    return Table("Why there is no verdict", columns, rows, note=note)


def _judgements(found: MemoryEvaluation, task: Task) -> Section:
    shown, coverage = found.worst(task), found.metrics.coverage[task]
    number = coverage.asked + coverage.skipped
    counted = wording.count(number, "judgement")
    if len(shown) < number:
        counted = f"{len(shown):,} of {counted}"
    others = "" if len(shown) == number else "; -o FILE.jsonl writes all of them"

    def blocks() -> Iterator[Block]:
        yield Note(f"{ASKED[task]}: what failed and the worst first{others}.")
        yield from (_judgement(one) for one in shown)

    return Section(f"{task.capitalize()}: {counted}", blocks(), folded=True, anchor=task)


def _judgement(judgement: MemoryJudgement) -> Section:
    subject = judgement.subject
    listed = wording.shorten(subject.texts.get(LISTED[subject.task], ""), 200)
    where = [wording.shorten(subject.user, 40), f"session {subject.session + 1}", subject.type]
    where += ["not to be kept"] * (subject.source == "interference")
    title = f"{describe_verdict(judgement)}: {listed} ({', '.join(filter(None, where))})"
    return Section(title, [show_texts(judgement)], folded=True)


def show_texts(judgement: MemoryJudgement) -> Texts:
    """The reason, and all that the judgement was given."""
    outcome, given = judgement.outcome, judgement.subject.texts
    heading = "why there is no verdict" if isinstance(outcome, Failure) else "the judge’s reason"
    texts = [
        (title, given[name] or "(nothing)") for name, title in TEXT_TITLES.items() if name in given
    ]
    return Texts("", [(heading, outcome.reason), *texts])


def describe_verdict(judgement: MemoryJudgement) -> str:
    """The label of a judgement in words, or how it ended without one."""
    outcome = judgement.outcome
    if isinstance(outcome, Failure):
        return outcome.kind
    if isinstance(outcome.label, str):
        return outcome.label
    said = f"{outcome.label} of 2"
    if outcome.included is not None:
        said += ", among the expected" if outcome.included else ", beside the expected"
    return said


def compare(
    spec: MemoryEvaluationSpec,
    first: MemoryEvaluation,
    second: MemoryEvaluation,
    names: tuple[str, str],
) -> Beside:
    """The differences of the metrics, on the users that both runs have."""
    found = compare_metrics(first.sums, second.sums, seed=spec.seed)
    rows = list(_differences(found))
    blocks: list[Block] = []
    if known := [(title, pair) for title, pair in rows if pair.all.difference is not None]:
        blocks.append(_compared(known, names))
    reasons: dict[str, list[str]] = {}
    for title, pair in rows:
        if pair.all.reason:
            reasons.setdefault(pair.all.reason, []).append(title)
    blocks += [Note(f"{', '.join(titles)}: {why}", "warning") for why, titles in reasons.items()]
    for evaluation, name in zip((first, second), names, strict=True):
        if not evaluation.whole:
            blocks.append(Note(f"{name}: not all was judged, see its report", "warning"))
    for users, said in (
        (found.only_first, f"only in {names[0]}"),
        (found.only_second, f"only in {names[1]}"),
    ):
        if users:
            shown = ", ".join(wording.shorten(user, 40) for user in users[:5])
            more = ", ..." if len(users) > 5 else ""
            blocks.append(Note(f"{wording.count(len(users), 'user')} {said}: {shown}{more}"))
    return Beside(blocks, {"metrics": asdict(found)})


def _differences(found: MemoryComparison) -> Iterator[tuple[str, DifferencePair]]:
    yield from ((TITLES[name], pair) for name, pair in found.overall.items())
    for type, pairs in found.by_type.items():
        yield from ((f"{type}: {TITLES[n]}", pairs[n]) for n in TYPE_SHOWN if n in pairs)
    sides = {"": found.by_question_type, "difficulty ": found.by_difficulty}
    for what, by in sides.items():
        for name, pairs in by.items():
            title = f"{_name_part(what, name)}: {TITLES['question_correct']}"
            yield title, pairs["question_correct"]


def _compared(rows: Sequence[tuple[str, DifferencePair]], names: tuple[str, str]) -> Table:
    figures = (*names, "difference", "valid only")
    columns = (Column(""), *(Column(name, "number", 3) for name in figures))

    def difference(one: Difference) -> Estimate:
        return Estimate(one.difference, one.low, one.high)

    cells = [
        (title, pair.all.first, pair.all.second, difference(pair.all), difference(pair.valid))
        for title, pair in rows
    ]
    best = frozenset(n for n, (_, pair) in enumerate(rows) if pair.all.clear)
    note = (
        "Second run less first, on the users of both, drawn with the same users (95 %). Rows that"
        " stand out are those whose interval leaves out 0."
    )
    return Table("Metrics of both runs", columns, cells, best=best, note=note)
