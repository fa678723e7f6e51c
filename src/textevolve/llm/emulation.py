"""Decisions of a chat model: typed questions asked one by one, the options' probabilities read from
the log-probabilities of the answer's first token.

Every option has a label of one token: Yes and No of a predicate, letters of a choice, digits of a
score. Where options stand in a list, the list is shown in both directions and the two distributions
are averaged, so that a liking for a place or a letter cancels. All questions about a state share it
as their prefix. Each call is an ordinary chat call, journaled as such.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from string import ascii_uppercase
from typing import Literal, Protocol, runtime_checkable

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, InputError, SettingsError
from textevolve.evaluation import Usage
from textevolve.llm.choice_logprobs import TOP_LOGPROBS, first_token, read_labels, softmax
from textevolve.llm.decision_wires import decision_wire, most_characters
from textevolve.llm.decisions import (
    FIND_WIRE,
    Option,
    Question,
    Wire,
    dump_answers,
    find_wire_request,
    load_questions,
    load_wire,
)
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.providers import resolve
from textevolve.llm.template import Template, load_template
from textevolve.settings import Settings
from textevolve.texts.splitting import excerpt

KnownWire = Wire | Literal["ask"] | None
"""What is known of an endpoint before it is asked; `ask`: nothing, so it has to be asked."""

MOST_OPTIONS = TOP_LOGPROBS
"""Alternatives of a token that endpoints list at most."""

SHORTEST_STATE = 100
"""Characters to which a state is cut at most, however long the questions are."""

CONCURRENCY = 16
"""Questions about one state that are asked at once, after the first has filled the cache."""

_VARIABLES = {
    "decide_rules": (),
    "decide": ("instructions", "options", "unit", "answers"),
}


@cache
def _prompt(name: str) -> Template:
    return load_template("textevolve.llm", name, _VARIABLES[name])


@runtime_checkable
class Decides(Protocol):
    async def find_wire(self) -> Wire | None:
        """The wire on which the model is asked to decide; None: its decisions are emulated."""
        ...


async def wire_of(model: object, *, asks: bool = True) -> Wire | None:
    """The wire of a model, also of one that is wrapped; None where decisions are emulated, so that
    each question is a call of its own. `asks`: an endpoint of which nothing is known is asked; else
    it is taken to chat, so that what was always asked by chat calls is asked as ever."""
    while not isinstance(model, Decides):
        inner = getattr(model, "model", None)
        if inner is None:
            return None
        model = inner
    known: KnownWire = getattr(model, "known", None)
    return None if known == "ask" and not asks else await model.find_wire()


class Deciding:
    """Stands around a model outside of its journal: sends typed questions on the endpoint's wire,
    or has them emulated. `wire`: what is known of it. `most_characters`: of a state and the longest
    of its questions; a longer state loses its middle."""

    def __init__(
        self, model: Model, wire: KnownWire = "ask", most_characters: int | None = None
    ) -> None:
        self.model, self.name = model, model.name
        self.known: KnownWire = wire
        self._wire: KnownWire = wire
        self._most = most_characters
        self._finding = asyncio.Lock()

    async def __call__(self, request: Request, /) -> Response:
        if request.questions is None:
            return await self.model(request)
        shortened, cut = _cut_state(request, self._most)
        if await self.find_wire() is None:
            response = await emulate(self.model, shortened)
        else:
            response = await self.model(shortened)
        return response if not cut else replace(response, text=_mark_cut(response.text, cut))

    async def find_wire(self) -> Wire | None:
        async with self._finding:
            wire = self._wire
            if wire == "ask":
                wire = self._wire = load_wire(await self.model(find_wire_request()))
            return wire


def let_decide(model_of: Callable[[str], Model], settings: Settings) -> Callable[[str], Model]:
    """The same models by the same specs, each of which decides: on its endpoint's wire, or by chat
    calls."""

    @cache
    def deciding(spec: str) -> Model:
        try:
            endpoint = resolve(spec, settings, asks=False)
        except SettingsError:  # it is told when the model is opened, if it is not an object's name
            return Deciding(model_of(spec), None)
        return Deciding(model_of(spec), decision_wire(endpoint), most_characters(endpoint))

    return deciding


def _cut_state(request: Request, most: int | None) -> tuple[Request, int]:
    """The request with a state of so many characters at most, half of them from each end, and how
    many were left out."""
    (state,) = request.messages
    if most is None:
        return request, 0
    questions = json.loads(request.questions or FIND_WIRE)
    longest = max((len(json.dumps(one, ensure_ascii=False)) for one in questions), default=0)
    most = max(most - longest, SHORTEST_STATE)
    if len(state.text) <= most:
        return request, 0
    shown = Message(state.role, (excerpt(state.text, most),), state.images)
    return replace(request, messages=(shown,)), len(state.text) - 2 * (most // 2)


def _mark_cut(text: str, cut: int) -> str:
    return json.dumps({**json.loads(text), "cut": cut}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Showing:
    """A question as a chat model sees it. `labels` in the order of the question's options, `shown`
    in the order in which they are listed, with `lines`."""

    question: Question
    labels: tuple[str, ...]
    shown: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        unit = {"predicate": "word", "score": "number" if self.shown[0].isdigit() else "letter"}
        return _prompt("decide").render(
            instructions=self.question.instructions,
            options=self.lines,
            unit=unit.get(self.question.kind, "letter"),
            answers=f"{', '.join(self.shown[:-1])} or {self.shown[-1]}",
        )


async def emulate(model: Model, request: Request) -> Response:
    """The response to a request with questions, made of chat calls. A question that cannot be read
    out of its answers is without one, and says why.

    Each way of showing a question is a call: answers to several questions in one object were tried,
    and a small model's answers copied each other ("2", "2", "2", ...).

    Raises:
        InputError: a question has more options than can be told apart.
        CapabilityError: the endpoint gives no log-probabilities.
        ModelError: a call failed.
    """
    questions = load_questions(request.questions or "[]")
    calls = [showing for question in questions for showing in show(question)]

    async def ask(showing: Showing) -> Response:
        return await model(_chat(request, showing))

    first = await ask(calls[0])  # alone, so that the others find the state in the server's cache
    rest = await gather_bounded([lambda call=call: ask(call) for call in calls[1:]], CONCURRENCY)
    responses = [first, *rest]
    read: dict[str, list[list[float]]] = {}
    failed: dict[str, str] = {}
    for showing, response in zip(calls, responses, strict=True):
        name = showing.question.name
        try:
            read.setdefault(name, []).append(read_labels(first_token(response), showing.labels))
        except AnswerError as error:
            failed[name] = str(error)
    answers = {name: _average(rows) for name, rows in read.items() if name not in failed}
    return Response(
        text=dump_answers(answers, failed, emulated=True),
        finish_reason="stop",
        usage=sum((response.usage for response in responses), Usage()),
        seconds=sum(response.seconds for response in responses),
        replayed=all(response.replayed for response in responses),
    )


def show(question: Question) -> tuple[Showing, ...]:
    """The ways in which a question is asked: one of a predicate, two where options are listed."""
    if question.kind == "predicate":
        no, yes = question.options
        told = [(label, one.description) for label, one in (("Yes", yes), ("No", no))]
        lines = tuple(f"{label}: {text}" for label, text in told if text)
        return (Showing(question, ("No", "Yes"), ("Yes", "No"), lines),)
    count = len(question.options)
    if count > MOST_OPTIONS:
        raise InputError(
            f"question '{question.name}': a chat model can be asked to choose among {MOST_OPTIONS}"
            f" options at most, not {count}; take a model that decides by itself"
        )
    numbered = question.kind == "score" and count <= 10
    names = tuple(str(n) if numbered else ascii_uppercase[n] for n in range(count))
    lines = [_describe(question, option) for option in question.options]
    # Letters of a choice belong to places, and numbers of levels to the levels.
    backwards = names[::-1] if question.kind == "choice" else names
    listed = tuple(f"{label}: {line}" for label, line in zip(names, lines, strict=True))
    turned = tuple(f"{label}: {line}" for label, line in zip(backwards, lines, strict=True))
    return (
        Showing(question, names, names, listed),
        Showing(question, backwards, backwards[::-1], turned[::-1]),
    )


def _describe(question: Question, option: Option) -> str:
    return option.description if question.kind == "score" else option.text


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


def _average(rows: Sequence[Sequence[float]]) -> list[float]:
    """The distribution whose log-probabilities are the means of those of several."""
    return softmax([math.fsum(column) / len(rows) for column in zip(*rows, strict=True)])
