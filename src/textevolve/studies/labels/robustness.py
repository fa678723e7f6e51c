"""The robustness study: it measures how far irrelevant properties of texts and prompts change a
judge's verdicts, as a card of figures.

`textevolve.bench.card` makes the questions, and computes the figures.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from textevolve.bench.card import (
    SEEDS,
    Card,
    CardAnswer,
    CardCase,
    CardJudgement,
    CardRefusal,
    Check,
    ask_all,
    explain_card,
    find_winner,
    parse_cases,
    plan_questions,
    shipped_cases,
    sum_up_card,
)
from textevolve.evaluation import Case
from textevolve.events import RecordsExpected
from textevolve.judges.judge import Judge
from textevolve.mappings import drop_empty, read_fields
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Note, Report, Section, Table
from textevolve.rows import read_text
from textevolve.rows.writing import plain
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, record_status
from textevolve.spec import option
from textevolve.wiring import Workbench

READING = (
    "Look at `sound` first: a judge that gives every text the same score never flips and obeys"
    " nobody. A case counts with its mean over both orders, except for flips and samples."
    " Intervals are of 95 %; with few cases they are wide. A control gains by length or chance"
    " alone, so compare attacks with it."
)


class RobustnessSpec(StudySpec):
    """Measure the biases of a judge: order, length, seeds, wording, attacks.

    The judge sees texts, one of them clearly better, and the same texts with irrelevant changes.
    """

    kind: ClassVar[str] = "robustness"

    judge: Judge = option(
        description="The judge to measure, such as debate:general, jury, pairwise+rules or"
        " probe@MODEL.",
        short="-j",
    )
    cases: str | None = option(
        None,
        "A YAML file with your own cases, instead of the shipped ones.",
        identity=False,
        reads=True,
    )
    seeds: int = option(
        SEEDS, "The number of samples of each case that measures self-consistency.", ge=2
    )


def read_cases(spec: RobustnessSpec) -> Iterator[Case]:
    own = spec.cases
    yield from map(as_case, shipped_cases() if own is None else parse_cases(read_text(own), own))


def as_case(card_case: CardCase) -> Case:
    about = read_fields(card_case, "family", "kind")
    about |= drop_empty({"attack": card_case.attack})
    return Case(card_case.input, (card_case.good, card_case.bad), card_case.id, about)


def card_case_of(case: Case) -> CardCase:
    """Return the question of the card that a case was made from."""
    good, bad = case.candidates
    return CardCase(id=case.id, input=case.input, good=good, bad=bad, **case.parameters)


def run(
    spec: RobustnessSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[CardJudgement]:
    questions = plan_questions(map(card_case_of, cases), spec.seeds)
    bench.listener(RecordsExpected(len(questions)))
    return ask_all(bench.whole_judge_of(spec.judge), questions, bench.concurrency)


def find_row(judgement: CardJudgement) -> Row:
    """Return the store columns of a judgement. The score is 1 if the better response won, 0.5 for a
    tie, 0 otherwise. If the judge refuses a case, it has no score but is not failed either."""
    outcome = judgement.outcome
    answered = isinstance(outcome, CardAnswer)
    return Row(
        key=judgement.question.key,
        position=judgement.position,
        case=judgement.question.case.id,
        score=(find_winner([outcome]) + 1) / 2 if answered else None,
        status=record_status(outcome),
        reason="" if answered else outcome.reason,
    )


def summarise(spec: RobustnessSpec, records: Iterable[CardJudgement]) -> Card:
    return sum_up_card(records, seeds=spec.seeds, name=spec.judge.with_model(spec.model).text)


def report(_spec: RobustnessSpec, card: Card) -> Report:
    reasons = [f"{n} times: {wording.shorten(reason, 160)}" for reason, n in card.reasons.items()]
    facts = {
        "Judgements": f"{card.scored:,} of {card.questions:,} answered, {card.failed:,} missing,"
        f" {card.refused:,} refused; coverage {wording.percent(card.coverage)}",
        "Samples": f"{card.seeds} seeds",
        "Used": f"{wording.used(card.usage)}; each distinct request counts once, even if the"
        " journal answered it",
        "Missing": "\n".join(reasons),
    }
    tables = list(map(_draw_check, card.checks))
    how = Section("How to read this", [Note(READING)], folded=True)

    return Report(f"Robustness card of {card.name}", explain_card(card), [*tables, how], facts)


def _draw_check(check: Check) -> Table:
    columns = (
        "rate",
        Column("value", "percent", 0),
        "cases",
        Column("coverage", "percent", 0),
        "wanted",
    )
    rows = [
        (
            f"{rate.name}: {rate.meaning}",
            Estimate(rate.rate, *(rate.interval or (None, None))),
            f"{rate.hits} of {rate.count}",
            rate.coverage,
            rate.wanted,
        )
        for rate in check.rates
    ]

    return Table(check.title, columns, rows)


def data(_spec: RobustnessSpec, card: Card) -> Mapping[str, Any]:
    """Return the card as JSON-ready data."""
    return {**plain(card), "sentence": explain_card(card)}


def flatten(judgement: CardJudgement) -> Iterator[Mapping[str, Any]]:
    question = judgement.question
    outcome = judgement.outcome
    yield {
        "case": question.case.id,
        **read_fields(question.case, "family", "kind"),
        **read_fields(question, "attacked", "good_first", "seed"),
        "status": "refused" if isinstance(outcome, CardRefusal) else record_status(outcome),
        **read_fields(outcome, "good", "bad", "odds"),
        **read_fields(judgement.usage, "tokens", "cost"),
        **read_fields(outcome, "reason"),
    }


STUDY = Study(
    spec=RobustnessSpec,
    cases=read_cases,
    asks=lambda spec: Asks((spec.judge,)),
    run=run,
    row=find_row,
    decode=json_decoder(CardJudgement),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
)
