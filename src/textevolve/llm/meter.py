"""The meter of paid calls: what each request costs that is sent, however it ends, and what a part
of a run has used.

A client opens a `SentCall` around every request, and a `Tab` collects what becomes of those within
a block. An attempt that was paid and gave no answer (the connection broke, the time ran out, the
answer cannot be used) stands on it at the usage that the endpoint reported, or at an estimate from
the texts. The wrapper that stores calls opens a tab for each of them, and so does the one that
keeps limits: what stands on it is stored, counted and limited like an answer.

A part of a run, such as a judge or a step of a loop, reads what it used from a tab of its own, with
the answers of the journal as their original calls: in all (`UsageMeter`), or each request once, as
if it had been sent with a fresh store (`DistinctCalls`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from pydantic_core import from_json

from textevolve.errors import FatalModelError, UnavailableError
from textevolve.evaluation import Usage, empty_default, sum_usage
from textevolve.json_texts import as_object
from textevolve.llm.model import NOTHING, Model, Request, Response
from textevolve.llm.prices import usage_of
from textevolve.llm.prompts import estimate_text
from textevolve.llm.refusals import Refusal, read_refusal
from textevolve.protocol.contents import ReportedUsage
from textevolve.settings import Price

HUNG_UP = "cancelled before the answer came"
"""The reason of an attempt that ended because nobody waited for it any more."""


def estimate_usage(prompt: int, completion: int, price: Price | None) -> Usage:
    """Return the usage of an answer that broke off, by the tokens of its texts at the model's
    price."""
    counted = ReportedUsage(prompt_tokens=prompt, completion_tokens=completion)
    return replace(usage_of(counted, price), estimated=1)


@dataclass(frozen=True, slots=True)
class PaidFailure:
    """An attempt that was paid and gave no answer. `reason`: what became of it."""

    usage: Usage
    reason: str


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """The usage and the duration of one answer, even if it came from the journal. `key`: the
    journal's key of the request."""

    key: str
    usage: Usage
    seconds: float


@dataclass(slots=True)
class Tab:
    """The calls within a `with` block. They also stand on the enclosing tab.

    Attributes:
        failures: The attempts that were paid and gave no answer, oldest first.
        answers: The usage of the attempts with an answer.
        calls: The calls that were answered, by a model or from a journal.
    """

    failures: list[PaidFailure] = empty_default(list)
    answers: list[Usage] = empty_default(list)
    calls: list[AnsweredCall] = empty_default(list)
    _token: Token[Tab] | None = None

    def __enter__(self) -> Self:
        self._token = _tab.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _tab.reset(self._token)
        if (outer := _tab.get(None)) is not None:
            outer.failures += self.failures
            outer.answers += self.answers
            outer.calls += self.calls

    @property
    def usage(self) -> Usage:
        """The usage of the failures."""
        return sum_usage(self.failures)

    @property
    def is_used(self) -> bool:
        """Tell whether a call was answered, or paid without an answer."""
        return bool(self.calls or self.failures)


_tab: ContextVar[Tab] = ContextVar("tab")


def note_failure(usage: Usage, reason: str) -> None:
    """Put a paid attempt without a usable answer on the tab, if there is one."""
    if (tab := _tab.get(None)) is not None:
        tab.failures.append(PaidFailure(usage, reason))


def note_call(key: str, response: Response) -> Response:
    """Put an answered call on the tab, if there is one, and return its response."""
    if (tab := _tab.get(None)) is not None:
        tab.calls.append(AnsweredCall(key, response.usage, response.seconds))
    return response


class SentCall:
    """One request to an endpoint, in a `with` block that ends when its answer was read.

    A refusal is read without an error and costs the tokens that it names. If the block raises an
    error, the attempt is put on the tab: until `answered` is set by an estimate from the texts,
    afterwards by `usage`.

    Attributes:
        prompt: The estimated tokens of the prompt.
        received: Returns the text that has come so far, for answers that break off.
        answered: Whether the whole answer of the endpoint has come.
        usage: What the endpoint reported; None: nothing is charged, as for a page of a gateway.
        failure: Why the answer is none, if the endpoint said so in it; empty for an answer.
    """

    __slots__ = ("answered", "failure", "price", "prompt", "received", "usage")

    def __init__(self, prompt: int, price: Price | None, received: Callable[[], str] = str) -> None:
        self.prompt = prompt
        self.price = price
        self.received = received
        self.answered = False
        self.usage: Usage | None = None
        self.failure = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if error is None and self.failure:
            self.charge(self.failure)
            return
        if error is None:
            if self.usage is not None and (tab := _tab.get(None)) is not None:
                tab.answers.append(self.usage)
            return
        if not self.answered and not is_unsent(error):
            self.usage = estimate_usage(self.prompt, estimate_text(self.received()), self.price)
        self.charge(str(error) or HUNG_UP)

    def read_refusal(self, raw: bytes, scrub: Callable[[str], str]) -> Refusal:
        """Read a refusal, and charge the tokens that it names. `scrub`: removes keys from its
        message."""
        refusal = read_refusal(raw)
        if reported := _read_usage(raw):
            reported.completion_tokens = reported.completion_tokens or 0
            self.usage = usage_of(reported, self.price)
            self.failure = scrub(refusal.message)

        return refusal

    def charge(self, reason: str) -> None:
        """Put the attempt on the tab, as one that gave no answer."""
        if self.usage is not None:
            note_failure(self.usage, reason)


def is_unsent(error: BaseException) -> bool:
    """Return whether no request was sent: there was no connection, or it was not trusted."""
    if isinstance(error, UnavailableError):
        return bool(error.address)
    return isinstance(error, FatalModelError)


class UsageMeter:
    """A model that passes requests on and sums up the answers' `usage` and `seconds`, including
    unusable answers, attempts that were paid and gave none, and answers from the journal, which
    count as their original calls."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = model.name
        self.usage = NOTHING
        self.seconds = 0.0

    async def __call__(self, request: Request, /) -> Response:
        with Tab() as tab:
            try:
                response = await self.model(request)
            finally:
                if tab.failures:
                    self.usage += tab.usage

        self.usage = response.usage if self.usage is NOTHING else self.usage + response.usage
        self.seconds += response.seconds
        return response


class DistinctCalls:
    """A counter of the usage of distinct requests. Each request counts once, as if it were sent
    with a fresh store, even if the journal or another call answered it."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def count(self, *tabs: Tab) -> tuple[Usage, float]:
        """Return the usage and the seconds of the requests on the tabs that were not counted
        before, and of all their paid failures."""
        usage = sum_usage(tabs)
        seconds = 0.0

        for tab in tabs:
            for call in tab.calls:
                if call.key not in self._known:
                    self._known.add(call.key)
                    usage += call.usage
                    seconds += call.seconds

        return usage, seconds


def sum_calls(*tabs: Tab) -> Usage:
    """Return the usage of the distinct requests on some tabs, by whichever model."""
    return DistinctCalls().count(*tabs)[0]


# Answers that are passed on to a client


def hides_usage(body: Mapping[str, Any]) -> bool:
    """Return whether a client asks for a stream, and not for its usage."""
    options = as_object(body.get("stream_options"))
    return bool(body.get("stream")) and not options.get("include_usage")


class UsageReader:
    """A reader that finds a call's usage in the bytes of the answer while they are forwarded.
    `body`: the request. `price`, `reports_cost`: as in `usage_of`."""

    def __init__(
        self, body: Mapping[str, Any], price: Price | None, reports_cost: bool = False
    ) -> None:
        self._body = body
        self._price = price
        self._reports_cost = reports_cost
        self._said = b""
        self._events = 0

    def read(self, part: bytes) -> None:
        """Process the next lines of a stream, none of them cut, or a whole answer."""
        self._events += part.count(b"data:")
        if b'"usage"' in part:
            self._said = part

    @property
    def usage(self) -> Usage:
        """Return the reported usage. What is not reported is estimated: the prompt by its length,
        the answer by the number of events, each of which has about a token."""
        prompt = estimate_text(
            json.dumps(self._body.get("messages") or self._body.get("input"), ensure_ascii=False)
        )
        for line in (self._said, *reversed(self._said.splitlines())) if self._said else ():
            if reported := _read_usage(line):
                return usage_of(reported, self._price, reports_cost=self._reports_cost)

        return estimate_usage(prompt, self._events, self._price)


def _read_usage(line: bytes) -> ReportedUsage | None:
    """Return the usage in a body or an event; None if it names no tokens of a prompt."""
    try:
        body: Any = from_json(line.removeprefix(b"data:"))
        reported = ReportedUsage.model_validate(body["usage"])
    except (ValueError, KeyError, TypeError):
        return None
    return reported if reported.prompt_tokens else None


def has_usage_alone(line: bytes) -> bool:
    """Return whether a line of a stream has usage and no choice, for a client that did not ask for
    usage."""
    if b'"usage"' not in line:
        return False
    try:
        body = as_object(from_json(line.removeprefix(b"data:")))
    except ValueError:
        return False
    return bool(body.get("usage")) and body.get("choices") == []
