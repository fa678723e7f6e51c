"""Judges that ask for a label, with a reason: by the user's own prompt, or by the criterion of a
check.

The user's prompt is a template with the columns of the row in braces, without expressions. A
paragraph after it asks for the answer as JSON.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, create_model

from textevolve.errors import InputError
from textevolve.evaluation import ROW, Case, EvaluationResult, Evaluator
from textevolve.json_texts import is_object, parse_text, unpack_value
from textevolve.judges.context import (
    VERDICT_PROMPTS,
    JudgeContext,
    Judgement,
    ModelJudge,
    StrictAnswer,
    prompt,
)
from textevolve.judges.judge import judge, judge_argument, judge_option
from textevolve.judges.opening import Judges
from textevolve.llm.decisions import choice
from textevolve.llm.model import Message
from textevolve.llm.prompts import prompt_versions
from textevolve.mappings import drop_none, map_values
from textevolve.messages import split_thought
from textevolve.rows import DATA_ENDINGS, read_text
from textevolve.rows.columns import prompt_text
from textevolve.texts.numbers import read_number
from textevolve.texts.placeholders import (
    fill,
    find_expression,
    find_placeholders,
    placeholders_of,
)

REASON_TOKENS = 600
"""The limit on the answer: a reason and a label."""
MOST_LEVELS = 101
"""The most numbers of a range."""
OUTPUTS = ("output", "outputs", "response", "candidate", "completion")
INPUTS = ("input", "inputs", "question", "request")
REFERENCES = ("reference", "reference_outputs", "expectations", "ground_truth", "expected")
"""The names in a template for the text that is judged (`OUTPUTS`), for the input and for the
reference, here and in other tools."""


@dataclass(frozen=True)
class LabelJudge(ModelJudge):
    """The base of judges that make one call for each candidate, whose answer is a label with a
    reason. A label that is none of the scale is asked for again, and then missing."""

    @property
    def prompts(self) -> dict[str, str]:
        return prompt_versions("judges", *VERDICT_PROMPTS)

    @abstractmethod
    def find_scale(self) -> Mapping[str, float]:
        """Return the score in [0, 1] of each label."""

    @abstractmethod
    def write_prompt(self, context: JudgeContext, candidate: int) -> tuple[Message, ...]:
        """Return the messages that ask about a candidate, without the form of the answer."""

    async def judge(self, context: JudgeContext) -> Judgement:
        async def ask(candidate: int) -> EvaluationResult:
            return await self.ask(context, self.write_prompt(context, candidate))

        return context.judgement(await context.each_candidate(ask))

    async def ask(self, context: JudgeContext, messages: tuple[Message, ...]) -> EvaluationResult:
        scale = self.find_scale()
        labels = ", ".join(json.dumps(label, ensure_ascii=False) for label in scale)
        *before, last = messages
        form = prompt("verdict_label").render(labels=labels)
        asking = replace(last, parts=(*last.parts, f"\n\n{form}"))
        answer: Any = await context.ask(
            (*before, asking), REASON_TOKENS, answer_type(scale), partial(read_marked, scale=scale)
        )
        feedback = f"{answer.label}: {answer.reason}"

        return context.result(scale[answer.label], [feedback], label=answer.label)


def answer_type(scale: Mapping[str, float]) -> type[StrictAnswer]:
    """Return the type of an answer: a reason, and one of the labels, in small or capital
    letters."""
    by_folded = {_fold(label): label for label in scale}

    def find(value: object) -> object:
        return by_folded.get(_fold(value), value)

    labels: Any = Annotated[Literal[tuple(scale)], BeforeValidator(find)]
    fields: Any = {"reason": (str, ...), "label": (labels, ...)}
    return create_model("Verdict", __base__=StrictAnswer, **fields)


_LABEL = (
    r"""[ \t*_`"']*([^\s*_`"'\[\]<>](?:[^\n*_`"'\[\]<>]*?[^\s*_`"'\[\]<>])??)"""
    r"""(?:(?<=\d)[*_`]*\s*(?:/|out\ of)\s*HIGHEST)?[ \t*_`"']*"""
)
_MARKED = (
    r"(?im)(?:\[\[|\[RESULT\]|<(?:score|rating|grade|verdict|label)>\s*)"
    r"LABEL(?:[.;](?=\s|$)|[\])<]|\ [(–—-]|$)",
    r"(?im)^\W*(?:(?:so|the|my|your|final|overall|total|answer)\s+)*"
    r"(?:score|rating|grade|verdict|label)\b[*_`\"]*(?:\s*\([^()\n]*\))?[*_`\"]*"
    r"\s*(?:[:=：]|is\b)LABEL(?:[.;](?=\s|$)|[\])<]|\ [(–—-]|$)",
    r"(?im)(?:\*\*(?=-?\d)|(?<=\n)(?=[^\n]*\Z)|\A(?=[^\n]*\Z))LABEL(?:\*\*|\.?\Z)",
)
"""The forms in which judges mark a verdict, the plainest first: `[[5]]` (MT-Bench), `[RESULT] 5`
(Prometheus) or `<score>5</score>`; `Rating: 4/5` at the beginning of a line; `**4**`, or a last
line that is nothing else. A number within a sentence is none of them."""


def read_marked(text: str, scale: Mapping[str, float]) -> dict[str, str] | None:
    """Return the fields of a verdict that is written in a form of known judge prompts instead of
    JSON; its label may be none of the scale.

    The plainest form in the text decides. None if it marks several labels, since a draft, a part's
    score or an example of the prompt may be the other one."""
    _, answer = split_thought(text)
    label = _LABEL.replace("HIGHEST", re.escape([*scale][-1]))
    for form in _MARKED:
        verdicts = re.findall(form.replace("LABEL", label), answer.strip())
        if verdicts:
            verdict, *others = set(map(_fold, verdicts))
            return None if others else {"reason": answer, "label": verdict}

    return None


def _fold(label: object) -> str:
    """Return the form by which labels are compared: 3.0 and 3 are one number."""
    folded = str(label).strip().strip("\"'").rstrip(".\"'").casefold()
    with suppress(ValueError):
        return repr(float(folded))
    return folded


@dataclass(frozen=True)
class CriterionJudge(LabelJudge):
    """The judge of a rubric in a check: whether a response meets one criterion, the rubric with
    which it is opened. It has no name, since checks open it."""

    def find_scale(self) -> Mapping[str, float]:
        return {"yes": 1.0, "no": 0.0}

    def write_prompt(self, context: JudgeContext, candidate: int) -> tuple[Message, ...]:
        material = context.show(candidate, "")
        question = prompt("criterion").render(material=material, criterion=context.rubric)
        return context.system(quoted=True), context.user(question, candidates=(candidate,))


@judge("prompt:FILE", help="your own prompt, with labels or numbers")
@dataclass(frozen=True)
class PromptJudge(LabelJudge):
    """A judge by a prompt of the user's: a template in a file, which shows `{output}`, and may show
    `{input}`, `{reference}`, `{context}` and the other columns of the row.

    Raises:
        InputError: it has neither labels nor numbers, or both, or they cannot be used.
    """

    file: str = judge_argument("")
    labels: str = judge_option("", "the labels with their scores, such as good=1,partly=.5,bad=0")
    numbers: str = judge_option("", "a range of whole numbers, such as 1-5, instead of labels")
    logprobs: bool = judge_option(
        default=False, help="read the probabilities of the labels, without a reason"
    )

    def __post_init__(self) -> None:
        if not self.file or bool(self.labels) == bool(self.numbers):
            raise InputError(
                f"judge {self.name}: write the file of the prompt, and its labels or its numbers,"
                f" as in {self.name}:FILE+labels=good=1,partly=.5,bad=0 or"
                f" {self.name}:FILE+numbers=1-5"
            )
        self.find_scale()

    @property
    def reads_reference(self) -> bool:
        return self._shows(REFERENCES)

    @property
    def reads_context(self) -> bool:
        return self._shows(("context",))

    def _shows(self, names: Sequence[str]) -> bool:
        with suppress(InputError):  # which `check` raises
            return bool(find_placeholders(replace(self).template, names))
        return False

    @property
    def reads_row(self) -> bool:
        return True

    def find_scale(self) -> Mapping[str, float]:
        return read_labels(self.labels) if self.labels else read_range(self.numbers)

    @cached_property
    def template(self) -> str:
        if self.file.lower().endswith(DATA_ENDINGS):
            raise InputError(
                f"judge prompt:{self.file}: is a file with fields, and a prompt is a text; write"
                " its prompt to a text file, and its scores as +labels=A=0.4,B=1"
            )
        text = read_text(self.file)
        if not find_placeholders(text, OUTPUTS):
            raise InputError(
                f"judge prompt:{self.file}: the prompt does not show {{output}}, the text to judge"
            )
        return text

    def check(self) -> None:
        self.describe()

    def describe(self) -> Mapping[str, Any]:
        # By a copy, which reads the file anew: it may have changed since the last run.
        return {"prompt": replace(self).template}

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        return ModelJudge.open(replace(self), bench, rubric)

    def write_prompt(self, context: JudgeContext, candidate: int) -> tuple[Message, ...]:
        values = map_values(prompt_text, list_values(context.case, candidate))
        if fault := find_expression(self.template, values):
            raise InputError(f"the prompt {self.file}: {fault}")
        for name in placeholders_of(self.template):
            if name not in values:
                raise InputError(
                    f"the prompt {self.file} shows {{{name}}}, and the row has no such value;"
                    f" write {{ {name} }} with spaces if the braces are meant as text"
                )
        return (context.user(fill(self.template, values), candidates=(candidate,)),)

    async def ask(self, context: JudgeContext, messages: tuple[Message, ...]) -> EvaluationResult:
        if not self.logprobs:
            return await super().ask(context, messages)
        scale = self.find_scale()
        question = choice("label", "Which label is right?", tuple(scale))
        state = tuple(part for message in messages for part in message.parts)
        answers, odds = await context.decide(state, {"label": question})
        shares = dict(zip(scale, answers["label"].probabilities, strict=True))
        score = min(1.0, sum(share * scale[label] for label, share in shares.items()))
        lines = [f"{label} {share:.0%}" for label, share in shares.items()]

        return context.result(score, lines, odds.cut, shares=shares, **odds.told)


def list_values(case: Case, candidate: int) -> dict[str, Any]:
    """Return the values that a template may show, by name. A column of the row comes before a name
    of other tools; the text to judge, the input and the reference are always those of the case."""
    row: Mapping[str, Any] = unpack_value(case.parameters.get(ROW)) or {}
    values = {**dict.fromkeys(REFERENCES, case.reference), **dict.fromkeys(INPUTS, case.input)}
    values |= {**row, "context": case.context, "input": case.input, "reference": case.reference}

    return drop_none(values) | dict.fromkeys(OUTPUTS, case.candidates[candidate])


def read_labels(text: str) -> dict[str, float]:
    """Read labels with their scores: `good=1,bad=0`, or a mapping in JSON.

    Raises:
        InputError: there are fewer than two, or a score is no number from 0 to 1.
    """
    pairs: Any = [part.rpartition("=")[::2] for part in text.split(",")]
    parsed = parse_text(text)
    if is_object(parsed):
        pairs = parsed.items()
    labels: dict[str, float] = {}
    try:
        for name, score in pairs:
            labels[name.strip()] = read_number(str(score).strip())
    except ValueError:
        raise InputError(f"labels: '{text:.80}' is not of the form LABEL=SCORE,...") from None

    if len(set(map(_fold, labels)) - {""}) < max(2, len(labels)):
        raise InputError(f"labels: write two or more different labels, not '{text:.80}'")
    if not all(0 <= score <= 1 for score in labels.values()):
        raise InputError("labels: each score is a number from 0 to 1, such as partly=.5")

    return labels


def read_range(text: str) -> dict[str, float]:
    """Read a range of whole numbers such as `1-5` as labels, whose scores are their places.

    Raises:
        InputError: it is no range.
    """
    match = re.fullmatch(r"\s*(-?\d{1,9})\s*-\s*(-?\d{1,9})\s*", text)
    low, high = map(int, match.groups()) if match else (0, 0)
    if not low < high < low + MOST_LEVELS:
        raise InputError(f"numbers: write a range of whole numbers such as 1-5, not '{text:.40}'")

    return {str(number): (number - low) / (high - low) for number in range(low, high + 1)}
