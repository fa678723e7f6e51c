"""Asking an endpoint to decide: which wire it speaks, sending, and what its refusals mean.

One call is one attempt, as with chats. Not here: bodies and answers (`decision_wires`), and how a
chat model is made to decide (`emulation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeAlias

from pydantic import ValidationError
from yarl import URL

from textevolve.errors import CapabilityError, ModelError, TooLongError, UnavailableError
from textevolve.evaluation import Usage
from textevolve.llm.connections import Http
from textevolve.llm.decision_wires import (
    NAMES,
    PATHS,
    TRIAL,
    TRIAL_STATE,
    DecisionAnswer,
    decision_body,
    read_answers,
)
from textevolve.llm.decisions import (
    FIND_WIRE,
    Question,
    Wire,
    dump_wire,
    load_questions,
)
from textevolve.llm.model import Request, Response
from textevolve.llm.refusals import (
    error_object,
    failure,
    no_images,
    read_refusal,
    retry_after,
    status_of,
)
from textevolve.llm.reported_usage import usage_of
from textevolve.llm.token_count import count_tokens
from textevolve.llm.wire import encode
from textevolve.settings import Decisions, Price

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
