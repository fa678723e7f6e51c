"""The guide study: a model answers a question with a debate as its chain of thought, and once
without.

`textevolve.loops.guidance` defines the order of the calls; this module opens the debate.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import model_validator
from pydantic_core import from_json, to_json

from textevolve.debate.profile import Profile, load_profile, override
from textevolve.debate.result import DebateResult, Turn, read_result, write_result
from textevolve.errors import AnswerError, BudgetError
from textevolve.evaluation import Case, Result, Usage, check_case
from textevolve.evaluators import describe_limit
from textevolve.loops.attempt import prompts_version
from textevolve.loops.guidance import (
    Answer,
    GuidanceContext,
    GuidancePlan,
    Guided,
    answer_guided,
)
from textevolve.report import wording
from textevolve.report.blocks import Block, Note, Report, Section, Texts
from textevolve.spans import loop_span
from textevolve.spec import option
from textevolve.studies.evaluate_spec import AgentNames
from textevolve.studies.study import (
    Asks,
    Row,
    Study,
    StudySpec,
    json_decoder,
    last_record,
    note_step,
    row_status,
    write_json,
)
from textevolve.wiring import Workbench


class GuideSpec(GuidancePlan, StudySpec):
    """Answer a question with a debate about possible answers as reasoning, and without.

    Known elsewhere as multi-agent debate as a chain of thought.
    """

    kind: ClassVar[str] = "guide"

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
    prompts = dict(prompts_version())
    if spec.profile is not None or spec.agents is not None:  # the file may change
        written = profile.model_dump_json().encode()
        prompts["profile"] = hashlib.sha256(written).hexdigest()[:12]
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
    debates: list[DebateResult] = []
    debate = bench.debate_of(read_profile(spec, bench.settings.profile), spec.recall)

    async def discuss(candidates: tuple[str, ...]) -> str:
        result = await debate(Case(case.input, candidates, "debate"))
        debates.append(result)
        if result.stopped == "budget":
            raise BudgetError(describe_limit(result))
        if not any(turn.argument or turn.points for turn in result.turns):
            failure = next((t.failure for t in result.turns if t.failure), result.failure)
            raise AnswerError(failure.reason if failure else "no agent gave an argument")
        return write_transcript(result)

    context = GuidanceContext(
        model=bench.model,
        discuss=discuss,
        concurrency=bench.concurrency,
        time_limit=bench.seconds_left,
        listener=bench.listener,
    )
    with loop_span("guide", input=case.input) as here:
        guided = await answer_guided(case.input, spec, context, case.candidates)
        here.note(status=guided.status, reason=guided.reason)
    yield GuidedAnswer(guided, debates[0] if debates else None)


def write_transcript(result: DebateResult) -> str:
    """Write the arguments of a debate as plain text, in which responses have the labels that the
    agents saw. Scores are left out, since they are not reasons."""
    order = sorted(range(len(result.labels)), key=result.labels.__getitem__)
    parts = [f"Response {result.labels[j]}:\n{result.case.candidates[j]}" for j in order]
    parts += [
        _format_turn(result, turn, order) for turn in result.turns if turn.argument or turn.points
    ]
    return "\n\n".join(parts)


def _format_turn(result: DebateResult, turn: Turn, order: Sequence[int]) -> str:
    lines = [f"Round {turn.round + 1}, {result.agents[turn.agent]}: {turn.argument}".rstrip()]
    for j in order if turn.points else ():
        points = turn.points[j]
        remarks = [
            f"{name}: {' '.join(text.split())}"
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
        "status": result.status,
        "reason": result.reason,
        "question": result.question,
        "candidates": result.candidates,
        "transcript": result.transcript,
        "plain": _answer(result.plain),
        "guided": _answer(result.guided),
        "usage": asdict(record.usage),
        "seconds": result.seconds,
    }


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {"text": answer.text, "failure": answer.failure.reason if answer.failure else None}


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
