"""What the scripted server's answers hold besides text: calls of tools, and thoughts; whole, and in
the chunks of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from textevolve.llm.testing.schema import instance

CHUNK = 7
"""Characters of thoughts or arguments in one event of a stream."""


def drawn_calls(asked: Mapping[str, Any], rng: Random) -> tuple[tuple[str, str], ...]:
    """What is called where a call is demanded: the function that is named, or the first."""
    choice: Any = asked.get("tool_choice")
    if choice in (None, "auto", "none"):
        return ()
    named: Any = choice["function"]["name"] if isinstance(choice, dict) else None  # pyright: ignore[reportUnknownVariableType]
    functions = [tool["function"] for tool in asked["tools"]]
    function = next(one for one in functions if named in (None, one["name"]))
    made = instance(function.get("parameters") or {"type": "object"}, rng)
    return ((function["name"], json.dumps(made)),)


def add_calls(message: dict[str, Any], calls: Sequence[tuple[str, str]], rng: Random) -> None:
    message["content"] = message["content"] or None
    message["tool_calls"] = [
        {
            "id": f"call_{rng.getrandbits(48):012x}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for name, arguments in calls
    ]


def thought_deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What chunks of a stream say of thoughts, before the text."""
    for field in ("reasoning_content", "reasoning"):
        for part in _split(message.get(field) or ""):
            yield {field: part}


def call_deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What chunks of a stream say of calls, after the text: the name first, then the arguments."""
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        begun: dict[str, Any] = {
            **call,
            "index": index,
            "function": {"name": function["name"], "arguments": ""},
        }
        yield {"tool_calls": [begun]}
        for part in _split(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _split(text: str) -> list[str]:
    return [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]


def mix_calls(events: list[bytes]) -> list[bytes]:
    """The parts of calls with those of the last call first, and taking turns."""
    places = [n for n, event in enumerate(events) if b'"tool_calls": [{' in event]
    by_index: dict[int, list[bytes]] = {}
    for place in places:
        (choice,) = json.loads(events[place].removeprefix(b"data: "))["choices"]
        index = choice["delta"]["tool_calls"][0]["index"]
        by_index.setdefault(index, []).append(events[place])
    queues = [by_index[index] for index in sorted(by_index, reverse=True)]
    turns = [queue.pop(0) for _ in places for queue in queues if queue]
    mixed = dict(zip(places, turns, strict=True))
    return [mixed.get(n, event) for n, event in enumerate(events)]
