"""One cell of a comparison: an output is generated or taken, and graded by metrics and judges.

Which cells there are is planned in `compare`; what all of them come to is `compare_figures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from textevolve.debate.result import DebateResult
from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    TextEvolveError,
)
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    failure_of,
    refer_to_images,
)
from textevolve.judges.context import Judgement
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.trace import TraceRecorder
from textevolve.llm.model import Request
from textevolve.llm.usage_meter import UsageMeter
from textevolve.metrics.label_metrics import grade_output
from textevolve.metrics.shapes import LabelMetric
from textevolve.statistics.intervals import TIE
from textevolve.studies.chained import ask_chain, chain_response
from textevolve.user_code import OWN
from textevolve.wiring import Workbench

TIME_IS_UP = "the time limit is reached; resume the run to go on"


@dataclass(frozen=True, slots=True)
class Grade:
    """What one metric or judge said of an output; `failure`: why it gave no score."""

    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One cell of the matrix: what a variant gave for a row, and what was said of that.

    `score`, `passed` and `reason` are those of whoever decides, `grades` those of each metric and
    judge by its name. `failure`: why there is no output, or no score. `input`: what judges see as
    such, with its `images`. `cut`: the output ended at the token limit. `wins`: which share of a
    row's comparisons it won against other variants, where outputs were compared two at a time.
    `usage` and `seconds`: of the output alone; `judging`: of judging it, for outputs judged side by
    side with the first of them, with which the `debates` about all of them stand too, each by its
    judge as JSON."""

    position: int
    row: str
    variant: str
    prompt: str = ""
    model: str = ""
    sample: int = 0
    input: str = ""
    reference: str | None = None
    context: str | None = None
    images: tuple[str, ...] = field(default=(), repr=False)
    text: str = ""
    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    grades: Mapping[str, Grade] = field(default_factory=dict[str, Grade])
    wins: Mapping[str, float] = field(default_factory=dict[str, float])
    debates: Mapping[str, str] = field(default_factory=dict[str, str])
    failure: Failure | None = None
    cut: bool = False
    usage: Usage = Usage()
    judging: Usage = Usage()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell before it is filled: `request` is what to ask of its model, None for an output that
    there is already; or the `chain` that is asked. `values`: of its row, where they are known."""

    empty: Output
    request: Request | None = None
    chain: Chain | None = None
    values: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Scorers:
    """Who grades, each under its name: metrics; judges that see one output `alone`, or all of a row
    `together`. `decides`: whose score counts; `threshold`: from which score an output then passes,
    where the scorer's own verdict does not count."""

    metrics: Mapping[str, LabelMetric]
    alone: Mapping[str, Evaluator]
    together: Mapping[str, Evaluator]
    decides: str
    threshold: float | None = None


async def fill_cells(
    bench: Workbench, scorers: Scorers, group: Sequence[Planned]
) -> Sequence[Output]:
    """The cells of a group, whose outputs are judged side by side where a judge does that. What
    goes wrong is said in the cell.

    Raises:
        FatalModelError: no call can succeed.
    """
    fill = [partial(_fill_alone, bench, scorers, planned) for planned in group]
    made = list(await gather_bounded(fill, bench.concurrency))
    for name, judge in scorers.together.items():
        made = await _judge_together(name, judge, made)
    return [_conclude(output, scorers) for output in made]


async def _fill_alone(bench: Workbench, scorers: Scorers, planned: Planned) -> Output:
    output = await _make(bench, planned)
    if output.failure is not None:
        return output
    grades = dict[str, Grade]()
    for name, metric in scorers.metrics.items():
        graded = grade_output(metric, output.text, output.reference, row=_row_of(planned))
        grades[name] = _grade(await graded)
    used = Usage()
    for name, judge in scorers.alone.items():
        (found,), more, _ = await _judge(judge, output, (output.text,))
        grades[name], used = _grade(found), used + more
    return replace(output, grades=grades, judging=used)


def _row_of(planned: Planned) -> Mapping[str, Any]:
    """What a metric may see of a row: its values, or what an earlier run kept of it."""
    cell = planned.empty
    kept = {"input": cell.input, "reference": cell.reference, "context": cell.context}
    return planned.values or kept


async def _make(bench: Workbench, planned: Planned) -> Output:
    empty, request = planned.empty, planned.request
    if planned.chain is not None:
        return await _ask_chain(bench, planned.chain, planned)
    if request is None:
        return empty
    model = UsageMeter(bench.model_of(empty.model))
    try:
        if bench.seconds_left == 0:
            raise BudgetError(TIME_IS_UP)
        response = await model(request)
        if not response.text.strip():
            raise AnswerError("the output is empty")
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        return replace(empty, failure=failure_of(error), usage=model.usage)
    return replace(
        empty,
        text=response.text,
        cut=response.finish_reason == "length",
        usage=model.usage,
        seconds=model.seconds,
    )


async def _ask_chain(bench: Workbench, chain: Chain, planned: Planned) -> Output:
    empty, spent = planned.empty, TraceRecorder(chain.name, "chain")
    try:
        if bench.seconds_left == 0:
            raise BudgetError(TIME_IS_UP)
        outputs, trace = await ask_chain(
            bench, chain, planned.values, empty.row, sample=empty.sample, spent=spent
        )
        response = chain_response(chain, outputs, trace)
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        return replace(empty, failure=failure_of(error), usage=spent.usage)
    return replace(empty, text=response.text, usage=response.usage, seconds=response.seconds)


async def _judge(
    judge: Evaluator, output: Output, texts: tuple[str, ...]
) -> tuple[Sequence[EvaluationResult | Failure], Usage, Evaluation | None]:
    """A result for each text, what it took, and all that the judge gave, if anything."""
    case = Case(
        *(output.input, texts, output.row),
        reference=output.reference,
        context=output.context,
        images=output.images,
    )
    try:
        found = await judge(case)
    except FatalModelError:
        raise
    except (ModelError, BudgetError, InputError) as error:
        return [failure_of(error)] * len(texts), Usage(), None
    except TextEvolveError:
        raise
    except Exception as error:  # noqa: BLE001  the user's own evaluator, on any text
        raised = Failure("failed", f"the evaluator raised {type(error).__name__}: {error}")
        return [raised] * len(texts), Usage(), None
    return found.result, found.usage, found


async def _judge_together(name: str, judge: Evaluator, made: Sequence[Output]) -> list[Output]:
    """The outputs with this judge's grade of each that there is."""
    present = [output for output in made if output.failure is None]
    if not present:
        return list(made)
    if len(present) < 2:
        alone = Grade(failure=Failure("failed", "no other output of this row to compare it with"))
        return [_with_grade(o, name, alone) if o is present[0] else o for o in made]
    texts = tuple(output.text for output in present)
    results, used, found = await _judge(judge, present[0], texts)
    wins = dict[str, dict[str, float]]()
    for first, second, won in _comparisons(found):
        one, other = present[first].variant, present[second].variant
        wins.setdefault(one, {})[other], wins.setdefault(other, {})[one] = won, 1.0 - won
    graded = {
        output.variant: replace(
            _with_grade(output, name, _grade(result)),
            wins={**output.wins, **wins.get(output.variant, {})},
        )
        for output, result in zip(present, results, strict=True)
    }
    paid = graded[present[0].variant]
    said = {name: _debated(found)} if isinstance(found, DebateResult) else {}
    graded[present[0].variant] = replace(
        paid, judging=paid.judging + used, debates={**paid.debates, **said}
    )
    return [graded.get(output.variant, output) for output in made]


def _debated(found: DebateResult) -> str:
    return replace(found, case=refer_to_images(found.case)).to_json()


def _comparisons(found: Evaluation | None) -> Iterator[tuple[int, int, float]]:
    """The pairs that a judge compared in both orders, each with what the first of them won."""
    if not isinstance(found, Judgement):
        return
    pairs: Sequence[Mapping[str, Any]] = found.details.get("comparisons", ())
    for pair in pairs:
        odds = sum(pair["log_odds"]) / 2
        yield pair["first"], pair["second"], 0.5 if abs(odds) <= TIE else float(odds > 0)


def _with_grade(output: Output, name: str, grade: Grade) -> Output:
    return replace(output, grades={**output.grades, name: grade})


def _grade(found: EvaluationResult | Failure) -> Grade:
    if isinstance(found, Failure):
        return Grade(failure=found)
    return Grade(found.score, found.passed, found.feedback)


def _conclude(output: Output, scorers: Scorers) -> Output:
    """The output with the score, the verdict and the reason of whoever decides, whose grade comes
    first."""
    decided = output.grades.get(scorers.decides)
    if output.failure is not None or decided is None:
        return output
    if decided.failure is not None or decided.score is None:
        return replace(output, failure=decided.failure)
    own, threshold = decided.passed, scorers.threshold
    passed = own if threshold is None else decided.score >= threshold
    grades = {scorers.decides: decided, **output.grades}
    return replace(output, score=decided.score, passed=passed, reason=decided.reason, grades=grades)


def shown(scorer: str) -> str:
    """A metric's or judge's name for people."""
    return scorer.removeprefix(OWN)
