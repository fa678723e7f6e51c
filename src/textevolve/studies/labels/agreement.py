"""The agreement study: it measures how far judges agree with people on labelled items, and which
judge agrees better.

The report comes first, since the ablation study shows it as well; then the study itself.
`textevolve.bench.verdicts` collects the judges' verdicts, and `textevolve.bench.agreement` computes
the figures.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from textevolve.bench.agreement import (
    AgreementSummary,
    Consistency,
    JudgeComparison,
    PassFigures,
    measure_consistency,
    summarise,
)
from textevolve.bench.items import Item
from textevolve.bench.verdicts import ORDERS, ItemOutcome, Verdict, gather_outcomes
from textevolve.errors import InputError
from textevolve.evaluation import Case, Result, empty_default, reaches
from textevolve.judges.judge import SeveralJudges
from textevolve.judges.plain import LookJudge
from textevolve.mappings import drop_empty, drop_none
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Cell,
    Column,
    Entry,
    Estimate,
    Matrix,
    MatrixRow,
    Plot,
    Report,
    Table,
    Texts,
    cell_text,
)
from textevolve.rows.writing import plain
from textevolve.runs.aggregates import estimate, finite
from textevolve.runs.study import Asks, Study
from textevolve.spec import Count, option
from textevolve.statistics.intervals import TIE, mean_present
from textevolve.studies.labels.base import (
    ItemVerdict,
    RepeatsSpec,
    ask_judges,
    count_items,
    decode,
    describe_right,
    draw_calibrations,
    find_row,
    flatten,
    list_source,
    name_choice,
    name_people,
    read_labelled_items,
)
from textevolve.wiring import Workbench

BLIND_NOTE = (
    "Brackets: 95 % intervals, drawn by question. The last {} are baselines that read no text: a"
    " judge that scores no more than they do has shown nothing."
)

OVER_LENGTH = (
    "Over length: the accuracy less that of the better of two looks at the length alone, in points"
    " of 100."
)


@dataclass(frozen=True)
class MeasuredJudges(Result):
    """The verdicts of all judges on labelled items, with their figures of agreement with people.
    `samples`: how often each judge judged the same item in the same order, by the judge's name.
    `consistency`: the agreement with itself of each judge that judged items several times."""

    items: tuple[Item, ...]
    verdicts: tuple[Verdict, ...]
    samples: Mapping[str, int]
    summary: AgreementSummary
    consistency: Mapping[str, Consistency] = empty_default(dict)


def summary_sentence(summary: AgreementSummary) -> str:
    """Describe in a sentence which judge agrees best with people, compared with the best rule that
    reads no text, such as "the longer one"."""
    items = wording.count(summary.items, "item")
    scored = [judge for judge in summary.judges if not math.isnan(judge.accuracy.value)]
    if not scored:
        return f"No judge gave a complete verdict on any of the {items} with labels."

    best = max(scored, key=lambda judge: judge.accuracy.value)
    prefix = "Of all judges, " if len(scored) > 1 else ""
    does = describe_right(is_single=summary.people is not None)
    share = cell_text(estimate(best.accuracy), Column("", "percent", 1))
    blind = max(value for _, value in summary.blind_answers)
    sentence = (
        f"{prefix}{best.name} {does} in {share} of the items, the best baseline that reads no text"
        f" in {wording.percent(blind, 1)}."
    )

    return f"{sentence} {_warn_of_length(summary)}".strip()


def _warn_of_length(summary: AgreementSummary) -> str:
    """Name the judges that are not shown to agree with people more than a look at the length does;
    empty if there are none, or if people's labels leave nothing to compare."""
    unproven: list[str] = []
    for judge in summary.judges:
        measured = judge.name != LookJudge.title and math.isfinite(judge.over_length.value)
        # Where all differences are 0 there is no interval.
        if measured and not judge.over_length.interval.low > 0:
            unproven.append(judge.name)

    if not unproven:
        return ""

    return (
        f"On these items a look at the length ({summary.length_rule}) is right in"
        f" {wording.percent(summary.length.value, 1)}, and it is not shown that"
        f" {' or '.join(unproven)} does better."
    )


def summary_facts(summary: AgreementSummary) -> dict[str, str]:
    """Return facts about the items, their labels, and missing verdicts."""
    facts = {"Items": count_items(summary.items, summary.groups)}
    if (people := summary.people) is not None:
        facts["People"] = f"pass {wording.percent(people.passed, 1)}"
        if people.annotators:
            alpha = cell_text(estimate(people.alpha), Column("", "number"))
            facts["People"] += f"; {people.annotators} annotators, Krippendorff's alpha {alpha};"
            facts["People"] += f" split evenly, and left out: {people.even:,}"

    for judge in summary.judges:
        reasons = [
            f"{wording.count(number, 'verdict')}: {wording.shorten(reason, 160)}"
            for reason, number in judge.failures.items()
        ]
        facts[f"Missing, {judge.name}"] = "\n".join(reasons)

    return facts


ENOUGH = 0.05
"""The half width of an interval at which a judge's agreement counts as known."""


def describe_labels(measured: MeasuredJudges) -> dict[str, str]:
    """Return facts about the strata that the items were drawn from, and about how many labels would
    narrow the intervals of agreement to 5 points."""
    facts: dict[str, str] = {}
    strata = {item.stratum for item in measured.items if item.stratum is not None}
    if strata:
        population = sum(size for _, size in strata)
        facts["Drawn"] = (
            f"in {len(strata)} strata of {wording.count(population, 'item')} by"
            " the verdicts of judges; accuracy, over length, kappa, alpha, precision, recall and"
            " differences are weighted to all of these, other figures describe the labelled items"
        )

    needed: list[str] = []
    for judge in measured.summary.judges:
        ends = judge.accuracy.interval
        labels = measured.summary.labelled * ((ends.high - ends.low) / 2 / ENOUGH) ** 2
        if labels > measured.summary.labelled:
            needed.append(f"{judge.name} about {wording.count(math.ceil(labels), 'label')}")
    if needed:
        facts["Within 5 points"] = (
            f"{', '.join(needed)} in all; choose the next ones with `labels create --run RUN"
            " --draw judges --sample NUMBER`"
        )

    return facts


def draw_agreement(measured: MeasuredJudges, threshold: float | None = None) -> Iterator[Block]:
    """Yield the tables of the agreement, and the items on which judges and people disagree.
    `threshold`: the score from which a single response passes; None: the judge's own verdict."""
    items = measured.items
    summary = measured.summary
    if summary.people is None:
        yield _draw_accuracy(summary)
    else:
        yield _draw_responses(summary)
        yield _draw_confusion(summary)
        yield _draw_curve(items, measured.verdicts)
    if measured.consistency:
        yield _draw_consistency(measured)
    yield from _draw_calibration(items, summary)
    yield _draw_spent(summary, measured.samples)
    if summary.comparisons:
        yield _draw_comparisons(summary.comparisons)
    yield from _draw_disagreements(items, measured.verdicts, threshold)


def _draw_accuracy(summary: AgreementSummary) -> Table:
    columns = (
        "judge",
        Column("accuracy", "percent", 1),
        Column("over length", "percent", 1),
        Column("kappa", "number"),
        Column("ties", "percent", 1),
        Column("covered", "percent", 0),
        Column("same winner", "percent", 1),
        Column("first won", "percent", 1),
    )
    rows: list[tuple[Cell, ...]] = []
    for judge in summary.judges:
        shares = [judge.kappa.value, judge.ties, judge.coverage]
        if judge.position is None:
            shares += [math.nan, math.nan]
        else:
            shares += [judge.position.consistency.value, judge.position.first]
        over_length = estimate(judge.over_length)
        rows.append((judge.name, estimate(judge.accuracy), over_length, *map(finite, shares)))

    return Table(
        "Agreement with people",
        columns,
        rows + _list_baselines(summary, len(columns)),
        note=f"{BLIND_NOTE.format('three')} {OVER_LENGTH} Same winner: in both orders."
        " First won: share of all verdicts won by the text shown first; 50 % is no position bias.",
    )


def _draw_responses(summary: AgreementSummary) -> Table:
    """Draw the figures of judges on single responses, in two rows for each judge: by its own
    verdicts (or the threshold of the study), and, cross-validated, at the threshold at which it
    agrees best with people."""
    percents = [Column(name, "percent", 1) for name in ("accuracy", "precision", "recall")]
    numbers = [Column(name, "number") for name in ("kappa", "alpha", "AUC")]
    columns = ["judge", *percents, *numbers, Column("covered", "percent", 0)]
    columns.append(Column("over length", "percent", 1))
    rows: list[tuple[Cell, ...]] = []

    for judge in summary.judges:
        figures = judge.responses
        if figures is None:
            continue
        cells = (*_cells(figures.verdicts), estimate(figures.auc), judge.coverage)
        rows.append((judge.name, *cells, estimate(judge.over_length)))
        if math.isfinite(figures.threshold):
            name = f"{judge.name} from {figures.threshold:.4g} on"
            rows.append((name, *_cells(figures.validated), "", "", ""))

    return Table(
        "Agreement with people",
        columns,
        rows + _list_baselines(summary, len(columns)),
        note=f"{BLIND_NOTE.format('two')} {OVER_LENGTH} Precision: share of the responses"
        " failed by the judge that people fail, too; recall: share of the responses failed by"
        " people that the judge fails, too. Alpha: Krippendorff's. AUC: how often a response that"
        " people pass has a higher score than one that they fail. From a score on: the judge"
        " with --threshold at the score of the highest kappa; cross-validated, by"
        " thresholds chosen in ten folds on other questions.",
    )


def _draw_consistency(measured: MeasuredJudges) -> Table:
    columns = (
        "judge",
        Column("samples", "count"),
        Column("items", "count"),
        Column("flips", "percent", 1),
        Column("kappa", "number"),
    )
    rows = [
        (judge, measured.samples[judge], own.items, estimate(own.flips), estimate(own.kappa))
        for judge, own in measured.consistency.items()
    ]

    return Table(
        "Agreement of each judge with itself",
        columns,
        rows,
        note="Flips: share of the items on which not all samples choose the same; it grows with the"
        " number of samples. Kappa: Fleiss', of two samples.",
    )


def _draw_confusion(summary: AgreementSummary) -> Table:
    """Draw how often each judge passes and fails what people pass and fail."""
    columns = (
        "judge",
        "people",
        Column("judge passes", "count"),
        Column("judge fails", "count"),
        Column("no verdict", "count"),
    )
    rows: list[tuple[Cell, ...]] = []

    for judge in summary.judges:
        if judge.responses is not None:
            counts = judge.responses.confusion
            good = (counts.good_passed, counts.good_failed, counts.good_missing)
            bad = (counts.bad_passed, counts.bad_failed, counts.bad_missing)
            rows.append((judge.name, "pass", *good))
            rows.append((judge.name, "fail", *bad))

    return Table("Confusion matrix", columns, rows)


STEPS = 20
"""The number of steps from 0 to 1 of the thresholds at which agreement is drawn."""


def _draw_curve(items: Sequence[Item], verdicts: Sequence[Verdict]) -> Plot:
    """Draw the share of responses on which each judge agrees with people, by the score from which
    it passes them."""
    labels = {item.id: item.human[0] for item in items}
    pairs: dict[str, list[tuple[float, bool]]] = {}
    for verdict in verdicts:
        label = labels[verdict.item]
        if verdict.score is not None and label != 0.5:  # on the others people differ evenly
            pairs.setdefault(verdict.judge, []).append((verdict.score, label > 0.5))

    thresholds = [step / STEPS for step in range(STEPS + 1)]
    lines = {
        judge: [
            fmean(reaches(score, each) == label for score, label in of_judge) for each in thresholds
        ]
        for judge, of_judge in pairs.items()
    }
    axis = "passes from a score of"

    return Plot("Agreement by threshold", axis, list(map(str, thresholds)), lines)


def _cells(figures: PassFigures) -> Iterator[Estimate]:
    yield estimate(figures.accuracy)
    yield estimate(figures.precision)
    yield estimate(figures.recall)
    yield estimate(figures.kappa)
    yield estimate(figures.alpha)


def _list_baselines(summary: AgreementSummary, columns: int) -> list[tuple[Cell, ...]]:
    """Return the rows of the rules that read no text: they have an accuracy and nothing else."""
    blank = [""] * (columns - 2)
    return [(name, finite(share), *blank) for name, share in summary.blind_answers]


def _draw_calibration(items: Sequence[Item], summary: AgreementSummary) -> Iterator[Block]:
    calibrations = drop_none({judge.name: judge.calibration for judge in summary.judges})
    event = "a text is the best one"
    if summary.people is not None:
        event = "people pass a response (the score is used as the probability)"
    elif all(len(item.candidates) == 2 for item in items):
        event = "the first text is the better one"

    without = [judge.name for judge in summary.judges if judge.calibration is None]
    missing = ""
    if without:
        missing = f"Without log-odds, so without a probability: {', '.join(without)}."

    return draw_calibrations(calibrations, event, missing)


def _draw_spent(summary: AgreementSummary, samples: Mapping[str, int]) -> Table:
    columns = (
        "judge",
        Column("samples", "count"),
        Column("calls", "number", 1),
        Column("tokens", "count", 0),
        Column("time", "duration"),
        Column("1,000 items cost", "money"),
    )
    rows: list[tuple[Cell, ...]] = []
    for judge in summary.judges:
        spent = judge.per_item
        cost = None if spent.cost is None else 1000 * spent.cost
        number = samples.get(judge.name, 1)
        rows.append((judge.name, number, spent.calls, round(spent.tokens), spent.seconds, cost))

    return Table(
        "Cost of an item",
        columns,
        rows,
        note="The sum over all orders and samples, in which each distinct request of a judge"
        " counts once. Time: of the model calls.",
    )


def _draw_comparisons(comparisons: Sequence[JudgeComparison]) -> Table:
    columns = (
        "judges",
        Column("same choice", "percent", 1),
        Column("difference", "percent", 1),
        Column("p", "p_value"),
        Column("items needed", "count"),
    )
    rows = [
        (
            f"{pair.first} − {pair.second}",
            finite(pair.same.value),
            estimate(pair.difference),
            finite(pair.permutation_holm),
            finite(pair.items_needed),
        )
        for pair in comparisons
    ]

    return Table(
        "Between judges",
        columns,
        rows,
        note="Same choice: both choose the same winner. Difference: of the accuracies, in"
        " points of 100. p: of sign flips by question, corrected for the number of pairs"
        " (Holm). Items needed: to find a difference of this size with a power of 80 % at"
        " 5 %.",
    )


def _draw_disagreements(
    items: Sequence[Item], verdicts: Sequence[Verdict], threshold: float | None
) -> Iterator[Matrix]:
    """Yield the items on which a judge and people differ, each once with the verdicts of all: those
    with the lowest mean credit first (1 for the choice of people, 0 for another, a half if only one
    side sees a tie); among equals those whose scores are furthest from people's labels."""
    outcomes = gather_outcomes(items, verdicts, threshold)
    failures = {
        (verdict.item, verdict.judge): verdict.failure.reason
        for verdict in verdicts
        if verdict.failure
    }
    disputed: list[tuple[float, Item]] = []

    for item in items:
        of_item = [of_judge[item.id] for of_judge in outcomes.values()]
        if any(outcome.credit < 1 - TIE for outcome in of_item):
            wrong = [outcome for outcome in of_item if outcome.credit < 1]
            errors = [abs(outcome.score - item.human[0]) for outcome in wrong]
            credit = mean_present([outcome.credit for outcome in of_item])
            disputed.append((credit - 1e-6 * max(0.0, mean_present(errors)), item))

    disputed.sort(key=lambda pair: pair[0])
    if not disputed:
        return
    yield Matrix(
        f"{wording.count(len(disputed), 'item')} on which a judge disagrees with people",
        list(outcomes),
        (_row(item, outcomes, failures) for _, item in disputed),
        expected="people",
    )


def _row(
    item: Item,
    outcomes: Mapping[str, Mapping[str, ItemOutcome]],
    failures: Mapping[tuple[str, str], str],
) -> MatrixRow:
    people = name_people(item)
    entries: list[Entry] = []

    for name, of_judge in outcomes.items():
        outcome = of_judge[item.id]
        scores = {"credit": finite(outcome.credit)}
        if item.is_single:
            scores = {"score": finite(outcome.score)}
        against = people if outcome.credit < 1 else ""

        facts: dict[str, str] = {}
        if outcome.flipped:
            forward, turned = (name_choice(item, outcome.winners[order]) for order in ORDERS)
            facts["order"] = f"{forward} as given, {turned} reversed"

        if outcome.winner is None:
            failure = failures.get((item.id, name), "")
            entries.append(Entry("", scores, failure=failure, facts=facts))
        else:
            choice = name_choice(item, outcome.winner)
            entries.append(Entry(choice, scores, facts=facts, against=against))

    facts = drop_empty({"subset": item.subset})
    facts |= {name: name_choice(item, int(passed)) for name, passed in item.labels}

    columns = {"input": item.input}
    for place, text in enumerate(item.candidates):
        columns["response" if item.is_single else wording.letter(place)] = text
    details = [Texts("Context", [("", item.context)])] if item.context else []

    return MatrixRow(item.id, item.input, entries, people, facts, details, columns=columns)


class AgreementSpec(RepeatsSpec):
    """Measure how far judges agree with people, and whether one does better than another.

    Each judge sees the texts of each item in both orders. A difference between two judges is
    reported with an interval and a test.
    """

    kind: ClassVar[str] = "agreement"
    measures_judges: ClassVar[bool] = True

    judge: SeveralJudges = option(
        description="A judge to measure, such as debate:general, jury or pairwise+rules."
        " Repeatable.",
        short="-j",
        group="Judging",
        min_length=1,
    )
    samples: Count = option(
        1, "The number of times that each judge judges each item.", group="Judging"
    )
    threshold: float | None = option(
        None,
        "The score from which a single response passes; default: the judge's own verdict.",
        group="Judging",
        ge=0,
        le=1,
    )


def read_labelled(spec: AgreementSpec) -> Iterator[Case]:
    """Read the labelled items. A threshold is refused if they compare texts."""
    for case in read_labelled_items(spec):
        if spec.threshold is not None and len(case.candidates) > 1:
            raise InputError(
                "--threshold: these labels compare texts, of which none passes by its score; leave"
                " it out"
            )
        yield case


def ask(spec: AgreementSpec) -> Asks:
    if spec.equal_tokens and spec.samples != 1:
        raise InputError(
            "give samples or equal tokens, not both: with equal tokens the number of samples"
            " follows from the cost"
        )

    return Asks(spec.judge)


def run(
    spec: AgreementSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[ItemVerdict]:
    return ask_judges(
        cases,
        spec.judge,
        bench,
        orders=spec.orders,
        samples=spec.samples,
        equal_tokens=spec.equal_tokens,
    )


def sum_up(spec: AgreementSpec, records: Iterable[ItemVerdict]) -> MeasuredJudges:
    return measure_judges(records, spec, spec.threshold)


def measure_judges(
    records: Iterable[ItemVerdict], spec: RepeatsSpec, threshold: float | None = None
) -> MeasuredJudges:
    """Compute the agreement figures of all verdicts. `threshold`: the score from which a single
    response passes; None: the judge's own verdict counts.

    Raises:
        InputError: there is no record.
    """
    items: dict[str, Item] = {}
    verdicts: list[Verdict] = []
    samples: dict[str, int] = {}

    for record in records:
        verdict = record.verdict
        items.setdefault(record.item.id, record.item)
        verdicts.append(verdict)
        samples[verdict.judge] = max(samples.get(verdict.judge, 1), verdict.sample + 1)

    every = tuple(items.values())
    summary = summarise(every, verdicts, seed=spec.seed, threshold=threshold)
    consistency = measure_consistency(every, verdicts, seed=spec.seed, threshold=threshold)

    return MeasuredJudges(every, tuple(verdicts), samples, summary, consistency)


def report(spec: AgreementSpec, measured: MeasuredJudges) -> Report:
    blocks = draw_agreement(measured, spec.threshold)
    facts = summary_facts(measured.summary) | describe_labels(measured)
    return Report("Judges compared with people", summary_sentence(measured.summary), blocks, facts)


def data(spec: AgreementSpec, measured: MeasuredJudges) -> Mapping[str, Any]:
    return {"parameters": spec.model_dump(mode="json"), **measured_data(spec, measured)}


def measured_data(spec: RepeatsSpec, measured: MeasuredJudges) -> dict[str, Any]:
    return {
        **list_source(spec),
        "orders": spec.orders,
        "samples": dict(measured.samples),
        **drop_empty({"consistency": plain(measured.consistency)}),
        "summary": plain(measured.summary),
    }


STUDY = Study(
    spec=AgreementSpec,
    cases=read_labelled,
    asks=ask,
    run=run,
    row=find_row,
    decode=decode,
    summarise=sum_up,
    report=report,
    data=data,
    flat=flatten,
    variants=lambda spec, _model: tuple(map(str, spec.judge)),
)
