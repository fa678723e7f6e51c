"""Further protocols of the scripted server: streams, /responses and decisions.

A request for text is converted into a chat request, so a script's answers mean the same in every
protocol, and the completion is written in the protocol's own form, whole or as a stream. The
probabilities of a decision are a function of the state, its words and its options, so they are the
same in every protocol and do not depend on other questions or their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any

from textevolve.llm.decisions import Wire
from textevolve.llm.testing.answers import Answer, call_deltas, completion, thought_deltas


@dataclass(frozen=True, slots=True)
class ServedWire:
    """The conversion between a protocol for text and chat completions.

    Attributes:
        as_chat: Converts a request into a chat request.
        write: Converts the chat completion into the protocol's form; its second argument is the
            original request.
    """

    as_chat: Callable[[Mapping[str, Any]], dict[str, Any]]
    write: Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]]

    def make(self, request: dict[str, Any], seed: int, answer: Answer) -> bytes:
        """Return the body of the answer to a request."""
        completion_body = json.loads(completion(self.as_chat(request), seed, answer))
        return json.dumps(self.write(completion_body, request)).encode()


def _response_chat(request: Mapping[str, Any]) -> dict[str, Any]:
    inputs: Any = request.get("input") or ()
    items = [{"role": "user", "content": inputs}] if isinstance(inputs, str) else inputs
    instructions = request.get("instructions")
    system = [{"role": "system", "content": instructions}] if instructions else []
    body: dict[str, Any] = {"model": request.get("model"), "messages": [*system, *items]}
    form = _inner(_inner(request, "text"), "format")
    if form.get("type") == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if request.get("max_output_tokens") == 16:  # the wire's least stands for a single token
        body["max_tokens"] = 1
    if request.get("include"):
        body |= {"logprobs": True, "top_logprobs": request.get("top_logprobs") or 0}
    if request.get("tools"):
        body["tools"] = [{"type": "function", "function": tool} for tool in request["tools"]]
    choice = request.get("tool_choice")
    body["tool_choice"] = {"function": choice} if isinstance(choice, dict) else choice
    return body


def _as_response(completion_body: dict[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = completion_body["choices"]
    message, finish_reason = choice["message"], choice["finish_reason"]
    single = request.get("max_output_tokens") == 16
    cut = finish_reason not in ("stop", "tool_calls") and not single
    reason = "max_output_tokens" if finish_reason == "length" else finish_reason
    usage = dict(completion_body["usage"])
    return {
        "id": completion_body["id"].replace("chatcmpl-", "resp_"),
        "object": "response",
        "created_at": 0,
        "model": completion_body["model"],
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if cut else None,
        "output": list(_output(message, choice.get("logprobs"))),
        "store": request.get("store", True),
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
        fields = {"id": f"fc_{place}", "type": "function_call", "call_id": call["id"]}
        yield {**fields, **call["function"], "status": "completed"}
    part: dict[str, Any] = {"type": "output_text", "text": message["content"], "annotations": []}
    if logprobs:
        part["logprobs"] = logprobs["content"]
    if message.get("refusal"):
        part = {"type": "refusal", "refusal": message["refusal"]}
    if message["content"] is not None or message.get("refusal"):
        head = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        yield {**head, "content": [part]}


def response_events(response: dict[str, Any], _asked: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the events of a response that is streamed as OpenAI does; the last event holds the
    whole response."""
    begun: dict[str, Any] = response | {"status": "in_progress", "output": [], "usage": None}
    yield _named_event("response.created", {"response": begun})
    for index, item in enumerate(response["output"]):
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
    yield _named_event(f"response.{response['status']}", {"response": response})


def _named_event(kind: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def _inner(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: Any = fields.get(name)
    return value if value else {}


def _words(text: str | None) -> list[str]:
    return re.findall(r"\s*\S+|\s+", text or "")


SERVED_WIRES: Mapping[str, ServedWire] = {
    "/responses": ServedWire(_response_chat, _as_response),
}


def as_stream(answer: Answer, request: Mapping[str, Any]) -> Answer:
    """Convert an answer into a stream of events, if its body is a completion or a response."""
    if answer.status != 200 or answer.body is None:
        return answer
    body = json.loads(answer.body)
    write = response_events if body["object"] == "response" else _events
    return replace(answer, events=tuple(write(body, request)))


def _events(body: dict[str, Any], request: Mapping[str, Any]) -> Iterable[bytes]:
    """Yield the events of a streamed chat completion: the role, the text, the finish reason, the
    usage, and the end mark."""
    (choice,) = body["choices"]
    message, logprobs = choice["message"], choice.get("logprobs")
    head = {k: body[k] for k in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: Mapping[str, Any], **more: Any) -> bytes:
        piece = {"index": 0, "delta": delta, "finish_reason": None} | more
        return _event(head | {"choices": [piece]})

    yield chunk({"role": "assistant", "content": ""})
    for delta in thought_deltas(message):
        yield chunk(delta)
    if message.get("refusal"):
        yield chunk({"refusal": message["refusal"]})
    if logprobs:
        for token in logprobs["content"]:
            yield chunk({"content": token["token"]}, logprobs={"content": [token]})
    else:
        for word in _words(message.get("content")):
            yield chunk({"content": word})
    for delta in call_deltas(message):
        yield chunk(delta)
    yield chunk({}, finish_reason=choice["finish_reason"])
    stream_options: Mapping[str, Any] = request.get("stream_options") or {}
    if stream_options.get("include_usage"):
        yield _event(head | {"choices": [], "usage": body["usage"]})
    yield b"data: [DONE]\n\n"


def _event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Question:
    """A question read from a request. A predicate has the options no and yes. `levels`: the
    descriptions of a score's options."""

    name: str | None
    type: str
    instructions: str
    options: tuple[str, ...]
    levels: tuple[Any, ...] = ()


def dialect_of(path: str, spoken: Sequence[str]) -> Wire | None:
    """Return the decision protocol of a request's path; None if the server does not have it."""
    if path == "/systemone":
        return "systemone" if "systemone" in spoken else None
    return "decisions" if "decisions" in spoken else None


def decision(dialect: Wire, request: Mapping[str, Any]) -> bytes:
    """Return the body of an answer to decision questions, with the answers at its end."""
    state = request.get("state" if dialect == "systemone" else "input")
    questions = [_read(dialect, name, question) for name, question in _questions(request)]
    answers: Any = [_answer(dialect, q, _probabilities(state, q)) for q in questions]
    if dialect != "decisions":
        answers = {q.name: answer for q, answer in zip(questions, answers, strict=True)}
    usage = _usage(dialect, len(json.dumps(state)) // 4 + 20 * len(questions))
    body = {"model": request.get("model", ""), "usage": usage, "answers": answers}
    return json.dumps(body).encode()


def _questions(request: Mapping[str, Any]) -> list[tuple[str | None, Mapping[str, Any]]]:
    questions: Any = request.get("questions") or {}
    if isinstance(questions, dict):
        return list(questions.items())  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return [(question.get("name"), question) for question in questions]


def _read(dialect: Wire, name: str | None, question: Mapping[str, Any]) -> _Question:
    kind = str(question.get("type"))
    words = str(question.get("instructions"))
    options: Sequence[Any] = ("no", "yes")
    levels: Sequence[Any] = ()
    if kind == "choice":
        choices = question["criteria" if dialect == "systemone" else "choices"]
        options = [option if isinstance(option, str) else option["value"] for option in choices]
    elif kind == "score":
        levels = question["criteria" if dialect == "systemone" else "levels"]
        options = [str(number) for number in range(len(levels))]
    # OpenAI's predicates say in their instructions what yes and no mean.
    return _Question(name, kind, words.split("\n")[0], tuple(options), tuple(levels))


def _probabilities(state: object, question: _Question) -> list[float]:
    described = json.dumps([state, question.instructions, question.options])
    rng = Random(blake2b(described.encode(), digest_size=8).digest())
    shares = [rng.gammavariate(0.7, 1.0) + 1e-3 for _ in question.options]
    return [share / sum(shares) for share in shares]


def _answer(dialect: Wire, question: _Question, row: Sequence[float]) -> dict[str, Any]:
    name = {"name": question.name} if dialect == "decisions" else {}
    if question.type in ("noul", "predicate"):
        field = "noul" if dialect == "systemone" else "probability"
        return {"type": question.type, field: row[1]} | name
    shares: Any = dict(zip(question.options, row, strict=True))
    best = max(shares, key=shares.__getitem__)
    fields: dict[str, Any] = {"choice": best}
    if question.type == "score":
        fields = {"score": sum(number * p for number, p in enumerate(row))}
        if dialect == "systemone":
            fields["legend"] = dict(zip(question.options, question.levels, strict=True))
    if dialect == "decisions":
        shares = [{"value": option, "probability": p} for option, p in shares.items()]
        for number, level in enumerate(question.levels):
            shares[number] |= {"value": number, "label": level["label"]}
    fields |= {"confidence": max(row), "probabilities": shares}
    return {"type": question.type} | fields | name


def _usage(dialect: Wire, tokens: int) -> dict[str, Any]:
    usage: dict[str, Any] = {"input_tokens": tokens, "output_tokens": 0}
    if dialect == "decisions":
        cached = {"cached_tokens": tokens // 32 * 16, "cache_write_tokens": 0}
        usage |= {"input_tokens_details": cached, "output_tokens_details": {"reasoning_tokens": 0}}
        usage["total_tokens"] = tokens
    return usage
