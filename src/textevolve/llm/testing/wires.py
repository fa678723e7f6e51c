"""Streams and decisions of the scripted server.

The probabilities of a decision are a function of the state, its words and its options, so they are
the same in every protocol and do not depend on other questions or their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Return the body of a response to decision questions. Its last field, `answers`, is an object
    by the names of the questions in the protocol `systemone`, and a list in `decisions`."""
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
