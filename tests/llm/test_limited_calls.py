"""Limits of an endpoint step by step: the concurrency that adapts, rate limits, and headers."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from textevolve.errors import ModelError, RejectedError, UnavailableError
from textevolve.evaluation import Usage
from textevolve.events import CallHeld, Event
from textevolve.llm.limiting import (
    Limited,
    RateBucket,
    RateWindow,
    add_hints,
    estimate_tokens,
    make_buckets,
    note_headers,
    prefix_key,
    read_reset,
    read_windows,
    sum_spans,
)
from textevolve.llm.model import Message, Request, Response

ASK = Request(messages=(Message("user", ("?",)),))


class Endpoint:
    """A model whose calls take one step of the event loop, and fail as told."""

    name = "m"

    def __init__(self, tokens: int = 10, error: Callable[[], ModelError] | None = None) -> None:
        self.tokens = tokens
        self.error = error
        self.in_flight = 0
        self.most = 0
        self.headers: dict[str, str] = {}

    async def __call__(self, _request: Request, /) -> Response:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if self.error is not None:
            raise self.error()
        note_headers(self.headers)
        return Response("x", "stop", Usage(1, self.tokens, 0, 0))


def busy(status: int = 429, after: float | None = None) -> Callable[[], ModelError]:
    return lambda: UnavailableError("busy", status=status, retry_after=after)


async def call(model: Limited, times: int = 1) -> None:
    await asyncio.gather(*(model(ASK) for _ in range(times)), return_exceptions=True)


# Concurrency


async def test_full_use_raises_the_limit() -> None:
    """By one for each round of as many answers as the limit allows."""
    model = Limited(Endpoint(), 2, most=4)
    await call(model)
    assert model.limit == 2  # one call is not full use
    await call(model, 2)
    assert model.limit == 2.5
    await call(model, 2)
    assert model.limit == pytest.approx(2.9)
    for _ in range(20):
        await call(model, 8)
    assert model.limit == 4


async def test_limits_stay_by_default() -> None:
    model = Limited(Endpoint(), 2)
    await call(model, 6)
    assert (model.limit, model.most, model.load) == (2, 2, 0)


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_calls_than_allowed(limit: int) -> None:
    endpoint = Endpoint()
    await call(Limited(endpoint, limit), 9)
    assert endpoint.most == limit


async def test_a_429_halves_the_limit() -> None:
    model = Limited(Endpoint(error=busy()), 8)
    limits: list[float] = []
    for _ in range(5):
        await call(model, 2)  # at the same time: halved once
        limits.append(model.limit)
    assert limits == [4, 2, 1, 1, 1]


@pytest.mark.parametrize("error", [busy(503), lambda: RejectedError("no")])
async def test_other_failures_keep_the_limit(error: Callable[[], ModelError]) -> None:
    model = Limited(Endpoint(error=error), 8)
    await call(model, 3)
    assert (model.limit, model.in_flight) == (8, 0)
    assert model.held() == (0.0, "")


async def test_the_asked_wait_is_kept() -> None:
    model = Limited(Endpoint(error=busy(after=7)), 8, whose="openai")
    assert model.held() == (0.0, "")
    await call(model)
    wait, reason = model.held()
    assert wait == pytest.approx(7, abs=0.5)
    assert reason == "openai, which asked to wait"


async def test_only_a_429_holds_calls() -> None:
    model = Limited(Endpoint(error=busy(503, after=7)), 8)
    await call(model)
    assert model.held() == (0.0, "")


async def test_load_counts_waiting_calls() -> None:
    model = Limited(Endpoint(), 2)
    assert model.load == 0
    calls = [asyncio.create_task(model(ASK)) for _ in range(5)]
    await asyncio.sleep(0)
    assert (model.in_flight, model.load) == (2, 5)
    await asyncio.gather(*calls)
    assert model.load == 0


async def test_each_call_hears_its_headers() -> None:
    """A limit inside another one reads the headers, and the outer one hears later calls again."""
    endpoint = Endpoint()
    endpoint.headers = {"ratelimit-remaining": "0", "ratelimit-reset": "9"}
    inner = Limited(endpoint, 4)
    outer = Limited(inner, 4)
    await call(outer)
    assert inner.held()[0] > 8
    assert outer.held()[0] == 0
    note_headers(endpoint.headers)  # outside of any call nobody hears them


# Rate limits


async def test_waits_beyond_patience_raise() -> None:
    model = Limited(Endpoint(), 4, whose="groq", patience=5)
    model._hold(60, "groq's limit")  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UnavailableError, match=r"m: groq's limit allows .* in 60 s") as caught:
        await model(ASK)
    assert caught.value.status == 429
    assert caught.value.retry_after == pytest.approx(60, abs=0.5)
    assert model.load == 0


async def test_the_longest_hold_counts() -> None:
    model = Limited(Endpoint(), 4, buckets=make_buckets(60, None))
    model._hold(60, "long")  # pyright: ignore[reportPrivateUsage]
    model._hold(30, "short")  # pyright: ignore[reportPrivateUsage]
    assert model.held()[1] == "long"
    model._hold(90, "longer")  # pyright: ignore[reportPrivateUsage]
    wait, reason = model.held()
    assert (round(wait), reason) == (90, "longer")


async def test_waits_are_announced_once() -> None:
    heard: list[Event] = []
    model = Limited(Endpoint(), 4, listener=heard.append, whose="groq")
    model._hold(0.6, "groq's limit")  # pyright: ignore[reportPrivateUsage]
    await call(model, 3)
    (hold,) = heard
    assert isinstance(hold, CallHeld)
    assert (hold.model, hold.reason, round(hold.wait, 1)) == ("m", "groq's limit", 0.6)


async def test_short_waits_are_silent() -> None:
    heard: list[Event] = []
    model = Limited(Endpoint(), 4, listener=heard.append)
    model._hold(0.05, "a limit")  # pyright: ignore[reportPrivateUsage]
    await call(model, 2)
    assert heard == []


async def test_unused_tokens_come_back() -> None:
    """A bucket of 1,000 tokens: 200 are taken for the answer, and 10 were used."""
    model = Limited(Endpoint(), 4, buckets=make_buckets(None, 10_000))
    await call(model)
    assert model.held(985)[0] == 0
    assert model.held(1000)[0] > 0


async def test_uncounted_tokens_stay_taken() -> None:
    model = Limited(Endpoint(tokens=0), 4, buckets=make_buckets(None, 10_000))
    await call(model)
    assert model.held(790)[0] == 0
    assert model.held(985)[0] > 0


async def test_request_buckets_count_calls() -> None:
    """Five at once of fifty a minute, however many tokens they have."""
    model = Limited(Endpoint(tokens=10_000), 8, buckets=make_buckets(50, None))
    await call(model, 4)
    assert model.held(1e9)[0] == 0
    await call(model)
    wait, reason = model.held()
    assert wait == pytest.approx(60 / 46, abs=0.1)
    assert reason == "your limit of 50 requests a minute"


@pytest.mark.parametrize(
    ("kind", "limit", "amount", "wait", "later"),
    [
        ("requests", 5, 7.0, 12.0, 6.0),  # one at once, and five a minute
        ("requests", 100, 7.0, 0.0, 0.0),
        ("tokens", 600, 60.0, 60 / 9, 6 / 9),  # 60 at once, nine a second
        ("tokens", 600, 30.0, 30 / 9, 0.0),
        ("tokens", 600, 1e6, 60 / 9 + (1e6 - 60) / 9, 0.0),
    ],
)
def test_buckets_fill_over_time(
    kind: str, limit: float, amount: float, wait: float, later: float
) -> None:
    bucket = RateBucket(limit, kind)
    assert bucket.wait(100.0, amount) == 0
    bucket.take(100.0, amount)
    assert bucket.wait(100.0, 60.0) == pytest.approx(wait)
    if amount < 1e6:
        assert bucket.wait(106.0, 60.0) == pytest.approx(later)
    assert bucket.wait(99.0, 0.0 if kind == "tokens" else 1.0) <= wait  # a clock that goes back


def test_limits_make_buckets() -> None:
    expected = {
        (5.0, None): ["your limit of 5 requests a minute"],
        (None, 7000.0): ["your limit of 7000 tokens a minute"],
        (None, None): [],
        (1.0, 2.0): ["your limit of 1 requests a minute", "your limit of 2 tokens a minute"],
    }
    for limits, texts in expected.items():
        assert [bucket.describe() for bucket in make_buckets(*limits)] == texts


def test_answers_are_estimated() -> None:
    for most, tokens in ((None, 300), (50, 150), (5000, 300)):
        request = Request(messages=(Message("user", ("x" * 400,)),), max_tokens=most)
        assert estimate_tokens(request) == tokens


# Headers


def test_every_unit_of_time() -> None:
    spans = {"7ns": 7e-9, "7us": 7e-6, "7µs": 7e-6, "7ms": 7e-3, "7s": 7, "7m": 420, "7h": 25_200}
    for text, seconds in {**spans, "2d": 172_800, "1m30s": 90}.items():
        assert sum_spans(text) == pytest.approx(seconds, rel=1e-6)
        assert read_reset(text, 0.0) == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "now", "seconds"),
    [
        ("1000000000", 999_999_990.0, 10.0),  # the first number that is a time in seconds
        ("999999999", 0.0, 999_999_999.0),
        ("100000000000", 99_999_990.0, 10.0),  # the first in milliseconds
        ("99999999999", 99_999_999_990.0, 9.0),
        ("1000000000", 1_000_000_009.0, 0.0),
        ("1970-01-01T00:00:30Z", 40.0, 0.0),
        ("1970-01-01T00:00:30", 20.0, None),  # nobody says in which zone
        ("", 0.0, None),
        ("-5", 0.0, None),
        ("1m30", 0.0, None),
        ("in 30s", 0.0, None),
    ],
)
def test_resets_at_their_limits(text: str, now: float, seconds: float | None) -> None:
    assert read_reset(text, now) == seconds


@pytest.mark.parametrize(
    ("remaining", "windows"),
    [
        ("0", [RateWindow("requests", 0.0, None)]),
        ("-1", []),
        ("1000000000000000", []),  # a number that large is no limit
        ("nan", []),
        ("3, 100;w=60", [RateWindow("requests", 3.0, None)]),
        ("3;w=60", [RateWindow("requests", 3.0, None)]),
    ],
)
def test_remaining_calls_are_numbers(remaining: str, windows: Sequence[RateWindow]) -> None:
    assert list(read_windows({"ratelimit-remaining": remaining}, 0.0)) == windows


# Hints for prompt caches


def test_keys_separate_parts() -> None:
    """Where a part ends belongs to the prefix, and what follows the first part does not."""
    system = (Message("system", ("a", "b")),)
    requests = [
        Request(messages=(*system, Message("user", parts)))
        for parts in (("c", "d"), ("c", "e", "f"), ("cd", "e"))
    ]
    short, longer, third = map(prefix_key, requests)
    assert short == longer != third
    joined = Request(messages=(Message("system", ("ab",)), Message("user", ("c", "d"))))
    assert prefix_key(joined) != short


def test_single_parts_have_no_key() -> None:
    body: dict[str, object] = {"messages": [{"content": "?"}]}
    assert prefix_key(ASK) is None
    add_hints(body, ASK, "key", ())
    assert body == {"messages": [{"content": "?"}]}
    assert prefix_key(Request(messages=(Message("user", ("a", "b")),))) is not None
    assert prefix_key(Request(messages=(Message("system", ("a", "b")),))) is None


def test_marks_split_the_text() -> None:
    """Images stay before the text; unmarked parts are joined to one."""
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    message = Message("user", ("case ", "a ", "b ", "", "now you"))
    request = Request(messages=(message,))
    sent = [image, {"type": "text", "text": message.text}]
    body: dict[str, object] = {"messages": [{"content": sent}]}
    add_hints(body, request, "breakpoints", ())
    mark = {"cache_control": {"type": "ephemeral"}}
    expected = [
        image,
        {"type": "text", "text": "case ", **mark},
        {"type": "text", "text": "a b ", **mark},
        {"type": "text", "text": "now you"},
    ]
    assert body["messages"] == [{"content": expected}]


@pytest.mark.parametrize("how", ["key", "breakpoints"])
def test_refused_hints_are_left_out(how: str) -> None:
    request = Request(messages=(Message("user", ("a", "b")),))
    body: dict[str, object] = {"messages": [{"content": "ab"}]}
    refused = ("prompt_cache_key", "cache_control")
    add_hints(body, request, how, refused)  # pyright: ignore[reportArgumentType]
    assert body == {"messages": [{"content": "ab"}]}
    embedding: dict[str, object] = {"input": "ab"}
    add_hints(embedding, request, "breakpoints", ())
    assert embedding == {"input": "ab"}
