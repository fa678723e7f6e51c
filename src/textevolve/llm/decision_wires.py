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
from textevolve.llm.refusals import (
    error_object,
    failure,
    no_images,
    read_refusal,
    retry_after,
    status_of,
)
from textevolve.llm.reported_usage import READABLE, ReportedUsage, usage_of
from textevolve.llm.token_count import count_tokens
from textevolve.llm.wire import encode
from textevolve.settings import Decisions, Price

PATHS: Mapping[Wire, str] = {
    "systemone": "/systemone",
    "decisions": "/decisions",
    "sglang": "/decisions",
}
"""Where each wire is spoken, below the endpoint's base."""

NAMES: Mapping[Wire, str] = {
    "systemone": "System One",
    "decisions": "OpenAI Decisions",
    "sglang": "SGLang decisions",
}

TRIAL = predicate("sky", "Is the sky blue on a clear day?")
TRIAL_STATE = "A clear day in summer."
"""The small question by which it is found out what an endpoint speaks."""

CHARACTERS_PER_TOKEN = 3
"""Fewer than English texts have, so that what is left of a long state fits."""

ROUNDED = 0.005
"""By how much one probability may be off where an endpoint rounds to two decimals."""

_Row: TypeAlias = tuple[float, ...]
"""The probabilities of one question, in the order of its options."""


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """Why a question has no answer."""

    reason: str


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


def decision_body(
    wire: Wire, model: str, state: str, questions: Sequence[Question]
) -> dict[str, Any]:
    """The request as the wire has it."""
    if wire == "systemone":
        asked = {question.name: _systemone_question(question) for question in questions}
        return {"model": model, "state": state, "questions": asked}
    write = _openai_question if wire == "decisions" else _sglang_question
    return {"model": model, "input": state, "questions": [write(one) for one in questions]}


def _systemone_question(question: Question) -> dict[str, Any]:
    described: Any
    if question.kind == "predicate":
        words = zip(("false", "true"), question.options, strict=True)
        described = {word: option.description for word, option in words if option.description}
        kind = "noul"
    elif question.kind == "choice":
        described = {option.value: option.description or None for option in question.options}
        kind = "choice"
    else:
        described = [option.description for option in question.options]
        kind = "score"
    asked = {"type": kind, "instructions": question.instructions}
    return asked | {"criteria": described} if described else asked


def _openai_question(question: Question) -> dict[str, Any]:
    """A predicate has no place for what yes and no mean, so its instructions say it."""
    asked = {
        "type": question.kind,
        "name": question.name,
        "instructions": question.instructions,
    }
    if question.kind == "predicate":
        no, yes = (option.description for option in question.options)
        said = [f"{word}: {text}" for word, text in (("True", yes), ("False", no)) if text]
        return asked | {"instructions": "\n".join([question.instructions, *said])}
    field, key = ("choices", "value") if question.kind == "choice" else ("levels", "label")
    options = [
        {key: option.value} | ({"description": option.description} if option.description else {})
        for option in question.options
    ]
    return asked | {field: options}


def _sglang_question(question: Question) -> dict[str, Any]:
    asked: dict[str, Any] = {"id": question.name, "question": question.instructions}
    if question.kind == "predicate":
        words = zip(("no", "yes"), question.options, strict=True)
        described = {word: option.description for word, option in words if option.description}
        return asked | {"type": "yes_no"} | described
    if question.kind == "score":
        return asked | {"type": "score", "levels": [one.description for one in question.options]}
    options = [
        {"name": option.value} | ({"description": option.description} if option.description else {})
        for option in question.options
    ]
    return asked | {"type": "choice", "options": options}


def read_answers(
    wire: Wire, given: dict[str, Any] | list[Any], questions: Sequence[Question]
) -> str:
    """The text of a response (`dump_answers`): a row for each question that was answered, and why
    the others were not. What the endpoint itself says of its confidence is left out."""
    read: Callable[[Question, Mapping[str, Any]], _Row | _Unanswered]
    read = _read_openai if wire == "decisions" else _read_mapped
    found = _by_name(given, questions)
    rows: dict[str, _Row] = {}
    failed: dict[str, str] = {}
    for question in questions:
        if question.name not in found:
            continue  # who reads the response calls it left out
        answer = found[question.name]
        if not isinstance(answer, dict):
            row: _Row | _Unanswered = _Unanswered(f"the answer is no object: {answer!r:.80}")
        else:
            row = read(question, cast("dict[str, Any]", answer))
        if isinstance(row, _Unanswered):
            failed[question.name] = row.reason
        else:
            rows[question.name] = row
    return dump_answers(rows, failed)


def _by_name(given: dict[str, Any] | list[Any], questions: Sequence[Question]) -> Mapping[str, Any]:
    """A list's answers have the names of their questions, or else stand in the questions' order."""
    if isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for number, answer in enumerate(given):
        said = cast("dict[str, Any]", answer).get("name") if isinstance(answer, dict) else None
        if said is None and len(given) == len(questions):
            said = questions[number].name
        if isinstance(said, str):
            found[said] = answer
    return found


_SAID_OF = {"noul": "predicate", "yes_no": "predicate"}


def _other_type(question: Question, answer: Mapping[str, Any]) -> _Unanswered | None:
    said = answer.get("type")
    if said == "refusal":
        why = answer.get("refusal") or answer.get("reason") or answer.get("message")
        told = f": {why!r:.200}" if isinstance(why, str) else ""
        return _Unanswered(f"the model refuses to answer this question{told}")
    if not isinstance(said, str) or _SAID_OF.get(said, said) != question.kind:
        return _Unanswered(f"the answer is of the type {said!r:.40}, asked was a {question.kind}")
    return None


def _read_mapped(question: Question, answer: Mapping[str, Any]) -> _Row | _Unanswered:
    """System One's and SGLang's: probabilities by option, or by the number of the level."""
    if other := _other_type(question, answer):
        return other
    if question.kind == "predicate" and "noul" in answer:
        return _predicate(answer["noul"])
    keys = ["no", "yes"] if question.kind == "predicate" else [o.value for o in question.options]
    shares = answer.get("probabilities")
    if not isinstance(shares, dict):
        return _Unanswered("the answer has no probabilities")
    return _distribution(keys, cast("dict[str, Any]", shares))


def _read_openai(question: Question, answer: Mapping[str, Any]) -> _Row | _Unanswered:
    if other := _other_type(question, answer):
        return other
    if question.kind == "predicate":
        return _predicate(answer.get("probability"))
    listed = answer.get("probabilities")
    if not isinstance(listed, list):
        return _Unanswered("the answer has no probabilities")
    shares: dict[str, Any] = {}
    for entry in cast("list[Any]", listed):
        if isinstance(entry, dict):
            said = cast("dict[str, Any]", entry)
            shares[str(said.get("value"))] = said.get("probability")
    return _distribution([option.value for option in question.options], shares)


def _predicate(yes: object) -> _Row | _Unanswered:
    if not _is_probability(yes):
        return _Unanswered(f"the answer is no probability: {yes!r:.80}")
    return (1.0 - yes, yes)


def _distribution(keys: Sequence[str], shares: Mapping[str, Any]) -> _Row | _Unanswered:
    """In the order of `keys`, with the sum 1: endpoints round, and some to two decimals."""
    if set(shares) != set(keys):
        said = ", ".join(map(str, shares))
        return _Unanswered(f"the probabilities are of other options: {said:.120}")
    values = [shares[key] for key in keys]
    total = math.fsum(values) if all(_is_probability(value) for value in values) else math.nan
    if not abs(total - 1) <= max(SUM_TOLERANCE, ROUNDED * len(keys)):
        return _Unanswered(f"the probabilities are no distribution: {json.dumps(values):.120}")
    return tuple(value / total for value in values)


def _is_probability(value: object) -> TypeGuard[float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= cast("float", value) <= 1


Post: TypeAlias = Callable[[URL, bytes], Awaitable[tuple[int, Mapping[str, str], bytes]]]

NOT_SPOKEN = frozenset((400, 404, 405, 422, 501))
"""What an endpoint answers to a small question on a wire that it, or its model, does not speak.
Redirections count too, and a 200 that holds something else."""

TRIED: tuple[Wire, ...] = ("systemone", "decisions", "sglang")


@dataclass
class DecisionCalls:
    """What one client sends to its endpoint's decision wire. `known`: "ask" until it was found."""

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
        if request.messages[-1].images:
            raise no_images(self.name, "decisions are made of texts")
        questions = load_questions(request.questions or FIND_WIRE)
        return await self._ask(self.known, request.messages[-1].text, questions)

    async def _find_wire(self) -> Response:
        """Tries a small question on each wire. What is no answer to that question, such as a
        time-out or a refused key, is raised, so that nobody remembers it as a no."""
        async with self._finding:
            started = perf_counter()
            usage = Usage()
            for wire in TRIED if self.known == "ask" else ():
                tried = await self._try(wire)
                if tried is not None:
                    self.known, usage = wire, tried
                    break
            else:
                self.known = "none" if self.known == "ask" else self.known
        wire = None if self.known == "none" else self.known
        return Response(dump_wire(wire), "stop", usage, seconds=perf_counter() - started)

    async def _try(self, wire: Wire) -> Usage | None:
        """What the trial took, None where the wire is not spoken."""
        status, headers, raw = await self._send(wire, TRIAL_STATE, (TRIAL,))
        answer = _read(raw) if status == 200 else None
        if answer is not None and answer.error:
            status = status_of(error_object(answer.error), 404)
        elif answer is not None and answer.answers:
            return self._usage(answer, TRIAL_STATE)
        if status in NOT_SPOKEN or status == 200 or 300 <= status < 400:
            return None
        raise self._failure(status, headers, raw)

    async def _ask(self, wire: Wire, state: str, questions: Sequence[Question]) -> Response:
        started = perf_counter()
        status, headers, raw = await self._send(wire, state, questions)
        if status != 200:
            raise self._refused(wire, self._failure(status, headers, raw), status)
        answer = _read(raw)
        if answer is not None and answer.error:
            refusal = error_object(answer.error)
            status = status_of(refusal, 502)
            failed = failure(self.name, status, refusal, secrets=self.http.secrets)
            raise self._refused(wire, failed, status)
        if answer is None or answer.answers is None:
            raise UnavailableError(f"{self.name}: a 200 without decisions: {self.http.say(raw)}")
        return Response(
            text=read_answers(wire, answer.answers, questions),
            finish_reason="stop",
            usage=self._usage(answer, state),
            seconds=perf_counter() - started,
        )

    async def _send(
        self, wire: Wire, state: str, questions: Sequence[Question]
    ) -> tuple[int, Mapping[str, str], bytes]:
        body = encode(decision_body(wire, self.model, state, questions))
        return await self.post(URL(self.base_url + PATHS[wire]), body)

    def _usage(self, answer: DecisionAnswer, state: str) -> Usage:
        """No text is written, so where no output is counted there was none."""
        said = answer.usage
        if said is not None and said.completion_tokens is None:
            said = said.model_copy(update={"completion_tokens": 0})
        return usage_of(said, self.price, estimate=(count_tokens(state), 0))

    def _failure(self, status: int, headers: Mapping[str, str], raw: bytes) -> ModelError:
        refusal, wait = read_refusal(raw), retry_after(headers)
        return failure(self.name, status, refusal, wait=wait, secrets=self.http.secrets)

    def _refused(self, wire: Wire, failed: ModelError, status: int) -> ModelError:
        if isinstance(failed, TooLongError):
            return TooLongError(
                f"{failed}; `context` in the settings of its provider says how many tokens it"
                " takes, and longer states are cut"
            )
        if status == 501:
            return CapabilityError(f"{failed}: it does not decide by {NAMES[wire]}")
        return failed


def _read(raw: bytes) -> DecisionAnswer | None:
    with suppress(ValidationError):
        return DecisionAnswer.model_validate_json(raw)
    return None
