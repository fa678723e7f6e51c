"""Assertions: single texts, each before a judge of its own and against a score of its own, as tests
make them; a record for each.

A session of tests keeps its run itself, since nobody knows its cases before they come
(`testing.judging`); what is here judges one, shows what was found, and goes on with such a run. A
case's parameters are the `Demand`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from pydantic import TypeAdapter

from textevolve.debate.context import prompts_version as debate_prompts
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage, empty_default, failure_of
from textevolve.evaluators import check_absolute, with_model
from textevolve.judges.context import prompts_version as judge_prompts
from textevolve.report import wording
from textevolve.report.blocks import Entry, Matrix, MatrixRow, Report, Texts
from textevolve.studies.aggregates import Aggregates, describe_mean
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_decoder
from textevolve.wiring import Workbench


class AssertionsSpec(StudySpec):
    """Judge texts one by one, each by a judge of its own and against a score of its own.

    A test session makes such runs by itself.
    """

    kind: ClassVar[str] = "assertions"


@dataclass(frozen=True, slots=True)
class Demand:
    """How a text is to be judged, and what is asked of it.

    `model` is for a judge that names none; empty: the run's. `min_score` in [0, 1]; None: the judge
    says itself what passes. `position`: the place in the session. `given`: what an
    evaluator of the user's own said, whose answers no journal has.
    """

    judge: str
    model: str = ""
    rubric: str = ""
    min_score: float | None = None
    position: int = 0
    given: EvaluationResult | None = None


@dataclass(frozen=True, slots=True)
class Assertion:
    """A case with what was demanded of its one candidate, and what the judge made of it."""

    case: Case
    demand: Demand
    result: EvaluationResult | Failure
    usage: Usage = Usage()

    @property
    def passed(self) -> bool | None:
        """Whether the text is good enough; None where nothing is known of it."""
        if isinstance(self.result, Failure):
            return None
        least = self.demand.min_score
        return self.result.passed if least is None else self.result.score >= least

    @property
    def score(self) -> float | None:
        return None if isinstance(self.result, Failure) else self.result.score

    @property
    def verdict(self) -> str:
        if self.passed is None:
            return "not judged"
        return "passed" if self.passed else "failed"

    @property
    def reason(self) -> str:
        """What the judge said, or why there is no score."""
        return self.result.reason if isinstance(self.result, Failure) else self.result.feedback


async def judge_case(case: Case, demand: Demand, bench: Workbench) -> Assertion:
    """
    Raises:
        InputError: the judge, or a text, cannot be used. ModelError, BudgetError: no answer came.
    """
    if demand.given is not None:
        return Assertion(case, demand, demand.given)
    check_absolute(demand.judge)
    judge = bench.whole_judge_of(with_model(demand.judge, demand.model or None), demand.rubric)
    made = await judge(replace(case, parameters={}))
    (result,) = made.result
    return Assertion(case, demand, result, made.usage)


_DEMAND = TypeAdapter(Demand)
VERDICTS = ("not judged", "failed", "passed")
"""Those first that somebody has to look at."""


def write_demand(demand: Demand) -> dict[str, Any]:
    """The demand as a case's parameters."""
    return _DEMAND.dump_python(demand, mode="json", exclude_defaults=True)


def read_cases(_spec: AssertionsSpec) -> list[Case]:
    """
    Raises:
        InputError: always: the cases of such a run come one by one, out of tests.
    """
    raise InputError("assertions are made in tests with pytest: see textevolve.testing")


def ask(_spec: AssertionsSpec) -> Asks:
    return Asks(writes=True, prompts=debate_prompts() | judge_prompts())


def run(
    _spec: AssertionsSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Assertion]:
    async def work(case: Case) -> Assertion:
        demand = _DEMAND.validate_python(dict(case.parameters))
        try:
            return await judge_case(case, demand, bench)
        except FatalModelError:
            raise
        except (ModelError, BudgetError, InputError) as error:
            return Assertion(case, demand, failure_of(error))

    return stream(cases, work, bench.concurrency, ordered=bench.ordered)


def find_row(one: Assertion) -> Row:
    id, place = one.case.id, one.demand.position
    status = one.result.kind if isinstance(one.result, Failure) else "scored"
    return Row(id, place, id, one.score, status, one.reason, passed=one.passed)


@dataclass
class Assertions:
    """The assertions of a session. `figures`: the mean of all scores there are, and the share that
    passed of what was asserted."""

    made: list[Assertion] = empty_default(list)
    figures: Aggregates = field(default_factory=Aggregates)
    usage: Usage = Usage()

    @property
    def counts(self) -> dict[str, int]:
        """How many there are by verdict."""
        verdicts = [one.verdict for one in self.made]
        return {name: verdicts.count(name) for name in VERDICTS}


def summarise(_spec: AssertionsSpec, records: Iterable[Assertion]) -> Assertions:
    summary = Assertions()
    for one in records:
        summary.made.append(one)
        summary.figures.add(find_row(one))
        summary.usage += one.usage
    return summary


def describe_counts(summary: Assertions) -> str:
    """In one line: how many there are, how they ended, the mean score."""
    counts = summary.counts
    parts = {
        wording.count(len(summary.made), "assertion"): len(summary.made),
        f"{counts['passed']:,} passed": counts["passed"],
        f"{counts['failed']:,} failed": counts["failed"],
        f"{counts['not judged']:,} could not be judged": counts["not judged"],
        describe_mean(summary.figures.mean): summary.figures.mean.value is not None,
    }
    return ", ".join(part for part, shown in parts.items() if shown) or "no assertions"


def report(_spec: AssertionsSpec, summary: Assertions) -> Report:
    """The tests as the rows of a matrix, those first that somebody has to look at."""
    facts = {
        "Judges": ", ".join(sorted({one.demand.judge for one in summary.made})),
    }
    ordered = sorted(summary.made, key=lambda one: VERDICTS.index(one.verdict))
    matrix = Matrix("Tests", ("output",), map(make_row, ordered))
    return Report("Assertions of a session", describe_counts(summary), [matrix], facts)


def make_row(one: Assertion) -> MatrixRow:
    """The score has the same name for every judge, so that tests can be sorted by it."""
    case, demand, scored = one.case, one.demand, one.score is not None
    entry = Entry(
        case.candidates[0],
        {"score": one.score} if scored else {},
        one.passed,
        {demand.judge: one.reason} if scored and one.reason else {},
        "" if scored else one.reason,
        {"used": wording.used(one.usage)},
    )
    least = "" if demand.min_score is None else f"{demand.min_score:g}"
    facts = {"at least": least, "judge": demand.judge, "model": demand.model}
    texts = [
        (n, text) for n, text in (("Context", case.context), ("Rubric", demand.rubric)) if text
    ]
    return MatrixRow(
        id=case.id,
        input=case.input,
        entries=(entry,),
        reference=case.reference or "",
        facts={name: value for name, value in facts.items() if value},
        details=(Texts("", texts),) if texts else (),
    )


def data(_spec: AssertionsSpec, summary: Assertions) -> Mapping[str, Any]:
    return {
        "assertions": len(summary.made),
        **{name.replace(" ", "_"): number for name, number in summary.counts.items()},
        "mean": summary.figures.mean,
        "pass_rate": summary.figures.pass_rate,
        "usage": summary.usage,
        "tests": [row for one in summary.made for row in flatten(one)],
    }


def flatten(one: Assertion) -> Iterator[Mapping[str, Any]]:
    demand = {n: v for n, v in asdict(one.demand).items() if n not in ("position", "given")}
    yield {
        "id": one.case.id,
        "input": one.case.input,
        "output": one.case.candidates[0],
        "reference": one.case.reference,
        "context": one.case.context,
        **demand,
        "score": one.score,
        "passed": one.passed,
        "verdict": one.verdict,
        "status": one.result.kind if isinstance(one.result, Failure) else "scored",
        "reason": one.reason or None,
        "calls": one.usage.calls,
        "tokens": one.usage.tokens,
        "cost": one.usage.cost,
    }


STUDY = Study(
    aggregates=True,
    spec=AssertionsSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=json_decoder(Assertion),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    rows=lambda records, _variants: map(make_row, records),
)
