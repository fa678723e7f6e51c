"""Typed questions and their answers in two protocols: System One, and OpenAI's Decisions.

Questions are written by `write_questions` and read by the models of questions; answers are written
by these models and read by `read_answers`. The limits are those of System One's documentation.

Sources: System One, docs.typesafe.ai/api and the models of the package typesafe-sdk 0.7.5; OpenAI's
Decisions API, `types/decision.py` of the package openai 3.52 (read in November 2026).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeGuard, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from textevolve.evaluation import Usage
from textevolve.json_texts import is_object
from textevolve.mappings import drop_empty, map_values
from textevolve.protocol.contents import (
    READABLE,
    SUM_TOLERANCE,
    Answer,
    KnownText,
    Question,
    QuestionKind,
    ReportedUsage,
    Wire,
    choice,
    either,
    predicate,
    score,
)

MOST_QUESTIONS = 400
MOST_CHOICES = 255
MOST_LEVELS = 10
NO_IMAGES = "this server reads no images; send text"
ROUNDED = 0.005
"""The largest rounding error of a probability at endpoints that round to two decimals."""

_Row: TypeAlias = tuple[float, ...]
"""The probabilities of one question, in the order of its options."""


class _UnansweredError(Exception):
    """The error that the endpoint gave no usable answer to a question; the message is the
    reason."""


WIRES: Mapping[Wire, str] = {"systemone": "System One", "decisions": "OpenAI Decisions"}
"""The names of the decision protocols for people. The path of a protocol is its key, below the
endpoint's base URL."""


# Questions as clients write them


def _systemone_question(question: Question) -> dict[str, Any]:
    options = question.options
    kind: str = question.kind
    criteria: Any
    if question.kind == "predicate":
        no, yes = options
        kind = "noul"
        criteria = drop_empty({"false": no.description, "true": yes.description})
    elif question.kind == "choice":
        criteria = {option.value: option.description or None for option in options}
    else:
        criteria = [option.description for option in options]

    body = {"type": kind, "instructions": question.instructions}

    return body | {"criteria": criteria} if criteria else body


def _decisions_question(question: Question) -> dict[str, Any]:
    """Return a question in the form of OpenAI's Decisions API; the instructions say what yes and no
    mean, since predicates have no field for that."""
    body = {"type": question.kind, "name": question.name, "instructions": question.instructions}
    if question.kind == "predicate":
        no, yes = question.options
        meanings = drop_empty({"True": yes.description, "False": no.description})
        lines = [question.instructions, *(f"{word}: {text}" for word, text in meanings.items())]
        return body | {"instructions": "\n".join(lines)}

    if question.kind == "choice":
        return body | {"choices": _list_options(question, "value")}

    return body | {"levels": _list_options(question, "label")}


def _list_options(question: Question, name: str) -> list[dict[str, str]]:
    return [
        {name: option.value} | drop_empty({"description": option.description})
        for option in question.options
    ]


def write_questions(
    wire: Wire, model: str, state: str, questions: Sequence[Question]
) -> dict[str, Any]:
    """Return the body of a request in the decision protocol `wire`."""
    if wire == "systemone":
        by_name = {question.name: _systemone_question(question) for question in questions}
        return {"model": model, "state": state, "questions": by_name}
    return {"model": model, "input": state, "questions": list(map(_decisions_question, questions))}


# Questions as servers read them, each with the form of its answer


def state_text(state: object) -> str:
    """Return a state as the model reads it: a text unchanged, anything else as compact JSON."""
    if isinstance(state, str):
        return state
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Return how far the largest of n probabilities lies above 1/n, from 0 to 1:
    (max p - 1/n) / (1 - 1/n). The formula is TypeSafe's, as `jevcompat` writes it out (SPEC.md,
    section 4.5)."""
    even = 1 / len(probabilities)
    return _bounded((max(probabilities) - even) / (1 - even))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return how near the probabilities lie to the most probable level m, from 0 to 1:
    1 - sum(p |i - m|) / u, where u is the mean distance of n levels to their middle."""
    n = len(probabilities)
    most = max(range(n), key=probabilities.__getitem__)
    spread = sum(p * abs(level - most) for level, p in enumerate(probabilities))
    even = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return _bounded(1 - spread / even)


def _bounded(value: float) -> float:
    return min(max(value, 0.0), 1.0)


StructuredText: TypeAlias = str | dict[str, Any] | list[Any]
"""A text, or JSON that is read as text."""


def _text(text: StructuredText | None) -> str:
    return "" if text is None else state_text(text)


class NoulCriteria(BaseModel):
    model_config = ConfigDict(extra="forbid")

    true: StructuredText | None = None
    false: StructuredText | None = None


class NoulQuestion(BaseModel):
    type: Literal["noul"]
    instructions: StructuredText | None = None
    criteria: NoulCriteria | None = None

    @model_validator(mode="after")
    def _require_question(self) -> Self:
        if not self.instructions and (self.criteria is None or self.criteria == NoulCriteria()):
            raise ValueError("a question of the type noul needs instructions or criteria")
        return self

    def read(self, name: str) -> Question:
        text = _text(self.instructions)
        criteria = self.criteria or NoulCriteria()
        yes = _text(criteria.true)
        no = _text(criteria.false)
        return predicate(name, text or "Is it so?", yes=yes, no=no)

    def write(self, answer: Answer) -> dict[str, Any]:
        return {"type": "noul", "noul": answer.share}


class ChoiceQuestion(BaseModel):
    type: Literal["choice"]
    instructions: StructuredText | None = None
    criteria: Annotated[
        dict[str, StructuredText | None], Field(min_length=2, max_length=MOST_CHOICES)
    ]

    def read(self, name: str) -> Question:
        options = map_values(_text, self.criteria)
        return choice(name, _text(self.instructions) or "Which of these applies?", options)

    def write(self, answer: Answer) -> dict[str, Any]:
        names = list(self.criteria)
        return {
            "type": "choice",
            "choice": names[answer.best],
            "probabilities": dict(zip(names, answer.probabilities, strict=True)),
            "confidence": choice_confidence(answer.probabilities),
        }


class ScoreQuestion(BaseModel):
    type: Literal["score"]
    instructions: StructuredText | None = None
    criteria: Annotated[list[StructuredText], Field(min_length=2, max_length=MOST_LEVELS)]

    def read(self, name: str) -> Question:
        text = _text(self.instructions) or "Which of these levels applies?"
        return score(name, text, list(map(state_text, self.criteria)))

    def write(self, answer: Answer) -> dict[str, Any]:
        shares = answer.probabilities
        return {
            "type": "score",
            "score": answer.expected,
            "legend": {str(n): level for n, level in enumerate(self.criteria)},
            "probabilities": {str(n): share for n, share in enumerate(shares)},
            "confidence": score_confidence(shares),
        }


SystemOneQuestion: TypeAlias = Annotated[
    NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")
]


class _NamedOption(BaseModel):
    """A choice, which has a value, or a level, which has a label."""

    name: Annotated[str, BeforeValidator(str), either("value", "label")]
    description: str = ""


class DecisionsQuestion(BaseModel):
    """A question in OpenAI's Decisions API."""

    type: QuestionKind
    name: str | None = None
    instructions: StructuredText | None = None
    choices: list[_NamedOption] = []
    levels: list[_NamedOption] = []

    def read(self, name: str) -> Question:
        text = _text(self.instructions)
        if self.type == "predicate":
            return predicate(name, text)
        if self.type == "score":
            levels = [level.description or level.name for level in self.levels]
            return score(name, text, levels)
        options = {option.name: option.description for option in self.choices}
        return choice(name, text, options)

    def write(self, answer: Answer) -> dict[str, Any]:
        body = {"type": self.type, "name": self.name}
        if self.type == "predicate":
            return body | {"probability": answer.share}

        options = zip(self.choices or self.levels, answer.probabilities, strict=True)
        shares: list[Any] = [{"value": option.name, "probability": p} for option, p in options]
        body |= {"probabilities": shares, "confidence": max(answer.probabilities)}
        if self.type == "choice":
            return body | {"choice": shares[answer.best]["value"]}

        for level, share in enumerate(shares):
            share |= {"value": level, "label": share["value"]}
        return body | {"score": answer.expected}


class SystemOneRequest(BaseModel):
    """`state`: what all questions are about. The answer names other fields, which have no
    effect."""

    model_config = ConfigDict(extra="allow")

    model: str
    state: StructuredText
    questions: Annotated[
        dict[Annotated[str, Field(min_length=1)], SystemOneQuestion],
        Field(min_length=1, max_length=MOST_QUESTIONS),
    ]
    assets: Any = None

    @field_validator("assets")
    @classmethod
    def _reject_images(cls, assets: Any) -> Any:
        if assets is not None:
            raise ValueError(NO_IMAGES)
        return assets

    def read(self) -> tuple[Question, ...]:
        """Return the questions in order, named by number, since a client's name must not sway the
        answer."""
        return tuple(
            question.read(f"q{n}") for n, question in enumerate(self.questions.values(), 1)
        )


# Answers


class DecisionAnswer(BaseModel):
    """The body of a decision endpoint's answer, with the fields that all wires share. `error`: some
    endpoints report errors here with the status 200."""

    answers: dict[str, Any] | list[Any] | None = None
    usage: Annotated[ReportedUsage | None, READABLE] = None
    error: Any = None


class _Share(BaseModel):
    value: Annotated[str, BeforeValidator(str)] = "None"
    probability: Any = None


class _OneAnswer(BaseModel):
    """An endpoint's answer to one question. `yes`: the probability of a predicate."""

    type: Any = None
    refusal: KnownText = None
    reason: KnownText = None
    message: KnownText = None
    yes: Annotated[Any, either("noul", "probability")] = None
    probabilities: Annotated[
        dict[str, Any] | list[Annotated[_Share | None, READABLE]] | None, READABLE
    ] = None


def read_answers(
    answers: dict[str, Any] | list[Any], questions: Sequence[Question]
) -> tuple[dict[str, _Row], dict[str, str]]:
    """Return the probabilities of each answered question, and the reasons of unusable answers, by
    the names of the questions. A question that the endpoint left out is in neither. The endpoint's
    own confidence is ignored."""
    by_name = _by_name(answers, questions)
    rows: dict[str, _Row] = {}
    failed: dict[str, str] = {}

    for question in questions:
        if question.name in by_name:  # else who reads the response calls it left out
            try:
                rows[question.name] = _read_answer(question, by_name[question.name])
            except _UnansweredError as error:
                failed[question.name] = str(error)

    return rows, failed


def _by_name(
    answers: dict[str, Any] | list[Any], questions: Sequence[Question]
) -> Mapping[str, Any]:
    """Return answers by name. Answers in a list without names are in the order of the questions if
    there is one for each; otherwise they are ignored."""
    if isinstance(answers, dict):
        return answers
    in_order = len(answers) == len(questions)
    by_name: dict[str, Any] = {}
    for number, answer in enumerate(answers):
        name = answer.get("name") if is_object(answer) else None
        if isinstance(name, str) or (name is None and in_order):
            by_name[name or questions[number].name] = answer

    return by_name


def _read_answer(question: Question, answer: Any) -> _Row:
    """Return the probabilities of the options. An answer holds one number for a predicate; for
    other questions it holds numbers by option, by the number of a level, or in a list of entries.

    Raises:
        _UnansweredError: the answer has no usable probabilities.
    """
    try:
        fields = _OneAnswer.model_validate(answer)
    except ValidationError:
        raise _UnansweredError(f"the answer is no object: {answer!r:.80}") from None

    kind = fields.type
    yes = fields.yes
    shares = fields.probabilities
    if kind == "refusal":
        reason = fields.refusal or fields.reason or fields.message
        more = f": {reason!r:.200}" if reason else ""
        raise _UnansweredError(f"the model refuses to answer this question{more}")

    if ("predicate" if kind == "noul" else kind) != question.kind:
        raise _UnansweredError(
            f"the answer has the type {kind!r:.40}, but the question has the type {question.kind}"
        )

    if question.kind == "predicate":
        if not _is_probability(yes):
            raise _UnansweredError(f"the answer is no probability: {yes!r:.80}")
        return (1.0 - yes, yes)

    if isinstance(shares, list):
        shares = {share.value: share.probability for share in shares if share} or None
    if shares is None:
        raise _UnansweredError("the answer has no probabilities")

    return _distribution([option.value for option in question.options], shares)


def _distribution(keys: Sequence[str], shares: Mapping[str, Any]) -> _Row:
    """Return the probabilities in the order of `keys`, scaled to the sum 1, since
    endpoints round."""
    if set(shares) != set(keys):
        raise _UnansweredError(
            "the probabilities name other options than the question:"
            f" {', '.join(map(str, shares)):.120}"
        )

    values = [shares[key] for key in keys]
    total = math.fsum(values) if all(map(_is_probability, values)) else math.nan
    if not abs(total - 1) <= max(SUM_TOLERANCE, ROUNDED * len(keys)):
        raise _UnansweredError(f"the probabilities are no distribution: {json.dumps(values):.120}")

    return tuple(value / total for value in values)


def _is_probability(value: object) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= cast("float", value) <= 1


def write_decision(
    model: str, answers: Any, usage: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the body of an answer. `answers`: by the names of the questions in System One, a list
    in Decisions. `more`: fields that the protocol does not have."""
    return {"model": model, "answers": answers, "usage": usage, **more}


def write_systemone_usage(usage: Usage) -> dict[str, Any]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
