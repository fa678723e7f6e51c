"""Decisions by the ways that users come: models by their specs, journaled, priced, limited, cut."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from textevolve.errors import CapabilityError
from textevolve.llm.decision_wires import let_decide, wire_of
from textevolve.llm.decisions import decide, predicate
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.testing import ScriptedServer
from textevolve.settings import Price, Provider, Retries, Settings
from textevolve.wiring import Limits, open_models

KIND = predicate("kind", "Is it kind?")
LONG = predicate("long", "Is it long?")


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.entries: dict[str, JournalEntry] = {}

    async def find(self, key: str) -> Response | None:
        found = self.entries.get(key)
        return found.response if found else None

    async def append(self, entry: JournalEntry) -> None:
        self.entries[entry.key] = entry


def settings_of(server: ScriptedServer, **more: object) -> Settings:
    mine = Provider(base_url=server.url, keyless=True, **more)  # type: ignore[arg-type]
    price = Price(input=1.0, output=1.0)
    return Settings(
        providers={"mine": mine}, prices={"mine/any": price}, retries=Retries(attempts=2, first=0)
    )


@asynccontextmanager
async def opened(
    settings: Settings, kept: Kept, limits: Limits | None = None
) -> AsyncGenerator[Model]:
    async with open_models(settings, kept, limits) as model_of:
        yield let_decide(model_of, settings)("mine/any")


async def test_what_was_decided_is_kept():
    kept = Kept()
    with ScriptedServer(wires=["decisions"]) as server:
        settings = settings_of(server, decisions="decisions")
        async with opened(settings, kept) as model:
            assert wire_of(model) == "decisions"
            first = await decide(model, "A text.", [KIND, LONG])
            calls = server.calls
            again = await decide(model, "A text.", [KIND, LONG])
            assert server.calls == calls
    assert not first.emulated
    assert again.answers == first.answers


async def test_where_no_wire_is_spoken_it_is_emulated_and_that_is_kept():
    kept = Kept()
    with ScriptedServer() as server:
        for _ in range(2):
            async with opened(settings_of(server), kept) as model:
                assert wire_of(model) is None
                assert (await decide(model, "A text.", [KIND])).emulated
        assert server.calls == 1


async def test_a_model_that_only_decides_is_not_opened_to_chat(tmp_path: Path):
    """Its weights, which are not there, are not fetched for that."""
    settings = Settings(weights_folder=tmp_path)
    async with open_models(settings, Kept()) as model_of:
        with pytest.raises(CapabilityError, match="local/laya: this model decides"):
            await model_of("local/laya")(Request(messages=(Message("user", ("Hello",)),)))
