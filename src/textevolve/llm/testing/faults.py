"""Misbehaviour of endpoints, one `Fault` for each way, and scripts that act it out.

Scripts misbehave at a rate, refuse or echo images, or behave as paid endpoints do (`WindowLimit`, a
limit of requests with its headers; `PrefixCache`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import Any, Literal, cast

from textevolve.images import image_kind
from textevolve.llm.testing.answers import Answer, content_text, mix_calls


class Fault(StrEnum):
    """One way to misbehave. Those of `CONTENT` answer 200 with a text that cannot be used as is.
    The last four are of decisions; those of `STREAMING` are of streams, and change nothing of
    an answer that is not streamed."""

    RATE_LIMIT = "429"
    RATE_LIMIT_WAIT = "429 with Retry-After"
    SERVER_ERROR = "500"
    OVERLOADED = "503"
    TIMEOUT = "never answers"
    RESET = "connection reset in the middle of the answer"
    CUT_BODY = "body shorter than its Content-Length"
    ENDLESS = "an answer that does not end"
    NOT_JSON = "200 with a page of HTML"
    ERROR_IN_200 = "200 with an error object"
    BROKEN_JSON = "JSON with its punctuation damaged"
    CUT_JSON = "JSON cut by the token limit"
    PROSE = "JSON within prose"
    FENCE = "JSON in a code fence"
    OUT_OF_RANGE = "numbers out of range"
    EMPTY = "empty text"
    WRONG_COUNT = "one key or item too few"
    UNAUTHORISED = "401"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    NO_CREDIT = "429 insufficient_quota"
    TOO_LONG_OPENAI = "400 context_length_exceeded"
    TOO_LONG_LLAMACPP = "400 exceed_context_size_error"
    NO_SCHEMA = "400 response_format unsupported"
    NO_LOGPROBS = "400 logprobs unsupported"
    NO_IMAGES_OPENAI = "400 image_url unsupported"
    NO_IMAGES_LLAMACPP = "500 image input unsupported"
    NO_STREAM = "400 stream unsupported"
    STREAM_IGNORED = "a plain body where a stream was asked for"
    STREAM_STALL = "a stream that stops in the middle"
    STREAM_SHORT = "a stream that ends early in an orderly way"
    STREAM_ERROR = "an error object in the middle of a stream"
    STREAM_BROKEN = "an event of a stream that is no JSON"
    STREAM_NO_DONE = "a stream without [DONE]"
    STREAM_NO_USAGE = "a stream without usage"
    STREAM_CRLF = "a stream whose lines end with CRLF"
    STREAM_ONE_PACKET = "a stream in one packet"
    STREAM_BYTES = "a stream byte by byte"
    CALLS_ONLY = "calls of tools in place of a text"
    CALLS_BROKEN = "a call whose arguments are no JSON"
    CALLS_MIXED = "parts of two calls in turn, the last call's first"
    THOUGHT_ONLY = "thoughts that use up all tokens"
    THOUGHT_OPEN = "thoughts in the text that are cut by the token limit"
    NO_DECISIONS = "501 not a decision model"
    REFUSED_QUESTION = "the last question refused"
    MISSING_ANSWER = "the last question left out"
    NO_DISTRIBUTION = "probabilities that do not add up to 1"


TRANSIENT = (
    Fault.RATE_LIMIT,
    Fault.RATE_LIMIT_WAIT,
    Fault.SERVER_ERROR,
    Fault.OVERLOADED,
    Fault.TIMEOUT,
    Fault.RESET,
    Fault.CUT_BODY,
    Fault.NOT_JSON,
    Fault.ERROR_IN_200,
)
CONTENT = (
    Fault.BROKEN_JSON,
    Fault.CUT_JSON,
    Fault.PROSE,
    Fault.FENCE,
    Fault.OUT_OF_RANGE,
    Fault.EMPTY,
    Fault.WRONG_COUNT,
)
STREAMING = tuple(fault for fault in Fault if fault.name.startswith("STREAM_"))


def _refusal(status: int, message: str, type: str, code: str | None = None, **more: Any) -> Answer:
    error = {"message": message, "type": type, "param": None, "code": code} | more
    return Answer(status=status, body=json.dumps({"error": error}).encode())


def _numbers(value: Any, change: Callable[[float], Any]) -> Any:
    if isinstance(value, dict):
        return {k: _numbers(v, change) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_numbers(item, change) for item in cast("list[Any]", value)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return change(value)


def _shorten(value: Any) -> Any:
    """`value` without the last entry of its innermost last container."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        for name in reversed(entries):
            if isinstance(entries[name], dict | list) and entries[name]:
                return entries | {name: _shorten(entries[name])}
        return {k: entries[k] for k in list(entries)[:-1]}
    items = cast("list[Any]", value)
    if items and isinstance(items[-1], dict | list) and items[-1]:
        return [*items[:-1], _shorten(items[-1])]
    return items[:-1]


def _parsed(text: str, change: Callable[[Any], Any]) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    return json.dumps(change(value)) if isinstance(value, dict | list) else ""


def _last_answer(text: str, answer: dict[str, Any] | None) -> str:
    """A decision's body with another answer to the last question, or with none."""
    made: dict[str, Any] = json.loads(text)
    answers: Any = made["answers"]
    if isinstance(answers, dict):
        kept = cast("dict[str, Any]", answers)
        name, _ = kept.popitem()
        made["answers"] = kept | ({name: answer} if answer else {})
    else:
        last = answers.pop()
        answers += [answer | {"name": last.get("name")}] if answer else []
    return json.dumps(made)


def _more_than_all(text: str) -> str:
    """A decision's body whose probabilities are half as much again, so a predicate's may pass 1."""
    made: dict[str, Any] = json.loads(text)
    answers = _numbers(made["answers"], lambda n: n * 1.5 + 0.1 if isinstance(n, float) else n)
    return json.dumps(made | {"answers": answers})


_ALTER: Mapping[Fault, Callable[[str], str]] = {
    Fault.REFUSED_QUESTION: lambda text: _last_answer(text, {"type": "refusal"}),
    Fault.MISSING_ANSWER: lambda text: _last_answer(text, None),
    Fault.NO_DISTRIBUTION: _more_than_all,
    Fault.BROKEN_JSON: lambda text: text.replace('"', "“").replace(":", "=").rstrip("}]"),
    Fault.CUT_JSON: lambda text: text[: max(1, len(text) * 2 // 3)],
    Fault.PROSE: lambda text: f"Sure, here is my judgement:\n\n{text}\n\nAnything else?",
    Fault.FENCE: lambda text: f"```json\n{text}\n```",
    Fault.OUT_OF_RANGE: lambda text: _parsed(text, lambda v: _numbers(v, lambda n: n + 1000)),
    Fault.EMPTY: lambda _text: "",
    Fault.WRONG_COUNT: lambda text: _parsed(text, _shorten),
}
_ERROR_EVENT = b'data: {"error":{"message":"Upstream failed","code":502}}\n\n'
_COMMENT = b": a comment\r\n\r\n"


def _break_event(events: list[bytes]) -> list[bytes]:
    at = len(events) // 2
    return [*events[:at], events[at][: len(events[at]) // 2] + b"\n\n", *events[at + 1 :]]


_TWO_CALLS = (("search", '{"query": "why tides come"}'), ("add", '{"one": 1, "other": 2}'))
_THOUGHTS = "The moon pulls at the sea. But the sun does, too. Wait, once more. " * 4
_WHOLE: Mapping[Fault, Answer] = {
    Fault.RATE_LIMIT: _refusal(429, "Rate limit reached", "rate_limit_error", "rate_limit"),
    Fault.SERVER_ERROR: _refusal(500, "The server had an error", "server_error"),
    Fault.OVERLOADED: _refusal(503, "The engine is overloaded", "server_error", "overloaded"),
    Fault.TIMEOUT: Answer(transport="hang"),
    Fault.RESET: Answer(transport="reset"),
    Fault.CUT_BODY: Answer(transport="cut"),
    Fault.ENDLESS: Answer(transport="endless"),
    Fault.NOT_JSON: Answer(body=b"<html><body>Bad gateway</body></html>"),
    Fault.ERROR_IN_200: Answer(body=b'{"error":{"message":"Upstream failed","code":502}}'),
    Fault.UNAUTHORISED: _refusal(401, "Incorrect API key", "invalid_request_error", "invalid_key"),
    Fault.FORBIDDEN: _refusal(403, "Country not supported", "request_forbidden"),
    Fault.NOT_FOUND: _refusal(
        404, "The model does not exist", "invalid_request_error", "model_not_found"
    ),
    Fault.NO_CREDIT: _refusal(
        429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"
    ),
    Fault.TOO_LONG_OPENAI: _refusal(
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "9321 tokens. Please reduce the length of the messages.",
        "invalid_request_error",
        "context_length_exceeded",
    ),
    Fault.TOO_LONG_LLAMACPP: _refusal(
        400,
        "request (9321 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "exceed_context_size_error",
        n_prompt_tokens=9321,
        n_ctx=8192,
    ),
    Fault.NO_SCHEMA: _refusal(
        400,
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
        "invalid_request_error",
        param="response_format",
    ),
    Fault.NO_STREAM: _refusal(
        400, "Streaming is not supported", "invalid_request_error", param="stream"
    ),
    Fault.STREAM_IGNORED: Answer(streams=False),
    Fault.STREAM_STALL: Answer(transport="stall"),
    Fault.STREAM_SHORT: Answer(packets=lambda events: events[: len(events) // 2]),
    Fault.STREAM_ERROR: Answer(packets=lambda events: [*events[: len(events) // 2], _ERROR_EVENT]),
    Fault.STREAM_BROKEN: Answer(packets=_break_event),
    Fault.STREAM_NO_DONE: Answer(packets=lambda events: events[:-1]),
    Fault.STREAM_NO_USAGE: Answer(
        packets=lambda events: [one for one in events if b'"usage"' not in one]
    ),
    Fault.STREAM_CRLF: Answer(
        packets=lambda events: [_COMMENT, *(e.replace(b"\n", b"\r\n") for e in events)]
    ),
    Fault.STREAM_ONE_PACKET: Answer(packets=lambda events: [b"".join(events)]),
    Fault.STREAM_BYTES: Answer(packets=lambda events: [bytes([byte]) for byte in b"".join(events)]),
    Fault.NO_IMAGES_OPENAI: _refusal(
        400,
        "Invalid content type. image_url is only supported by certain models.",
        "invalid_request_error",
        param="messages.[0].content.[0].type",
    ),
    Fault.NO_IMAGES_LLAMACPP: _refusal(
        500,
        "image input is not supported - hint: if this is unexpected, you may need to provide the"
        " mmproj",
        "server_error",
    ),
    Fault.CALLS_ONLY: Answer(text="", tool_calls=(("search", '{"query": "tides"}'),)),
    Fault.CALLS_BROKEN: Answer(text="", tool_calls=(("search", '{"query": "ti'),)),
    Fault.CALLS_MIXED: Answer(text="", tool_calls=_TWO_CALLS, packets=mix_calls),
    Fault.THOUGHT_ONLY: Answer(text="", reasoning=_THOUGHTS, finish_reason="length"),
    Fault.THOUGHT_OPEN: Answer(text=f"<think>\n{_THOUGHTS}", finish_reason="length"),
    Fault.NO_DECISIONS: _refusal(501, "This model is not a decision model", "not_supported_error"),
    Fault.NO_LOGPROBS: _refusal(
        400,
        "You are not allowed to request logprobs from this model",
        "invalid_request_error",
        param="logprobs",
    ),
}


def misbehave(fault: Fault, *, retry_after: float = 0.05) -> Answer:
    """The answer that shows `fault`. Faults of the content start from the obliging answer."""
    if fault in _ALTER:
        cut = "length" if fault is Fault.CUT_JSON else None
        return Answer(alter=_ALTER[fault], finish_reason=cut)
    if fault is Fault.RATE_LIMIT_WAIT:
        plain = _WHOLE[Fault.RATE_LIMIT]
        headers = {"Retry-After": f"{retry_after:g}"}
        return Answer(status=plain.status, body=plain.body, headers=headers)
    return _WHOLE[fault]


def faults(
    rate: float, kinds: Sequence[Fault] = TRANSIENT, seed: int = 0
) -> Callable[[Mapping[str, Any], int], Fault | None]:
    """A script that misbehaves in a share `rate` of the requests, obliging in the others.

    The draw depends on the seed, the request and how often it has come before: concurrency does not
    change it, and a request that is sent again is drawn anew.
    """
    seen: Counter[bytes] = Counter()

    def script(body: Mapping[str, Any], _number: int) -> Fault | None:
        described = json.dumps(body, sort_keys=True).encode()
        key = blake2b(described, digest_size=8, key=seed.to_bytes(8, "big")).digest()
        seen[key] += 1
        rng = Random(int.from_bytes(key, "big") + seen[key])
        return rng.choice(kinds) if rng.random() < rate else None

    return script


@dataclass(frozen=True, slots=True)
class SeenImage:
    """`sha256` of its bytes; `kind` by them, whatever its data URL says; empty where it is none."""

    kind: str
    size: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.kind or 'no image'} {self.size} bytes {self.sha256[:12]}"


def seen_images(body: Mapping[str, Any]) -> Iterator[SeenImage]:
    """The images in a request's messages, in their order."""
    for message in body.get("messages") or ():
        content: Any = message.get("content")
        parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
        for part in parts:
            if part.get("type") == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                yield SeenImage(image_kind(data) or "", len(data), hashlib.sha256(data).hexdigest())


def echo_images(body: Mapping[str, Any], _number: int) -> str | None:
    """A script that answers with what came: a line for each image, then the text of the last
    message. A request without images is answered as by no script."""
    found = [str(one) for one in seen_images(body)]
    if not found:
        return None
    return "\n".join([*found, content_text(body["messages"][-1].get("content"))])


def refuse_images(body: Mapping[str, Any], _number: int) -> Answer | None:
    """A script that takes no images, as llama.cpp's server with a model that has no projector."""
    return misbehave(Fault.NO_IMAGES_LLAMACPP) if any(seen_images(body)) else None


BLOCK = 512
"""Characters that a prompt cache finds again without marks: 128 tokens."""


class WindowLimit:
    """A script that lets `limit` requests through in each window of `seconds`, answers 429 to
    others, and tells where the limit stands in the headers, as OpenAI's.

    `fills`: "at once" gives all of it back when the window ends, "steadily" a part at a time.
    `tells`: False is an endpoint without such headers. `asks_to_wait`: the 429 has a Retry-After.
    `answered` and `refused` count.
    """

    def __init__(
        self,
        limit: int,
        seconds: float,
        *,
        fills: Literal["at once", "steadily"] = "at once",
        tells: bool = True,
        asks_to_wait: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit, self.seconds, self.fills = limit, seconds, fills
        self.tells, self.asks_to_wait = tells, asks_to_wait
        self.answered = self.refused = 0
        self._clock = clock
        self._left, self._at = float(limit), clock()

    def __call__(self, _body: Mapping[str, Any], _number: int) -> Answer:
        now = self._clock()
        passed = now - self._at
        if self.fills == "steadily":
            self._left = min(self.limit, self._left + passed * self.limit / self.seconds)
            self._at = now
        elif passed >= self.seconds:
            self._left, self._at = float(self.limit), now
        let = self._left >= 1
        self._left -= let
        headers = self._headers(now) if self.tells else {}
        if let:
            self.answered += 1
            return Answer(headers=headers)
        self.refused += 1
        if self.asks_to_wait:
            headers |= {"retry-after-ms": f"{1000 * self._next(now):.0f}"}
        error = {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
        return Answer(status=429, body=json.dumps({"error": error}).encode(), headers=headers)

    def _next(self, now: float) -> float:
        each = self.seconds / self.limit
        return (1 - self._left) * each if self.fills == "steadily" else self._whole(now)

    def _whole(self, now: float) -> float:
        missing = (self.limit - self._left) * self.seconds / self.limit
        return missing if self.fills == "steadily" else max(0.0, self._at + self.seconds - now)

    def _headers(self, now: float) -> dict[str, str]:
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(int(self._left)),
            "x-ratelimit-reset-requests": f"{1000 * self._whole(now):.0f}ms",
        }


class PrefixCache:
    """A script with a prompt cache that says in the usage what it read and wrote.

    `marks`: only what a `cache_control` stands behind is kept, and found again if it was kept no
    more than 20 parts earlier, as Anthropic's. Else each of `hosts` keeps all whole blocks of 128
    tokens that it was sent, and a request goes to the host of its `prompt_cache_key`, or else to
    the next in turn. A prompt of fewer than `least` tokens is not kept; a token are four
    characters. `reads`, `writes` and `prompts` are sums of tokens.
    """

    def __init__(self, *, marks: bool = False, hosts: int = 1, least: int = 0) -> None:
        self.marks, self.least = marks, least
        self.reads = self.writes = self.prompts = 0
        self._hosts: list[set[tuple[bytes, int]]] = [set() for _ in range(hosts)]
        self._homes: dict[str, int] = {}

    def __call__(self, body: Mapping[str, Any], number: int) -> Answer:
        parts = _parts(body.get("messages") or ())
        if not self.marks:
            parts = _blocks("".join(text for text, _ in parts))
        begins = _beginnings([text for text, _ in parts])
        ends = [n for n, (_, marked) in enumerate(parts) if marked]
        kept = self._hosts[self._home(body.get("prompt_cache_key"), number)]
        back = 20 if self.marks else 1
        reachable = {n for end in ends for n in range(max(0, end - back + 1), end + 1)}
        read = max((begins[n][1] for n in reachable if begins[n] in kept), default=0)
        new = [begins[n] for n in ends if begins[n][1] >= self.least]
        kept.update(new)
        written = max(0, max((tokens for _, tokens in new), default=0) - read)
        prompt = begins[-1][1] if begins else 0
        self.prompts, self.reads = self.prompts + prompt, self.reads + read
        self.writes += written
        details = {"cached_tokens": read} | ({"cache_write_tokens": written} if self.marks else {})
        usage = {"prompt_tokens": prompt, "completion_tokens": 50, "total_tokens": prompt + 50}
        return Answer(usage=usage | {"prompt_tokens_details": details})

    def _home(self, key: str | None, number: int) -> int:
        if key is None:
            return number % len(self._hosts)
        return self._homes.setdefault(key, len(self._homes) % len(self._hosts))


def _parts(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """The texts of a request, and behind which a mark stands."""
    found: list[tuple[str, bool]] = []
    for message in messages:
        content: Any = message.get("content") or ""
        if isinstance(content, str):
            found.append((content, False))
        else:
            found += [(part.get("text", ""), "cache_control" in part) for part in content]
    return found


def _blocks(text: str) -> list[tuple[str, bool]]:
    """All of it in blocks, of which the whole ones can be kept."""
    cut = [text[start : start + BLOCK] for start in range(0, len(text), BLOCK)]
    return [(block, len(block) == BLOCK) for block in cut]


def _beginnings(texts: Sequence[str]) -> list[tuple[bytes, int]]:
    """For each place between texts what stands before it, as a hash, and its tokens."""
    digest, characters, found = blake2b(digest_size=16), 0, list[tuple[bytes, int]]()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
        characters += len(text)
        found.append((digest.digest(), characters // 4))
    return found
