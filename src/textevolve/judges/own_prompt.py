"""Judges that ask for a label or a number, with a reason: by the user's own prompt, or by the
criterion of a check.

The user's prompt is a template with the columns of the row in braces, without expressions. A
paragraph after it asks for the answer as JSON.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from textevolve.errors import InputError
from textevolve.evaluation import LABEL, ROW, Case, EvaluationResult, Evaluator
from textevolve.json_texts import unpack_value
from textevolve.judges.context import (
    VERDICT_PROMPTS,
    JudgeContext,
    Judgement,
    ModelJudge,
    prompt,
)
from textevolve.judges.judge import judge, judge_argument, judge_option
from textevolve.llm.decisions import choice
from textevolve.llm.model import Message, Request
from textevolve.llm.prompts import prompt_versions
from textevolve.llm.structured import ask_structured
from textevolve.mappings import drop_none, map_values
from textevolve.rows import read_text
from textevolve.rows.columns import prompt_text
from textevolve.texts.numbers import read_number
from textevolve.texts.placeholders import fill, find_placeholders, placeholders_of

if TYPE_CHECKING:
    from textevolve.judges.opening import Judges

REASON_TOKENS = 600
"""The limit on the answer: a reason, and a label or a number."""
MOST_LEVELS = 20
"""The most whole numbers whose probabilities can be asked for."""
OUTPUTS = ("output", "outputs", "response", "candidate", "completion")
"""The names in a template for the text that is judged, here and in other tools."""
INPUTS = ("input", "inputs", "question", "request")
REFERENCES = ("reference", "reference_outputs", "expectations", "ground_truth", "expected")


@dataclass(frozen=True, slots=True)
class Scale:
    """What a judge may answer. `pairs`: each label with its score in [0, 1]; empty for a number
    from `low` to `high`, whose score is its place between them."""

    pairs: tuple[tuple[str, float], ...] = ()
    low: float = 0.0
    high: float = 1.0

    @property
    def labels(self) -> dict[str, float]:
        return dict(self.pairs)

    def score(self, number: float) -> float:
        return (number - self.low) / (self.high - self.low)

    @property
    def levels(self) -> Mapping[str, float]:
        """The score of each label, or of each whole number.

        Raises:
            InputError: there are too many whole numbers to ask for their probabilities.
        """
        if self.labels:
            return self.labels
        numbers = range(int(self.low), int(self.high) + 1)
        if len(numbers) > MOST_LEVELS or (self.low, self.high) != (numbers[0], numbers[-1]):
            raise InputError(
                f"log-probabilities need labels, or at most {MOST_LEVELS} whole numbers such as"
                " numbers=1-5"
            )
        return {str(number): self.score(number) for number in numbers}


@lru_cache(maxsize=64)
def answer_type(scale: Scale) -> type[BaseModel]:
    """Return the type of an answer: a reason, and a label or a number."""
    reason: Any = (str, ...)
    if not scale.labels:
        bounded = Annotated[float, Field(ge=scale.low, le=scale.high)]
        fields = {"reason": reason, "number": (bounded, ...)}
    else:
        by_folded = {_fold(label): label for label in scale.labels}

        def find(value: Any) -> Any:
            return by_folded.get(_fold(value), value)

        labels: Any = Literal[tuple(scale.labels)]
        fields = {"reason": reason, "label": (Annotated[labels, BeforeValidator(find)], ...)}

    return create_model("Verdict", __config__=ConfigDict(extra="forbid"), **cast("Any", fields))


def _fold(label: object) -> str:
    return str(label).strip().strip(".\"'").casefold()


@dataclass(frozen=True)
class VerdictJudge(ModelJudge):
    """The base of judges that make one call for each candidate, whose answer is a label or a number
    with a reason. A label that is not on the scale is asked for again, and then missing."""

    @property
    def prompts(self) -> dict[str, str]:
        return prompt_versions("judges", *VERDICT_PROMPTS)

    @abstractmethod
    def find_scale(self) -> Scale:
        """Return what it may answer."""

    @abstractmethod
    def write_prompt(self, context: JudgeContext, candidate: int) -> tuple[Message, ...]:
        """Return the messages that ask about a candidate, without the form of the answer."""

    async def judge(self, context: JudgeContext) -> Judgement:
        async def ask(candidate: int) -> EvaluationResult:
            return await self.ask(context, self.write_prompt(context, candidate))

        return context.judgement(await context.each(range(len(context.case.candidates)), ask))

    async def ask(self, context: JudgeContext, messages: tuple[Message, ...]) -> EvaluationResult:
        scale = self.find_scale()
        labels = ", ".join(json.dumps(label, ensure_ascii=False) for label in scale.labels)
        form = prompt("verdict_label").render(labels=labels)
        if not scale.labels:
            form = prompt("verdict_number").render(low=f"{scale.low:g}", high=f"{scale.high:g}")
        *before, last = messages
        asking = Message(last.role, (*last.parts, f"\n\n{form}"), last.images)
        request = Request(
            messages=(*before, asking),
            temperature=0.0,
            max_tokens=REASON_TOKENS,
            seed=context.seed,
        )
        answer = (await ask_structured(context.model, request, answer_type(scale))).value
        reason = str(getattr(answer, "reason", ""))
        label = getattr(answer, "label", None)
        if label is None:
            number = float(getattr(answer, "number", 0.0))
            return context.result(scale.score(number), [f"{number:g}: {reason}"], number=number)

        return context.result(scale.labels[label], [f"{label}: {reason}"], label=label)


@dataclass(frozen=True)
class CriterionJudge(VerdictJudge):
    """The judge of a rubric in a check: whether a response meets one criterion, the rubric with
    which it is opened. It has no name, since checks open it."""

    def find_scale(self) -> Scale:
        return Scale((("yes", 1.0), ("no", 0.0)))

    def write_prompt(self, context: JudgeContext, candidate: int) -> tuple[Message, ...]:
        material = context.show(candidate, "")
        question = prompt("criterion").render(material=material, criterion=context.rubric)
        return context.system(quoted=True), context.user(question, candidates=(candidate,))


@judge("prompt:FILE", help="your own prompt, with labels or numbers")
@dataclass(frozen=True)
class PromptJudge(VerdictJudge):
    """A judge by a prompt of the user's: a template in a file, which shows `{output}`, and may show
    `{input}`, `{reference}`, `{context}` and the other columns of the row.

    Raises:
        InputError: it has neither labels nor numbers, or both, or they cannot be used.
    """

    file: str = judge_argument()
    labels: str = judge_option("", "the labels with their scores, such as good=1,partly=.5,bad=0")
    numbers: str = judge_option("", "the range of numbers, such as 1-5, instead of labels")
    logprobs: bool = judge_option(
        default=False, help="read the probabilities of the labels, without a reason"
    )

    def __post_init__(self) -> None:
        if bool(self.labels) == bool(self.numbers):
            raise InputError(
                f"judge {self.name}:{self.file}: write its labels or its numbers, as in"
                f" {self.name}:FILE+labels=good=1,partly=.5,bad=0 or {self.name}:FILE+numbers=1-5"
            )
        scale = self.find_scale()
        if self.logprobs:
            _ = scale.levels

    @property
    def reads_reference(self) -> bool:
        return True

    @property
    def reads_context(self) -> bool:
        return True

    @property
    def reads_row(self) -> bool:
        return True

    def find_scale(self) -> Scale:
        return read_labels(self.labels) if self.labels else read_range(self.numbers)

    @cached_property
    def template(self) -> str:
        return self.read_template()

    def read_template(self) -> str:
        """Read the prompt.

        Raises:
            InputError: the file cannot be read, or does not show the text to judge.
        """
        text = read_text(self.file)
        if not find_placeholders(text, OUTPUTS):
            raise InputError(
                f"judge prompt:{self.file}: the prompt does not show {{output}}, the text to judge"
            )
        return text

    def check(self) -> None:
        self.read_template()

    def describe(self) -> Mapping[str, Any]:
        return {"prompt": self.read_template()}

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        # A copy, which reads the file anew: it may have changed since the last run.
        opened = replace(self)
        _ = opened.template
        return ModelJudge.open(opened, bench, rubric)

    def write_prompt(self, context: JudgeContext, candidate: int) -> tuple[Message, ...]:
        values = map_values(prompt_text, list_values(context.case, candidate))
        missing = [name for name in placeholders_of(self.template) if name not in values]
        if missing:
            raise InputError(
                f"the prompt {self.file} shows {{{missing[0]}}}, and the row has no such value;"
                f" write {{ {missing[0]} }} with spaces if the braces are meant as text"
            )
        return (context.user(fill(self.template, values), candidates=(candidate,)),)

    async def ask(self, context: JudgeContext, messages: tuple[Message, ...]) -> EvaluationResult:
        if not self.logprobs:
            return await super().ask(context, messages)
        levels = self.find_scale().levels
        question = choice("label", "Which label is right?", tuple(levels))
        state = tuple(part for message in messages for part in message.parts)
        answers, odds = await context.decide(state, {"label": question})
        shares = dict(zip(levels, answers["label"].probabilities, strict=True))
        score = sum(share * levels[label] for label, share in shares.items())
        lines = [f"{label} {share:.0%}" for label, share in shares.items()]
        label = max(shares, key=lambda name: shares[name])

        return context.result(
            min(1.0, score), lines, odds.cut, label=label, shares=shares, **odds.told
        )


def list_values(case: Case, candidate: int) -> dict[str, Any]:
    """Return the values that a template may show, by name. A column of the row with one of the
    names of other tools has its own value."""
    names: dict[str, Any] = dict.fromkeys(REFERENCES, case.reference)
    names |= {"context": case.context}
    names |= dict.fromkeys(INPUTS, case.input)
    row: Mapping[str, Any] = unpack_value(case.parameters.get(ROW)) or {}
    names |= row
    if case.parameters.get(LABEL) is None and "reference" not in row:
        names["reference"] = case.reference
    names["input"] = case.input

    return drop_none(names) | dict.fromkeys(OUTPUTS, case.candidates[candidate])


def read_labels(text: str) -> Scale:
    """Read labels with their scores: `good=1,bad=0`, or a mapping in JSON.

    Raises:
        InputError: there are fewer than two, or a score is no number from 0 to 1.
    """
    labels: dict[str, float] = {}
    for name, value in _split_labels(text):
        try:
            labels[name.strip()] = read_number(str(value).strip())
        except ValueError:
            raise InputError(f"labels: '{name}={value}' is not of the form LABEL=SCORE") from None
    if len(set(map(_fold, labels))) < max(2, len(labels)) or "" in labels:
        raise InputError(f"labels: write two or more different labels, not '{text:.80}'")
    if not all(0 <= score <= 1 for score in labels.values()):
        raise InputError("labels: each score is a number from 0 to 1, such as partly=.5")

    return Scale(tuple(labels.items()))


def _split_labels(text: str) -> list[tuple[str, Any]]:
    if text.lstrip().startswith("{"):
        try:
            return list(json.loads(text).items())
        except (ValueError, AttributeError):
            raise InputError(f"labels: not valid JSON: {text:.80}") from None
    parts = [part.rpartition("=") for part in text.split(",")]
    return [(name, value) for name, _, value in parts]


def read_range(text: str) -> Scale:
    """Read a range of numbers such as `1-5` or `0-1`.

    Raises:
        InputError: it is no range.
    """
    match = re.fullmatch(r"\s*(-?[\d.]+)\s*(?:-|\.\.|,)\s*(-?[\d.]+)\s*", text)
    try:
        low, high = (float(part) for part in match.groups()) if match else (0.0, 0.0)
    except ValueError:
        low = high = 0.0
    if low >= high:
        raise InputError(f"numbers: write a range such as 1-5, the lowest first, not '{text:.40}'")

    return Scale((), low, high)
