"""The members of a pool step by step: models that fail as told, and a clock that is passed in."""

import asyncio
from collections.abc import Callable

import pytest

from textevolve.errors import (
    AccessError,
    AnswerError,
    FatalModelError,
    ModelError,
    RejectedError,
    UnavailableError,
)
from textevolve.evaluation import Usage
from textevolve.events import CallRetried, Event
from textevolve.llm import limiting
from textevolve.llm.limiting import FAILURES, Limited, Member, Pool
from textevolve.llm.model import Message, Request, Response

Failing = Callable[[int], ModelError | None]


class Endpoint:
    """A model that fails where `failing` returns an error for the number of the call."""

    def __init__(self, name: str, failing: Failing = lambda _: None) -> None:
        self.name = name
        self.failing = failing
        self.calls = 0

    async def __call__(self, _request: Request, /) -> Response:
        self.calls += 1
        error = self.failing(self.calls)
        if error is not None:
            raise error
        return Response("x", "stop", Usage(1, 1, 0, 1), attempts=2)


def member(name: str = "m", weight: float = 1.0, failing: Failing = lambda _: None) -> Member:
    return Member(Limited(Endpoint(name, failing), 4), weight)


def pool(*members: Member, listener: Callable[[Event], None] = lambda _: None) -> Pool:
    return Pool("pool", members, listener)


def ask(text: object = "?") -> Request:
    return Request(messages=(Message("user", (str(text),)),))


def turn(debate: int, number: int = 0) -> Request:
    """The turns of a debate begin alike."""
    return Request(messages=(Message("user", (f"case {debate} ", f"turn {number}")),))


def busy(status: int = 503, **more: object) -> UnavailableError:
    return UnavailableError("busy", status=status, **more)  # pyright: ignore[reportArgumentType]


async def members_of(model: Pool, *requests: Request) -> str:
    return "".join([(await model(request)).member for request in requests])


# Which member a call goes to


async def test_prefixes_stay_at_home() -> None:
    """The prefix cache of an endpoint is worth nothing if the next turn goes to another one."""
    model = pool(member("a"), member("b"))
    assert await members_of(model, turn(1), turn(2)) == "ab"
    assert await members_of(model, turn(1, 1), turn(1, 2), turn(2, 1), turn(1, 3)) == "aaba"


async def test_other_calls_take_turns() -> None:
    model = pool(member("a"), member("b"), member("c"))
    assert await members_of(model, *(ask(n) for n in range(7))) == "abcabca"


async def test_turns_follow_the_weights() -> None:
    model = pool(member("a", 2), Member(Limited(Endpoint("b"), 4)))
    assert sorted(await members_of(model, *(ask(n) for n in range(6)))) == [*"aaaabb"]


async def test_held_homes_are_left() -> None:
    """A member whose rate limit delays calls is no home."""
    model = pool(member("a"), member("b"))
    assert await members_of(model, turn(1)) == "a"
    model.members[0].model._hold(60, "its limit")  # pyright: ignore[reportPrivateUsage]
    assert await members_of(model, turn(1, 1)) == "b"
    assert await members_of(model, turn(1, 2)) == "b"  # which is the home now


async def test_tested_homes_are_left() -> None:
    model = pool(member("a"), member("b"))
    assert await members_of(model, turn(1)) == "a"
    home = model.members[0]
    home._until = 0.0  # pyright: ignore[reportPrivateUsage]  its pause is over
    home.turn = 99.0
    assert home.down
    assert await members_of(model, turn(1, 1)) == "b"


async def test_old_homes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiting, "REMEMBERED_PREFIXES", 2)
    model = pool(member("a"), member("b"))
    assert await members_of(model, turn(1), turn(2), turn(1, 1), turn(3)) == "abab"
    homes = [home.name for home in model._homes.values()]  # pyright: ignore[reportPrivateUsage]
    assert homes == ["a", "b"]  # of 1, which was used last, and of 3


async def test_full_members_come_last() -> None:
    model = pool(member("a", 8), member("b"))
    fast, slow = model.members
    fast.model.in_flight = 4
    assert await members_of(model, ask(1)) == "b"
    fast.model.in_flight = 3
    slow.model.in_flight = 1
    assert await members_of(model, ask(2)) == "a"  # the less busy for its weight


async def test_all_members_held_waits() -> None:
    """The one that is free again first is waited for."""
    model = pool(member("a"), member("b"))
    model.members[0].model._hold(9, "a limit")  # pyright: ignore[reportPrivateUsage]
    model.members[1].model._hold(0.01, "a limit")  # pyright: ignore[reportPrivateUsage]
    assert await members_of(model, ask()) == "b"


async def test_nobody_waits_after_a_failure() -> None:
    """Where one member fails and the other is held, the retries around the pool decide."""
    model = pool(member("a", failing=lambda _: busy()), member("b"))
    model.members[1].model._hold(30, "its limit")  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UnavailableError) as caught:
        await model(ask())
    assert caught.value.retry_after is None  # the first member may be asked again at once
    assert model.members[1].turn == 0.0


# What a call returns


async def test_each_member_is_tried_once() -> None:
    heard: list[Event] = []
    model = pool(
        member("a", failing=lambda _: busy()),
        member("b", failing=lambda _: AccessError("no key")),
        member("c"),
        listener=heard.append,
    )
    response = await model(ask())
    assert (response.member, response.attempts) == ("c", 4)  # two failures, and two of its own
    failure, exclusion = heard
    assert failure == CallRetried("pool", "busy", 1, 0.0)
    assert exclusion == CallRetried("pool", "no key; it is left out for 5 s", 2, 0.0)


@pytest.mark.parametrize("error", [RejectedError("too long"), AnswerError("no answer")])
async def test_bad_requests_are_not_repeated(error: ModelError) -> None:
    model = pool(member("a", failing=lambda _: error), member("b"))
    with pytest.raises(type(error)):
        await model(ask())
    assert model.members[1].turn == 0.0


def failures(error: Callable[[], ModelError]) -> Failing:
    return lambda _: error()


async def test_silent_pools_name_their_members() -> None:
    unreachable = failures(lambda: UnavailableError("no answer", address="host:1"))
    model = pool(member("a", failing=unreachable), member("b", failing=unreachable))
    with pytest.raises(UnavailableError, match="none of its 2 members answers: no answer;") as away:
        await model(ask())
    assert away.value.address == "host:1, host:1"
    assert away.value.retry_after is None
    assert away.value.attempts == 2


async def test_addresses_need_every_member() -> None:
    unreachable = failures(lambda: UnavailableError("no answer", address="host:1"))
    model = pool(member("a", failing=unreachable), member("b", failing=lambda _: busy()))
    with pytest.raises(UnavailableError) as caught:
        await model(ask())
    assert caught.value.address == ""


async def test_pauses_tell_when_to_retry() -> None:
    model = pool(member("a", failing=lambda _: AccessError("no key")), member("b"))
    healthy = model.members[1]
    healthy._until = asyncio.get_running_loop().time() + 60  # pyright: ignore[reportPrivateUsage]
    healthy.failed = busy()
    with pytest.raises(UnavailableError) as caught:
        await model(ask())
    assert 4 < (caught.value.retry_after or 0) <= 5
    assert caught.value.attempts == 1
    with pytest.raises(UnavailableError) as again:
        await model(ask())
    assert again.value.attempts == 1  # though nobody was tried


async def test_wrong_keys_everywhere_are_fatal() -> None:
    model = pool(member("a", failing=lambda _: AccessError("no key")))
    with pytest.raises(AccessError, match=r"no key, left out for 5 s"):
        await model(ask())


# The health of a member


def test_members_fail_three_times() -> None:
    endpoint = member()
    for n in range(FAILURES - 1):
        endpoint.fail(busy(), 100.0, probed=False)
        assert (endpoint.down, endpoint.pause_left(100.0)) == (False, 0.0), n
    endpoint.fail(busy(), 100.0, probed=False)
    assert endpoint.down
    assert [endpoint.pause_left(now) for now in (100.0, 103.0, 105.0, 109.0)] == [5, 2, 0, 0]


def test_answers_end_failures() -> None:
    endpoint = member()
    endpoint.fail(busy(), 100.0, probed=False)
    endpoint.fail(busy(), 100.0, probed=False)
    endpoint.succeed()
    assert endpoint.failed is None
    endpoint.fail(busy(), 100.0, probed=False)
    assert not endpoint.down


def test_refused_keys_fail_once() -> None:
    endpoint = member()
    endpoint.fail(FatalModelError("no such model"), 100.0, probed=False)
    assert endpoint.pause_left(100.0) == 5


def test_rate_limits_are_no_failures() -> None:
    endpoint = member()
    for _ in range(FAILURES + 1):
        endpoint.fail(busy(429), 100.0, probed=False)
    assert not endpoint.down
    assert endpoint.failed is not None


def test_one_call_tests_a_member() -> None:
    endpoint = member()
    assert endpoint.begin(100.0) is False
    endpoint.fail(FatalModelError("no"), 100.0, probed=False)
    assert endpoint.begin(105.0) is True
    assert endpoint.pause_left(105.0) == 5  # other calls avoid it meanwhile


def test_a_rate_limit_shows_health() -> None:
    endpoint = member()
    endpoint.fail(FatalModelError("no"), 100.0, probed=False)
    endpoint.fail(busy(429), 105.0, probed=False)
    assert endpoint.down
    endpoint.fail(busy(429), 105.0, probed=True)
    assert not endpoint.down


def test_pauses_double_until_300_seconds() -> None:
    endpoint = member()
    endpoint.fail(FatalModelError("no"), 0.0, probed=False)
    pauses = [endpoint.pause_left(0.0)]
    for _ in range(7):
        endpoint.fail(busy(), 0.0, probed=True)
        pauses.append(endpoint.pause_left(0.0))
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    endpoint.fail(busy(), 200.0, probed=False)  # of a call that began earlier
    assert endpoint.pause_left(200.0) == 100
    endpoint.succeed()
    endpoint.fail(FatalModelError("no"), 0.0, probed=False)
    assert endpoint.pause_left(0.0) == 5


def test_members_describe_their_state() -> None:
    endpoint = member("host")
    assert endpoint.describe(100.0) == "host is being tried"
    endpoint.fail(busy(), 100.0, probed=False)
    assert endpoint.describe(100.0) == "busy"
    endpoint.fail(FatalModelError("no key"), 100.0, probed=False)
    assert endpoint.describe(102.0) == "no key, left out for 3 s"
