"""A program with named templates, of which a plain prompt has one, and trying templates on rows:
outputs generated, then judged or graded, each step as one batch. Programs of other kinds (a chain,
a graph, a function) are adapted where they are known.

An output is made exactly as it would be in use: the filled template is the whole prompt. A judge
sees it only as a candidate of a `Case`. Failures are recorded. One that the output itself is to
blame for (it is empty, or the metric cannot read it) counts as 0: else a template that says nothing
where it is unsure would win. One of transport is no score.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    BudgetError,
    CallError,
    InputError,
    RejectedError,
)
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_case,
    failure_of,
)
from textevolve.events import Listener, StepStarted, silence
from textevolve.llm.chains.scope import PromptUse
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.reasoning import why_without_text
from textevolve.loops.attempt import ask_judge, outcome_of, reasons_of
from textevolve.loops.calibration.examples import Example
from textevolve.loops.placeholders import fill
from textevolve.metrics.label_metrics import grade_output
from textevolve.metrics.shapes import LabelMetric

PROMPT = "prompt"
"""The name of the only template of a plain prompt."""


@dataclass(frozen=True, slots=True)
class Templates:
    """The texts of a program's templates by their names, in the program's order; hashable."""

    parts: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        return dict(self.parts)[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parts)

    def with_text(self, name: str, text: str) -> Templates:
        """The same but for one text."""
        return replace(self, parts=tuple((n, text if n == name else t) for n, t in self.parts))

    def alike(self, other: Templates) -> bool:
        """Whether they are the same but for white space around each."""
        texts = [[text.strip() for _, text in one.parts] for one in (self, other)]
        return texts[0] == texts[1]

    @property
    def text(self) -> str:
        """All as one text for people: a single template as it is, several under their names."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        return "\n\n".join(f"# {name}\n{text}" for name, text in self.parts)


def plain_prompt(text: str) -> Templates:
    """A prompt's only template."""
    return Templates(((PROMPT, text),))


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program gives for a row. `trace`: how it came about, where a program has steps."""

    response: Response
    trace: tuple[PromptUse, ...] = ()


class ProgramError(AnswerError):
    """A program gave nothing that can be used; `trace`: how far it came."""

    def __init__(self, reason: str, trace: tuple[PromptUse, ...]) -> None:
        super().__init__(reason)
        self.trace = trace


class Program(Protocol):
    """Templates by name, and how a row is answered with them."""

    @property
    def templates(self) -> Templates:
        """The original ones."""
        ...

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        """What the program gives for a row with these templates in place of its own. `count` hears
        what was used, also by a program that failed.

        Raises:
            AnswerError: it gave nothing that can be used. ModelError, BudgetError: as its models.
        """
        ...

    def show(self, templates: Templates, example: Example, /) -> str:
        """What judges see as the input, under these templates."""
        ...


@dataclass(frozen=True)
class PromptProgram:
    """A template whose filled text is the whole prompt of one call."""

    templates: Templates
    model: Model
    temperature: float | None = 0.0
    max_output_tokens: int = 512
    seed: int = 0

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        request = Request(
            messages=(Message("user", (self.show(templates, example),)),),
            temperature=self.temperature,
            max_tokens=self.max_output_tokens,
            seed=self.seed,
        )
        response = await self.model(request)
        count(response.usage)
        return ProgramOutput(response)

    def show(self, templates: Templates, example: Example, /) -> str:
        return fill(templates[PROMPT], example.values)


T = TypeVar("T")
STAGE = "stage"


class OutputFailure(Failure):
    """Why there is no score, where the output, or the prompt that its template made, is to blame:
    it is empty, refused, too long, or nothing that a metric can read."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A template's output on one row. `trace`: how the output came about, where the program has
    steps."""

    example: Example
    output: str | None
    result: EvaluationResult | Failure
    trace: tuple[PromptUse, ...] = ()

    @property
    def score(self) -> float | None:
        if isinstance(self.result, EvaluationResult):
            return self.result.score
        return 0.0 if isinstance(self.result, OutputFailure) else None

    @property
    def failure(self) -> Failure | None:
        return self.result if isinstance(self.result, Failure) else None

    @property
    def reasons(self) -> str:
        """The words of the judge or the metric on the output."""
        return self.result.feedback if isinstance(self.result, EvaluationResult) else ""


@dataclass
class TrialRunner:
    """The means to try a template: `metric` or `evaluator` gives the score. Outputs are remembered
    and not asked for again."""

    program: Program
    evaluator: Evaluator | None
    metric: LabelMetric | None
    concurrency: int = 64
    listener: Listener = silence
    usage: Usage = field(default_factory=Usage)
    outputs: dict[tuple[Templates, str], ProgramOutput] = field(
        default_factory=dict[tuple[Templates, str], ProgramOutput]
    )

    async def ask_all(
        self, name: str, work: Sequence[Callable[[], Awaitable[T]]], **details: object
    ) -> list[T | Failure]:
        """All of a stage at once, as far as the limit of calls in flight allows; what a model
        refuses, or a limit forbids, fails alone.

        Raises:
            FatalModelError: no call can succeed.
        """

        async def ask(piece: Callable[[], Awaitable[T]]) -> T | Failure:
            try:
                return await piece()
            except (CallError, BudgetError) as error:
                return failure_of(error)

        self.listener(StepStarted("", STAGE, {"stage": name, "pieces": len(work), **details}))
        return await gather_bounded([partial(ask, piece) for piece in work], self.concurrency)

    async def try_all(self, pairs: Sequence[tuple[Templates, Example]]) -> list[TrialOutcome]:
        """The outcome of each pair of template and row, judged as soon as its output is there.

        Raises:
            BudgetError: a limit kept some from being asked; what was answered is in the journal.
            FatalModelError: no call can succeed.
        """
        work = [partial(self._try, *pair) for pair in pairs]
        tried = await self.ask_all("outputs", work, judged=self.evaluator)
        outcomes = [
            TrialOutcome(example, None, made) if isinstance(made, Failure) else made
            for (_, example), made in zip(pairs, tried, strict=True)
        ]
        stop_if_skipped([outcome.result for outcome in outcomes])
        return outcomes

    async def judge_outputs(
        self, judge: Evaluator, outcomes: Sequence[TrialOutcome]
    ) -> list[float | None]:
        """The scores that another judge gives to outputs; None where there is none.

        Raises:
            BudgetError, FatalModelError: as `try_all`.
        """
        texts = [(one.example, one.output) for one in outcomes if one.output is not None]
        work = [partial(self._judge, judge, example, text) for example, text in texts]
        judged = await self.ask_all("judge", work)
        stop_if_skipped(judged)
        left = iter(judged)
        results = [None if one.output is None else next(left) for one in outcomes]
        return [r.score if isinstance(r, EvaluationResult) else None for r in results]

    async def _try(self, templates: Templates, example: Example) -> TrialOutcome:
        """An output, and its judgement."""
        output, trace = await self._generate(templates, example)
        if isinstance(output, Failure):
            return TrialOutcome(example, None, output, trace)
        text = output.response.text
        if self.evaluator is not None:
            result = await self._judge(self.evaluator, example, text)
            return TrialOutcome(example, text, result, output.trace)
        assert self.metric is not None
        result = await grade_output(self.metric, text, example.label, row=example.known)
        if isinstance(result, Failure):
            result = OutputFailure(result.kind, result.reason)
        return TrialOutcome(example, text, result, output.trace)

    async def _generate(
        self, templates: Templates, example: Example
    ) -> tuple[ProgramOutput | Failure, tuple[PromptUse, ...]]:
        """An output, or why there is none; and of a program that failed how far it came."""
        key = (templates, example.id)
        if key in self.outputs:
            return self.outputs[key], ()
        try:
            output = await self.program.ask(templates, example, self.count)
        except (AnswerError, RejectedError) as error:
            trace = error.trace if isinstance(error, ProgramError) else ()
            return OutputFailure("failed", str(error)), trace
        except (CallError, BudgetError) as error:
            return failure_of(error), ()
        if not output.response.text.strip():
            return OutputFailure("failed", why_without_text(output.response, "the output")), ()
        self.outputs[key] = output
        return output, ()

    def count(self, usage: Usage) -> None:
        self.usage += usage

    async def _judge(
        self, judge: Evaluator, example: Example, text: str
    ) -> EvaluationResult | Failure:
        """Judge an output as the answer to the original templates, filled with the row: else a
        template could win by asking for something easier. The feedback is what a writer should know
        first."""
        case = Case(self.program.show(self.program.templates, example), (text,), example.id)
        try:
            check_case(case)
        except InputError as error:  # the text cannot be judged
            return OutputFailure("failed", str(error))
        evaluation = await ask_judge(judge, case)
        if isinstance(evaluation, Failure):
            return evaluation
        self.usage += evaluation.usage
        outcome = outcome_of(evaluation)
        if isinstance(outcome, Failure):
            return outcome
        return replace(outcome, feedback=reasons_of(evaluation, 0))


def stop_if_skipped(results: Iterable[object]) -> None:
    """Raises BudgetError where a limit was reached, with the reason that was given."""
    for result in results:
        if isinstance(result, Failure) and result.kind == "skipped":
            raise BudgetError(result.reason)
