"""Prices: the user's own, those of the list, and where there are none. Nothing is fetched."""

import socket

import pytest

from textevolve.llm.prices import describe_price_source, find_price
from textevolve.llm.providers import PROVIDERS, resolve
from textevolve.settings import Price, Provider, Settings


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for provider in PROVIDERS.values():
        if provider.key_env:
            monkeypatch.setenv(provider.key_env, "sk-of-a-test")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_given):
        raise AssertionError("prices are looked up without a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def endpoint(spec, **settings):
    return resolve(spec, Settings(**settings))


@pytest.mark.parametrize(
    "spec",
    [
        *("openai/gpt-6-luna", "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "mistral"),
        *("gemini/gemini-3.5-flash-lite", "groq/llama-3.3-70b-versatile", "xai/grok-4"),
        *("deepseek/deepseek-flash", "openrouter/openai/gpt-4o", "cerebras/llama3.1-8b"),
    ],
)
def test_known_models_have_a_price(spec):
    price = find_price(endpoint(spec))
    assert price is not None
    assert 0 < price.input <= price.output


def test_a_provider_that_is_put_elsewhere_has_not_the_prices_of_its_name():
    elsewhere = {"openai": Provider(base_url="https://llm.example/v1", key_env="OPENAI_API_KEY")}
    assert find_price(endpoint("openai/gpt-4o", providers=elsewhere)) is None
    assert find_price(endpoint("https://api.openai.com/v1#gpt-4o")) is not None


@pytest.mark.parametrize("spec", ["local", "ollama/gpt-4o", "http://127.0.0.1:9/v1#gpt-4o"])
def test_what_runs_on_this_machine_is_free(spec, monkeypatch):
    monkeypatch.delenv("TEXTEVOLVE_API_KEY", raising=False)
    found_endpoint = endpoint(spec)
    assert find_price(found_endpoint) == Price(input=0, output=0)
    assert describe_price_source(found_endpoint) is None
