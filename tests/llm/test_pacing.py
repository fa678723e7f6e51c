"""The arithmetic of rate limits, with a clock of its own."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import Usage
from textevolve.llm.limiting import (
    Limited,
    RateBucket,
    RateWindow,
    make_buckets,
    note_headers,
    read_reset,
    read_windows,
)
from textevolve.llm.model import Message, Request, Response

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("32", 32.0),
        (str(int(NOW) + 30), 30.0),
        (str((int(NOW) + 30) * 1000), 30.0),
        ("2026-03-01T12:00:30Z", 30.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("soon", None),
    ],
)
def test_resets_in_all_their_forms(text: str, seconds: float | None) -> None:
    assert read_reset(text, NOW) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "windows"),
    [
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-reset-requests": "120ms",
                "X-RateLimit-Limit-Tokens": "30000",
                "X-RateLimit-Remaining-Tokens": "29000",
                "X-RateLimit-Reset-Tokens": "2s",
            },
            [RateWindow("requests", 499, 0.12), RateWindow("tokens", 29_000, 2.0)],
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-limit": "40000",
                "anthropic-ratelimit-input-tokens-remaining": "39000",
                "anthropic-ratelimit-input-tokens-reset": "2026-03-01T12:00:02Z",
            },
            [RateWindow("tokens", 39_000, 2.0)],
        ),
        (
            {
                "ratelimit-limit": "100, 100;w=60",
                "RateLimit-Remaining": "3",
                "ratelimit-reset": "9",
            },
            [RateWindow("requests", 3, 9.0)],
        ),
        (
            {"x-tokenlimit-limit": "900", "x-tokenlimit-remaining": "8", "x-tokenlimit-reset": "1"},
            [RateWindow("tokens", 8, 1.0)],
        ),
        ({"x-ratelimit-limit-requests": "5", "x-ratelimit-remaining-requests": "?"}, []),
    ],
)
def test_headers_of_many_endpoints(headers: dict[str, str], windows: list[RateWindow]) -> None:
    assert list(read_windows(headers, NOW)) == windows


def run_through(bucket: RateBucket, amounts: list[float], pauses: list[float]) -> list[float]:
    """When each call is made by somebody who comes back exactly when told."""
    now, moments = 1000.0, list[float]()
    for amount, pause in zip(amounts, pauses, strict=True):
        now += pause
        now += bucket.wait(now, amount)
        assert bucket.wait(now, amount) < 1e-6  # who waits as told may go
        bucket.take(now, amount)
        moments.append(now)
    return moments


@given(limit=st.integers(1, 500), pauses=st.lists(st.floats(0, 90), min_size=1, max_size=200))
def test_requests_stay_within_their_limit(limit: int, pauses: list[float]) -> None:
    bucket = RateBucket(limit, "requests")
    moments = run_through(bucket, [1.0] * len(pauses), pauses)
    for place, moment in enumerate(moments):
        assert sum(moment <= other < moment + 59.999 for other in moments[place:]) <= limit


@given(
    limit=st.floats(10, 1e6),
    calls=st.lists(st.tuples(st.floats(0, 2e5), st.floats(0, 60)), min_size=1, max_size=100),
)
def test_tokens_exceed_by_one_call(limit: float, calls: list[tuple[float, float]]) -> None:
    amounts, pauses = [a for a, _ in calls], [p for _, p in calls]
    moments = run_through(RateBucket(limit, "tokens"), amounts, pauses)
    for place, moment in enumerate(moments):
        inside = [a for a, m in zip(amounts, moments, strict=True) if moment <= m < moment + 60]
        assert sum(inside) <= (limit + max(inside)) * (1 + 1e-6), place


class Answering:
    """A model that uses 100 tokens a call."""

    name = "m"

    async def __call__(self, _request: Request, /) -> Response:
        note_headers(HEADERS)
        return Response("x", "stop", Usage(1, 90, 0, 10))


HEADERS: dict[str, str] = {}
LONG = Request(messages=(Message("user", ("x" * 2000,)),))


async def test_unspent_tokens_come_back() -> None:
    model = Limited(Answering(), 4, buckets=make_buckets(None, 9000))
    assert model.held(600)[0] == 0
    await model(LONG)  # estimated at 800 of the 900 that may be used at once
    assert model.held(700)[0] == 0
    assert model.held(900)[0] > 0


async def test_used_limits_hold_all_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Limited(Answering(), 4, whose="openai")
    monkeypatch.setitem(HEADERS, "x-ratelimit-reset-tokens", "20s")
    for remaining, wait in (("1000", 0.0), ("101", 0.0), ("99", 20.05)):
        monkeypatch.setitem(HEADERS, "x-ratelimit-remaining-tokens", remaining)
        await model(LONG)
        assert model.held()[0] == pytest.approx(wait, abs=0.01)
    assert model.held()[1] == "openai's limit of tokens"


async def test_limits_without_reset_hold_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(HEADERS, "x-ratelimit-remaining-requests", "0")
    model = Limited(Answering(), 4)
    await model(LONG)
    assert model.held() == (0.0, "")
