"""What chains of a server's clients name: neither code nor files of its machine are loaded."""

import sys

import pytest

from textevolve.errors import InputError
from textevolve.reach import Reach, confine
from textevolve.settings import Settings
from textevolve.studies import driver
from textevolve.studies.kinds import find_study

LOADED = "loaded_by_a_client"
STEPS = {
    "code": "{call: a, function: 'secret_code:f'}",
    "file of code": "{call: a, function: 'secret_code.py:f'}",
    "code that parses": "{ask: a, prompt: x, parse: 'secret_code:f'}",
    "standard library": "{call: a, function: 'os:system', inputs: [x]}",
    "file of a prompt": "{ask: a, file: secret.md}",
    "file by its whole name": "{ask: a, file: %s/secret.md}",
    "file above": "{ask: a, file: ../secret.md}",
    "another chain": "{call: a, function: other.yaml}",
}


@pytest.fixture
def machine(home, monkeypatch):
    """The server's own folder, and what a client has sent."""
    (home / "secret_code.py").write_text(f"import sys\nsys.{LOADED} = True\ndef f(x): return x\n")
    (home / "secret.md").write_text("A secret")
    (home / "other.yaml").write_text("steps: [{ask: a, prompt: secret}]\n")
    monkeypatch.syspath_prepend(str(home))
    sent = home / "sent"
    sent.mkdir()
    yield home
    assert not hasattr(sys, LOADED)


async def specify(home, kind, allowed=lambda _: True, /, **fields):
    study = find_study(kind)
    with confine(Reach(folder=home / "sent", models=allowed)):
        spec = study.spec(**fields)
        return await driver.specify(
            study, spec, Settings(store=home / "s.db", model="openai/gpt-6-luna"), asks_models=False
        )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["chain", "calibrate", "optimize", "compare"])
async def test_a_clients_chain_names_nothing_of_the_machine(machine, kind, step):
    told = STEPS[step] % machine if "%s" in STEPS[step] else STEPS[step]
    (machine / "sent" / "mine.yaml").write_text(f"inputs: [x]\nsteps: [{told}]\n")
    with pytest.raises(InputError, match=r"no code is loaded for clients|is no file that was sent"):
        await specify(machine, kind, **fields_of(kind, "mine.yaml"))


@pytest.mark.parametrize("kind", ["chain", "calibrate", "optimize", "compare"])
@pytest.mark.parametrize("name", ["secret_code:f", "secret_code.py:f", "other.yaml", "os:system"])
async def test_a_client_names_no_chain_of_the_machine(machine, kind, name):
    with pytest.raises(InputError, match=r"no code is loaded for clients|is no file that was sent"):
        await specify(machine, kind, **fields_of(kind, name))


async def test_a_chain_of_models_alone_may_be_sent_if_its_models_may_be_asked(machine):
    text = "model: openai/gpt-5\ninputs: [x]\nsteps: [{ask: a, prompt: '{x}'}]\n"
    (machine / "sent" / "mine.yaml").write_text(text)
    stored = await specify(machine, "chain", chain="mine.yaml")
    assert stored.described["chains"]["mine.yaml"]["models"] == ["openai/gpt-5"]
    with pytest.raises(InputError, match="openai/gpt-5: is not served to clients"):
        await specify(machine, "chain", lambda name: name == "openai/gpt-6-luna", chain="mine.yaml")


def fields_of(kind, name):
    told = {"chain": {"chain": name}, "compare": {"models": [name], "data": "rows.jsonl"}}
    told |= {"calibrate": {"model": name, "data": "rows.jsonl"}}
    return {**told, "optimize": {"model": name, "task": "Write."}}[kind]
