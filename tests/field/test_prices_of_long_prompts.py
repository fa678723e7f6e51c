"""A model costs more for all tokens of a call with a long prompt; the report had half of the bill.

The right cost is that of genai-prices' own function `calc_price`.
"""

from dataclasses import replace

import pytest
from genai_prices import Usage, calc_price

from textevolve.llm.batches.ledger import batch_price
from textevolve.llm.prices import cost_of, find_price, saved_of
from textevolve.llm.providers import resolve
from textevolve.settings import Settings

MODELS = {
    "gemini": "gemini-2.5-pro",
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-5.5",
    "openrouter": "qwen/qwen3-coder-flash",
}
LISTS = {"gemini": "google"}


@pytest.fixture(params=MODELS)
def endpoint(request, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_API_KEY", "a-key")
    return resolve(f"{request.param}/{MODELS[request.param]}", Settings(), asks=False)


@pytest.mark.parametrize("prompt", [1_000, 40_000, 200_000, 200_001, 300_000])
def test_costs_of_long_prompts(endpoint, prompt):
    provider, _, model = endpoint.spec.partition("/")
    used = Usage(input_tokens=prompt, cache_read_tokens=900, output_tokens=500)
    bill = calc_price(used, model, provider_id=LISTS.get(provider, provider)).total_price
    assert cost_of(find_price(endpoint), prompt, 900, 500) == pytest.approx(float(bill))


def test_long_prompts_cost_more(endpoint):
    price = find_price(endpoint)
    assert cost_of(price, 900_000, 0, 0) > 900 * cost_of(price, 1_000, 0, 0)
    assert saved_of(price, 900_000, 1_000, 0) > saved_of(price, 1_000, 1_000, 0)


def test_batch_jobs_have_long_prompts(endpoint):
    endpoint = replace(endpoint, batch_discount=0.5)
    price = batch_price(endpoint)
    for prompt in (1_000, 900_000):
        plain = cost_of(find_price(endpoint), prompt, 900, 500)
        assert cost_of(price, prompt, 900, 500) == pytest.approx(plain / 2)
