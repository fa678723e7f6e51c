"""mem0 end to end at the scripted server, and what it must not do: write home, or phone home.

Each scenario runs in a process of its own: importing mem0 sets up what cannot be undone.
"""

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from textevolve.errors import SettingsError
from textevolve.llm.testing import Answer
from textevolve.memory_eval.finding import open_system
from textevolve.settings import read_settings

needs_mem0 = pytest.mark.skipif(
    importlib.util.find_spec("mem0") is None, reason="the extra mem0 is not installed"
)

BEFORE = """
import asyncio, json, os, sys

reached = []

def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        reached.append(str(arguments[1][0]))
    elif event == "socket.getaddrinfo":
        reached.append(str(arguments[0]))

sys.addaudithook(watch)

from textevolve.errors import TextEvolveError
from textevolve.memory_eval.dataset import DialogueTurn
from textevolve.memory_eval.finding import open_system
from textevolve.settings import read_settings

settings = read_settings()
user = lambda text: DialogueTurn("user", text, "Jan 06, 2025, 09:00:00")
said = {}
"""
AFTER = """
asyncio.run(main())
print(json.dumps({"said": said, "reached": sorted(set(reached))}))
"""


def extract(body, _number=0):
    """What a user's new lines say, as mem0 wants it."""
    text = body["messages"][-1]["content"]
    new = text.split("## New Messages")[1].split("## Observation Date")[0]
    facts = [{"id": str(n), "text": fact} for n, fact in enumerate(re.findall(r"user: (.+)", new))]
    return json.dumps({"memory": facts})


@pytest.fixture
def run_mem0(home, server, monkeypatch):
    """Runs `async def main()` in a process of its own; gives what it said and whom it reached."""
    monkeypatch.setenv("TEXTEVOLVE_MEM0_MODEL", f"{server.url}#chat")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-mem0-would-ask-there")
    server.script = extract

    def run(script):
        process = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", BEFORE + script + AFTER],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert process.returncode == 0, process.stderr
        assert process.stderr == ""
        return json.loads(process.stdout.splitlines()[-1])

    return run


KEY = "sk-DoNotShow-0123456789abcdef"
ECHO = json.dumps({"error": {"message": f"you sent {KEY}"}}).encode()
FAULTS = {
    "refused": (Answer(status=400, body=ECHO), "UnavailableError", "you sent [key]"),
    "cut": (Answer(text='{"memory": [{"te', finish_reason="length"), "AnswerError", "parsing"),
    "lost": (None, "AnswerError", "you sent [key]"),
}

SCENARIO = """
async def main():
    system = open_system("mem0")
    said["name"], said["durable"] = system.name, system.capabilities.durable
    both = system.add([user("Kim lives in Lyon."), user("Kim likes tea.")], "a"), system.add(
        [user("Sam plays the tuba.")], "b")
    said["added"] = await asyncio.gather(*both)
    said["found"] = await system.search("Kim likes tea.", "a", 1)
    said["others"] = await system.search("Kim likes tea.", "b", 5)
    long = [user(f"Fact {n}.") for n in range(45)]
    said["long"] = await system.add(long, "d")
    said["faults"] = {}
    for name in ("refused", "cut", "lost"):
        try:
            said["faults"][name] = await system.add([user(name)], name)
        except TextEvolveError as error:
            said["faults"][name] = type(error).__name__, str(error)
    await system.aclose()
    system = open_system("mem0")
    said["after"] = await system.search("Kim lives in Lyon.", "a", 1)
    await system.aclose()
"""


@pytest.mark.slow
@needs_mem0
def test_it_extracts_finds_keeps_and_reaches_nothing_but_its_endpoint(
    run_mem0, home, server, monkeypatch
):
    """What its model does not give is a failure, and not no memory."""

    def script(body, number):
        names = [name for name in FAULTS if f"user: {name}" in body["messages"][-1]["content"]]
        return (FAULTS[names[0]][0] if names else None) or extract(body)

    def answer(method, path, headers, body, honest=server.answer):
        lost = path.endswith("/embeddings") and json.loads(body)["input"] == ["lost"]
        return Answer(status=400, body=ECHO) if lost else honest(method, path, headers, body)

    server.script = script
    monkeypatch.setattr(server, "answer", answer)
    monkeypatch.setenv("TEXTEVOLVE_API_KEY", KEY)
    outcome = run_mem0(SCENARIO)
    spoken_said = outcome["said"]
    assert re.fullmatch(r"mem0:[0-9a-f]{12}", spoken_said["name"])
    assert spoken_said["durable"] is True
    assert spoken_said["added"] == [
        ["Kim lives in Lyon.", "Kim likes tea."],
        ["Sam plays the tuba."],
    ]
    assert spoken_said["found"] == ["Kim likes tea."]
    assert spoken_said["others"] in ([], ["Sam plays the tuba."])
    assert spoken_said["long"] == [f"Fact {n}." for n in range(45)]  # given in parts
    assert spoken_said["after"] == ["Kim lives in Lyon."]
    for name, (_, kind, text) in FAULTS.items():
        assert spoken_said["faults"][name][0] == kind
        assert text in spoken_said["faults"][name][1]
    assert outcome["reached"] == ["127.0.0.1"]
    written = {path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file()}
    assert written == {"mem0"}  # beside the store of runs
    assert "The messages are of Jan 06, 2025" in server.requests[0]["messages"][-1]["content"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(spoken_said)


@needs_mem0
def test_what_is_missing_is_said_before_anything_is_fed(home):
    with pytest.raises(SettingsError, match="llm: none is named; set TEXTEVOLVE_MEM0_MODEL"):
        open_system("mem0")
    with pytest.raises(SettingsError, match="runs inside this program"):
        open_system("mem0", read_settings(model="local"))
