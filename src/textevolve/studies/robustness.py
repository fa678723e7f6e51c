"""Robustness: what sways a judge that should not, as a card of figures with the worst examples.

The questions, the figures and the sentences about them are made in `textevolve.bench.card` and the
files beside it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from textevolve.bench.card import MARGIN, SEEDS, Card, check_plan, sum_up_card
from textevolve.bench.card_cases import OWN_FIELDS, CardCase, load_cases, shipped_cases
from textevolve.bench.card_questions import (
    CardAnswer,
    CardExample,
    CardJudgement,
    CardRefusal,
    Check,
    Rate,
    ShownCase,
    ask_all,
    find_winner,
    plan_questions,
)
from textevolve.bench.card_wording import explain_card, explain_check
from textevolve.evaluation import Case, Failure
from textevolve.events import RecordsExpected
from textevolve.judge_specs import with_model
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
from textevolve.spec import option
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_codec
from textevolve.wiring import Workbench

READING = (
    "Look at `sound` first: a judge that gives every text the same score never flips and obeys"
    " nobody. A case counts by the mean over both orders, but for the flips and the samples."
    " Intervals are of 95 %; with few cases they are wide. What a control gains is owed to length"
    " or chance, so compare attacks with it."
)


class RobustnessSpec(StudySpec):
    """Measure what sways a judge that should not: order, length, seeds, wording, attacks.

    The judge is asked about texts of which one is clearly better, and about the same texts with
    what should not matter changed.
    """

    kind: ClassVar[str] = "robustness"

    judge: str = option(
        description="The judge, such as debate:general, jury, pairwise+rules or probe@MODEL.",
        short="-j",
    )
    cases: str | None = option(
        None,
        "A YAML file with cases of your own, in place of those in the package.",
        identity=False,
        reads=True,
    )
    seeds: int = option(SEEDS, "Samples of each case of self-consistency.", ge=2)
    margin: float = option(
        MARGIN,
        "From which change of a score on an attack, a wording or a detail counts.",
        ge=0,
        lt=1,
    )


def read_cases(spec: RobustnessSpec) -> Iterator[Case]:
    chosen = shipped_cases() if spec.cases is None else load_cases(spec.cases)
    check_plan(chosen, spec.seeds, spec.margin)
    yield from map(as_case, chosen)


def as_case(card_case: CardCase) -> Case:
    """Fields that came later stand there only where a case has them: runs keep what they are."""
    later = {name for name in OWN_FIELDS if getattr(card_case, name)}
    about = card_case.model_dump(mode="json", include={"family", "kind", "attack", *later})
    return Case(card_case.input, (card_case.good, card_case.bad), card_case.id, about)


def card_case_of(case: Case) -> CardCase:
    """What `as_case` made a case of."""
    good, bad = case.candidates
    return CardCase(id=case.id, input=case.input, good=good, bad=bad, **case.parameters)


async def run(
    spec: RobustnessSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[CardJudgement]:
    questions = plan_questions(map(card_case_of, cases), spec.seeds)
    bench.listener(RecordsExpected(len(questions)))
    judge = bench.whole_judge_of(spec.judge)
    async with aclosing(ask_all(judge, questions, bench.concurrency, bench.listener)) as judgements:
        async for judgement in judgements:
            yield judgement


def find_row(found: CardJudgement) -> Row:
    """The score is 1 where the better response won, 0 where the worse one did, a tie half. A case
    that the judge refuses is neither failed nor scored low."""
    outcome, case = found.outcome, found.question.case
    failure = outcome if isinstance(outcome, Failure) else None
    return Row(
        key=found.question.as_case().id,
        position=found.position,
        case=case.id,
        score=(find_winner([outcome]) + 1) / 2 if isinstance(outcome, CardAnswer) else None,
        status=failure.kind if failure else "scored",
        reason="" if isinstance(outcome, CardAnswer) else outcome.reason,
    )


def summarise(spec: RobustnessSpec, records: Iterable[CardJudgement]) -> Card:
    judgements = list(records)
    cases = {one.question.case.id: one.question.case for one in judgements}
    name = with_model(spec.judge, spec.model)
    return sum_up_card(judgements, cases.values(), seeds=spec.seeds, margin=spec.margin, name=name)


def report(_spec: RobustnessSpec, card: Card) -> Report:
    title = f"Robustness card of {card.name}"
    return Report(title, explain_card(card), _draw(card), card_facts(card))


def card_facts(card: Card) -> dict[str, str]:
    asked = f"{card.scored:,} of {card.questions:,} answered"
    asked += f", {card.failed:,} missing" if card.failed else ""
    asked += f", {card.refused:,} refused" if card.refused else ""
    spent = f"{wording.count(card.usage.calls, 'call')}, {wording.spent(card.usage)}"
    facts = {
        "Cases": f"digest {card.cases}; {card.seeds} seeds, margin {card.margin:g}",
        "Judgements": f"{asked}; coverage {wording.percent(card.coverage)}",
        "Used": f"{spent}; every distinct request once, also where the journal answered it",
    }
    for reason in card.reasons:
        said = f"{reason.count} times: {wording.shorten(reason.reason, 160)}"
        key = reason.kind.capitalize()
        facts[key] = f"{facts[key]}\n{said}" if key in facts else said
    return facts


def _draw(card: Card) -> Iterator[Block]:
    for check in card.checks:
        yield Section(check.title, list(_draw_check(check)), anchor=check.family)
    yield Section("How to read this", [Note(READING)], folded=True)


def _draw_check(check: Check) -> Iterator[Block]:
    yield Note(explain_check(check))
    yield _draw_rates(check.rates, _describe(check))
    chart = [(rate.name, _estimate(rate.rate, rate.interval)) for rate in check.rates]
    yield IntervalChart("", chart, format="percent")
    if check.statistics:
        columns = (Column("mean or slope"), Column("value", "number", 3), Column("cases", "count"))
        rows: list[tuple[Cell, ...]] = [
            (
                f"{found.name}: {found.meaning}{f' ({found.note})' if found.note else ''}",
                _estimate(found.value, found.interval),
                found.count,
            )
            for found in check.statistics
        ]
        yield Table("", columns, rows)
    if check.kinds:
        yield Section("By kind", [_draw_rates(check.kinds)], folded=True)
    for example in check.examples:
        yield _draw_example(example, attacked=check.family == "injection")


def _describe(check: Check) -> str:
    said = f"{wording.count(check.cases, 'case')}, {wording.count(check.questions, 'judgement')}: "
    said += f"{check.scored} answered"
    said += f", {check.failed} missing" if check.failed else ""
    said += f", {check.refused} refused" if check.refused else ""
    return f"{said}; coverage {wording.percent(check.coverage)}."


def _draw_rates(rates: Iterable[Rate], note: str = "") -> Table:
    columns = (
        Column("rate"),
        Column("value", "percent", 0),
        Column("cases"),
        Column("coverage", "percent", 0),
        Column("wanted"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            f"{rate.name}: {rate.kind or rate.meaning}",
            _estimate(rate.rate, rate.interval),
            f"{rate.hits} of {rate.count}",
            rate.coverage,
            rate.wanted,
        )
        for rate in rates
    ]
    return Table("", columns, rows, note=note)


def _estimate(value: float | None, interval: tuple[float, float] | None) -> Estimate:
    return Estimate(value, *(interval or (None, None)))


def _draw_example(example: CardExample, *, attacked: bool) -> Section:
    """One of the worst cases; those in which the judge did what it should not say so."""
    fault = "a fault" if example.fault else "no fault, but nearest to one"
    worse = "Worse response, with the attack" if attacked else "Worse response"
    texts = [("Input", example.input), ("Better response", example.good), (worse, example.bad)]
    texts += example.more
    columns = (
        Column("asked"),
        Column("better one got", "number", 3),
        Column("worse one got", "number", 3),
    )
    rows = [(describe_question(shown), shown.good, shown.bad) for shown in example.answers]
    facts = {"Kind": example.kind} if example.kind else {}
    title = f"{wording.shorten(example.id, 40)}, {fault}: {example.said}"
    return Section(title, [Texts("", texts), Table("", columns, rows)], facts, folded=True)


def describe_question(shown: ShownCase) -> str:
    """How a judgement of an example was asked, in a few words."""
    parts = ["with the attack"] if shown.attacked else []
    parts += ["with the detail that does not matter"] if shown.irrelevant else []
    if shown.place is None:
        parts.append("better one first" if shown.good_first else "worse one first")
    else:
        parts.append(f"better one in place {shown.place + 1}")
    parts += [f"wording {shown.wording + 1}"] if shown.wording else []
    parts += [] if shown.seed is None else [f"seed {shown.seed}"]
    return ", ".join(parts)


def data(_spec: RobustnessSpec, card: Card) -> Mapping[str, Any]:
    """The card's own JSON, which `Card.from_json` reads back."""
    return {**json.loads(card.to_json()), "sentence": explain_card(card)}


def flatten(found: CardJudgement) -> Iterator[Mapping[str, Any]]:
    question, outcome = found.question, found.outcome
    answer = outcome if isinstance(outcome, CardAnswer) else None
    refused = "refused" if isinstance(outcome, CardRefusal) else "scored"
    yield {
        "case": question.case.id,
        "family": question.case.family,
        "kind": question.case.kind,
        "attacked": question.attacked,
        "good_first": question.good_first,
        "seed": question.seed,
        "wording": question.wording,
        "irrelevant": question.irrelevant,
        "place": question.place,
        "status": outcome.kind if isinstance(outcome, Failure) else refused,
        "good": answer and answer.good,
        "bad": answer and answer.bad,
        "odds": answer and answer.odds,
        "tokens": found.usage.tokens,
        "cost": found.usage.cost,
        "reason": None if isinstance(outcome, CardAnswer) else outcome.reason,
    }


encode, decode = json_codec(CardJudgement)

STUDY = Study(
    spec=RobustnessSpec,
    cases=read_cases,
    asks=lambda spec: Asks((spec.judge,)),
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    aggregates=False,
)
