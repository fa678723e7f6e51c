"""The scripted server's other wires for text: /v1/responses and /v1/completions.

A request on them is taken as the chat that it stands for, so that scripts' answers mean the same on
every wire, and the completion of that chat is written in the wire's own form, whole or as a stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from textevolve.llm.testing.answers import Answer, completion

_ENDING = re.compile(
    r"(?:\s|<[|｜]?\w[^<>\n]{0,40}>|\[/?\w+\]|<\|[^<>\n]{1,40}\||\b(?:assistant|model|ASSISTANT|Response)\b"
    r"|#+|:)+$"
)
"""What a rendered conversation ends with, so that the answer begins."""


@dataclass(frozen=True, slots=True)
class ServedWire:
    """`as_chat`: the chat that a request stands for; `write`: a chat completion in the wire's own
    form, for the chat and what was asked."""

    as_chat: Callable[[Mapping[str, Any]], dict[str, Any]]
    write: Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]]

    def make(self, asked: dict[str, Any], seed: int, answer: Answer) -> bytes:
        """The body of what is answered."""
        made = json.loads(completion(self.as_chat(asked), seed, answer))
        return json.dumps(self.write(made, asked)).encode()


def _response_chat(asked: Mapping[str, Any]) -> dict[str, Any]:
    given: Any = asked.get("input") or ()
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    told = asked.get("instructions")
    system = [{"role": "system", "content": told}] if told else []
    body: dict[str, Any] = {"model": asked.get("model"), "messages": [*system, *items]}
    form = _inner(_inner(asked, "text"), "format")
    if form.get("type") == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if asked.get("max_output_tokens") == 16:  # the wire's least stands for a single token
        body["max_tokens"] = 1
    if asked.get("include"):
        body |= {"logprobs": True, "top_logprobs": asked.get("top_logprobs") or 0}
    if asked.get("tools"):
        body["tools"] = [{"type": "function", "function": tool} for tool in asked["tools"]]
    choice = asked.get("tool_choice")
    body["tool_choice"] = {"function": choice} if isinstance(choice, dict) else choice
    return body


def _as_response(made: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = made["choices"]
    message, finish_reason = choice["message"], choice["finish_reason"]
    single = asked.get("max_output_tokens") == 16
    cut = finish_reason not in ("stop", "tool_calls") and not single
    reason = "max_output_tokens" if finish_reason == "length" else finish_reason
    usage = dict(made["usage"])
    return {
        "id": made["id"].replace("chatcmpl-", "resp_"),
        "object": "response",
        "created_at": 0,
        "model": made["model"],
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if cut else None,
        "output": list(_output(message, choice.get("logprobs"))),
        "store": asked.get("store", True),
        "usage": {
            "input_tokens": usage.get("prompt_tokens"),
            "input_tokens_details": usage.get("prompt_tokens_details"),
            "output_tokens": usage.get("completion_tokens"),
            "output_tokens_details": usage.get("completion_tokens_details"),
            "total_tokens": usage.get("total_tokens"),
        },
    }


def _output(message: Mapping[str, Any], logprobs: Any) -> Iterator[dict[str, Any]]:
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if thoughts:
        summary = [{"type": "summary_text", "text": thoughts}]
        yield {"id": "rs_1", "type": "reasoning", "summary": summary}
    for place, call in enumerate(message.get("tool_calls") or ()):
        named = {"id": f"fc_{place}", "type": "function_call", "call_id": call["id"]}
        yield {**named, **call["function"], "status": "completed"}
    part: dict[str, Any] = {"type": "output_text", "text": message["content"], "annotations": []}
    if logprobs:
        part["logprobs"] = logprobs["content"]
    if message.get("refusal"):
        part = {"type": "refusal", "refusal": message["refusal"]}
    if message["content"] is not None or message.get("refusal"):
        head = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        yield {**head, "content": [part]}


def response_events(whole: dict[str, Any], _asked: Mapping[str, Any]) -> Iterator[bytes]:
    """A response as OpenAI streams it; the last event has it whole."""
    begun: dict[str, Any] = whole | {"status": "in_progress", "output": [], "usage": None}
    yield _named_event("response.created", {"response": begun})
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        yield _named_event("response.output_item.added", place | {"item": item | {"content": []}})
        if item["type"] == "function_call":
            for part in _words(item["arguments"]):
                yield _named_event(
                    "response.function_call_arguments.delta", place | {"delta": part}
                )
        for part in item.get("summary") or ():
            for word in _words(part["text"]):
                kind = "response.reasoning_summary_text.delta"
                yield _named_event(kind, place | {"summary_index": 0, "delta": word})
        for part in item.get("content") or ():
            field = "refusal" if part["type"] == "refusal" else "text"
            kind = f"response.{'output_text' if field == 'text' else field}.delta"
            for word in _words(part[field]):
                yield _named_event(kind, place | {"content_index": 0, "delta": word})
        yield _named_event("response.output_item.done", place | {"item": item})
    yield _named_event(f"response.{whole['status']}", {"response": whole})


def _named_event(kind: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def _inner(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Any = said.get(name)
    return found if found else {}


def _words(text: str | None) -> list[str]:
    return re.findall(r"\s*\S+|\s+", text or "")


def _text_chat(asked: Mapping[str, Any]) -> dict[str, Any]:
    prompt = _ENDING.sub("", str(asked.get("prompt") or ""))
    body: dict[str, Any] = {k: v for k, v in asked.items() if k not in ("prompt", "logprobs")}
    body["messages"] = [{"role": "user", "content": prompt}]
    if asked.get("json_schema"):
        schema = {"schema": asked["json_schema"]}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if asked.get("logprobs"):
        body |= {"logprobs": True, "top_logprobs": asked["logprobs"]}
    return body


def _as_text_completion(made: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = made["choices"]
    text = choice["message"]["content"] or ""
    written: dict[str, Any] = {
        "index": 0,
        "text": text,
        "finish_reason": choice["finish_reason"],
        "logprobs": None,
    }
    if asked.get("logprobs"):
        written["logprobs"] = _in_columns(_inner(choice, "logprobs").get("content") or ())
    return made | {"object": "text_completion", "choices": [written]}


def _in_columns(tokens: Any) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }
    offset = 0
    for token in tokens:
        made["tokens"].append(token["token"])
        made["token_logprobs"].append(token["logprob"])
        made["top_logprobs"].append({one["token"]: one["logprob"] for one in token["top_logprobs"]})
        made["text_offset"].append(offset)
        offset += len(token["token"])
    return made


def text_events(whole: dict[str, Any], asked: Mapping[str, Any]) -> Iterator[bytes]:
    """A text completion as a stream: the text, why it ended, the usage, the end."""
    (choice,) = whole["choices"]
    columns: dict[str, list[Any]] | None = choice["logprobs"]

    def event(**more: Any) -> bytes:
        piece = {"index": 0, "text": "", "finish_reason": None, "logprobs": None} | more
        return f"data: {json.dumps({**head, 'choices': [piece]})}\n\n".encode()

    head = {k: whole[k] for k in ("id", "object", "created", "model")}
    if columns is not None:
        for n, token in enumerate(columns["tokens"]):
            own = {name: [column[n]] for name, column in columns.items()}
            yield event(text=token, logprobs=own)
    else:
        for word in _words(choice["text"]):
            yield event(text=word)
    yield event(finish_reason=choice["finish_reason"])
    if _inner(asked, "stream_options").get("include_usage"):
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': whole['usage']})}\n\n".encode()
    yield b"data: [DONE]\n\n"


SERVED_WIRES: Mapping[str, ServedWire] = {
    "/responses": ServedWire(_response_chat, _as_response),
    "/completions": ServedWire(_text_chat, _as_text_completion),
}
