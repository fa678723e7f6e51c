"""Decision endpoints (System One and OpenAI's Decisions), which answer typed questions about a text
with probabilities, and decisions that are emulated by chat models.

Each wire (protocol) is an adapter from questions to the body of a request, and from an answer to a
probability for each option. The settings of a provider name its wire.

For a chat model, typed questions are asked one by one, and the options' probabilities are read from
the log-probabilities of the answer's first token. Every option has a label of one token: Yes and No
for a predicate, letters for a choice, digits for a score. Options in a list are shown in both
orders, and the two distributions are averaged, so that a bias for a position or a letter cancels
out. All questions about a state share it as their prefix. Each call is an ordinary chat call,
journaled as such.

Sources: System One, docs.typesafe.ai/api and the models of the package typesafe-sdk 0.7.5; OpenAI's
Decisions API, `types/decision.py` of the package openai 3.52 (read in November 2026).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from string import ascii_uppercase, digits
from typing import Annotated, Any, TypeAlias, TypeGuard, cast

from pydantic import BaseModel, BeforeValidator, ValidationError

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    InputError,
    SettingsError,
)
from textevolve.evaluation import Usage
from textevolve.llm.decisions import (
    SUM_TOLERANCE,
    TOP_LOGPROBS,
    Question,
    Wire,
    dump_answers,
    first_token,
    load_questions,
    read_labels,
    softmax,
)
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.prices import READABLE, KnownText, ReportedUsage, either
from textevolve.llm.prompts import Template, load_template
from textevolve.llm.providers import Endpoint, resolve
from textevolve.settings import Settings
from textevolve.texts.prose import excerpt

CHARACTERS_PER_TOKEN = 3
"""The characters that are assumed for a token when a state is shortened to fit. English texts have
more, so the shortened state does fit."""
ROUNDED = 0.005
"""The largest rounding error of a probability at endpoints that round to two decimals."""

_Row: TypeAlias = tuple[float, ...]
"""The probabilities of one question, in the order of its options."""


class _UnansweredError(Exception):
    """The error that the endpoint gave no usable answer to a question; the message is the
    reason."""


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


def most_characters(endpoint: Endpoint) -> int | None:
    """Return how many characters a state and a question may have together; None if unknown."""
    return None if endpoint.context is None else CHARACTERS_PER_TOKEN * endpoint.context


def _described(question: Question, words: tuple[str, str]) -> dict[str, str]:
    """Return the descriptions of a predicate's two outcomes by `words`, the protocol's words for no
    and yes in this order; an outcome without a description is left out."""
    pairs = zip(words, question.options, strict=True)
    return {word: option.description for word, option in pairs if option.description}


def _options(question: Question, key: str) -> list[dict[str, str]]:
    return [
        {key: option.value} | ({"description": option.description} if option.description else {})
        for option in question.options
    ]


def _systemone_question(question: Question) -> dict[str, Any]:
    criteria: Any
    if question.kind == "predicate":
        criteria = _described(question, ("false", "true"))
    elif question.kind == "choice":
        criteria = {option.value: option.description or None for option in question.options}
    else:
        criteria = [option.description for option in question.options]

    kind = "noul" if question.kind == "predicate" else question.kind
    body = {"type": kind, "instructions": question.instructions}

    return body | {"criteria": criteria} if criteria else body


def _openai_question(question: Question) -> dict[str, Any]:
    """Return a question in the form of OpenAI's Decisions API; the instructions say what yes and no
    mean, since predicates have no field for that."""
    instructions = question.instructions
    body = {"type": question.kind, "name": question.name, "instructions": instructions}
    if question.kind == "predicate":
        meanings = reversed(_described(question, ("False", "True")).items())
        lines = [instructions, *(f"{word}: {text}" for word, text in meanings)]
        return body | {"instructions": "\n".join(lines)}

    if question.kind == "choice":
        return body | {"choices": _options(question, "value")}

    return body | {"levels": _options(question, "label")}


WIRES: Mapping[Wire, str] = {"systemone": "System One", "decisions": "OpenAI Decisions"}
"""The names of the decision protocols for people. The path of a protocol is its key, below the
endpoint's base URL."""


def decision_body(
    wire: Wire, model: str, state: str, questions: Sequence[Question]
) -> dict[str, Any]:
    """Return the body of a request in the decision protocol `wire`."""
    if wire == "systemone":
        by_name = {question.name: _systemone_question(question) for question in questions}
        return {"model": model, "state": state, "questions": by_name}
    return {"model": model, "input": state, "questions": list(map(_openai_question, questions))}


def read_answers(answers: dict[str, Any] | list[Any], questions: Sequence[Question]) -> str:
    """Return the text of a response (`dump_answers`): the probabilities of each answered question,
    and the reasons of unusable answers. A question that the endpoint left out is in neither. The
    endpoint's own confidence is ignored."""
    by_name = _by_name(answers, questions)
    rows: dict[str, _Row] = {}
    failed: dict[str, str] = {}

    for question in questions:
        if question.name in by_name:  # else who reads the response calls it left out
            try:
                rows[question.name] = _read_answer(question, by_name[question.name])
            except _UnansweredError as error:
                failed[question.name] = str(error)

    return dump_answers(rows, failed)


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
        name = cast("dict[str, Any]", answer).get("name") if isinstance(answer, dict) else None
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
    total = math.fsum(values) if all(_is_probability(value) for value in values) else math.nan
    if not abs(total - 1) <= max(SUM_TOLERANCE, ROUNDED * len(keys)):
        raise _UnansweredError(f"the probabilities are no distribution: {json.dumps(values):.120}")

    return tuple(value / total for value in values)


def _is_probability(value: object) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= cast("float", value) <= 1


MOST_OPTIONS = TOP_LOGPROBS
"""The most options of a question that a chat model can answer: the number of alternative tokens
that endpoints list."""

SHORTEST_STATE = 100
"""The fewest characters that a shortened state keeps, however long the questions are."""

CONCURRENCY = 16
"""The number of questions about one state that are asked at a time, after the first one has filled
the endpoint's prompt cache."""


def _prompt(name: str) -> Template:
    return load_template("textevolve.llm", name)


class Deciding:
    """A model that also answers typed questions: by its endpoint's decision protocol (`wire`), or
    by chat calls if `wire` is None. It is the wrapper outside of the journal. `most_characters`:
    the most characters of a state and its longest question together; the middle of a longer state
    is left out; None: no limit."""

    def __init__(
        self, model: Model, wire: Wire | None = None, most_characters: int | None = None
    ) -> None:
        self.model = model
        self.name = model.name
        self.wire: Wire | None = wire
        self._most = most_characters

    async def __call__(self, request: Request, /) -> Response:
        if request.questions is None:
            return await self.model(request)
        shortened, cut = _cut_state(request, self._most)
        if self.wire is None:
            response = await emulate(self.model, shortened)
        else:
            response = await self.model(shortened)

        if not cut:
            return response
        marked = {**json.loads(response.text), "cut": cut}

        return replace(response, text=json.dumps(marked, ensure_ascii=False))


def wire_of(model: object) -> Wire | None:
    """Return the decision protocol of a model, which may be wrapped; None if decisions are emulated
    by chat calls."""
    while model is not None and not isinstance(model, Deciding):
        model = getattr(model, "model", None)
    return None if model is None else model.wire


def let_decide(model_of: Callable[[str], Model], settings: Settings) -> Callable[[str], Model]:
    """Return a function from a spec to a model that answers decision questions, too: by its
    endpoint's protocol, or by chat calls."""

    @cache
    def deciding(spec: str) -> Model:
        try:
            endpoint = resolve(spec, settings, asks=False)
        except SettingsError:  # reported when the model is opened, unless it is an object's name
            return Deciding(model_of(spec))

        return Deciding(model_of(spec), endpoint.decisions, most_characters(endpoint))

    return deciding


def _cut_state(request: Request, most: int | None) -> tuple[Request, int]:
    """Return the request with a state that fits into `most` characters together with the longest
    question, and the number of characters left out of its middle. At least `SHORTEST_STATE`
    characters stay."""
    (state,) = request.messages
    if most is None:
        return request, 0
    questions = json.loads(request.questions or "[]")
    longest = max(
        (len(json.dumps(question, ensure_ascii=False)) for question in questions), default=0
    )
    most = max(most - longest, SHORTEST_STATE)
    if len(state.text) <= most:
        return request, 0
    shortened = Message(state.role, (excerpt(state.text, most),), state.images)

    return replace(request, messages=(shortened,)), len(state.text) - 2 * (most // 2)


@dataclass(frozen=True, slots=True)
class Showing:
    """One way to show a question to a chat model.

    Attributes:
        labels: The one-token label of each option, in the question's order.
        listed: The labels in the order of the prompt.
        lines: The lines of the prompt that describe the options.
    """

    question: Question
    labels: tuple[str, ...]
    listed: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        unit = {"predicate": "word", "score": "number" if self.listed[0].isdigit() else "letter"}
        return _prompt("decide").render(
            instructions=self.question.instructions,
            options=self.lines,
            unit=unit.get(self.question.kind, "letter"),
            answers=f"{', '.join(self.listed[:-1])} or {self.listed[-1]}",
        )


async def emulate(model: Model, request: Request) -> Response:
    """Answer a request with questions by chat calls. A question has a failure instead of an answer
    if the answer to any of its showings is unreadable.

    Each way of showing a question is a call: answers to several questions in one object were tried,
    and a small model's answers copied each other ("2", "2", "2", ...).

    Raises:
        InputError: a question has too many options.
        CapabilityError: the endpoint returns no log-probabilities.
        ModelError: a call failed.
    """
    questions = load_questions(request.questions or "[]")
    calls = [showing for question in questions for showing in show(question)]

    async def ask(showing: Showing) -> Response:
        return await model(_chat(request, showing))

    first_response = await ask(
        calls[0]
    )  # alone, so that the others find the state in the server's cache
    other_responses = await gather_bounded(
        [lambda call=call: ask(call) for call in calls[1:]], CONCURRENCY
    )
    responses = [first_response, *other_responses]
    shares: dict[str, list[list[float]]] = {}
    failed: dict[str, str] = {}

    for showing, response in zip(calls, responses, strict=True):
        name = showing.question.name
        try:
            shares.setdefault(name, []).append(read_labels(first_token(response), showing.labels))
        except AnswerError as error:
            failed[name] = str(error)

    answers = {  # the normalised geometric mean of the distributions
        name: softmax([math.fsum(column) / len(rows) for column in zip(*rows, strict=True)])
        for name, rows in shares.items()
        if name not in failed
    }

    return Response(
        text=dump_answers(answers, failed, emulated=True),
        finish_reason="stop",
        usage=sum((response.usage for response in responses), Usage()),
        seconds=sum(response.seconds for response in responses),
        replayed=all(response.replayed for response in responses),
    )


def show(question: Question) -> tuple[Showing, ...]:
    """Return the ways to show a question: one way for a predicate; two for listed options, in both
    orders."""
    if question.kind == "predicate":
        no, yes = question.options
        labelled = [("Yes", yes.description), ("No", no.description)]
        lines = tuple(f"{label}: {text}" for label, text in labelled if text)
        return (Showing(question, ("No", "Yes"), ("Yes", "No"), lines),)

    count = len(question.options)

    if count > MOST_OPTIONS:
        raise InputError(
            f"question '{question.name}': a chat model can choose among at most {MOST_OPTIONS}"
            f" options, not {count}; use a decision model"
        )

    scored = question.kind == "score"
    labels = tuple((digits if scored and count <= len(digits) else ascii_uppercase)[:count])
    lines = [option.description if scored else option.text for option in question.options]
    # Letters of a choice belong to places, and numbers of levels to the levels.
    backwards = labels if scored else labels[::-1]

    def describe(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{label}: {line}" for label, line in zip(names, lines, strict=True))

    return (
        Showing(question, labels, labels, describe(labels)),
        Showing(question, backwards, backwards[::-1], describe(backwards)[::-1]),
    )


def _chat(request: Request, showing: Showing) -> Request:
    (state,) = request.messages
    gap = "" if state.text.endswith("\n") else "\n\n"
    return Request(
        messages=(
            Message("system", (_prompt("decide_rules").render(),)),
            Message("user", (*state.parts, gap + showing.text), state.images),
        ),
        temperature=0.0,
        max_tokens=1,
        seed=request.seed,
        sample=request.sample,
        top_logprobs=TOP_LOGPROBS,
    )
