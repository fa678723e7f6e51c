"""Limit the calls of one endpoint, and distribute calls over pools of several endpoints.

`Limited` is a model with one queue. A call starts if the number of calls in flight allows it (this
limit grows additively, and is halved by a 429) and no rate limit delays it. Rate limits of the
settings are token buckets; if an endpoint's headers report too little left for the calls in flight,
new calls wait for the reported reset. In a `Pool` each call tries every endpoint (member) at most
once, and failing members are excluded for a while; retries wrap the whole pool.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import Any

from textevolve.errors import AccessError, FatalModelError, ModelError, UnavailableError
from textevolve.events import CallHeld, CallRetried, Listener, silence
from textevolve.json_texts import as_array
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.prompts import prompt_tokens
from textevolve.settings import PromptCache

# Mark the beginnings of prompts that are used again, for the endpoint's prompt cache.
#
# Prompts grow at their end: the prompts of a debate share system message, opening and history, and
# differ at the boundaries of a message's parts (`model.Message`). The marks are hints: they change
# no answer, and are not a part of the journal's key.

KEY_FIELD = "prompt_cache_key"
MARK_FIELD = "cache_control"
MARK: Mapping[str, Any] = {MARK_FIELD: {"type": "ephemeral"}}


def prefix_key(request: Request) -> str | None:
    """Return a key of 32 characters for the prefix that this request shares with others of its
    debate or chat; None if no prefix is reused.

    The prefix consists of the system messages and the first part after them, if more follows.
    """
    places, prefix_end = _split(request)
    if len(places) < prefix_end + 2:
        return None
    digest = blake2b(digest_size=16)
    for message, part in places[: prefix_end + 1]:
        text = request.messages[message].parts[part]
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")

    return digest.hexdigest()


def _split(request: Request) -> tuple[list[tuple[int, int]], int]:
    """Return the places of all parts of a prompt, each as the index of a message and of its part,
    and the number of those in the system messages at the beginning."""
    messages = request.messages
    places = [(n, part) for n, message in enumerate(messages) for part in range(len(message.parts))]
    roles = [messages[message].role for message, _ in places]
    prefix_end = next((n for n, role in enumerate(roles) if role != "system"), len(places))
    return places, prefix_end


def breakpoints(request: Request) -> tuple[tuple[int, int], ...]:
    """Return the places after which the prompt may be cached, in order: the end of the system
    messages, of the first part after them, and of everything before the last part."""
    places, prefix_end = _split(request)
    following = len(places) - prefix_end
    ends = {prefix_end - 1} if prefix_end and following else set[int]()
    if following > 1:
        ends |= {prefix_end, len(places) - 2}
    return tuple(places[end] for end in sorted(ends))


def add_hints(
    body: dict[str, Any], request: Request, how: PromptCache, refused: Collection[str]
) -> None:
    """Add the cache hints to the body of a request. Hints that the endpoint refused are left
    out."""
    if how == "key" and KEY_FIELD not in refused:
        key = prefix_key(request)
        if key is not None:
            body[KEY_FIELD] = key

    if how == "breakpoints" and MARK_FIELD not in refused and "messages" in body:
        places = breakpoints(request)
        for number in {message for message, _ in places}:
            sent = body["messages"][number]
            marked = {part for message, part in places if message == number}
            sent["content"] = _mark(sent.get("content"), request.messages[number], marked)


def _mark(content: Any, message: Message, marked: Collection[int]) -> list[dict[str, Any]]:
    """Return the content of a message for the endpoint: its images, and its text, which is split
    after each marked part, where the cache mark is."""
    sent = as_array(content)
    pictures = [part for part in sent if part["type"] != "text"]
    texts: list[dict[str, Any]] = []
    begun = ""

    for number, part in enumerate(message.parts):
        begun += part
        if begun and (number in marked or number == len(message.parts) - 1):
            mark: Mapping[str, Any] = MARK if number in marked else {}
            texts.append({"type": "text", "text": begun, **mark})
            begun = ""

    return [*pictures, *texts]


ANNOUNCED = 0.5
"""The fewest seconds of a wait that is announced to the user."""
MARGIN = 0.05
"""The seconds to wait after the moment at which an endpoint says that a limit is reset."""
ANSWER_TOKENS = 200.0
"""The estimated tokens of an answer before it arrives."""


class Limited:
    """A model with a limit on concurrent calls, which start in the order of their arrival. The
    limit adapts to the endpoint's 429 answers.

    Additive increase: the limit grows by one for each round of `limit` answers while it is fully
    used, up to `most` (by default `start`). Multiplicative decrease: a 429 halves the limit, once
    for all calls that had started before, but never below 1. Calls also wait for limits that the
    endpoint reports, and for the time that a 429 names.

    Args:
        model: The model that is limited.
        start: The limit at the beginning.
        most: The highest limit; None: `start`.
        buckets: Rate limits that calls wait for, which may be shared with other models.
        whose: The endpoint's name in messages.
        patience: The most seconds that rate limits may delay a call; if the expected delay is
            longer, the call raises `UnavailableError` at once. Waiting for calls in flight has no
            limit.
    """

    def __init__(
        self,
        model: Model,
        start: int,
        *,
        most: int | None = None,
        buckets: tuple[RateBucket, ...] = (),
        whose: str = "",
        listener: Listener = silence,
        patience: float = 900.0,
    ) -> None:
        self.model = model
        self.name = model.name
        self.limit = float(start)
        self.most = start if most is None else most
        self.in_flight = 0
        self.buckets = buckets
        self._whose = whose or model.name
        self._listener = listener
        self._patience = patience
        self._held_until = -math.inf
        self._reason = ""
        self._last_tokens = 0
        self._waiting = 0
        self._decreases = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._announced = -math.inf

    @property
    def load(self) -> int:
        """Return the number of calls that are in flight or waiting."""
        return self.in_flight + self._waiting

    def held(self, tokens: float = ANSWER_TOKENS) -> tuple[float, str]:
        """Return for how many seconds rate limits delay a call with this many tokens, and the name
        of the limit; (0, "") if they do not."""
        if not self.buckets and self._held_until == -math.inf:
            return 0.0, ""
        now = asyncio.get_running_loop().time()
        waits = [(self._held_until - now, self._reason)]
        waits += [(bucket.wait(now, tokens), bucket.describe()) for bucket in self.buckets]
        longest = max(waits, key=lambda wait: wait[0])

        return longest if longest[0] > 0 else (0.0, "")

    async def __call__(self, request: Request, /) -> Response:
        tokens = estimate_tokens(request) if self.buckets else 0.0
        if self._waiting or self.in_flight >= int(self.limit) or self.held(tokens)[0]:
            await self._enter(tokens)
        else:
            self._begin(tokens)

        began = self._decreases
        outer = hearing_limits.set(self)

        try:
            response = await self.model(request)
            self._settle(response.usage.tokens, tokens)
            if self.in_flight >= int(self.limit):
                self.limit = min(float(self.most), self.limit + 1.0 / self.limit)
        except UnavailableError as error:
            if error.status == 429:
                if began == self._decreases:
                    self._decreases += 1
                    self.limit = max(1.0, self.limit / 2)
                if error.retry_after:
                    self._hold(error.retry_after, f"{self._whose}, which asked to wait")

            raise
        finally:
            hearing_limits.reset(outer)
            self.in_flight -= 1
            self._changed.set()

        return response

    def note(self, headers: Mapping[str, str]) -> None:
        """Read the limits in an answer's headers. If too little is left for the calls in flight,
        delay all new calls until the limit is reset."""
        for window in read_windows(headers, time.time()):
            each = self._last_tokens if window.kind == "tokens" else 1
            if window.reset is not None and window.remaining < self.in_flight * each:
                self._hold(window.reset + MARGIN, f"{self._whose}'s limit of {window.kind}")

    def _hold(self, seconds: float, reason: str) -> None:
        until = asyncio.get_running_loop().time() + seconds
        if until > self._held_until:
            self._held_until = until
            self._reason = reason

    def _begin(self, tokens: float) -> None:
        self.in_flight += 1
        for bucket in self.buckets:
            bucket.take(asyncio.get_running_loop().time(), tokens)

    def _settle(self, used: int, estimated: float) -> None:
        """Take from the token buckets the tokens that a call used beyond its estimate, or give back
        the unused ones."""
        self._last_tokens = used
        for bucket in self.buckets:
            if bucket.kind == "tokens" and used:
                bucket.take(asyncio.get_running_loop().time(), used - estimated)

    async def _enter(self, tokens: float) -> None:
        """Wait until the call may start, and start it. The first call in the queue looks again
        whenever another call ends."""
        self._waiting += 1
        try:
            async with self._turn:
                while (wait := self._measure_wait(tokens)) != 0:
                    self._changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._changed.wait()

                self._begin(tokens)
        finally:
            self._waiting -= 1

    def _measure_wait(self, tokens: float) -> float | None:
        """Return the seconds until the next call may start; None: not before another one ends.

        Raises:
            UnavailableError: rate limits delay the call for too long.
        """
        if self.in_flight >= int(self.limit):
            return None
        wait, reason = self.held(tokens)

        if wait > self._patience:
            raise UnavailableError(
                f"{self.name}: {reason} allows the next call only in {wait:.0f} s",
                status=429,
                retry_after=wait,
            )

        due = asyncio.get_running_loop().time() + wait
        if wait >= ANNOUNCED and due > self._announced + ANNOUNCED:
            self._announced = due
            self._listener(CallHeld(self.name, wait, reason))

        return wait


hearing_limits: ContextVar[Limited | None] = ContextVar("hearing_limits", default=None)
"""The `Limited` model around the current call, which reads the headers of the answer."""


def note_headers(headers: Mapping[str, str]) -> None:
    """Pass the headers of an answer to the `Limited` model that made the current call."""
    limits = hearing_limits.get()
    if limits is not None:
        limits.note(headers)


def estimate_tokens(request: Request) -> float:
    """Estimate the tokens of a call's prompt and answer together."""
    return prompt_tokens(request) + min(ANSWER_TOKENS, request.max_tokens or ANSWER_TOKENS)


_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|s|m|h|d)")
_SPANS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}
_EPOCH = 1e9
_EPOCH_MS = 1e11
"""The numbers from which a reset is a point in time: seconds, or milliseconds, since 1970."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The state of a rate limit that an endpoint reports.

    Attributes:
        kind: "requests" or "tokens".
        remaining: How many of them are left.
        reset: The seconds until the full limit is available again; None if not reported.
    """

    kind: str
    remaining: float
    reset: float | None


def read_windows(headers: Mapping[str, str], now: float) -> tuple[RateWindow, ...]:
    """Read the limits from an answer's headers; `now` is Unix time.

    All endpoints name what is left and its reset alike, with or without the limit's kind and owner:
    `x-ratelimit-remaining-requests`, `anthropic-ratelimit-input-tokens-remaining`,
    `x-ratelimit-api_key-remaining-tokens`, `ratelimit-remaining`. Anything else is left out.
    """
    limits = {name.lower(): text for name, text in headers.items() if "limit" in name.lower()}
    windows: list[RateWindow] = []

    for name, text in limits.items():
        remaining = _number(text) if "remaining" in name else None
        if remaining is not None:
            reset = read_reset(limits.get(name.replace("remaining", "reset"), ""), now)
            windows.append(
                RateWindow("tokens" if "token" in name else "requests", remaining, reset)
            )

    return tuple(windows)


def _number(text: str | None) -> float | None:
    """Read a number of at least 0, the first one of a header such as `100, 100;w=60`; None if
    invalid."""
    try:
        value = float((text or "").split(",")[0].split(";")[0])
    except ValueError:
        return None

    return value if 0 <= value < 1e15 else None


def sum_spans(text: str) -> float:
    """Return the total seconds of all time spans in a text, such as `1m30s`."""
    return sum(float(number) * _SPANS[unit] for number, unit in _SPAN.findall(text))


def read_reset(text: str, now: float) -> float | None:
    """Return the seconds from `now` (Unix time) until a reset. The text is a duration such as
    `6m0s`, `120ms` or `2.5`, a Unix time in seconds or milliseconds, or a date; None if it is none
    of these."""
    value = _number(text)
    if value is not None:
        if value >= _EPOCH:
            value = (value / 1000 if value >= _EPOCH_MS else value) - now
        return max(0.0, value)

    spans = _SPAN.findall(text)
    if spans and "".join(number + unit for number, unit in spans) == text:
        return sum_spans(text)
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(text)
            return max(0.0, moment.timestamp() - now) if moment.tzinfo else None
        except (ValueError, OverflowError):
            continue

    return None


MINUTE = 60.0
BURST = 0.1
"""The share of a limit per minute that may be used at once."""


class RateBucket:
    """A token bucket for a limit per minute from the settings: the share `BURST` of the limit is
    available at once, the rest accrues over time. `kind`: "requests" or "tokens".

    At most `limit` requests start in any 60 seconds. A limit of tokens may be exceeded by one call,
    since its tokens are known only afterwards, and since a call larger than the bucket must start
    at some time.
    """

    def __init__(self, limit: float, kind: str) -> None:
        self.kind = kind
        self.limit = limit
        least = 1.0 if kind == "requests" else 0.0
        self.capacity = max(least, limit * BURST)
        self.rate = (limit - self.capacity + least) / MINUTE
        self._level = self.capacity
        self._at = math.inf

    def _fill(self, now: float) -> float:
        self._level = min(self.capacity, self._level + max(0.0, now - self._at) * self.rate)
        self._at = now if math.isinf(self._at) else max(self._at, now)
        return self._level

    def wait(self, now: float, tokens: float) -> float:
        """Return the seconds until a call with this many tokens may start."""
        amount = tokens if self.kind == "tokens" else 1.0
        missing = min(amount, self.capacity) - self._fill(now)
        return missing / self.rate if missing > 1e-9 else 0.0

    def take(self, now: float, tokens: float) -> None:
        self._level = self._fill(now) - (tokens if self.kind == "tokens" else 1.0)

    def describe(self) -> str:
        return f"your limit of {self.limit:g} {self.kind} a minute"


def make_buckets(requests: float | None, tokens: float | None) -> tuple[RateBucket, ...]:
    """Return a bucket for each limit per minute that is set."""
    limits = {"requests": requests, "tokens": tokens}
    return tuple(RateBucket(limit, kind) for kind, limit in limits.items() if limit is not None)


FAILURES = 3
"""The number of failures in a row after which a member is excluded. A member that refuses the key
or the model is excluded after one."""
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0
"""The seconds for which a failing member is excluded: at first, and at most, after doubling each
time."""
REMEMBERED_PREFIXES = 8192
"""The most beginnings of prompts for which the member that answered is remembered."""


class Member:
    """One endpoint of a pool, with the state of its health.

    Attributes:
        model: The endpoint's model with its limits.
        weight: The share of calls that it receives, compared with other members.
        failed: The last error; None after an answer.
        turn: A number that orders members that are equally busy; the lowest is next.
    """

    def __init__(self, model: Limited, weight: float = 1.0) -> None:
        self.model = model
        self.name = model.name
        self.weight = weight
        self.failed: ModelError | None = None
        self.turn = 0.0
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until: float | None = None

    @property
    def down(self) -> bool:
        """Return whether the member is excluded after failures, or is being tested again after
        that."""
        return self._until is not None

    def pause_left(self, now: float) -> float:
        """Return for how many seconds the member is still excluded."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def begin(self, now: float) -> bool:
        """Record the start of a call. Return whether the call tests an excluded member again; other
        calls avoid the member meanwhile."""
        if self._until is not None:
            self._until = now + FIRST_PAUSE
        return self.down

    def succeed(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = None
        self.failed = None

    def fail(self, error: ModelError, now: float, probed: bool) -> None:
        if isinstance(error, UnavailableError) and error.status == 429:
            if probed:
                self.succeed()  # it is there
            self.failed = error
            return

        self.failed = error
        self._failures += 1
        opens = self._failures >= FAILURES or isinstance(error, FatalModelError)
        if probed or (self._until is None and opens):
            self._until = now + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def describe(self, now: float) -> str:
        """Describe why the member does not answer."""
        pause = f", left out for {self.pause_left(now):.0f} s" if self.down else ""
        return f"{self.failed or self.name + ' is being tried'}{pause}"


class Pool:
    """A model that distributes calls over several endpoints, each with its own limits.

    A call goes to the member with the fewest calls for its weight. Calls whose prompts begin alike
    stay with one member, to use its prefix cache, while that member is healthy and no rate limit
    delays it. If a member fails, the next one is tried within the same call; a member that answers
    429 is skipped until the time that it names. `Response.member` names the member that answered.
    """

    def __init__(self, name: str, members: Sequence[Member], listener: Listener = silence) -> None:
        self.name = name
        self.members = tuple(members)
        self._listener = listener
        self._homes: OrderedDict[str, Member] = OrderedDict()
        self._turn = 0.0

    async def __call__(self, request: Request, /) -> Response:
        """Call the members in order until one answers, each at most once.

        Raises:
            RejectedError, AnswerError: a member rejects the request, or its answer is unusable;
                other members would do the same.
            UnavailableError: no member answers now, but another try may succeed.
            AccessError: no member can answer, for example because of wrong keys.
        """
        tried: dict[Member, ModelError] = {}
        key = prefix_key(request)
        loop = asyncio.get_running_loop()

        while (member := self._choose(key, tried, loop.time())) is not None:
            probed = member.begin(loop.time())
            try:
                response = await member.model(request)
            except (UnavailableError, FatalModelError) as error:
                tried[member] = error
                member.fail(error, loop.time(), probed)
                pause = member.pause_left(loop.time())
                more = f"; it is left out for {pause:.0f} s" if pause else ""
                self._listener(CallRetried(self.name, f"{error}{more}", len(tried), 0.0))
            else:
                member.succeed()
                attempts = sum(error.attempts for error in tried.values()) + response.attempts
                return replace(response, member=member.name, attempts=attempts)

        raise self._all_down(tried, loop.time())

    def _choose(
        self, key: str | None, tried: Mapping[Member, ModelError], now: float
    ) -> Member | None:
        ready = [m for m in self.members if m not in tried and not m.pause_left(now)]
        waits = {member: member.model.held()[0] for member in ready}
        free = [member for member in ready if not waits[member]]
        if not ready or (tried and not free):
            return None
        home = self._homes.get(key or "")
        if home is not None and home in free and not home.down:
            chosen = home
        else:
            chosen = min(ready, key=lambda member: (waits[member], *self._rank(member)))

        self._turn = max(chosen.turn, self._turn)
        chosen.turn = self._turn + 1.0 / chosen.weight

        if key is not None:
            self._homes[key] = chosen
            self._homes.move_to_end(key)
            if len(self._homes) > REMEMBERED_PREFIXES:
                self._homes.popitem(last=False)

        return chosen

    def _rank(self, member: Member) -> tuple[bool, float, float]:
        """Return the sort key of a member: those with room come first, then the least busy for
        their weight, then by turns, which follow the weights. A member that was away does not catch
        up on missed turns.
        """
        load = member.model.load
        is_full = load >= int(member.model.limit)
        return is_full, load / member.weight, max(member.turn, self._turn)

    def _all_down(self, tried: Mapping[Member, ModelError], now: float) -> ModelError:
        reasons = "; ".join(member.describe(now) for member in self.members)
        message = f"{self.name}: none of its {len(self.members)} members answers: {reasons}"
        failures = [member.failed for member in self.members]

        # Waiting helps if any member may recover.
        error: ModelError
        if all(isinstance(failure, FatalModelError) for failure in failures):
            error = AccessError(message)
        else:
            addresses = [getattr(failure, "address", "") for failure in failures]
            address = ", ".join(addresses) if all(addresses) else ""
            waits = [m.pause_left(now) or m.model.held()[0] for m in self.members]
            error = UnavailableError(message, retry_after=min(waits) or None, address=address)

        error.attempts = max(1, sum(failure.attempts for failure in tried.values()))
        return error
