from collections.abc import Iterator

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.discovery import SERVERS, discover_model, probe_endpoint
from textevolve.llm.providers import PROVIDERS
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.settings import Provider, Settings

NOBODY = "http://127.0.0.1:9/v1"
"""Port 9 is `discard`: nothing listens there."""


def settings_of(**urls: str) -> Settings:
    """Settings in which the usual servers are at the given addresses or nowhere."""
    providers = {name: Provider(base_url=urls.get(name, NOBODY), keyless=True) for name in SERVERS}
    return Settings(providers=providers)


async def test_a_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    choice = await discover_model(settings_of())
    assert choice.spec == f"openai/{PROVIDERS['openai'].default_model}"
    assert "OPENAI_API_KEY" in choice.reason
    assert "sk-1" not in choice.reason


async def test_a_server_that_answers() -> None:
    async with (
        ScriptedServer(models=("nomic-embed-text", "qwen3:4b")) as ollama,
        ScriptedServer(models=("other",)) as lmstudio,
    ):
        settings = settings_of(ollama=ollama.url, lmstudio=lmstudio.url)
        choice = await discover_model(settings)
        assert choice.spec == "ollama/qwen3:4b"
        assert ollama.url in choice.reason
        choice = await discover_model(settings_of(lmstudio=lmstudio.url))
        assert choice.spec == "lmstudio/other"


async def test_local_weights_are_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    choice = await discover_model(settings_of())
    assert choice.spec == f"local/{PROVIDERS['local'].default_model}"


# What an endpoint can do


async def test_an_able_endpoint(client: OpenAIClient) -> None:
    capabilities = await probe_endpoint(client)
    assert capabilities.answers.value
    assert capabilities.models == ("scripted",)
    assert capabilities.findings["JSON schema"].value
    assert capabilities.findings["log-probabilities"].value
    assert capabilities.refused == ()


async def test_an_endpoint_that_can_little(server: ScriptedServer, client: OpenAIClient) -> None:
    counted: Iterator[int] = iter(range(100))

    def script(body: dict[str, object], _number: int) -> Answer | Fault:
        if "response_format" in body:
            return Fault.NO_SCHEMA
        if "logprobs" in body:
            return Fault.NO_LOGPROBS
        return Answer(text=f"answer {next(counted)}", usage={"prompt_tokens": 9})

    server.script = script
    capabilities = await probe_endpoint(client)
    assert capabilities.answers.value
    assert capabilities.findings["JSON schema"].value is False
    assert capabilities.findings["log-probabilities"].value is False
    assert capabilities.refused == ("response_format",)


async def test_whether_an_endpoint_decides(server: ScriptedServer, client: OpenAIClient) -> None:
    capabilities = await probe_endpoint(client)
    assert capabilities.findings["decisions"].value is True
    assert "emulated" in capabilities.findings["decisions"].note
    server.wires = ("systemone",)
    async with OpenAIClient(server.url, "scripted", decisions="systemone") as other:
        capabilities = await probe_endpoint(other)
    assert "System One" in capabilities.findings["decisions"].note
