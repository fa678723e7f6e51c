"""Wrappers around a model: retries, journal, replay, budget, and a watch for progress.

The usual order, outermost first: `Journaled(Budgeted(Retrying(Limited(client))))`. So replayed
answers cost nothing, a budget counts each call once, and a call that waits for its next attempt
does not count as in flight. Limits of concurrency and rate, and pools, are in `limiting`.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from time import perf_counter, process_time, thread_time, time
from typing import Any, TypeVar

from textevolve.engine.local import cancel
from textevolve.errors import (
    AccessError,
    BudgetError,
    CallError,
    ModelError,
    RejectedError,
    SettingsError,
    StoreError,
    UnavailableError,
)
from textevolve.evaluation import Usage, empty_default
from textevolve.events import CallFinished, CallRetried, Listener, silence
from textevolve.llm.meter import HUNG_UP, Tab, note_call
from textevolve.llm.model import (
    NOTHING,
    Journal,
    JournalEntry,
    Model,
    Request,
    Response,
    request_key,
)
from textevolve.llm.prices import cost_of
from textevolve.llm.prompts import CHARACTERS_A_TOKEN, prompt_tokens
from textevolve.llm.structured import is_lost
from textevolve.settings import Price, Retries
from textevolve.spans import NO_SPAN, current_span, span


def backoff(retries: Retries, attempt: int, requested: float | None, rng: Random) -> float:
    """Return the seconds to wait after the failed `attempt` (from 1): the requested time plus a
    random part (full jitter), so that callers with the same requested time do not retry together.

    The result is in [requested, requested + min(longest, first x 2^(attempt - 1))].
    """
    most = min(retries.longest, retries.first * 2.0 ** min(attempt - 1, 60))
    return (requested or 0.0) + rng.uniform(0.0, most)


UNCONNECTED = 8
"""The number of failed connections after which a server that has answered nothing is taken to be
off."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A model that retries calls that raised `UnavailableError`, up to `retries.attempts` attempts,
    and as long as the waits between them add up to less than `deadline` seconds.

    The final error has the number of attempts in `attempts`. It is an `AccessError`, which ends the
    run, if none of the first `UNCONNECTED` calls could connect. Until the server has answered, only
    so many calls are tried again at a time. `calls`: the number of attempts that the server
    "answered", also by a refusal that is worth a retry, and of calls that ended "unconnected".
    `probes`: held by calls that are tried again before the first answer.
    """

    model: Model
    retries: Retries = field(default_factory=Retries)
    deadline: float = 900.0
    listener: Listener = silence
    rng: Random = field(default_factory=Random)
    calls: Counter[str] = empty_default(Counter)
    probes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UNCONNECTED))

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        attempt = 0
        attempts_made = 0
        waited = 0.0
        is_probe = False
        try:
            while True:
                attempt += 1
                try:
                    response = await self.model(request)
                    self.calls["answered"] += 1
                    if not attempts_made:
                        return response
                    return replace(response, attempts=attempts_made + response.attempts)
                except UnavailableError as error:
                    failed = error
                    self.calls["answered"] += error.status is not None
                except ModelError as error:
                    error.attempts += attempts_made
                    raise

                attempts_made += failed.attempts  # a pool makes several
                if attempt == 1 and failed.address and not self.calls["answered"]:
                    is_probe = await self.probes.acquire()
                if attempt >= self.retries.attempts or self._is_absent():
                    raise self._give_up(attempts_made, failed)
                wait = backoff(self.retries, attempt, failed.retry_after, self.rng)
                waited += wait

                if waited >= self.deadline:
                    raise self._give_up(
                        attempts_made,
                        failed,
                        f" (the next attempt would be in {wait:.1f} s, after the deadline)",
                    )

                self.listener(CallRetried(self.name, str(failed), attempt, wait))
                await asyncio.sleep(wait)
        finally:
            if is_probe:
                self.probes.release()

    def _give_up(
        self, attempts_made: int, failed: UnavailableError, reason: str = ""
    ) -> ModelError:
        tried = "1 attempt" if attempts_made == 1 else f"{attempts_made} attempts"
        message = f"no answer after {tried}{reason}; the last: {failed}"
        error: ModelError = UnavailableError(
            message, status=failed.status, retry_after=failed.retry_after, address=failed.address
        )
        self.calls["unconnected"] += bool(failed.address)

        if self._is_absent():
            reason = str(failed).removeprefix(f"{self.name}: ")
            error = AccessError(
                f"{self.name}: cannot connect to {failed.address}: the first {UNCONNECTED} calls"
                f" all failed, the last one with: {reason}; start the server or correct its"
                " address, then resume the run"
            )

        error.attempts = attempts_made

        return error

    def _is_absent(self) -> bool:
        """Return whether the server is taken to be off: it has answered no call, and many calls
        could not connect."""
        return self.calls["unconnected"] >= UNCONNECTED and not self.calls["answered"]


class Journaled:
    """A model that answers from the journal if it can; otherwise it calls the wrapped model, and
    stores the outcome, an answer or an error, before returning it. Stored errors do not answer
    calls: an equal call is sent again.

    Equal requests at the same time are sent once. Calls that were cancelled or stopped by a budget
    are not stored.
    """

    def __init__(self, model: Model, journal: Journal, listener: Listener = silence) -> None:
        self.model = model
        self.name = model.name
        self.journal = journal
        self.listener = listener
        self._asked: dict[str, asyncio.Future[Response | None]] = {}
        self._answered = False

    async def __call__(self, request: Request, /) -> Response:
        if current_span.get() is NO_SPAN:
            return await self._answer(request)
        with span("model", self.name, request=request) as here:
            response = await self._answer(request)
            here.note(response=response)
            return response

    async def _answer(self, request: Request) -> Response:
        key = request_key(self.name, request)
        while (pending := self._asked.get(key)) is not None:
            shared = await asyncio.shield(pending)
            if shared is not None:
                return note_call(key, self._replayed(replace(shared, replayed=True)))

        outcome = self._asked[key] = asyncio.get_running_loop().create_future()

        try:
            stored = await self.journal.find(key)
            # Older runs have stored answers that are none, which must not fail a row for good.
            if stored is not None and not is_lost(stored):
                response = self._replayed(stored)
            else:
                response = await self._ask(key, request)
            self._answered = True
            outcome.set_result(response)
            return note_call(key, response)
        except Exception as error:
            outcome.set_exception(error)
            outcome.exception()  # nobody may be waiting for it
            raise
        finally:
            del self._asked[key]
            if not outcome.done():  # cancelled: the next in line asks
                outcome.set_result(None)

    def _replayed(self, response: Response) -> Response:
        if self.listener is not silence:
            self.listener(CallFinished(self.name, response.usage, 0.0, replayed=True))
        return response

    async def _ask(self, key: str, request: Request) -> Response:
        started = time()
        began = perf_counter()
        outcome: Response | ModelError

        with Tab() as tab:
            try:
                outcome = await self.model(request)
            except ModelError as error:
                outcome = error
                # A resumed run has answers of the model, which its new client does not know.
                if isinstance(error, AccessError) and error.of_text and await self._has_answered():
                    outcome = RejectedError(f"{error}; other calls are answered")
                    outcome.attempts = error.attempts
            except asyncio.CancelledError:
                # The endpoint works on what was sent, and bills it, although nobody waits.
                if tab.failures:
                    last = UnavailableError(HUNG_UP)
                    with suppress(StoreError):
                        await asyncio.shield(self._keep(key, request, last, tab, started, began))
                raise

        await self._keep(key, request, outcome, tab, started, began)
        if isinstance(outcome, ModelError):
            raise outcome

        return outcome

    async def _has_answered(self) -> bool:
        self._answered = self._answered or await self.journal.has_answer(self.name)
        return self._answered

    async def _keep(
        self,
        key: str,
        request: Request,
        outcome: Response | ModelError,
        tab: Tab,
        started: float,
        began: float,
    ) -> None:
        """Store a call: an entry for each attempt that was paid and gave no answer, then that of
        the outcome. The error of the last attempt is the outcome's."""
        seconds = perf_counter() - began
        failed = outcome if isinstance(outcome, ModelError) else None
        response = None if isinstance(outcome, ModelError) else outcome
        reason = None if failed is None else str(failed)
        attempts = outcome.attempts
        entry = JournalEntry(key, self.name, request, response, reason, started, seconds, attempts)
        usage = NOTHING if response is None else response.usage
        entries = [entry]

        if tab.failures:
            lost = tab.failures if failed is None else tab.failures[:-1]
            last = NOTHING if failed is None else tab.failures[-1].usage
            opening_entry = replace(entry, response=None, attempts=1)
            entries = [replace(opening_entry, error=part.reason, usage=part.usage) for part in lost]
            entries.append(replace(entry, attempts=max(1, attempts - len(lost)), usage=last))
            usage += tab.usage

        # Whoever is charged is told at once: the caller may go away while the call is stored.
        if self.listener is not silence:
            self.listener(CallFinished(self.name, usage, seconds, False, reason, failed))
        for each in entries:
            await self.journal.append(each)


UNSEEN_ANSWER = 4096
"""The tokens that a budget reserves for an answer if the request has no limit; twice the longest
answer so far if that is more."""


def unpriced_error(model: str) -> SettingsError:
    """Return the error for a cost limit if the cost of a model is unknown."""
    return SettingsError(
        f"the cost is limited, but the price of {model} is not known; set it in the settings"
        f' under [prices."{model}"], or limit tokens instead'
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """The estimated need of one call, which is reserved in the budget.

    Attributes:
        most_tokens: The most tokens of prompt and answer.
        least_tokens: The fewest tokens that the call will use.
        most_cost: The highest cost in US dollars; infinite if unknown.
        least_cost: The lowest cost in US dollars.
    """

    most_tokens: int
    least_tokens: int
    most_cost: float
    least_cost: float


class Budget:
    """The limits of a run, which all of its calls share.

    Attributes:
        cost: The most US dollars.
        tokens: The most tokens of prompts and answers together.
        calls: The most calls, including failed ones.
        spent: The usage of the run so far, including its earlier processes.
    """

    def __init__(
        self,
        *,
        cost: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
        spent: Usage | None = None,
    ) -> None:
        self.cost = math.inf if cost is None else cost
        self.tokens = math.inf if tokens is None else tokens
        self.calls = math.inf if calls is None else calls
        self.spent = spent or Usage()
        self.in_flight = 0
        self._claimed_tokens = 0
        self._claimed_cost = 0.0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._unpriced = "" if self.spent.cost is not None else "the run so far"

    @property
    def limits(self) -> bool:
        """Return whether any limit is set."""
        return any(map(math.isfinite, (self.cost, self.tokens, self.calls)))

    async def claim(self, claim: Claim) -> None:
        """Reserve what a call may need. If that exceeds what is left, wait for the calls in flight,
        which may use less than they reserved. Without calls in flight the least need decides, so
        one call may exceed a limit.

        Raises:
            BudgetError: a limit is reached, or even the least need of the call exceeds it.
            SettingsError: the cost is limited, and the cost of the call is unknown.
        """
        async with self._turn:
            while True:
                self._check(claim)
                if self.in_flight == 0 or self._fits(claim):
                    break
                self._changed.clear()
                await self._changed.wait()

        self.in_flight += 1
        self._claimed_tokens += claim.most_tokens
        self._claimed_cost += self._bounded(claim)

    def settle(self, claim: Claim, usage: Usage, model: str) -> None:
        """Replace what a call reserved by its actual usage."""
        self.in_flight -= 1
        self._claimed_tokens -= claim.most_tokens
        self._claimed_cost = self._claimed_cost - self._bounded(claim) if self.in_flight else 0.0
        self.spent += usage
        if usage.cost is None:
            self._unpriced = self._unpriced or model
        self._changed.set()

    def _bounded(self, claim: Claim) -> float:
        return min(claim.most_cost, self.cost) if math.isfinite(self.cost) else 0.0

    def _check(self, claim: Claim) -> None:
        if self.spent.calls + self.in_flight >= self.calls:
            raise BudgetError(f"the limit of {self.calls} calls is reached; raise it to continue")
        if self.spent.tokens + claim.least_tokens > self.tokens:
            spent = f"{'about ' if self.spent.estimated else ''}{self.spent.tokens}"
            raise BudgetError(
                f"the limit of {self.tokens} tokens is reached ({spent} are spent, the next call"
                f" needs {claim.least_tokens} or more); raise it to continue"
            )

        if math.isinf(self.cost):
            return
        if self._unpriced:
            raise unpriced_error(self._unpriced)
        spent = self.spent.cost or 0.0

        if spent + claim.least_cost > self.cost or spent >= self.cost:
            raise BudgetError(
                f"the limit of ${self.cost:g} is reached (${spent:.4f} is spent); raise it to"
                " continue"
            )

    def _fits(self, claim: Claim) -> bool:
        tokens = self.spent.tokens + self._claimed_tokens + claim.most_tokens
        if tokens > self.tokens:
            return False
        if math.isinf(self.cost):
            return True
        return (self.spent.cost or 0.0) + self._claimed_cost + claim.most_cost <= self.cost


@dataclass
class ClaimedCall:
    """A call within a budget. `usage`: the usage of the call, which the calling code fills in after
    the answer."""

    usage: Usage = Usage()


class Allowance:
    """The part of one model in a `Budget`: it estimates the need of each call, at first roughly and
    then from the answers so far. Without a price, the costs that the model reports count; if it
    reports none, a cost limit is an error."""

    def __init__(
        self, name: str, budget: Budget, price: Price | None = None, *, reports_cost: bool = True
    ) -> None:
        self.name = name
        self.budget = budget
        self.price = price
        self._unpriced = price is None and not reports_cost and math.isfinite(budget.cost)
        self._seen_per_character = (math.inf, 0.0)
        self._longest_answer = 0
        self._most_per_token = math.inf

    @asynccontextmanager
    async def claimed(self, characters: int, max_tokens: int | None) -> AsyncGenerator[ClaimedCall]:
        """Reserve the need of a call within the block, for a prompt of this many characters.

        Raises:
            BudgetError, SettingsError: for the same reasons as `Budget.claim`.
        """
        if self._unpriced:
            raise unpriced_error(self.name)
        claim = self._estimate(characters, max_tokens)
        await self.budget.claim(claim)
        spent = ClaimedCall()

        with Tab() as tab:
            try:
                yield spent
                self._learn(spent.usage, characters)
            except ModelError:
                # A refused call costs nothing, but counts as a call.
                if not (spent.usage.calls or tab.failures):
                    spent.usage = Usage(calls=1)
                raise
            finally:
                lost = tab.usage
                if lost.cost is None and math.isfinite(self._most_per_token):
                    # The endpoint says a cost only in its answers, and this attempt has none.
                    lost = replace(lost, cost=lost.tokens * self._most_per_token / 2)
                self.budget.settle(claim, spent.usage + lost, self.name)

    def _estimate(self, characters: int, max_tokens: int | None) -> Claim:
        low, high = self._seen_per_character
        most = math.ceil(characters * (1.5 * high or 1.0)) + 64
        least = max(1, math.floor(characters * min(0.5 * low, 0.1)))
        answer = max_tokens or max(UNSEEN_ANSWER, 2 * self._longest_answer)
        if self.price is None:
            return Claim(most + answer, least, self._most_per_token * (most + answer), 0.0)
        highest = cost_of(self.price, most, 0, answer)
        return Claim(most + answer, least, highest, cost_of(self.price, least, least, 0))

    def _learn(self, usage: Usage, characters: int) -> None:
        """Adjust the estimates for the next calls to the usage of an answer, with a
        safety margin."""
        if characters >= 200 and usage.prompt_tokens:
            seen = usage.prompt_tokens / characters
            previous = self._seen_per_character
            low = min(previous[0], seen)
            high = max(previous[1], seen)
            self._seen_per_character = (low, high)

        self._longest_answer = max(self._longest_answer, usage.completion_tokens)
        if usage.cost is not None and usage.tokens:
            previous = 0.0 if math.isinf(self._most_per_token) else self._most_per_token
            self._most_per_token = max(previous, 2 * usage.cost / usage.tokens)


class Budgeted:
    """A model that reserves the need of each call in the run's `Budget` before it calls the wrapped
    model."""

    def __init__(
        self,
        model: Model,
        budget: Budget,
        price: Price | None = None,
        *,
        reports_cost: bool = True,
    ) -> None:
        self.model = model
        self.name = model.name
        self.budget = budget
        self._allowance = Allowance(model.name, budget, price, reports_cost=reports_cost)

    async def __call__(self, request: Request, /) -> Response:
        characters = CHARACTERS_A_TOKEN * prompt_tokens(request)
        async with self._allowance.claimed(characters, request.max_tokens) as spent:
            response = await self.model(request)
            spent.usage = response.usage
            return response


@dataclass(frozen=True, slots=True)
class Salted:
    """A journal that adds a salt to every key, so answers are found only by callers with the same
    salt. An empty salt leaves the keys unchanged."""

    journal: Journal
    salt: str

    def key(self, key: str) -> str:
        return hashlib.sha256(f"{key} {self.salt}".encode()).hexdigest() if self.salt else key

    async def find(self, key: str) -> Response | None:
        return await self.journal.find(self.key(key))

    async def has_answer(self, model: str) -> bool:
        return await self.journal.has_answer(model)

    async def append(self, entry: JournalEntry) -> None:
        await self.journal.append(replace(entry, key=self.key(entry.key)) if self.salt else entry)


def stored_key(journal: Journal, key: str) -> str:
    """Return the key under which a journal stores an answer, with all its salts."""
    while isinstance(journal, Salted):
        key = journal.key(key)
        journal = journal.journal
    return key


def replay_models(
    journal: Journal,
    errors: Callable[[], Mapping[str, str]],
    addresses: Mapping[str, str],
) -> Callable[[str], Model]:
    """Return a function from a spec to a model that replays answers and failures from the journal.
    `errors`: returns the reasons of failures by key. `addresses`: the digests of the addresses that
    were asked, by the specs of models."""
    cached_errors = cache(errors)
    return lambda spec: _Replayed(spec, Salted(journal, addresses.get(spec, "")), cached_errors)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A model that repeats the stored answers and failures of the model with this name, and makes
    no calls. A request that the journal lacks raises `BudgetError`."""

    name: str
    journal: Journal
    errors: Callable[[], Mapping[str, str]]

    async def __call__(self, request: Request, /) -> Response:
        key = request_key(self.name, request)
        if stored := await self.journal.find(key):
            return note_call(key, stored)
        if reason := self.errors().get(stored_key(self.journal, key)):
            raise CallError(reason)
        raise BudgetError("the journal has no answer to this call; resume the run to make it")


T = TypeVar("T")

WATCH_SECONDS = 5.0
"""The most seconds between two looks at the server; shorter calls are not watched."""
WORK_SECONDS = 1.0
WORK_SHARE = 0.05
"""The processor seconds that count as work of the server: so many, or this share of the patience if
that is less. Other threads of the process use less while they wait for a model."""
WORK_PATIENCES = 10
"""The most times of the patience for which work without a change of the state counts."""


class ProgressWatch:
    """A watch over the calls of one server in this process, which makes them fail if the server
    makes no progress.

    The state of llama.cpp's server changes after each batch of tokens, which on a busy machine may
    take longer than the patience. So the processor time of the process counts, too.

    Args:
        look: Returns the server's state as bytes.
        patience: The most seconds for which the state may stay the same while the server does not
            work; while it works, `WORK_PATIENCES` times as many.
    """

    def __init__(self, name: str, look: Callable[[], Awaitable[bytes]], patience: float) -> None:
        self._name = name
        self._look = look
        self._patience = patience
        self._every = min(WATCH_SECONDS, patience / 4)
        self._least_work = min(WORK_SECONDS, WORK_SHARE * patience)
        self._state = b""
        self._moved = 0.0
        self._used = 0.0
        self._worked = 0.0
        self._in_flight = 0

    async def follow(self, call: Coroutine[Any, Any, T]) -> T:
        """Await the call under watch.

        Raises:
            UnavailableError: the server makes no progress.
        """
        loop = asyncio.get_running_loop()
        if not self._in_flight:  # idle before, which is no standstill
            self._moved = loop.time()
            self._used = _processor_seconds()
        self._in_flight += 1
        answer = asyncio.ensure_future(call)
        watch = asyncio.ensure_future(self._watch())

        try:
            await asyncio.wait({answer, watch}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else watch.result()
        finally:
            self._in_flight -= 1
            await cancel((answer, watch))
            if not answer.cancelled() and answer.exception() is None:
                self._moved = loop.time()

    async def _watch(self) -> Any:
        """Check the server repeatedly; raise an error if it makes no progress."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._every)
            await self._note_progress()
            now = loop.time()
            is_idle = now - max(self._moved, self._worked) >= self._patience
            if is_idle or now - self._moved >= WORK_PATIENCES * self._patience:
                raise UnavailableError(
                    f"{self._name}: the local model has made no progress for"
                    f" {now - self._moved:.3g} s; use a smaller model, give it more of the"
                    " processor (other programs may use it), or raise the setting timeouts.read"
                )

    async def _note_progress(self) -> None:
        """Look at the server's state and at its use of the processor, and note the time of each
        change. A state that does not arrive in time counts as no change."""
        state = self._state
        now = asyncio.get_running_loop().time()

        try:
            # However late this turn of the loop has come, the server has its time to say.
            async with asyncio.timeout_at(max(self._moved + self._patience, now + self._every)):
                state = await self._look()
        except (TimeoutError, ModelError):
            pass

        now = asyncio.get_running_loop().time()
        if state != self._state:
            self._state = state
            self._moved = now
        used = _processor_seconds()
        if used - self._used >= self._least_work:
            self._used = used
            self._worked = now


def _processor_seconds() -> float:
    """Return the processor time of all threads of the process but this one, which runs the loop."""
    return process_time() - thread_time()
