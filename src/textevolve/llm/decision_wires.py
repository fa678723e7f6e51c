"""Models that answer typed questions about a text with probabilities: by the decision protocol
(wire) of their endpoint, which the settings of its provider name, or by chat calls.

For a chat model, typed questions are asked one by one, and the options' probabilities are read from
the log-probabilities of the answer's first token. Every option has a label of one token: Yes and No
for a predicate, letters for a choice, digits for a score. Options in a list are shown in both
orders, and the two distributions are averaged, so that a bias for a position or a letter cancels
out. All questions about a state share it as their prefix. Each call is an ordinary chat call,
journaled as such.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from string import ascii_uppercase, digits

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    InputError,
    SettingsError,
)
from textevolve.evaluation import Usage
from textevolve.llm.decisions import (
    Question,
    Wire,
    dump_answers,
    load_questions,
    softmax,
)
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.prompts import Template, load_template
from textevolve.llm.providers import Endpoint, resolve
from textevolve.llm.verdicts import TOP_LOGPROBS, read_labels, word_request
from textevolve.settings import Settings
from textevolve.texts.prose import excerpt

CHARACTERS_PER_TOKEN = 3
"""The characters that are assumed for a token when a state is shortened to fit. English texts have
more, so the shortened state does fit."""


def most_characters(endpoint: Endpoint) -> int | None:
    """Return how many characters a state and a question may have together; None if unknown."""
    return None if endpoint.context is None else CHARACTERS_PER_TOKEN * endpoint.context


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

    # The first one alone, so that the others find the state in the server's cache.
    first_response = await ask(calls[0])
    other_responses = await gather_bounded(
        [lambda call=call: ask(call) for call in calls[1:]], CONCURRENCY
    )
    responses = [first_response, *other_responses]
    shares: dict[str, list[list[float]]] = {}
    failed: dict[str, str] = {}

    for showing, response in zip(calls, responses, strict=True):
        name = showing.question.name
        try:
            shares.setdefault(name, []).append(read_labels(response, showing.labels))
        except AnswerError as error:
            failed[name] = str(error)

    answers = {name: _average(rows) for name, rows in shares.items() if name not in failed}

    return Response(
        text=dump_answers(answers, failed, emulated=True),
        finish_reason="stop",
        usage=sum((response.usage for response in responses), Usage()),
        seconds=sum(response.seconds for response in responses),
        replayed=all(response.replayed for response in responses),
    )


def _average(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the normalised geometric mean of distributions, given as logarithms."""
    logs = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
    return softmax(logs)


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
    messages = (
        Message("system", (_prompt("decide_rules").render(),)),
        Message("user", (*state.parts, gap + showing.text), state.images),
    )

    return word_request(messages, request.seed, request.sample)
