"""The study of assertions in tests: each is a single text that a judge must give a minimum score,
and has a record of its own.

A test session writes its run itself, since its cases are not known in advance (`testing.judging`).
This module judges one assertion, reports on a run and resumes it. The parameters of a case hold its
`Demand`: the judge and the minimum score.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from pydantic import TypeAdapter

from textevolve.debate.context import debate_prompts
from textevolve.engine.local import stream
from textevolve.errors import InputError
from textevolve.evaluation import (
    CHECKS,
    Case,
    EvaluationResult,
    Failure,
    Result,
    Usage,
    attempt,
    empty_default,
    reaches,
)
from textevolve.judges.context import judge_prompts
from textevolve.judges.judge import parse_judge, require_absolute
from textevolve.loops.rules import take_checks
from textevolve.mappings import drop_empty, omit, read_fields
from textevolve.report import wording
from textevolve.report.blocks import Entry, Matrix, MatrixRow, Report, Texts
from textevolve.runs.aggregates import Aggregates, describe_mean
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, record_status
from textevolve.wiring import Workbench


class AssertionsSpec(StudySpec):
    """Judge texts one by one, each by its own judge and against its own minimum score.

    A test session makes such runs by itself.
    """

    kind: ClassVar[str] = "assertions"


@dataclass(frozen=True, slots=True)
class Demand:
    """The judge of an assertion's text, and the score that the text must reach.

    Attributes:
        model: The model of a judge that names none; empty: the run's model.
        min_score: The minimum score in [0, 1]; None: the judge's own verdict counts.
        position: The position of the assertion in the test session.
        checks: The checks of the text, for the judge that applies them.
        given: The result, if a user's own evaluator has judged the text; it is stored because the
            journal holds only answers of models.
    """

    judge: str
    model: str = ""
    rubric: str = ""
    min_score: float | None = None
    position: int = 0
    checks: tuple[Any, ...] = ()
    given: EvaluationResult | None = None


@dataclass(frozen=True, slots=True)
class Assertion:
    """A judged assertion: a case whose only candidate is the text, what the text must reach, and
    the judge's result."""

    case: Case
    demand: Demand
    result: EvaluationResult | Failure
    usage: Usage = Usage()

    @property
    def passed(self) -> bool | None:
        """True if the text reaches its minimum score, or, without one, if the judge's own verdict
        is that it passes; None if it was not judged."""
        if isinstance(self.result, Failure):
            return None
        least = self.demand.min_score
        return self.result.passed if least is None else reaches(self.result.score, least)

    @property
    def score(self) -> float | None:
        return self.result.score

    @property
    def verdict(self) -> str:
        if self.passed is None:
            return "not judged"
        return "passed" if self.passed else "failed"

    @property
    def reason(self) -> str:
        """The feedback of the judge, or the reason for a missing score."""
        return self.result.feedback


async def judge_case(case: Case, demand: Demand, bench: Workbench) -> Assertion:
    """Judge one assertion.

    Raises:
        InputError: the judge, or a text, cannot be used. ModelError, BudgetError: no answer came.
    """
    if demand.given is not None:
        return Assertion(case, demand, demand.given)
    demanded = parse_judge(demand.judge)
    require_absolute(demanded)
    judge = bench.whole_judge_of(demanded.with_model(demand.model or None), demand.rubric)
    checks = take_checks(demand.checks, None, {}, f"test {case.id}")
    parameters = {} if checks is None else {CHECKS: checks}
    judged = await judge(replace(case, parameters=parameters))
    (result,) = judged.result

    return Assertion(case, demand, result, judged.usage)


_DEMAND = TypeAdapter(Demand)
VERDICTS = ("not judged", "failed", "passed")
"""The verdicts in the order of the report: problems come first."""


def write_demand(demand: Demand) -> dict[str, Any]:
    """Return the demand as a case's parameters."""
    return _DEMAND.dump_python(demand, mode="json", exclude_defaults=True)


def read_cases(_spec: AssertionsSpec) -> list[Case]:
    """Refuse to start such a run from the command line.

    Raises:
        InputError: always, since tests add the cases of such a run one by one.
    """
    raise InputError("assertions are made in tests with pytest: see textevolve.testing")


def ask(_spec: AssertionsSpec) -> Asks:
    return Asks(writes=True, prompts=debate_prompts() | judge_prompts())


def run(
    _spec: AssertionsSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Assertion]:
    async def work(case: Case) -> Assertion:
        demand = _DEMAND.validate_python(dict(case.parameters))
        outcome = await attempt(judge_case(case, demand, bench), InputError)
        return Assertion(case, demand, outcome) if isinstance(outcome, Failure) else outcome

    return stream(cases, work, bench.concurrency, ordered=bench.ordered)


def find_row(assertion: Assertion) -> Row:
    return Row(
        assertion.case.id,
        assertion.demand.position,
        assertion.case.id,
        assertion.score,
        record_status(assertion.result),
        assertion.reason,
        passed=assertion.passed,
    )


@dataclass
class Assertions(Result):
    """The result of a test session: its assertions with the mean of all scores and the pass rate
    (`figures`), and the `usage` of the judges."""

    assertions: list[Assertion] = empty_default(list)
    figures: Aggregates = field(default_factory=Aggregates)
    usage: Usage = Usage()

    @property
    def counts(self) -> dict[str, int]:
        """The number of assertions by verdict."""
        verdicts = [assertion.verdict for assertion in self.assertions]
        return {name: verdicts.count(name) for name in VERDICTS}


def summarise(_spec: AssertionsSpec, records: Iterable[Assertion]) -> Assertions:
    summary = Assertions()
    for assertion in records:
        summary.assertions.append(assertion)
        summary.figures.add(find_row(assertion))
        summary.usage += assertion.usage

    return summary


def describe_counts(summary: Assertions) -> str:
    """Describe a session in one line: number of assertions, verdicts, mean score."""
    counts = summary.counts
    parts = {
        wording.count(len(summary.assertions), "assertion"): len(summary.assertions),
        f"{counts['passed']:,} passed": counts["passed"],
        f"{counts['failed']:,} failed": counts["failed"],
        f"{counts['not judged']:,} could not be judged": counts["not judged"],
        describe_mean(summary.figures.mean): summary.figures.mean.value is not None,
    }

    return ", ".join(part for part, is_present in parts.items() if is_present) or "no assertions"


def report(_spec: AssertionsSpec, summary: Assertions) -> Report:
    """Return a report with the tests as the rows of a matrix; problems come first."""
    facts = {
        "Judges": ", ".join(sorted({assertion.demand.judge for assertion in summary.assertions})),
    }
    ordered = sorted(summary.assertions, key=lambda assertion: VERDICTS.index(assertion.verdict))
    matrix = Matrix("Tests", ("output",), map(make_row, ordered))
    return Report("Assertions of a session", describe_counts(summary), [matrix], facts)


def make_row(assertion: Assertion) -> MatrixRow:
    """Return the matrix row of a test. Scores of all judges have the same name, so that tests can
    be sorted by score."""
    case = assertion.case
    demand = assertion.demand
    scores: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    failure = ""
    # Without a score the reason says why there is none.
    if assertion.score is None:
        failure = assertion.reason
    else:
        scores = {"score": assertion.score}
        reasons = drop_empty({demand.judge: assertion.reason})

    entry = Entry(
        case.candidates[0],
        scores,
        assertion.passed,
        reasons,
        failure,
        {"used": wording.used(assertion.usage)},
    )
    least = "" if demand.min_score is None else f"{demand.min_score:g}"
    facts = {"at least": least, "judge": demand.judge, "model": demand.model}
    texts = list(drop_empty({"Context": case.context, "Rubric": demand.rubric}).items())

    return MatrixRow(
        id=case.id,
        input=case.input,
        entries=(entry,),
        reference=case.reference or "",
        facts=drop_empty(facts),
        details=(Texts("", texts),) if texts else (),
    )


def data(_spec: AssertionsSpec, summary: Assertions) -> Mapping[str, Any]:
    return {
        "assertions": len(summary.assertions),
        **{name.replace(" ", "_"): number for name, number in summary.counts.items()},
        "usage": summary.usage,
        "tests": [row for assertion in summary.assertions for row in flatten(assertion)],
    }


def flatten(assertion: Assertion) -> Iterator[Mapping[str, Any]]:
    demand = omit(asdict(assertion.demand), ("position", "given"))
    yield {
        "id": assertion.case.id,
        "input": assertion.case.input,
        "output": assertion.case.candidates[0],
        **read_fields(assertion.case, "reference", "context"),
        **demand,
        **read_fields(assertion, "score", "passed", "verdict"),
        "status": record_status(assertion.result),
        "reason": assertion.reason or None,
        **read_fields(assertion.usage, "calls", "tokens", "cost"),
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
