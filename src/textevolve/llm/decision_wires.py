"""Decision endpoints: System One, OpenAI's Decisions, SGLang's; their bodies, answers and calls.

Each wire is an adapter from questions to a body and from an answer to a probability for each
option; `DecisionCalls` finds out which wire an endpoint speaks, and sends.

Sources: System One, docs.typesafe.ai/api and the models of the package typesafe-sdk 0.7.5; OpenAI's
Decisions API, `types/decision.py` of the package openai 3.52; SGLang, docs.sglang.io on decision
models and `serving_decisions.py` in its repository (all read in November 2026).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, cast

from pydantic import BaseModel, ValidationError
from yarl import URL

from textevolve.errors import CapabilityError, ModelError, TooLongError, UnavailableError
from textevolve.evaluation import Usage
from textevolve.llm.connections import Http
from textevolve.llm.decisions import (
    FIND_WIRE,
    SUM_TOLERANCE,
    Question,
    Wire,
    dump_answers,
    dump_wire,
    load_questions,
    predicate,
)
from textevolve.llm.model import Request, Response
from textevolve.llm.providers import Endpoint
from textevolve.llm.refusals import error_object, no_images, read_refusal, status_of
from textevolve.llm.reported_usage import READABLE, ReportedUsage, usage_of
from textevolve.llm.token_count import count_tokens
from textevolve.llm.wire import encode
from textevolve.settings import Decisions, Price

TRIAL = predicate("sky", "Is the sky blue on a clear day?")
TRIAL_STATE = "A clear day in summer."
"""The small question that finds out which wire an endpoint speaks."""
CHARACTERS_PER_TOKEN = 3
"""Fewer than English texts have, so that what is left of a long state fits."""
ROUNDED = 0.005
"""The most that one probability may be off where an endpoint rounds to two decimals."""
NOT_SPOKEN = frozenset((400, 404, 405, 422, 501))
"""Statuses of answers to a small question on a wire that the endpoint, or its model, does not
speak. Redirections count too, and a 200 that holds something else."""

_Row: TypeAlias = tuple[float, ...]
"""The probabilities of one question, in the order of its options."""
Post: TypeAlias = Callable[[URL, bytes], Awaitable[tuple[int, Mapping[str, str], bytes]]]


class _UnansweredError(Exception):
    """The reason why a question has no answer."""


class DecisionAnswer(BaseModel):
    """An answer as far as all wires have it. `error`: some endpoints send one with a 200."""

    answers: dict[str, Any] | list[Any] | None = None
    usage: Annotated[ReportedUsage | None, READABLE] = None
    error: Any = None


def decision_wire(endpoint: Endpoint) -> Wire | Literal["ask"] | None:
    """The wire that an endpoint is known to speak without being asked; None: it only chats, "ask":
    it has to be asked, see `FIND_WIRE`."""
    return None if endpoint.decisions == "none" else endpoint.decisions


def most_characters(endpoint: Endpoint) -> int | None:
    """How many characters a state and a question may have together, where that is known."""
    return None if endpoint.context is None else CHARACTERS_PER_TOKEN * endpoint.context


def _described(question: Question, words: tuple[str, str]) -> dict[str, str]:
    """The outcomes of a predicate that are described, no first, under the wire's words for them."""
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
    """A predicate has no place for what yes and no mean, so its instructions say it."""
    instructions = question.instructions
    body = {"type": question.kind, "name": question.name, "instructions": instructions}
    if question.kind == "predicate":
        meanings = reversed(_described(question, ("False", "True")).items())
        lines = [instructions, *(f"{word}: {text}" for word, text in meanings)]
        return body | {"instructions": "\n".join(lines)}
    if question.kind == "choice":
        return body | {"choices": _options(question, "value")}
    return body | {"levels": _options(question, "label")}


def _sglang_question(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"id": question.name, "question": question.instructions}
    if question.kind == "predicate":
        return body | {"type": "yes_no"} | _described(question, ("no", "yes"))
    if question.kind == "score":
        return body | {"type": "score", "levels": [one.description for one in question.options]}
    return body | {"type": "choice", "options": _options(question, "name")}


@dataclass(frozen=True, slots=True)
class DecisionWire:
    """An adapter for one wire: its name for people, its path below the endpoint's base, and a
    question as it has one."""

    name: str
    path: str
    question: Callable[[Question], dict[str, Any]]


WIRES: Mapping[Wire, DecisionWire] = {
    "systemone": DecisionWire("System One", "/systemone", _systemone_question),
    "decisions": DecisionWire("OpenAI Decisions", "/decisions", _openai_question),
    "sglang": DecisionWire("SGLang decisions", "/decisions", _sglang_question),
}
"""The wires in the order in which an endpoint is tried."""


def decision_body(
    wire: Wire, model: str, state: str, questions: Sequence[Question]
) -> dict[str, Any]:
    """The request as the wire has it."""
    bodies = [WIRES[wire].question(question) for question in questions]
    if wire == "systemone":
        named = {question.name: body for question, body in zip(questions, bodies, strict=True)}
        return {"model": model, "state": state, "questions": named}
    return {"model": model, "input": state, "questions": bodies}


def read_answers(answers: dict[str, Any] | list[Any], questions: Sequence[Question]) -> str:
    """The text of a response (`dump_answers`): a row for each question that was answered, and why
    the others were not. What the endpoint itself says of its confidence is left out."""
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
    """A list's answers have the names of their questions, or else stand in the questions' order."""
    if isinstance(answers, dict):
        return answers
    names = [question.name for question in questions] if len(answers) == len(questions) else []
    named: dict[str, Any] = {}
    for number, answer in enumerate(answers):
        name = cast("dict[str, Any]", answer).get("name") if isinstance(answer, dict) else None
        if name is None and names:
            name = names[number]
        if isinstance(name, str):
            named[name] = answer
    return named


def _read_answer(question: Question, answer: Any) -> _Row:
    """The probabilities of the options: of a predicate one number, or by option, or by the number
    of a level, or in a list of entries.

    Raises:
        _UnansweredError: there are none.
    """
    if not isinstance(answer, dict):
        raise _UnansweredError(f"the answer is no object: {answer!r:.80}")
    said = cast("dict[str, Any]", answer)
    kind = said.get("type")
    if kind == "refusal":
        reason = said.get("refusal") or said.get("reason") or said.get("message")
        more = f": {reason!r:.200}" if isinstance(reason, str) else ""
        raise _UnansweredError(f"the model refuses to answer this question{more}")
    if ("predicate" if kind in ("noul", "yes_no") else kind) != question.kind:
        raise _UnansweredError(
            f"the answer is of the type {kind!r:.40}, asked was a {question.kind}"
        )
    keys = [option.value for option in question.options]
    shares = said.get("probabilities")
    if question.kind == "predicate":
        keys = ["no", "yes"]
        if "noul" in said or "probability" in said:
            yes = said.get("noul", said.get("probability"))
            if not _is_probability(yes):
                raise _UnansweredError(f"the answer is no probability: {yes!r:.80}")
            return (1.0 - yes, yes)
    if isinstance(shares, list):
        entries = [
            cast("dict[str, Any]", entry)
            for entry in cast("list[Any]", shares)
            if isinstance(entry, dict)
        ]
        shares = {str(entry.get("value")): entry.get("probability") for entry in entries} or None
    if not isinstance(shares, dict):
        raise _UnansweredError("the answer has no probabilities")
    return _distribution(keys, cast("dict[str, Any]", shares))


def _distribution(keys: Sequence[str], shares: Mapping[str, Any]) -> _Row:
    """In the order of `keys`, with the sum 1: endpoints round, and some to two decimals."""
    if set(shares) != set(keys):
        names = ", ".join(map(str, shares))
        raise _UnansweredError(f"the probabilities are of other options: {names:.120}")
    values = [shares[key] for key in keys]
    total = math.fsum(values) if all(_is_probability(value) for value in values) else math.nan
    if not abs(total - 1) <= max(SUM_TOLERANCE, ROUNDED * len(keys)):
        raise _UnansweredError(f"the probabilities are no distribution: {json.dumps(values):.120}")
    return tuple(value / total for value in values)


def _is_probability(value: object) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= cast("float", value) <= 1


@dataclass
class DecisionCalls:
    """The calls of one client on its endpoint's decision wire. `known`: "ask" until it is found."""

    name: str
    model: str
    http: Http
    base_url: str
    post: Post
    known: Decisions = "ask"
    price: Price | None = None
    _finding: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    async def __call__(self, request: Request) -> Response:
        """Answers the questions, or says which wire is spoken where those are `FIND_WIRE`.

        Raises:
            CapabilityError: the endpoint speaks no decision wire.
            TooLongError: the state does not fit.
            ModelError: as the client has it.
        """
        if request.questions == FIND_WIRE:
            return await self._find_wire()
        if self.known == "ask":
            await self._find_wire()
        if self.known == "ask" or self.known == "none":
            raise CapabilityError(
                f"{self.name}: the endpoint speaks neither System One nor Decisions; name a"
                " decision model, or a model that gives log-probabilities"
            )
        state = request.messages[-1]
        if state.images:
            raise no_images(self.name, "decisions are made of texts")
        questions, started = load_questions(request.questions or FIND_WIRE), perf_counter()
        status, answer, failed = await self._ask(self.known, state.text, questions, 502)
        if isinstance(failed, TooLongError):
            raise TooLongError(
                f"{failed}; `context` in the settings of its provider says how many tokens it"
                " takes, and longer states are cut"
            )
        if status == 501:
            raise CapabilityError(f"{failed}: it does not decide by {WIRES[self.known].name}")
        if answer is None or answer.answers is None:
            raise failed
        text, seconds = read_answers(answer.answers, questions), perf_counter() - started
        return Response(text, "stop", self._usage(answer, state.text), seconds=seconds)

    async def _find_wire(self) -> Response:
        """Tries a small question on each wire. What is no answer to that question, such as a
        time-out or a refused key, is raised, so that nobody remembers it as a no."""
        async with self._finding:
            started, usage = perf_counter(), Usage()
            for wire in WIRES if self.known == "ask" else ():
                status, answer, failed = await self._ask(wire, TRIAL_STATE, (TRIAL,), 404)
                if answer is not None and answer.answers:
                    self.known, usage = wire, self._usage(answer, TRIAL_STATE)
                    break
                if not (status in NOT_SPOKEN or status == 200 or 300 <= status < 400):
                    raise failed
            else:
                self.known = "none" if self.known == "ask" else self.known
        wire = None if self.known == "none" else self.known
        return Response(dump_wire(wire), "stop", usage, seconds=perf_counter() - started)

    async def _ask(
        self, wire: Wire, state: str, questions: Sequence[Question], unnamed: int
    ) -> tuple[int, DecisionAnswer | None, ModelError]:
        """The status, the answer, and the error to raise where that cannot be used. `unnamed`: the
        status of an error that comes with a 200 and names none."""
        body = encode(decision_body(wire, self.model, state, questions))
        status, headers, raw = await self.post(URL(self.base_url + WIRES[wire].path), body)
        answer = None
        if status == 200:
            with suppress(ValidationError):
                answer = DecisionAnswer.model_validate_json(raw)
            if answer is None or not answer.error:
                read = answer is not None and answer.answers is not None
                said = "" if read else self.http.say(raw)
                unread = UnavailableError(f"{self.name}: a 200 without decisions: {said}")
                return status, answer, unread
            refusal = error_object(answer.error)
            status = status_of(refusal, unnamed)
        else:
            refusal = read_refusal(raw)
        return status, None, self.http.failure(status, refusal, headers)

    def _usage(self, answer: DecisionAnswer, state: str) -> Usage:
        """No text is written, so where no output is counted there was none."""
        reported = answer.usage
        if reported is not None and reported.completion_tokens is None:
            reported = reported.model_copy(update={"completion_tokens": 0})
        return usage_of(reported, self.price, estimate=(count_tokens(state), 0))
