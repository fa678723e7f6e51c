"""Hints for prompt caches, and what these save."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import breakpoints, prefix_key
from textevolve.llm.model import Message, Request, request_key
from textevolve.llm.prices import usage_of
from textevolve.llm.testing import ScriptedServer
from textevolve.protocol.contents import ReportedUsage
from textevolve.settings import Price

SYSTEM = Message("system", ("rules",))
Connect = Callable[..., OpenAIClient]


@pytest.fixture
async def connect(server: ScriptedServer) -> AsyncIterator[Connect]:
    opened: list[OpenAIClient] = []

    def make(how: Any) -> OpenAIClient:
        opened.append(OpenAIClient(server.url, "m", prompt_cache=how))
        return opened[-1]

    yield make
    for client in opened:
        await client.aclose()


def turn(*history: str, case: str = "case", ending: str = "now you") -> Request:
    return Request(messages=(SYSTEM, Message("user", (case, *history, ending))))


def test_debates_share_a_key() -> None:
    keys = {prefix_key(turn(*"abc"[:n], ending=str(n))) for n in range(4)}
    assert len(keys) == 1
    assert {len(key or "") for key in keys} == {32}
    assert prefix_key(turn(case="another")) not in keys


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((SYSTEM, Message("user", ("case", "a", "b", "end"))), ((0, 0), (1, 0), (1, 2))),
        ((SYSTEM, Message("user", ("all in one",))), ((0, 0),)),
        ((Message("user", ("all in one",)),), ()),
        ((SYSTEM,), ()),
        (
            (
                SYSTEM,
                *[Message("user", ("q",)), Message("assistant", ("a",))] * 2,
                Message("user", ("q",)),
            ),
            ((0, 0), (1, 0), (4, 0)),
        ),
    ],
)
def test_repeated_parts_are_marked(
    messages: tuple[Message, ...], expected: tuple[tuple[int, int], ...]
) -> None:
    assert breakpoints(Request(messages=messages)) == expected


async def test_hints_change_no_key(server: ScriptedServer, connect: Connect) -> None:
    request = turn("said")
    for how in ("none", "key", "breakpoints"):
        await connect(how)(request)
    plain, keyed, marked = server.requests
    assert keyed == plain | {"prompt_cache_key": prefix_key(request)}
    mark = {"cache_control": {"type": "ephemeral"}}
    assert marked["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "rules"} | mark]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "case"} | mark,
                {"type": "text", "text": "said"} | mark,
                {"type": "text", "text": "now you"},
            ],
        },
    ]
    assert request_key("m", request) == request_key("m", turn("said"))


# Money


def said(**usage: Any) -> ReportedUsage:
    return ReportedUsage.model_validate({"prompt_tokens": 1000, "completion_tokens": 0} | usage)


CLAUDE = Price(input=3, output=15, cached_input=0.3, cache_write=3.75)


@pytest.mark.parametrize(
    ("usage", "price", "cost", "saved"),
    [
        ({}, CLAUDE, 3e-3, 0.0),
        ({"prompt_tokens_details": {"cached_tokens": 800}}, CLAUDE, 0.84e-3, 2.16e-3),
        (
            {"cache_read_input_tokens": 500, "cache_creation_input_tokens": 400},
            CLAUDE,
            (100 * 3 + 400 * 3.75 + 500 * 0.3) / 1e6,
            (500 * 2.7 - 400 * 0.75) / 1e6,
        ),
        (
            {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 1000}},
            CLAUDE,
            3.75e-3,
            -0.75e-3,
        ),
        ({"prompt_cache_hit_tokens": 900}, Price(input=1, output=1), 1e-3, None),
        # More than the prompt has: Anthropic's own names count them beside it.
        ({"cache_read_input_tokens": 5000}, CLAUDE, 4.5e-3, 13.5e-3),
    ],
)
def test_prices_show_the_savings(
    usage: dict[str, Any], price: Price | None, cost: float | None, saved: float | None
) -> None:
    total = usage_of(said(**usage), price)
    assert total.cost == (cost if cost is None else pytest.approx(cost))
    assert total.saved == (saved if saved is None else pytest.approx(saved))
    assert (total + total).saved == (saved if saved is None else pytest.approx(2 * saved))
    assert (total - total).saved == (saved if saved is None else 0)
