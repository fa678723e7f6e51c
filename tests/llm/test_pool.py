"""Pools of endpoints: two or three scripted servers that misbehave and die."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from textevolve.errors import AccessError, UnavailableError
from textevolve.events import Event
from textevolve.llm import limiting as pools
from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import Limited, Member, Pool
from textevolve.llm.model import Message, Request
from textevolve.llm.opening import open_client, open_model
from textevolve.llm.prices import price_of
from textevolve.llm.testing import Fault, ScriptedServer, misbehave
from textevolve.llm.wrappers import Retrying
from textevolve.settings import PoolMember, PoolSettings, Price, Retries, Settings, Timeouts

QUICK = Retries(attempts=6, first=0.001, longest=0.01)


def ask(text: object = "?") -> Request:
    return Request(messages=(Message("user", (str(text),)),))


def turn(debate: int, number: int) -> Request:
    """The turns of a debate begin alike."""
    turns = tuple(f"said {n} " for n in range(number))
    user = Message("user", (f"case {debate} ", *turns, "now you"))
    return Request(messages=(Message("system", ("rules",)), user))


class Servers(list[ScriptedServer]):
    """Three servers, and pools of them."""

    def __init__(self, stack: AsyncExitStack, servers: Sequence[ScriptedServer]) -> None:
        super().__init__(servers)
        self.stack = stack
        self.heard: list[Event] = []

    async def pool(self, *weights: float, limit: int = 32) -> Pool:
        members: list[Member] = []
        for server, weight in zip(self, weights, strict=False):
            client = OpenAIClient(server.url, "m", timeouts=Timeouts(read=0.5, connect=0.5))
            await self.stack.enter_async_context(client)
            members.append(Member(Limited(client, limit), weight))
        return Pool("pool/m", members, self.heard.append)

    @property
    def calls(self) -> list[int]:
        return [server.calls for server in self]

    @property
    def asked(self) -> Counter[str]:
        """How often each request came, over all servers."""
        return Counter(str(body["messages"]) for server in self for body in server.requests)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(ScriptedServer()) for _ in range(3)]
        yield Servers(stack, started)


async def asked(server: ScriptedServer, times: int) -> None:
    while server.calls < times:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def die(server: ScriptedServer) -> None:
    await server.__aexit__(None, None, None)


@pytest.mark.parametrize("weights", [(0.5, 4, 1)])
async def test_serial_calls_follow_the_weights(
    servers: Servers, weights: tuple[float, ...]
) -> None:
    model = await servers.pool(*weights)
    for n in range(60):
        await model(ask(n))
    for calls, weight in zip(servers.calls, weights, strict=True):
        assert abs(calls - 60 * weight / sum(weights)) <= 2


async def test_debates_stay_with_one_member(servers: Servers) -> None:
    model = await servers.pool(1, 1, 1)
    homes: dict[int, set[str]] = {debate: set() for debate in range(12)}
    for number in range(4):
        answers = await asyncio.gather(*(model(turn(debate, number)) for debate in homes))
        for debate, answer in enumerate(answers):
            homes[debate].add(answer.member)
    assert all(len(home) == 1 for home in homes.values())
    assert Counter(next(iter(home)) for home in homes.values()).most_common()[-1][1] == 4


async def test_dead_members_are_tried_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "FIRST_PAUSE", 1000.0)
    servers[0].script = lambda _body, _n: Fault.OVERLOADED
    model = await servers.pool(1, 1)
    for n in range(20):
        await model(ask(n))
    assert servers[0].calls == pools.FAILURES
    assert "left out for 1000 s" in str(servers.heard[-1])
    model.members[0]._until = 0.0  # pyright: ignore[reportPrivateUsage]  the pause is over
    calls = [asyncio.create_task(model(ask(n))) for n in range(20, 40)]
    await asyncio.gather(*calls)
    assert servers[0].calls == pools.FAILURES + 1  # one call tried it, and went elsewhere
    servers[0].script = None
    model.members[0]._until = 0.0  # pyright: ignore[reportPrivateUsage]
    for n in range(40, 60):
        await model(ask(n))
    assert not model.members[0].down
    assert abs(servers[0].calls - pools.FAILURES - 1 - 10) <= 1  # and it does not catch up


async def test_limited_members_are_passed_over(servers: Servers) -> None:
    servers[0].script = lambda _body, n: (
        replace(misbehave(Fault.RATE_LIMIT), headers={"Retry-After": "60"}) if n == 1 else None
    )
    model = await servers.pool(5, 1)
    for n in range(10):
        await model(ask(n))
    assert servers.calls[:2] == [1, 10]
    assert not model.members[0].down


async def test_one_error_names_all_members(servers: Servers) -> None:
    servers[0].script = lambda _body, _n: Fault.UNAUTHORISED
    servers[1].script = lambda _body, _n: Fault.OVERLOADED
    await die(servers[2])
    model = await servers.pool(1, 1, 1)
    with pytest.raises(UnavailableError) as caught:
        await model(ask())
    for server, reason in zip(servers, ("401", "503", "cannot connect"), strict=True):
        assert server.url in str(caught.value)
        assert reason in str(caught.value)
    assert caught.value.attempts == 3
    with pytest.raises(UnavailableError, match="after 4 attempts"):
        await Retrying(model, QUICK.model_copy(update={"attempts": 2}))(ask())


async def test_dead_pools_stop_the_run(servers: Servers) -> None:
    servers[0].script = servers[1].script = lambda _body, _n: Fault.UNAUTHORISED
    model = Retrying(await servers.pool(1, 1), QUICK)
    for _ in range(2):  # the second time nobody is asked
        with pytest.raises(AccessError, match="none of its 2 members answers"):
            await model(ask())
    assert servers.calls[:2] == [1, 1]


# Settings


def settings_of(*members: PoolMember, **more: object) -> Settings:
    pool = PoolSettings(members=members)
    return Settings.model_validate({"pools": {"m": pool}} | more)


def test_pools_have_the_highest_price() -> None:
    cheap, other = "http://127.0.0.1:1/v1#big", "http://127.0.0.1:2/v1#big"
    prices = {
        cheap: {"input": 1, "output": 5},
        other: {"input": 2, "output": 3, "cached_input": 0.5},
    }
    settings = settings_of(PoolMember(model=cheap), PoolMember(model=other), prices=prices)
    assert price_of("pool/m", settings) == Price(input=2, output=5)


async def test_pools_open_with_members_limits(servers: Servers) -> None:
    members = [
        PoolMember(model=f"{servers[0].url}#m", concurrency=1, requests_per_minute=6000),
        PoolMember(model=f"{servers[1].url}#m", weight=2),
    ]
    settings = settings_of(*members)
    async with AsyncExitStack() as stack:
        model = await open_model("pool/m", settings, stack)
        assert isinstance(model, Pool)
        assert [(endpoint.model.most, endpoint.weight) for endpoint in model.members] == [
            (1, 1),
            (512, 2),
        ]
        assert [len(endpoint.model.buckets) for endpoint in model.members] == [1, 0]
        await asyncio.gather(*(model(ask(n)) for n in range(20)))
    assert servers[0].most_in_flight == 1
    async with AsyncExitStack() as stack:
        with pytest.raises(Exception, match="name one of its members"):
            await open_client("pool/m", settings, stack)
