"""Assertions: single texts, each before a judge of its own and against a score of its own, as tests
make them; a record for each.

A session of tests keeps its run itself, since nobody knows its cases before they come
(`api.assertions`); what is here judges one, shows what was found, and goes on with such a run. A
case's parameters are the `Demand`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from textevolve.debate.context import prompts_version as debate_prompts
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage, failure_of
from textevolve.judge_specs import check_absolute, with_model
from textevolve.judges.context import prompts_version as judge_prompts
from textevolve.report import wording
from textevolve.report.blocks import Block, Entry, Matrix, MatrixRow, Report, Texts
from textevolve.spec import option
from textevolve.studies.aggregates import Aggregates, say_mean
from textevolve.studies.case_rows import read_cases
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_codec
from textevolve.wiring import Workbench


class AssertionsSpec(StudySpec):
    """Judge texts one by one, each by a judge of its own and against a score of its own.

    A test session makes such runs by itself. In a file each case has one candidate, and under
    parameters the judge, and min_score or rubric.
    """

    kind: ClassVar[str] = "assertions"

    cases: str = option(
        "",
        "A file of cases, each with one candidate and its judge: .jsonl, .json, .csv or .parquet.",
        argument=True,
        identity=False,
        reads=True,
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """How a text is to be judged, and what is asked of it.

    `model` is for a judge that names none; empty: the run's. `min_score` in [0, 1]; None: the judge
    says itself what passes. `asserted`: False where the score was only asked for. `position`: the
    place in the session. `given`: what an evaluator of the user's own said, whose answers no
    journal has.
    """

    judge: str
    model: str = ""
    rubric: str = ""
    min_score: float | None = None
    asserted: bool = True
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
        if not self.demand.asserted:
            return "judged"
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


def read_demand(case: Case) -> Demand:
    """
    Raises:
        InputError: the case's parameters say no judge, or it has several candidates.
    """
    if len(case.candidates) != 1:
        raise InputError(f"case {case.id}: an assertion is about one candidate")
    try:
        return _DEMAND.validate_python(dict(case.parameters))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"case {case.id}: parameters: {place}: {first['msg']}") from None


def write_demand(demand: Demand) -> dict[str, Any]:
    """The demand as a case's parameters."""
    return _DEMAND.dump_python(demand, mode="json", exclude_defaults=True)


def read_given(spec: AssertionsSpec) -> Iterator[Case]:
    if not spec.cases:
        raise InputError("no assertions: name a file of cases, or make them in tests with pytest")
    for number, case in enumerate(read_cases(spec.cases)):
        demand = replace(read_demand(case), position=number)
        yield replace(case, parameters=write_demand(demand))


def ask(_spec: AssertionsSpec) -> Asks:
    own = {f"judges.{name}": version for name, version in judge_prompts().items()}
    return Asks(writes=True, prompts={**debate_prompts(), **own})


async def run(
    _spec: AssertionsSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Assertion]:
    async def work(case: Case) -> Assertion:
        demand = read_demand(case)
        try:
            return await judge_case(case, demand, bench)
        except FatalModelError:
            raise
        except (ModelError, BudgetError, InputError) as error:
            return Assertion(case, demand, failure_of(error))

    async with aclosing(stream(cases, work, bench.concurrency, ordered=bench.ordered)) as found:
        async for assertion in found:
            yield assertion


def find_row(one: Assertion) -> Row:
    id, place = one.case.id, one.demand.position
    if isinstance(one.result, Failure):
        return Row(id, place, id, status=one.result.kind, reason=one.result.reason)
    passed = one.passed if one.demand.asserted else None
    return Row(id, place, id, one.result.score, reason=one.result.feedback, passed=passed)


@dataclass
class Assertions:
    """What a session asserted. `counts`: by verdict; those that are only `judged` ask nothing.
    `figures`: the mean of all scores there are, and the share that passed of what was asserted."""

    made: list[Assertion] = field(default_factory=list[Assertion])
    figures: Aggregates = field(default_factory=Aggregates)
    usage: Usage = Usage()

    @property
    def counts(self) -> dict[str, int]:
        verdicts = [one.verdict for one in self.made]
        return {name: verdicts.count(name) for name in ("passed", "failed", "not judged", "judged")}

    @property
    def asserted(self) -> int:
        return sum(one.demand.asserted for one in self.made)


def summarise(_spec: AssertionsSpec, records: Iterable[Assertion]) -> Assertions:
    found = Assertions()
    for one in records:
        found.made.append(one)
        found.figures.add(find_row(one))
        found.usage += one.usage
    return found


def say_counts(found: Assertions) -> str:
    """In one line: how many there are, how they ended, the mean score."""
    counts = found.counts
    said = [wording.count(found.asserted, "assertion")] if found.asserted else []
    said += [f"{counts[name]:,} {name}" for name in ("passed", "failed") if counts[name]]
    said += [f"{counts['not judged']:,} could not be judged"] if counts["not judged"] else []
    said += [f"{wording.count(counts['judged'], 'text')} only judged"] if counts["judged"] else []
    mean = say_mean(found.figures.mean)
    return ", ".join([*said, mean] if mean else said) or "no assertions"


def report(_spec: AssertionsSpec, found: Assertions) -> Report:
    facts = {
        "Judges": ", ".join(sorted({one.demand.judge for one in found.made})),
        "Used": f"{wording.count(found.usage.calls, 'call')}, {wording.spent(found.usage)}",
    }
    return Report("Assertions of a session", say_counts(found), _show(found), facts)


def _show(found: Assertions) -> Iterator[Block]:
    """The tests as the rows of a matrix, those first that somebody has to look at."""
    order = ("not judged", "failed", "passed", "judged")
    made = sorted(found.made, key=lambda one: order.index(one.verdict))
    yield Matrix("Tests", ("output",), (_row(one) for one in made))


def _row(one: Assertion) -> MatrixRow:
    case, demand = one.case, one.demand
    texts = (("Context", case.context), ("Rubric", demand.rubric))
    told = [(name, text) for name, text in texts if text]
    return MatrixRow(
        id=case.id,
        input=case.input,
        entries=(_entry(one),),
        reference=case.reference or "",
        facts={name: said for name, said in _facts(one).items() if said},
        details=(Texts("", told),) if told else (),
    )


def _entry(one: Assertion) -> Entry:
    """The score is called so whoever judges, that tests of several judges can be sorted by it."""
    text = one.case.candidates[0]
    used = {"used": f"{wording.count(one.usage.calls, 'call')}, {wording.spent(one.usage)}"}
    if isinstance(one.result, Failure):
        return Entry(text, failure=one.reason, facts=used)
    reasons = {one.demand.judge: one.reason} if one.reason else {}
    passed = one.passed if one.demand.asserted else None
    return Entry(text, {"score": one.score}, passed, reasons, facts=used)


def _facts(one: Assertion) -> dict[str, str]:
    least = one.demand.min_score
    own = "what the judge lets pass" if one.demand.asserted else ""
    return {
        "at least": own if least is None else f"{least:g}",
        "judge": one.demand.judge,
        "model": one.demand.model,
    }


def data(_spec: AssertionsSpec, found: Assertions) -> Mapping[str, Any]:
    counts = {name.replace(" ", "_"): number for name, number in found.counts.items()}
    return {
        "assertions": found.asserted,
        **counts,
        "mean": found.figures.mean,
        "pass_rate": found.figures.pass_rate,
        "usage": found.usage,
        "tests": [row for one in found.made for row in flatten(one)],
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


encode, decode = json_codec(Assertion)

STUDY = Study(
    spec=AssertionsSpec,
    cases=read_given,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    rows=lambda found, _variants: map(_row, found),
)
