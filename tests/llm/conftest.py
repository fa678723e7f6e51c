"""What the tests of the model door share: a scripted server and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from textevolve.errors import FatalModelError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer
from textevolve.llm.weights import fetch
from textevolve.settings import Timeouts, read_settings


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as started:
        yield started


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[OpenAIClient]:
    async with OpenAIClient(server.url, "scripted") as opened:
        yield opened


@pytest.fixture
async def hasty(server: ScriptedServer) -> AsyncIterator[OpenAIClient]:
    """For servers that never answer."""
    async with OpenAIClient(server.url, "scripted", timeouts=Timeouts(read=0.1)) as opened:
        yield opened


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The real file, by the real way; kept where the user's weights are."""
    settings = read_settings()
    try:
        return fetch("smollm2-135m", settings)
    except FatalModelError as error:
        pytest.skip(f"the smallest weights cannot be had here: {error}")


@pytest.fixture(autouse=True)
def no_keys_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """No test reads this machine's keys, settings or keyring."""
    from textevolve.llm.providers import ADDRESS_KEY, PROVIDERS

    for provider in PROVIDERS.values():
        if provider.key_env:
            monkeypatch.delenv(provider.key_env, raising=False)
    monkeypatch.delenv(ADDRESS_KEY, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
