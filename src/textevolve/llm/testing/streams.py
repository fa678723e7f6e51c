"""The scripted server's streams: a completion as server-sent events, and how streams go wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from textevolve.llm.testing.answers import Answer
from textevolve.llm.testing.calls import call_deltas, thought_deltas
from textevolve.llm.testing.text_wires import response_events, text_events

_WORD = re.compile(r"\s*\S+|\s+")
ERROR = b'data: {"error":{"message":"Upstream failed","code":502}}\n\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed(Answer):
    """An answer whose events are sent one after the other."""

    events: tuple[bytes, ...] = ()

    def sent(self) -> list[bytes]:
        """The packets that go out; of what ends badly the first half."""
        packets = list(self.events) if self.packets is None else self.packets(list(self.events))
        bad = self.transport in ("cut", "reset", "stall")
        return packets[: len(packets) // 2] if bad else packets


def as_stream(answer: Answer, asked: Mapping[str, Any]) -> Answer:
    """The same answer as a stream, where its body is a completion."""
    if answer.status != 200 or answer.body is None:
        return answer
    whole = json.loads(answer.body)
    kinds = {"response": response_events, "text_completion": text_events}
    given = {one.name: getattr(answer, one.name) for one in fields(answer)}
    return Streamed(**given, events=tuple(kinds.get(whole["object"], _events)(whole, asked)))


def _events(whole: dict[str, Any], asked: Mapping[str, Any]) -> Iterable[bytes]:
    """The chunks as OpenAI sends them: the role, the text, why it ended, the usage, the end."""
    (choice,) = whole["choices"]
    message, logprobs = choice["message"], choice.get("logprobs")
    made = {k: whole[k] for k in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: Mapping[str, Any], **more: Any) -> bytes:
        piece = {"index": 0, "delta": delta, "finish_reason": None} | more
        return _event(made | {"choices": [piece]})

    yield chunk({"role": "assistant", "content": ""})
    for delta in thought_deltas(message):
        yield chunk(delta)
    if message.get("refusal"):
        yield chunk({"refusal": message["refusal"]})
    if logprobs:
        for token in logprobs["content"]:
            yield chunk({"content": token["token"]}, logprobs={"content": [token]})
    else:
        for word in _WORD.findall(message.get("content") or ""):
            yield chunk({"content": word})
    for delta in call_deltas(message):
        yield chunk(delta)
    yield chunk({}, finish_reason=choice["finish_reason"])
    wanted: Mapping[str, Any] = asked.get("stream_options") or {}
    if wanted.get("include_usage"):
        yield _event(made | {"choices": [], "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


def _event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def shorten(events: list[bytes]) -> list[bytes]:
    return events[: len(events) // 2]


def fail_midway(events: list[bytes]) -> list[bytes]:
    return [*shorten(events), ERROR]


def break_one(events: list[bytes]) -> list[bytes]:
    at = len(events) // 2
    return [*events[:at], events[at][: len(events[at]) // 2] + b"\n\n", *events[at + 1 :]]


def leave_out_usage(events: list[bytes]) -> list[bytes]:
    return [event for event in events if b'"usage"' not in event]


def with_crlf(events: list[bytes]) -> list[bytes]:
    return [b": a comment\r\n\r\n", *(event.replace(b"\n", b"\r\n") for event in events)]


def in_one_packet(events: list[bytes]) -> list[bytes]:
    return [b"".join(events)]


def byte_by_byte(events: list[bytes]) -> list[bytes]:
    return [bytes([byte]) for event in events for byte in event]
