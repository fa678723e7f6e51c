"""The answers of the scripted server: texts, instances of schemas, tool calls, tokens, completions.

The default answer is a function of the request's bytes alone, so a run can be repeated exactly.
Each character is a token whose number is its code point. Of characters beyond the first 65,536 code
points each byte is a token, to test models whose tokens are parts of characters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any, Literal

from pydantic import TypeAdapter

from textevolve.evaluation import Usage, empty_default
from textevolve.images import IMAGE_TOKENS
from textevolve.json_texts import is_array
from textevolve.protocol.chat import (
    DONE,
    NamedChoice,
    read_text_and_images,
    split_message,
    write_chunk,
    write_completion,
    write_event,
    write_head,
    write_reply,
    write_usage_chunk,
)
from textevolve.protocol.contents import Answer as Probabilities
from textevolve.protocol.contents import ToolCall, Wire, write_chat_usage, write_usage
from textevolve.protocol.decisions import (
    DecisionsQuestion,
    SystemOneQuestion,
    write_decision,
    write_systemone_usage,
)

_CHOICE = re.compile(r"(\w+) or (\w+)\.?\s*$")
_LABELS = re.compile(r"one \w+, ((?:\w+, )*\w+) or (\w+)\.?\s*$")
_TOKEN = re.compile(r"\d+| ?[^\W\d_]+|\s+|[^\w\s]|_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the scripted server. Fields that are not set are filled in to fit the request.

    Attributes:
        text: The text; None: a generated one.
        alter: A function that is applied to the text, also to a generated one.
        yes: The probability of Yes in a one-token answer, or of the first of the words at the end
            of the question ("one letter, A, B or C."); the other words share the rest.
        body: The bytes that are sent unchanged instead of a chat completion, with `status`.
        delay: The seconds in addition to the server's latency.
        transport: How the answer is sent: `hang` never answers, `reset` breaks the connection in
            the middle of the answer, `cut` closes it early, `endless` sends spaces after the answer
            until the client disconnects, `stall` sends the first half and then nothing more.
        packets: For a streamed answer, turns the events into the packets that are sent.
        pace: The seconds between two packets.
        streams: False: requests to stream are answered without a stream.
        tool_calls: The functions to call, each with its arguments as text.
        reasoning: The reasoning before the answer.
        reasoning_field: The field that contains the reasoning; "text" puts it between tags before
            the text.
        model: The model's name in the answer; empty: the requested one.
        events: The events of a stream, which the server generates.
    """

    text: str | None = None
    alter: Callable[[str], str] | None = None
    yes: float | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    usage: Mapping[str, Any] | None = None
    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = empty_default(dict)
    delay: float = 0.0
    transport: Literal["whole", "hang", "reset", "cut", "endless", "stall"] = "whole"
    packets: Callable[[list[bytes]], list[bytes]] | None = None
    pace: float = 0.0
    streams: bool = True
    tool_calls: tuple[tuple[str, str], ...] = ()
    reasoning: str | None = None
    reasoning_field: Literal["reasoning_content", "reasoning", "text"] = "reasoning_content"
    model: str = ""
    events: tuple[bytes, ...] = ()

    def sent(self) -> list[bytes]:
        """Return the packets of a stream that are sent: only the first half if the transport fails
        midway."""
        packets = list(self.events) if self.packets is None else self.packets(list(self.events))
        bad = self.transport in ("cut", "reset", "stall")
        return packets[: len(packets) // 2] if bad else packets


OBLIGING = Answer()


def completion(body: Mapping[str, Any], seed: int, answer: Answer = OBLIGING) -> bytes:
    """Return the body of a chat completion that answers the request `body`; random parts depend on
    `seed`."""
    rng = Random(seed)
    words = _words(body)
    text, finish_reason, yes = _text(body, rng, answer, words)
    calls = answer.tool_calls or (drawn_calls(body, rng) if answer.text is None else ())
    if calls:
        text = answer.text or ""
        finish_reason = answer.finish_reason or "tool_calls"
    tool_calls = [
        ToolCall(f"call_{rng.getrandbits(48):012x}", name, arguments) for name, arguments in calls
    ]
    if answer.reasoning and answer.reasoning_field == "text":
        text = f"<think>\n{answer.reasoning}\n</think>\n\n{text}"

    message = write_reply(text, tool_calls, answer.refusal)
    if answer.reasoning and answer.reasoning_field != "text":
        message[answer.reasoning_field] = answer.reasoning
    logprobs = None
    if body.get("logprobs"):
        logprobs = {"content": _logprobs(body, text, rng, yes, words)}

    completion_body = write_completion(
        write_head(f"{seed:016x}", answer.model or body.get("model", "")),
        message,
        finish_reason,
        logprobs,
        usage=answer.usage if answer.usage is not None else _usage(body, text, answer),
    )

    return json.dumps(completion_body).encode()


def _logprobs(
    body: Mapping[str, Any], text: str, rng: Random, yes: float | None, words: tuple[str, ...]
) -> list[dict[str, Any]]:
    top_count = int(body.get("top_logprobs") or 0)
    if body.get("grammar"):
        return _forced(text, rng)
    if yes is not None:
        return [_choice(text, yes, top_count, words)]
    return _tokens(text, top_count, rng)


def drawn_embedding(text: str, dimension: int) -> list[float]:
    """Return a random unit vector that depends only on the text."""
    seed = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    rng = Random(int.from_bytes(seed, "big"))
    vector = [rng.gauss(0, 1) for _ in range(dimension)]
    length = math.hypot(*vector)
    return [part / length for part in vector]


def _words(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words among which the end of the last message lets the model choose; Yes and No if
    it names none."""
    messages: Sequence[Mapping[str, Any]] = body.get("messages") or ()
    end = read_text_and_images(messages[-1].get("content"))[0][-120:] if messages else ""
    if match := _LABELS.search(end):
        return (*match[1].split(", "), match[2])
    match = _CHOICE.search(end)
    return (match[1], match[2]) if match else ("Yes", "No")


def _text(
    body: Mapping[str, Any], rng: Random, answer: Answer, words: tuple[str, ...]
) -> tuple[str, str, float | None]:
    """Return the answer's text, its finish reason, and the probability of the first of `words` if
    the answer is one of them. The probability is None for other answers, and if `alter` changes the
    text."""
    one_token = 1 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    yes: float | None = None
    finish_reason = "stop"
    schema = _schema(body)

    if answer.text is not None:
        text = answer.text
    elif body.get("grammar"):
        text = forced_text(body["grammar"])
    elif one_token or answer.yes is not None:
        yes = answer.yes if answer.yes is not None else round(rng.uniform(0.02, 0.98), 3)
        text = words[yes < 0.5]
        finish_reason = "length"
    elif schema is not None:
        text = json.dumps(instance(schema, rng))
    else:
        text = prose(rng, 16)

    if answer.alter is not None:
        text = answer.alter(text)
        yes = None

    return text, answer.finish_reason or finish_reason, yes


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    response_format: Mapping[str, Any] = body.get("response_format") or {}
    if response_format.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    json_schema: Mapping[str, Any] = response_format.get("json_schema") or {}
    return json_schema.get("schema")


def _usage(body: Mapping[str, Any], text: str, answer: Answer) -> dict[str, Any]:
    prompt = 4
    characters = 0
    for message in body.get("messages", ()):
        content, images = read_text_and_images(message.get("content"))
        characters += len(content)
        prompt += IMAGE_TOKENS * len(images)
    prompt += characters // 4
    thought = len(answer.reasoning or "") // 4
    usage = Usage(
        prompt_tokens=prompt,
        cached_tokens=prompt // 32 * 16,
        completion_tokens=max(1, len(text) // 4) + thought,
        reasoning_tokens=thought,
    )

    return write_chat_usage(usage)


def _entry(token: str, probability: float) -> dict[str, Any]:
    logprob = math.log(max(probability, 1e-12))
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}


def _with_alternatives(
    token: str, shares: Sequence[tuple[str, float]], top_count: int
) -> dict[str, Any]:
    top = sorted((_entry(t, p) for t, p in shares), key=lambda e: -e["logprob"])[:top_count]
    return _entry(token, dict(shares)[token]) | {"top_logprobs": top}


def _choice(text: str, yes: float, top_count: int, words: tuple[str, ...]) -> dict[str, Any]:
    """Return the log-probabilities of a one-token answer. The first of `words` has the probability
    `yes`, and the others share the rest. Each share is split over three spellings of its word, and
    2 % of the whole go to the word Maybe."""
    other_probabilities = [(1 - yes) / (len(words) - 1)] * (len(words) - 1)
    shares = [
        (variant, 0.98 * probability * share)
        for probability, word in zip([yes, *other_probabilities], words, strict=True)
        for variant, share in ((word, 0.9), (word.swapcase(), 0.06), (f" {word}", 0.04))
    ]

    return _with_alternatives(text, [*shares, ("Maybe", 0.02)], top_count)


def _forced(text: str, rng: Random) -> list[dict[str, Any]]:
    """Return the text's tokens, as `/tokenize` returns them, with random low log-probabilities."""
    return [
        {
            "id": id,
            "token": piece.decode("utf-8", "replace"),
            "bytes": list(piece),
            "logprob": -rng.uniform(0.1, 6.0),
            "top_logprobs": [],
        }
        for id, piece in split_tokens(text)
    ]


def _tokens(text: str, top_count: int, rng: Random) -> list[dict[str, Any]]:
    """Return the log-probabilities of the tokens of a text; a number is one token with other
    numbers as alternatives."""
    tokens: list[dict[str, Any]] = []
    for token in _TOKEN.findall(text):
        if token.isdecimal() and token.isascii():
            near = [str(n) for n in (int(token) - 2, int(token) - 1, int(token) + 1) if n >= 0]
            share = rng.uniform(0.5, 0.8)
            remaining = 0.98 - share
            shares = [(token, share), *((other, remaining / len(near)) for other in near)]
        else:
            shares = [(token, 0.95), ("…", 0.03)] if token != "…" else [(token, 0.95)]

        tokens.append(_with_alternatives(token, shares, top_count))

    return tokens


TEXT = (
    "the answer states its main point early and supports it with one example but leaves out "
    "a limit that a careful reader would want named so the claim is stronger than its evidence"
)
WORDS = tuple(TEXT.split())


def prose(rng: Random, words: int) -> str:
    """Return a random text of `words` words that resembles a sentence."""
    start = rng.randrange(len(WORDS))
    chosen = [WORDS[(start + n) % len(WORDS)] for n in range(words)]
    return f"{' '.join(chosen).capitalize()} [{rng.getrandbits(24):06x}]."


def instance(schema: Mapping[str, Any], rng: Random) -> Any:
    """Return a random value that follows a JSON schema, with properties in the schema's order."""

    def draw(part: Mapping[str, Any], depth: int) -> Any:
        if "$ref" in part:
            return draw(_find(schema, part["$ref"]), depth)
        if choices := part.get("anyOf") or part.get("oneOf"):
            return draw(rng.choice(choices), depth)
        if "const" in part:
            return part["const"]
        if "enum" in part:
            return rng.choice(part["enum"])
        kind: Any = part.get("type", "object" if "properties" in part else "string")
        if is_array(kind):
            kind = kind[0]
        if kind == "object":
            properties: Mapping[str, Any] = part.get("properties", {})
            required = part.get("required", ())
            return {
                name: draw(value, depth + 1)
                for name, value in properties.items()
                if name in required or depth < 4  # an optional property could nest without end
            }

        if kind == "array":
            return [draw(item, depth + 1) for item in _items(part, rng, depth)]
        if kind in ("number", "integer"):
            return _number(part, rng, kind == "integer")
        if kind == "boolean":
            return rng.random() < 0.5

        return None if kind == "null" else _string(part, rng)

    return draw(schema, 0)


def _find(schema: Mapping[str, Any], reference: str) -> Any:
    node: Any = schema
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return node


def _items(schema: Mapping[str, Any], rng: Random, depth: int) -> list[Any]:
    """Return the schema of each item of an array, whose length is drawn."""
    fixed: list[Any] = schema.get("prefixItems", [])
    least = max(int(schema.get("minItems", 1)), len(fixed))
    most = int(schema.get("maxItems", max(least, 2)))
    length = rng.randint(least, max(least, most)) if depth < 4 else least
    return fixed + [schema.get("items") or {"type": "string"}] * (length - len(fixed))


def _number(schema: Mapping[str, Any], rng: Random, integer: bool) -> int | float:
    low = float(schema.get("minimum", 0))
    high = float(schema.get("maximum", math.inf))
    step = float(schema.get("multipleOf", 1 if integer else 0.5))
    if "exclusiveMinimum" in schema:
        low = float(schema["exclusiveMinimum"]) + step
    if "exclusiveMaximum" in schema:
        high = float(schema["exclusiveMaximum"]) - step
    if math.isinf(high):
        high = low + 10
    lowest = math.ceil(low / step)
    last = math.floor(high / step)
    if lowest > last:  # bounds closer than the step
        return (low + high) / 2
    value = rng.randint(lowest, last) * step

    return int(value) if integer or value.is_integer() else value


def _string(schema: Mapping[str, Any], rng: Random) -> str:
    text = prose(rng, 12)
    least = int(schema.get("minLength", 0))
    most = schema.get("maxLength")
    while len(text) < least:
        text += " " + prose(rng, 12)
    return text if most is None else text[: int(most)]


_BYTES = 0x110000
_SIGN = re.compile(r"<\[([0-9]+)\]>|\\U([0-9A-F]{8})")


def split_tokens(text: str) -> list[tuple[int, bytes]]:
    """Split a text into tokens; return the number and the bytes of each."""
    tokens: list[tuple[int, bytes]] = []
    for character in text:
        data = character.encode("utf-8", "replace")
        if ord(character) < 0x10000:
            tokens.append((ord(character), data))
        else:
            tokens += [(_BYTES + byte, bytes([byte])) for byte in data]

    return tokens


def answer_tokenize(body: Any) -> bytes:
    """Return the body of an answer to `/tokenize`; the tokens are empty if the request
    has no text."""
    pieces = [
        {"id": id, "piece": piece.decode() if id < _BYTES else list(piece)}
        for id, piece in split_tokens(str(body.get("content", "")))
    ]
    return json.dumps({"tokens": pieces}).encode()


def forced_text(grammar: str) -> str:
    """Return the only text that a grammar of tokens and characters allows."""
    numbers = (int(id) if id else int(code, 16) for id, code in _SIGN.findall(grammar))
    return "".join(map(chr, numbers))


CHUNK = 7
"""The number of characters of reasoning or arguments in one event of a stream."""


def drawn_calls(body: Mapping[str, Any], rng: Random) -> tuple[tuple[str, str], ...]:
    """Return the name and the random arguments of the tool call that a request demands: a call of
    the function that `tool_choice` names, or else of the first one. Return nothing if the request
    leaves calls to the model or forbids them."""
    choice: Any = body.get("tool_choice")
    if choice in (None, "auto", "none"):
        return ()
    function_name = None
    if isinstance(choice, dict):
        function_name = NamedChoice.model_validate(choice).function.name
    functions = [tool["function"] for tool in body["tools"]]
    function = next(
        candidate for candidate in functions if function_name in (None, candidate["name"])
    )
    arguments = instance(function.get("parameters") or {"type": "object"}, rng)

    return ((function["name"], json.dumps(arguments)),)


# Streams and decisions of the scripted server.
#
# The probabilities of a decision are a function of the state, its words and its options, so they
# are the same in every protocol and do not depend on other questions or their order.


def _split_words(text: str | None) -> list[str]:
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
    message = choice["message"]
    head = {name: body[name] for name in ("id", "created", "model")}
    logprobs: dict[str, Any] = choice["logprobs"] or {}
    tokens: list[dict[str, Any]] = logprobs.get("content", [])
    words = [str(token["token"]) for token in tokens] or _split_words(message["content"])
    pending = iter(tokens)

    for delta in split_message(message, words, CHUNK):
        token = next(pending, None) if delta.keys() == {"content"} else None
        part = None if token is None else {"content": [token]}
        yield _event(write_chunk(head, delta, None, part))

    yield _event(write_chunk(head, {}, choice["finish_reason"]))
    stream_options: Mapping[str, Any] = request.get("stream_options") or {}
    if stream_options.get("include_usage"):
        yield _event(write_usage_chunk(head, body["usage"]))
    yield write_event(DONE)


def _event(data: Mapping[str, Any]) -> bytes:
    return write_event(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


_QUESTIONS = TypeAdapter(dict[str, SystemOneQuestion])
_LISTED = TypeAdapter(list[DecisionsQuestion])


def decision(wire: Wire, request: Mapping[str, Any]) -> bytes:
    """Return the body of a response to decision questions.

    Raises ValidationError or InputError if the request has no questions of the protocol.
    """
    state = request.get("state" if wire == "systemone" else "input")
    raw: Any = request.get("questions")

    if wire == "systemone":
        asked_questions = _QUESTIONS.validate_python(raw or {})
        questions = list(asked_questions.values())
        answers = {name: _answer(state, question) for name, question in asked_questions.items()}
    else:
        questions = _LISTED.validate_python(raw or [])
        answers = [_answer(state, question) for question in questions]

    tokens = len(json.dumps(state)) // 4 + 20 * len(questions)
    if wire == "systemone":
        usage = write_systemone_usage(Usage(prompt_tokens=tokens))
    else:
        usage = write_usage(Usage(prompt_tokens=tokens, cached_tokens=tokens // 32 * 16))

    return json.dumps(write_decision(request.get("model", ""), answers, usage)).encode()


def _answer(state: object, question: SystemOneQuestion | DecisionsQuestion) -> dict[str, Any]:
    # OpenAI's predicates say in their instructions what yes and no mean.
    instructions = str(question.instructions).split("\n")[0]
    options = [option.value for option in question.read("").options]
    row = _probabilities(json.dumps([state, instructions, options]), len(options))
    return question.write(Probabilities(tuple(row)))


def _probabilities(described: str, count: int) -> list[float]:
    rng = Random(blake2b(described.encode(), digest_size=8).digest())
    shares = [rng.gammavariate(0.7, 1.0) + 1e-3 for _ in range(count)]
    return [share / sum(shares) for share in shares]
