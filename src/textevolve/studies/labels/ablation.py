"""The ablation study: it measures whether a debate agrees with people's labels more often than
cheaper uses of the same agents: a single judge, a jury whose members judge alone, and escalation,
which debates only if the jury is in doubt.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from textevolve.bench.ablation import (
    MINIMUM_EFFECT,
    Payoff,
    describe_payoff,
    first_round,
    weigh_debate,
)
from textevolve.bench.verdicts import gather_outcomes
from textevolve.evaluation import Case, Result
from textevolve.judges.judge import Judge, parse_judge
from textevolve.report.blocks import Report
from textevolve.rows.writing import plain
from textevolve.runs.study import Asks, Study
from textevolve.spec import Several, option
from textevolve.studies.labels.agreement import (
    MeasuredJudges,
    draw_agreement,
    measure_judges,
    measured_data,
    summary_facts,
)
from textevolve.studies.labels.base import (
    ItemVerdict,
    LabelledItemsSpec,
    RepeatsSpec,
    ask_judges,
    decode,
    find_row,
    flatten,
    read_labelled_items,
)
from textevolve.wiring import Workbench

WAYS = ("single", "jury", "debate", "escalation")  # the compared ways of judging
# The name under which the debate's first round is a judge of its own.
FIRST_ROUND = "debate, first round"


class OneProfileSpec(LabelledItemsSpec):
    """The options of the profile whose agents judge in several ways."""

    profile: str = option(
        "general",
        "The profile of debates: a shipped one, or a YAML file.",
        short="-p",
        group="Judging",
    )
    judge_option: Several = option(
        (),
        "An option for all judges: rules, or a parameter of the profile such as"
        " readout=verbalized. Repeatable.",
        group="Judging",
    )


class AblationSpec(OneProfileSpec, RepeatsSpec):
    """Find out whether a debate pays: a single judge, a jury, the debate and escalation compared.

    The scores after the first round of the debate are compared, too, and cost no extra calls.
    """

    kind: ClassVar[str] = "ablation"
    measures_judges: ClassVar[bool] = True

    minimum_effect: float = option(
        MINIMUM_EFFECT,
        "The smallest gain in accuracy that would matter to you, from 0 to 1.",
        group="Statistics",
        gt=0,
        lt=1,
    )


@dataclass(frozen=True)
class Ablation(Result):
    """The result of an ablation.

    Attributes:
        measured: The verdicts and agreement figures of all judges.
        payoff: The gain in accuracy of the debate over cheaper judges; None if no item has a
            verdict of each judge.
        sentence: The conclusion, or the reason why there is none.
    """

    measured: MeasuredJudges
    payoff: Payoff | None
    sentence: str


def _name_judge(spec: AblationSpec, way: str) -> str:
    """Return the name of a judge with the specified profile and options."""
    judge = way if spec.profile == "general" else f"{way}:{spec.profile}"
    return "+".join([judge, *spec.judge_option])


def judges_of(spec: AblationSpec) -> tuple[Judge, ...]:
    return tuple(parse_judge(_name_judge(spec, way)) for way in WAYS)


def run(spec: AblationSpec, cases: Iterable[Case], bench: Workbench) -> AsyncGenerator[ItemVerdict]:
    views = {FIRST_ROUND: (_name_judge(spec, "debate"), first_round)}
    return ask_judges(
        cases,
        judges_of(spec),
        bench,
        orders=spec.orders,
        equal_tokens=spec.equal_tokens,
        views=views,
    )


def summarise(spec: AblationSpec, records: Iterable[ItemVerdict]) -> Ablation:
    measured = measure_judges(records, spec)
    single, jury, debate, _ = map(str, judges_of(spec))
    measured_names = {judge.name for judge in measured.summary.judges}
    payoff = None

    if measured_names >= {single, jury, debate, FIRST_ROUND}:
        payoff = weigh_debate(
            measured.items,
            measured.summary,
            gather_outcomes(measured.items, measured.verdicts),
            debate,
            [jury, single, FIRST_ROUND],
            minimum_effect=spec.minimum_effect,
        )

    names = {
        debate: "the debate",
        jury: "the jury of the same agents",
        single: "a single judge",
        FIRST_ROUND: "its own first round",
    }
    unknown = "Whether the debate pays is unknown: no item has a verdict of each judge."

    return Ablation(measured, payoff, describe_payoff(payoff, names) if payoff else unknown)


def report(_spec: AblationSpec, ablation: Ablation) -> Report:
    blocks = draw_agreement(ablation.measured)
    facts = summary_facts(ablation.measured.summary)
    return Report("Does the debate pay?", ablation.sentence, blocks, facts)


def data(spec: AblationSpec, ablation: Ablation) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "sentence": ablation.sentence,
        "payoff": plain(ablation.payoff),
        **measured_data(spec, ablation.measured),
    }


STUDY = Study(
    spec=AblationSpec,
    cases=read_labelled_items,
    asks=lambda spec: Asks(judges_of(spec)),
    run=run,
    row=find_row,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
)
