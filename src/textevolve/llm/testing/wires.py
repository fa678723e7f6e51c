"""Streams and decisions of the scripted server.

The probabilities of a decision are a function of the state, its words and its options, so they are
the same in every protocol and do not depend on other questions or their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import Any

from textevolve.llm.decisions import Wire
from textevolve.llm.testing.answers import Answer, call_deltas, thought_deltas


def _words(text: str | None) -> list[str]:
    return re.findall(r"\s*\S+|\s+", text or "")


def as_stream(answer: Answer, request: Mapping[str, Any]) -> Answer:
    """Convert an answer into a stream of events; return errors and answers without a body
    unchanged."""
    if answer.status != 200 or answer.body is None:
        return answer
    return replace(answer, events=tuple(_events(json.loads(answer.body), request)))


def _events(body: dict[str, Any], request: Mapping[str, Any]) -> Iterable[bytes]:
    """Yield the events of a streamed chat completion: the role, reasoning, a refusal, the text,
    tool calls, the finish reason, the usage if the request asks for it, and the end mark."""
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


def decision(dialect: Wire, request: Mapping[str, Any]) -> bytes:
    """Return the body of a response to decision questions. Its last field, `answers`, is an object
    by the names of the questions in the protocol `systemone`, and a list in `decisions`.

    Raises AttributeError, KeyError or TypeError if the request has no questions of the protocol.
    """
    questions: Any = request.get("questions") or {}
    if dialect == "systemone":
        state = request.get("state")
        answers: Any = {
            name: _answer(dialect, state, question) for name, question in questions.items()
        }
    else:
        state = request.get("input")
        answers = [
            _answer(dialect, state, question) | {"name": question.get("name")}
            for question in questions
        ]
    usage = _usage(dialect, len(json.dumps(state)) // 4 + 20 * len(questions))
    body = {"model": request.get("model", ""), "usage": usage, "answers": answers}
    return json.dumps(body).encode()


def _answer(dialect: Wire, state: object, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to one question. A predicate has the options no and yes, and a score the
    numbers of its levels."""
    kind, is_native = str(question.get("type")), dialect == "systemone"
    options, levels = ["no", "yes"], list[Any]()
    if kind == "choice":
        choices = question["criteria" if is_native else "choices"]
        options = [option if isinstance(option, str) else option["value"] for option in choices]
    elif kind == "score":
        levels = question["criteria" if is_native else "levels"]
        options = [str(number) for number in range(len(levels))]
    # OpenAI's predicates say in their instructions what yes and no mean.
    instructions = str(question.get("instructions")).split("\n")[0]
    row = _probabilities(json.dumps([state, instructions, options]), len(options))
    if kind in ("noul", "predicate"):
        return {"type": kind, "noul" if is_native else "probability": row[1]}
    shares: Any = dict(zip(options, row, strict=True))
    fields: dict[str, Any] = {"choice": max(shares, key=shares.__getitem__)}
    if kind == "score":
        fields = {"score": sum(number * p for number, p in enumerate(row))}
        if is_native:
            fields["legend"] = dict(zip(options, levels, strict=True))
    if not is_native:
        shares = [{"value": option, "probability": p} for option, p in shares.items()]
        for number, level in enumerate(levels):
            shares[number] |= {"value": number, "label": level["label"]}
    return {"type": kind, **fields, "confidence": max(row), "probabilities": shares}


def _probabilities(described: str, count: int) -> list[float]:
    rng = Random(blake2b(described.encode(), digest_size=8).digest())
    shares = [rng.gammavariate(0.7, 1.0) + 1e-3 for _ in range(count)]
    return [share / sum(shares) for share in shares]


def _usage(dialect: Wire, tokens: int) -> dict[str, Any]:
    usage: dict[str, Any] = {"input_tokens": tokens, "output_tokens": 0}
    if dialect == "decisions":
        cached = {"cached_tokens": tokens // 32 * 16, "cache_write_tokens": 0}
        usage |= {"input_tokens_details": cached, "output_tokens_details": {"reasoning_tokens": 0}}
        usage["total_tokens"] = tokens
    return usage
