import asyncio
from typing import Any

import pytest

from textevolve.errors import BudgetError, SettingsError, UnavailableError
from textevolve.evaluation import Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.llm.wrappers import Budget, Budgeted
from textevolve.settings import Price


def ask(text: str = "?", **more: Any) -> Request:
    return Request(messages=(Message("user", (text,)),), **more)


def usage_of(prompt: int, answered: int, **more: Any):
    figures = {"prompt_tokens": prompt, "completion_tokens": answered, **more}
    return lambda _body, _n: Answer(text="x", usage=figures)


async def flood(model: Budgeted, calls: int, **more: Any) -> list[Any]:
    requests = (model(ask(str(n), **more)) for n in range(calls))
    return await asyncio.gather(*requests, return_exceptions=True)


async def test_calls(server: ScriptedServer, client: OpenAIClient) -> None:
    server.latency = 0.01
    budget = Budget(calls=7)
    done = await flood(Budgeted(client, budget), 20)
    assert server.calls == budget.spent.calls == 7
    assert sum(isinstance(one, BudgetError) for one in done) == 13


async def test_a_failed_call_counts(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = lambda _body, _n: Fault.SERVER_ERROR
    model = Budgeted(client, Budget(calls=1))
    with pytest.raises(UnavailableError):
        await model(ask())
    with pytest.raises(BudgetError, match="limit of 1 calls"):
        await model(ask())


@pytest.mark.parametrize("limit", [1050])
@pytest.mark.parametrize("max_tokens", [None, 90, 2000])
async def test_tokens_stop_within_one_call(
    server: ScriptedServer, client: OpenAIClient, limit: int, max_tokens: int | None
) -> None:
    server.latency = 0.001
    server.script = usage_of(10, 90)
    budget = Budget(tokens=limit)
    done = await flood(Budgeted(client, budget), 60, max_tokens=max_tokens)
    refused = [one for one in done if isinstance(one, BudgetError)]
    assert limit <= budget.spent.tokens < limit + 100
    assert len(refused) == 60 - server.calls
    assert budget.in_flight == 0


@pytest.mark.parametrize("reported", [False, True])
async def test_cost_stops_within_one_call(server: ScriptedServer, reported: bool) -> None:
    server.latency = 0.001
    price = None if reported else Price(input=10.0, output=10.0)
    server.script = usage_of(10, 90, **({"cost": 0.001} if reported else {}))
    budget = Budget(cost=0.02)
    async with OpenAIClient(server.url, "m", price=price) as client:
        done = await flood(Budgeted(client, budget, price), 60)
    assert sum(isinstance(one, BudgetError) for one in done) == 60 - server.calls
    assert 0.02 - 1e-9 <= (budget.spent.cost or 0) < 0.021


async def test_an_unknown_cost_is_a_settings_error_after_one_call(server: ScriptedServer) -> None:
    from pydantic import SecretStr

    budget = Budget(cost=1.0)
    async with OpenAIClient(server.url, "m", key=SecretStr("sk-paid")) as client:
        done = await flood(Budgeted(client, budget), 5)
    assert server.calls == 1
    assert sum(isinstance(one, SettingsError) for one in done) == 4
    assert any("prices" in str(one) for one in done)


async def test_a_budget_is_shared_and_begins_at_what_was_spent(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.script = usage_of(10, 90)
    budget = Budget(tokens=1000, spent=Usage(calls=8, prompt_tokens=800))
    first_budgeted, second_budgeted = Budgeted(client, budget), Budgeted(client, budget)
    await first_budgeted(ask("1"))
    await second_budgeted(ask("2"))
    with pytest.raises(BudgetError):
        await first_budgeted(ask("3"))
    assert budget.spent.calls == 10


async def test_a_cancelled_call_gives_back_what_it_claimed(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    answer = usage_of(10, 90)
    server.script = lambda body, n: Answer(delay=3600) if n == 1 else answer(body, n)
    model = Budgeted(client, Budget(tokens=150))
    first_task, second_task = (
        asyncio.create_task(model(ask("1"))),
        asyncio.create_task(model(ask("2"))),
    )
    while not server.calls:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert server.calls == 1  # the second waits to see what the first needs
    first_task.cancel()
    assert (await second_task).text == "x"
    assert model.budget.in_flight == 0
