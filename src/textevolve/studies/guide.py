"""The guide study (guided reasoning): a model answers a question with a debate about possible
answers as the chain of thought in its prompt, and once without, so that both can be compared.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from pydantic_core import from_json, to_json

from textevolve.debate.profile import Profile, load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult, Turn, read_result, write_result
from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, BudgetError, CallError
from textevolve.evaluation import Case, Failure, Result, Usage, check_case, failure_of
from textevolve.events import StepFinished
from textevolve.judges.opening import describe_limit
from textevolve.llm.meter import UsageMeter
from textevolve.llm.model import Request, text_hash, text_request
from textevolve.llm.prompts import draw_nonce, fenced, load_template, prompt_versions
from textevolve.loops.attempt import failure_of_output, open_step, stop_if_skipped, within_time
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Block, Note, Report, Section, Texts
from textevolve.runs.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    last_record,
    note_step,
    record_reason,
    row_status,
    write_json,
)
from textevolve.spans import loop_span
from textevolve.spec import Count, Frozen, option
from textevolve.studies.evaluate_spec import AgentNames
from textevolve.texts.prose import join_lines
from textevolve.wiring import Workbench

Ending = Literal["done", "budget", "failed"]
"""How a guidance ended: completely, because of a limit, or because a step failed."""


class GuidancePlan(Frozen):
    """The options of answering a question with a debate."""

    proposals: Count = option(
        3,
        "The number of answers that are sampled for the debate if none are given.",
        group="Debate",
    )
    proposal_temperature: float = option(
        0.8,
        "The temperature at which the answers for the debate are sampled.",
        group="Advanced",
        ge=0,
        le=2,
    )
    temperature: float = option(
        0.0, "The temperature of the two final answers.", group="Advanced", ge=0, le=2
    )
    max_answer_tokens: Count = option(800, "The most tokens of an answer.", group="Advanced")
    seed: int = option(
        0, "The seed of the answers; another seed gives other answers.", group="Advanced"
    )


class GuideSpec(GuidancePlan, StudySpec):
    """Answer a question with a debate about possible answers as reasoning, and without.

    Known elsewhere as multi-agent debate as a chain of thought.
    """

    kind: ClassVar[str] = "guide"
    scored: ClassVar[bool] = False

    question: str = option(
        description="The question; @FILE reads it from a file, - from standard input.",
        argument=True,
        text="argument",
        identity=False,
    )
    candidates: tuple[str, ...] = option(
        (),
        "The answers to debate, each a text or @FILE; default: the model writes some.",
        argument=True,
        text="argument",
        identity=False,
    )
    profile: str | None = option(
        None,
        "The profile of the debate: a shipped one, or a YAML file; default: that of the settings.",
        short="-p",
        group="Debate",
    )
    agents: AgentNames | None = option(
        None,
        "Stored agents that debate instead of the profile's: acme/guide,acme/critic.",
        group="Debate",
        identity=False,  # the prompts' versions have the profile that they stand in
        metavar="NAME,...",
    )
    debate: Mapping[str, Any] = option(
        {},
        "A parameter of the profile with another value, such as rounds=1. Repeatable.",
        group="Advanced",
    )
    recall: str | None = option(
        None, "The memories that the agents recall from, in Python.", hidden=True
    )

    @model_validator(mode="after")
    def _usable(self) -> GuideSpec:
        read_profile(self)
        return self


def read_profile(spec: GuideSpec, otherwise: str = "general") -> Profile:
    agents = {} if spec.agents is None else {"agents": spec.agents}
    return override(load_profile(spec.profile or otherwise), {**agents, **spec.debate})


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer, or the reason why there is none."""

    text: str | None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Guided:
    """The result of a guidance. `candidates`: the discussed answers. `transcript`: the discussion.
    `plain`: the answer without the discussion, `guided`: the one with it; None if it was not
    reached. `left_out`: how many sampled answers were not discussed, and why. `reason`: why it did
    not end as `done`. `usage`: of the model, without the discussion."""

    question: str
    candidates: tuple[str, ...]
    transcript: str = ""
    plain: Answer | None = None
    guided: Answer | None = None
    status: Ending = "done"
    reason: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    left_out: str = ""


@dataclass(frozen=True)
class GuidedAnswer(Result):
    """The answers of a model with and without a debate (`made`), and the result of the debate; None
    if the run stopped before it."""

    made: Guided
    debate: DebateResult | None

    @property
    def answer(self) -> str | None:
        """The answer with the debate as its reasoning; None if there is none."""
        return self.made.guided.text if self.made.guided is not None else None

    @property
    def usage(self) -> Usage:
        return self.made.usage + (self.debate.usage if self.debate is not None else Usage())


def ask(spec: GuideSpec) -> Asks:
    profile = read_profile(spec)
    prompts = prompt_versions("loops")
    if spec.profile is not None or spec.agents is not None:  # the file may change
        prompts["profile"] = text_hash(profile.model_dump_json())[:12]
    debate_models = tuple(filter(None, profile.models(None)))
    collections = () if spec.recall is not None else profile.collections

    return Asks(
        (),
        debate_models,
        writes=True,
        prompts=prompts,
        collections=collections,
        agents=profile.stored_agents,
    )


def read_cases(spec: GuideSpec) -> list[Case]:
    check_case(Case(spec.question, spec.candidates or ("x",)))
    return [Case(spec.question, spec.candidates, "1")]


async def run(
    spec: GuideSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[GuidedAnswer]:
    (case,) = cases
    debate = bench.debate_of(read_profile(spec, bench.settings.profile), spec.recall)
    guided = Guided(case.input, case.candidates)
    work = _Guidance(spec, bench, UsageMeter(bench.model), debate, guided)
    with loop_span("guide", input=case.input) as here:
        await work.run()
        here.note(status=work.made.status, reason=work.made.reason)
    yield GuidedAnswer(work.made, work.debated)


@dataclass
class _Guidance:
    """The state of a guidance. `model`: answers the question. `debated`: the result of the debate,
    once it was held."""

    spec: GuideSpec
    bench: Workbench
    model: UsageMeter
    debate: Debate
    made: Guided
    debated: DebateResult | None = None

    def _set(self, **changes: Any) -> None:
        self.made = replace(self.made, **changes)

    async def run(self) -> None:
        """Answer the question twice, with and without a debate. A failed step or a limit ends the
        work, and is recorded.

        Raises:
            FatalModelError: no call can succeed.
        """
        started = time.monotonic()

        try:
            async with within_time(self.bench.seconds_left):
                await self._work_through()
        except AnswerError as error:
            self._set(status="failed", reason=str(error))
        except BudgetError as error:
            self._set(status="budget", reason=str(error))

        self._set(usage=self.model.usage, seconds=time.monotonic() - started)

    async def _work_through(self) -> None:
        """Draw the candidates if there are none, answer without a debate, hold the debate, and
        answer with it.

        Raises:
            AnswerError: a step gave no usable text. BudgetError: a limit was reached.
        """
        hear = self.bench.listener
        question = self.made.question

        if not self.made.candidates:
            try:
                with open_step(hear, "generate", "candidates", number=self.spec.proposals):
                    self._set(candidates=await self._propose())
            except CallError as error:
                raise AnswerError(f"the model gave no candidate answer: {error}") from error

        candidates = self.made.candidates
        hear(StepFinished("", "candidates", candidates))
        answers = {"plain": await self._answer("plain", question)}

        try:
            with open_step(hear, "evaluate", "debate", candidates=len(candidates)):
                transcript = await self._discuss(candidates)
        except CallError as error:
            raise AnswerError(f"the debate gave nothing to reason with: {error}") from error

        nonce = draw_nonce((question, transcript), self.spec.seed)
        prompt = load_template("textevolve.loops", "guide").render(
            question=question, transcript=fenced("discussion", transcript, nonce)
        )
        self._set(transcript=transcript)
        answers["guided"] = await self._answer("guided", prompt)

        for name, answer in answers.items():
            if answer.failure is not None:
                raise AnswerError(
                    f"the model did not give the {name} answer: {answer.failure.reason}"
                )

    async def _propose(self) -> tuple[str, ...]:
        """Draw candidate answers from the model, each with its own seed; duplicates are dropped.

        Raises:
            CallError: no call gave a usable text. BudgetError: a limit was reached before all were
                drawn.
        """
        spec = self.spec

        async def draw(number: int) -> str | Failure:
            request = text_request(
                self.made.question,
                spec.max_answer_tokens,
                spec.seed + 1 + number,
                spec.proposal_temperature,
            )
            try:
                response = await self.model(request)
            except (CallError, BudgetError) as error:
                return failure_of(error)  # raised when the others are done, or they would be lost
            return failure_of_output(response, "--max-answer-tokens") or response.text.strip()

        work = [lambda n=n: draw(n) for n in range(spec.proposals)]
        drawn = await gather_bounded(work, self.bench.concurrency)
        stop_if_skipped(drawn)
        failures = [draft for draft in drawn if isinstance(draft, Failure)]
        texts = [draft for draft in drawn if isinstance(draft, str)]
        if failures:
            share = f"{len(failures)} of {len(drawn)} sampled answers"
            self._set(left_out=f"{share}, the first: {failures[0].reason}")
        if not texts:
            raise AnswerError(f"{self.model.name}: {failures[0].reason}")

        return tuple(dict.fromkeys(texts))

    async def _answer(self, name: Literal["plain", "guided"], prompt: str) -> Answer:
        """Ask for an answer, and record it by its name."""
        spec = self.spec
        hear = self.bench.listener
        with open_step(hear, "generate", "answers", of=name) as here:
            answer = await self._ask(
                text_request(prompt, spec.max_answer_tokens, spec.seed, spec.temperature)
            )
            here.note(output=answer.text, failure=answer.failure)

        self._set(**{name: answer})
        hear(StepFinished("", name, answer))

        return answer

    async def _ask(self, request: Request) -> Answer:
        try:
            response = await self.model(request)
        except CallError as error:
            return Answer(None, Failure("failed", str(error)))

        if failure := failure_of_output(response, "--max-answer-tokens"):
            return Answer(None, replace(failure, reason=f"{self.model.name}: {failure.reason}"))
        return Answer(response.text.strip())

    async def _discuss(self, candidates: tuple[str, ...]) -> str:
        """Hold a debate about the candidates, and return its transcript."""
        case = Case(self.made.question, candidates, "debate")
        self.debated = result = await self.debate(case)
        if result.stopped == "budget":
            raise BudgetError(describe_limit(result))
        if not any(turn.argument or turn.points for turn in result.turns):
            failure = next((t.failure for t in result.turns if t.failure), result.failure)
            raise AnswerError(failure.reason if failure else "no agent gave an argument")

        return write_transcript(result)


def write_transcript(result: DebateResult) -> str:
    """Write the arguments of a debate as plain text, in which responses have the labels that the
    agents saw. Scores are left out, since they are not reasons."""
    order = sorted(range(len(result.labels)), key=result.labels.__getitem__)
    parts = [f"Response {result.labels[j]}:\n{result.case.candidates[j]}" for j in order]
    parts += [
        _format_turn(result, turn, order)
        for turn in result.turns
        if turn.points or not turn.is_silent
    ]
    return "\n\n".join(parts)


def _format_turn(result: DebateResult, turn: Turn, order: Sequence[int]) -> str:
    lines = [f"Round {turn.round + 1}, {result.agents[turn.agent]}: {turn.argument}".rstrip()]
    for j in order if turn.points else ():
        points = turn.points[j]
        remarks = [
            f"{name}: {join_lines(text)}"
            for name, text in (
                ("good", points.strengths),
                ("bad", points.weaknesses),
                ("to change", points.instructions),
            )
            if text.strip()
        ]
        lines.append(f"- On Response {result.labels[j]}: " + "; ".join(remarks))

    return "\n".join(lines)


def find_row(record: GuidedAnswer) -> Row:
    return Row("1", case="1", status=row_status(record.made.status), reason=record.made.reason)


def encode(record: GuidedAnswer) -> bytes:
    debate = None if record.debate is None else from_json(write_result(record.debate))
    return to_json({"made": from_json(write_json(record.made)), "debate": debate})


def decode(body: bytes) -> GuidedAnswer:
    stored = from_json(body)
    debate = stored["debate"] and read_result(to_json(stored["debate"]))
    return GuidedAnswer(json_decoder(Guided)(to_json(stored["made"])), debate)


def report(spec: GuideSpec, record: GuidedAnswer) -> Report:
    """Return a report with both answers, and with the debate that one of them is based on."""
    result = record.made
    facts = {
        "Debate": f"about {wording.count(len(result.candidates), 'candidate')};"
        f" {_describe_debate(record)}"
    }

    if result.left_out:
        facts["Left out"] = result.left_out
    if (
        result.plain is not None
        and result.guided is not None
        and result.plain.text == result.guided.text
    ):
        facts["Note"] = "both answers are the same, word for word"

    sentence = f"Not finished: {result.reason}" if result.status != "done" else ""

    return Report(wording.shorten(result.question, 120), sentence, list(_draw(record)), facts)


def _draw(record: GuidedAnswer) -> Iterator[Block]:
    result = record.made
    answers = (("without the debate", result.plain), ("with the debate", result.guided))
    if result.transcript:
        transcript = Texts("", [("", result.transcript)])
        about = Note("It is part of the prompt of the second answer.")
        yield Section("The debate", [about, transcript], folded=True)

    yield Texts("Answers", [(name, _format_answer(answer)) for name, answer in answers])


def _describe_debate(record: GuidedAnswer) -> str:
    if record.debate is None:
        return "not held"
    turns = sum(turn.failure is None for turn in record.debate.turns)
    return f"{turns} of {len(record.debate.turns)} turns gave usable arguments"


def _format_answer(answer: Answer | None) -> str:
    if answer is None:
        return "(not reached)"
    return answer.text or f"(none: {answer.failure.reason if answer.failure else ''})"


def data(spec: GuideSpec, record: GuidedAnswer) -> Mapping[str, Any]:
    result = record.made
    return {
        **read_fields(result, "status", "reason", "question", "candidates", "left_out"),
        "transcript": result.transcript,
        "plain": _answer(result.plain),
        "guided": _answer(result.guided),
        "usage": asdict(record.usage),
        "seconds": result.seconds,
    }


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {"text": answer.text, "failure": record_reason(answer.failure)}


def flatten(record: GuidedAnswer) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each of the two answers."""
    result = record.made
    for name, answer in (("plain", result.plain), ("guided", result.guided)):
        if answer is not None:
            yield {"question": result.question, "answer": name, **(_answer(answer) or {})}


STUDY = Study(
    spec=GuideSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=last_record,
    report=report,
    data=data,
    flat=flatten,
    note=note_step,
    texts={".txt": lambda _spec, record: f"{record.answer}\n" if record.answer else ""},
)
