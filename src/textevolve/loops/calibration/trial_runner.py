"""A program with named templates, of which a plain prompt has one, and trying templates on rows:
outputs generated, then judged or graded, each step as one batch. Programs of other kinds (a chain,
a graph, a function) are adapted where they are known.

An output is made exactly as it would be in use: the filled template is the whole prompt. A judge
sees it only as a candidate of a `Case`. Failures are recorded. One that the output itself is to
blame for (it is empty, or the metric cannot read it) counts as 0 unless that is unwanted: else a
template that says nothing where it is unsure would win. One of transport is no score.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, TypeVar

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    BudgetError,
    CallError,
    InputError,
    RejectedError,
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
)
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.reasoning import why_without_text
from textevolve.loops.attempt import TIME_IS_UP
from textevolve.loops.calibration.examples import Example
from textevolve.loops.placeholders import fill
from textevolve.loops.scoring import outcome_of, reasons_of
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
class TraceStep:
    """One use of a template within a program: the prompt that it made, and what came of it."""

    template: str
    prompt: str
    output: str


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program gives for a row. `trace`: how it came about, where a program has steps."""

    response: Response
    trace: tuple[TraceStep, ...] = ()


class ProgramError(AnswerError):
    """A program gave nothing that can be used; `trace`: how far it came."""

    def __init__(self, reason: str, trace: tuple[TraceStep, ...]) -> None:
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
JudgedInput = Literal["seed", "filled", "template"]
"""What a judge sees as the input: the original template filled with the row, the candidate template
filled with it, or the candidate template as it stands, with the outputs of all its rows as the
candidates of one case."""
CountFailures = Literal["zero", "missing"]
"""What an output counts that cannot be scored by its own fault: 0, or it leaves the means."""
STAGE, TRIAL = "stage", "trial"


class OutputFailure(Failure):
    """Why there is no score, where the output, or the prompt that its template made, is to blame:
    it is empty, refused, too long, or nothing that a metric can read."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A template's output on one row. `reasons`: what the metric said of it, then a judge, if one
    was asked.
    `counts_zero`: where there is no score by the output's own fault, it is 0. `trace`: how the
    output came about, where the program has steps."""

    example: Example
    output: str | None
    result: EvaluationResult | Failure
    reasons: str = ""
    counts_zero: bool = True
    trace: tuple[TraceStep, ...] = ()

    @property
    def score(self) -> float | None:
        if isinstance(self.result, EvaluationResult):
            return self.result.score
        return 0.0 if self.counts_zero and isinstance(self.result, OutputFailure) else None

    @property
    def failure(self) -> Failure | None:
        return self.result if isinstance(self.result, Failure) else None


@dataclass
class TrialRunner:
    """What it takes to try a template. With a `metric` it gives the score, and `evaluator`, where
    there is one, only reasons. Outputs are remembered and not asked for again. `deadline`: by the
    monotonic clock; from then on nothing more is asked. `debate_rounds`: of a debate's arguments
    those of the last so many rounds are reasons, too."""

    program: Program
    evaluator: Evaluator | None
    metric: LabelMetric | None
    judged: JudgedInput = "seed"
    concurrency: int = 64
    listener: Listener = silence
    deadline: float | None = None
    failures: CountFailures = "zero"
    debate_rounds: int = 1
    usage: Usage = field(default_factory=Usage)
    traces: dict[tuple[Templates, str], tuple[TraceStep, ...]] = field(
        default_factory=dict[tuple[Templates, str], tuple[TraceStep, ...]]
    )
    outputs: dict[tuple[Templates, str], ProgramOutput] = field(
        default_factory=dict[tuple[Templates, str], ProgramOutput]
    )

    async def run_batch(
        self, name: str, work: Sequence[Callable[[], Awaitable[T]]], **details: object
    ) -> list[T]:
        """All of a stage at once, as far as the limit of calls in flight allows."""
        self.listener(StepStarted("", STAGE, {"stage": name, "pieces": len(work), **details}))
        return await gather_bounded(work, self.concurrency)

    async def ask_all(
        self, name: str, work: Sequence[Callable[[], Awaitable[T]]], **details: object
    ) -> list[T | Failure]:
        """As `run_batch`; what a model refuses, or a limit forbids, fails alone.

        Raises:
            FatalModelError: no call can succeed.
        """

        async def ask(piece: Callable[[], Awaitable[T]]) -> T | Failure:
            try:
                self.check_time()
                return await piece()
            except (CallError, BudgetError) as error:
                return failure_of(error)

        return await self.run_batch(name, [partial(ask, piece) for piece in work], **details)

    def check_time(self) -> None:
        """Raises BudgetError once the deadline has passed."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise BudgetError(TIME_IS_UP)

    async def try_all(
        self, pairs: Sequence[tuple[Templates, Example]], *, reasons: bool = False
    ) -> list[TrialOutcome]:
        """The outcome of each pair of template and row. `reasons`: ask the judge for reasons even
        where a metric gives the score.

        Raises:
            BudgetError: a limit kept some from being asked; what was answered is in the journal.
            FatalModelError: no call can succeed.
        """
        judge = self.evaluator if reasons or self.metric is None else None
        if judge is not None and self.judged == "template":
            outcomes = await self._try_together(judge, pairs)
        else:
            tried = await self.ask_all(
                "outputs", [partial(self._try, judge, *pair) for pair in pairs], judged=judge
            )
            outcomes = [
                self._failed(*pair, outcome) if isinstance(outcome, Failure) else outcome
                for outcome, pair in zip(tried, pairs, strict=True)
            ]
        stop_if_skipped([outcome.result for outcome in outcomes])
        for outcome in outcomes:
            self.listener(StepFinished(outcome.example.id, TRIAL, outcome))
        return outcomes

    async def _try(
        self, judge: Evaluator | None, templates: Templates, example: Example
    ) -> TrialOutcome:
        """One output, judged as soon as it is there."""
        output = await self._generate(templates, example)
        if isinstance(output, Failure):
            return self._failed(templates, example, output)
        if judge is None:
            return await self._outcome(example, output, None)
        ((case, _),) = self._cases([(templates, example)], {0: output.response.text})
        (judged,) = await self._judge(judge, case)
        stop_if_skipped([judged])
        return await self._outcome(example, output, judged)

    async def _try_together(
        self, judge: Evaluator, pairs: Sequence[tuple[Templates, Example]]
    ) -> list[TrialOutcome]:
        """All outputs first, since those of one template are judged as one case."""
        outputs = await self.ask_all("outputs", [partial(self._generate, *pair) for pair in pairs])
        stop_if_skipped(outputs)
        texts = {n: o.response.text for n, o in enumerate(outputs) if isinstance(o, ProgramOutput)}
        results = await self.judge(judge, pairs, texts)
        return [
            self._failed(templates, example, output)
            if isinstance(output, Failure)
            else await self._outcome(example, output, results[n])
            for n, (output, (templates, example)) in enumerate(zip(outputs, pairs, strict=True))
        ]

    async def judge(
        self, judge: Evaluator, pairs: Sequence[tuple[Templates, Example]], texts: dict[int, str]
    ) -> dict[int, EvaluationResult | Failure]:
        """What the judge says of each of the texts, by the number of its pair.

        Raises:
            BudgetError, FatalModelError: as `try_all`.
        """
        cases = self._cases(pairs, texts)
        judged = await self.run_batch("judge", [partial(self._judge, judge, c) for c, _ in cases])
        found = dict[int, EvaluationResult | Failure]()
        for (_, numbers), results in zip(cases, judged, strict=True):
            found.update(zip(numbers, results, strict=True))
        stop_if_skipped(list(found.values()))
        return found

    def _cases(
        self, pairs: Sequence[tuple[Templates, Example]], texts: dict[int, str]
    ) -> list[tuple[Case, list[int]]]:
        """The cases to be judged, each with the numbers of the pairs that its candidates are of."""
        if self.judged == "template":
            groups = dict[Templates, list[int]]()
            for n in texts:
                groups.setdefault(pairs[n][0], []).append(n)
            return [
                (Case(templates.text, tuple(texts[n] for n in numbers)), numbers)
                for templates, numbers in groups.items()
            ]
        made: list[tuple[Case, list[int]]] = []
        for n, text in texts.items():
            templates, example = pairs[n]
            source = self.program.templates if self.judged == "seed" else templates
            asked = self.program.show(source, example)
            made.append((Case(asked, (text,), example.id), [n]))
        return made

    async def _generate(self, templates: Templates, example: Example) -> ProgramOutput | Failure:
        key = (templates, example.id)
        if key in self.outputs:
            return self.outputs[key]
        try:
            output = await self.program.ask(templates, example, self.count)
        except (AnswerError, RejectedError) as error:
            self.traces[key] = error.trace if isinstance(error, ProgramError) else ()
            return OutputFailure("failed", str(error))
        if not output.response.text.strip():
            return OutputFailure("failed", why_without_text(output.response, "the output"))
        self.outputs[key] = output
        return output

    def count(self, usage: Usage) -> None:
        self.usage += usage

    async def _judge(self, judge: Evaluator, case: Case) -> list[EvaluationResult | Failure]:
        number = len(case.candidates)
        try:
            self.check_time()
            evaluation = await judge(case)
        except InputError as error:  # the texts cannot be judged
            return [OutputFailure("failed", str(error))] * number
        except (CallError, BudgetError) as error:
            return [failure_of(error)] * number
        except TextEvolveError:  # of the store or the settings: it would be the same for all
            raise
        except Exception as error:  # noqa: BLE001  the caller's own evaluator, on any text
            reason = f"the evaluator raised {type(error).__name__}: {error}"
            return [Failure("failed", reason)] * number
        self.usage += evaluation.usage
        if len(evaluation.result) != number:
            return [Failure("failed", "the evaluator did not judge every candidate")] * number
        return [self._told(evaluation, n) for n in range(number)]

    def _told(self, evaluation: Evaluation, index: int) -> EvaluationResult | Failure:
        """What is said of a candidate, with what a writer should know first in its feedback."""
        outcome = outcome_of(evaluation, index)
        if isinstance(outcome, Failure):
            return outcome
        return replace(outcome, feedback=reasons_of(evaluation, index, self.debate_rounds))

    async def _outcome(
        self, example: Example, output: ProgramOutput, judged: EvaluationResult | Failure | None
    ) -> TrialOutcome:
        text, trace = output.response.text, output.trace
        reasons = judged.feedback if isinstance(judged, EvaluationResult) else ""
        counts_zero = self.failures == "zero"
        if self.metric is None:
            assert judged is not None
            return TrialOutcome(example, text, judged, reasons, counts_zero, trace)
        graded = await grade_output(self.metric, text, example.label, row=example.known)
        if isinstance(graded, Failure):
            graded = OutputFailure(graded.kind, graded.reason)
        elif graded.feedback:
            reasons = "\n\n".join(filter(None, (graded.feedback, reasons)))
        return TrialOutcome(example, text, graded, reasons, counts_zero, trace)

    def _failed(self, templates: Templates, example: Example, failure: Failure) -> TrialOutcome:
        trace = self.traces.get((templates, example.id), ())
        counts_zero = self.failures == "zero"
        return TrialOutcome(example, None, failure, counts_zero=counts_zero, trace=trace)


def stop_if_skipped(results: Iterable[object]) -> None:
    """Raises BudgetError where a limit was reached, with the reason that was given."""
    for result in results:
        if isinstance(result, Failure) and result.kind == "skipped":
            raise BudgetError(result.reason)
