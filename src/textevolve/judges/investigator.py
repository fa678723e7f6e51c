"""The judge `investigator`, an agent as a judge: it looks into a long record of an agent's work, or
into long passages, by three tools, and then decides about criteria.

Other judges see a call cut at a number of characters, or a context that may not fit the model.
This one sees beginnings first, and asks for what it wants to read, at most so many times. The
tools are answered here from the case alone, and each look is a call of the model, in one growing
chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult
from textevolve.json_texts import write_text
from textevolve.judges.context import (
    LOOKING_PROMPTS,
    JudgeContext,
    Judgement,
    ModelJudge,
    StrictAnswer,
    prompt,
)
from textevolve.judges.judge import judge, judge_option
from textevolve.judges.rubric import read_criteria, read_levels
from textevolve.llm.model import Message
from textevolve.llm.prompts import prompt_versions
from textevolve.texts.prose import join_lines
from textevolve.trajectory import Trajectory

LOOK_TOKENS = 300
"""The limit on an answer that asks for a look."""
VERDICT_TOKENS = 150
"""The limit on the part of an answer about one criterion."""
SHOWN = 4000
"""The most characters of a section that one look shows."""
TITLES = 40
"""The most titles that one look lists."""
MATCHES = 20
"""The most places that a search shows."""
BEGINNING = 120
"""The characters of its text that are listed with a title."""
AROUND = 80
"""The characters that a search shows on either side of a match."""
PIECE = 8000
"""The characters of the sections into which a context without passages is divided."""


@judge("investigator", help="an agent that looks into long records or contexts")
@dataclass(frozen=True)
class InvestigatorJudge(ModelJudge):
    """A judge that reads tool calls, failed steps and passages by looking into them, and answers
    yes or no to each criterion: a line of the user's rubric, otherwise of the shipped rubric
    `trajectory`. The score is the share of yes. A text about which it does not decide has no
    score."""

    shipped: ClassVar[str] = "trajectory"
    by_criteria: ClassVar[bool] = True

    rubric: str = judge_option("", "criteria that replace those of `trajectory`", file=True)
    looks: Annotated[int, Field(ge=1, le=100)] = judge_option(
        10, "the most looks for each text; a look is a call"
    )

    @property
    def reads_trajectory(self) -> bool:
        return True

    @property
    def prompts(self) -> dict[str, str]:
        return prompt_versions("judges", "rules", *LOOKING_PROMPTS)

    def show_case(self, case: Case) -> Case:
        """Return the case as it is.

        Raises:
            InputError: there is nothing to look into.
        """
        list_sections(case)
        return case

    async def judge(self, context: JudgeContext) -> Judgement:
        # Without levels, since the answers are yes or no.
        lines = [read_levels(line).text for line in read_criteria(context.rubric)]
        criteria = tuple(dict.fromkeys(lines))

        async def investigate(candidate: int) -> EvaluationResult:
            return await _investigate(context, self.looks, criteria, candidate)

        outcomes = await context.each_candidate(investigate)

        return context.judgement(outcomes, criteria=criteria)


@dataclass(frozen=True, slots=True)
class RecordPart:
    """A part of what is looked into. `title`: its kind, and the name of a called tool."""

    title: str
    text: str


def list_sections(case: Case) -> list[RecordPart]:
    """Return the tool calls with their results, the failed steps and the passages of a case.

    Raises:
        InputError: it has none of these.
    """
    trajectory = case.trajectory or Trajectory()
    sections = [
        RecordPart(f"call of {call['name']}", write_text(call))
        for call in trajectory.as_row().get("tool_calls", ())
    ]
    sections += [RecordPart("failed step", error) for error in trajectory.errors]
    context = case.context or ""
    pieces = [context[at : at + PIECE] for at in range(0, len(context), PIECE)]
    passages = trajectory.contexts or pieces
    sections += [RecordPart("passage", text) for text in passages]
    if not sections and trajectory.tool_calls is None:
        raise InputError(
            "the judge investigator needs tool_calls, contexts or a context to look into, and the"
            " case has none"
        )

    return sections


class _Verdict(StrictAnswer):
    reason: str
    answer: Literal["yes", "no"]


class _Step(StrictAnswer):
    """What the model wants to do next."""

    action: Literal["list", "read", "search", "decide"]
    section: int = 1
    start: int = 0
    text: str = ""
    verdicts: tuple[_Verdict, ...] = ()


@lru_cache
def _decision_type(number: int) -> type[Any]:
    """Return the type of a decision about so many criteria."""
    verdicts = Annotated[list[_Verdict], Field(min_length=number, max_length=number)]
    fields: Any = {"verdicts": (verdicts, ...)}
    return create_model("Decision", __base__=StrictAnswer, **fields)


async def _investigate(
    context: JudgeContext, looks: int, criteria: Sequence[str], candidate: int
) -> EvaluationResult:
    """Let the model look until it decides, or has no look left, and return its decision.

    Raises:
        AnswerError: it gave no usable answer. ModelError: a call failed.
    """
    sections = list_sections(context.case)
    numbered = "\n".join(f"{n}. {text}" for n, text in enumerate(criteria, 1))
    opening = prompt("investigate").render(
        instruction=context.quoted_instruction,
        response=context.quoted_response(candidate),
        sections=len(sections),
        titles=context.quoted(_list(sections, 1)),
        criteria=numbered,
        looks=looks,
    )
    messages = (context.system(quoted=True), context.user(opening, candidates=(candidate,)))
    steps: list[_Step] = []
    tokens = LOOK_TOKENS + VERDICT_TOKENS * len(criteria)

    while len(steps) < looks:
        step = await context.ask(messages, tokens, _Step)
        if step.action == "decide":
            break
        steps.append(step)
        left = looks - len(steps)
        shown = prompt("look").render(shown=context.quoted(_look(sections, step)), left=left)
        said = step.model_dump_json(exclude={"verdicts"})
        messages = (*messages, Message("assistant", (said,)), Message("user", (shown,)))
    else:
        step = _Step(action="decide")

    verdicts = step.verdicts
    if len(verdicts) != len(criteria):  # not all decided, or no look left
        ask_now = Message("user", (prompt("decide_now").render(number=len(criteria)),))
        messages = (*messages, ask_now)
        decision: Any = await context.ask(messages, tokens, _decision_type(len(criteria)))
        verdicts = decision.verdicts

    return _weigh(context, criteria, verdicts, steps, len(sections))


def _weigh(
    context: JudgeContext,
    criteria: Sequence[str],
    verdicts: Sequence[_Verdict],
    steps: Sequence[_Step],
    number: int,
) -> EvaluationResult:
    score = sum(verdict.answer == "yes" for verdict in verdicts) / len(criteria)
    lines = [
        f"{text} {verdict.answer}: {verdict.reason}"
        for text, verdict in zip(criteria, verdicts, strict=True)
    ]

    # A model may ask for a section that does not exist; that one was not read.
    requested = {step.section for step in steps if step.action == "read"}
    read = sorted(requested & set(range(number + 1)))
    lines.append(f"{len(steps)} looks; read {len(read)} of {number} sections")

    taken = [step.model_dump(exclude={"verdicts"}) for step in steps]
    return context.result(score, lines, looks=taken, read=read, sections=number)


def _look(sections: Sequence[RecordPart], step: _Step) -> str:
    """Return what a tool shows."""
    if step.action == "search":
        return _search(sections, step.text)
    number = max(step.section, 1)
    if number > len(sections):
        return f"There is no section {number}; there are {len(sections)}."

    if step.action == "list":
        return _list(sections, number)

    text = sections[number - 1].text
    start = min(max(step.start, 0), len(text))
    end = min(start + SHOWN, len(text))
    return f"Section {number}, characters {start} to {end} of {len(text)}:\n{text[start:end]}"


def _list(sections: Sequence[RecordPart], first: int) -> str:
    """Return the titles and the beginnings of sections, from a number on."""
    rest = list(enumerate(sections, 1))[first - 1 :]
    lines = [
        f"{n}. {section.title}, {len(section.text):,} characters:"
        f" {join_lines(section.text[:BEGINNING])}"
        for n, section in rest[:TITLES]
    ]
    return "\n".join([*lines, *_count_more(len(rest) - TITLES, "sections")])


def _search(sections: Sequence[RecordPart], words: str) -> str:
    """Return the places where words occur, in small or capital letters."""
    if not words.strip():
        return "Name in the field text what to search for."
    matches = list(_find_all(sections, words.strip()))
    if not matches:
        return f"Nothing found for {words.strip()!r}."
    return "\n".join([*matches[:MATCHES], *_count_more(len(matches) - MATCHES, "places")])


def _find_all(sections: Sequence[RecordPart], words: str) -> Iterator[str]:
    for number, section in enumerate(sections, 1):
        # Lower case may have another length, and then no place would be right.
        lower = section.text.lower()
        text = section.text if len(lower) == len(section.text) else lower
        at = lower.find(words.lower())
        while at >= 0:
            around = text[max(0, at - AROUND) : at + len(words) + AROUND]
            yield f"Section {number}, character {at}: {join_lines(around)}"
            at = lower.find(words.lower(), at + len(words))


def _count_more(number: int, noun: str) -> list[str]:
    return [f"{number} more {noun}"] if number > 0 else []
