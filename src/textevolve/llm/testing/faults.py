"""The misbehaviour of real endpoints, one `Fault` for each way, and scripts that show it.

Scripts misbehave at a rate, or limit requests as paid endpoints do (`WindowLimit`).
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import Any

from textevolve.llm.testing.answers import Answer
from textevolve.protocol.chat import read_text_and_images


def _refusal(status: int, message: str, type: str, code: str | None = None, **more: Any) -> Answer:
    error = {"message": message, "type": type, "param": None, "code": code} | more
    return Answer(status=status, body=json.dumps({"error": error}).encode())


_THOUGHTS = "The moon pulls at the sea. But the sun does, too. Wait, once more. " * 4


class Fault(StrEnum):
    """A way in which an endpoint misbehaves, with the answer that shows it. Faults in `CONTENT`
    answer 200 with a text that is not the requested JSON alone, or has numbers out of range; faults
    of streams do not affect answers without streaming."""

    answer: Answer

    def __new__(cls, text: str, answer: Answer) -> Fault:
        fault = str.__new__(cls, text)
        fault._value_ = text
        fault.answer = answer
        return fault

    RATE_LIMIT = ("429", _refusal(429, "Rate limit reached", "rate_limit_error", "rate_limit"))
    RATE_LIMIT_WAIT = (
        "429 with Retry-After",
        replace(RATE_LIMIT[1], headers={"Retry-After": "0.05"}),
    )
    SERVER_ERROR = ("500", _refusal(500, "The server had an error", "server_error"))
    OVERLOADED = ("503", _refusal(503, "The engine is overloaded", "server_error", "overloaded"))
    TIMEOUT = ("never answers", Answer(transport="hang"))
    RESET = ("connection reset in the middle of the answer", Answer(transport="reset"))
    CUT_BODY = ("body shorter than its Content-Length", Answer(transport="cut"))
    ENDLESS = ("an answer that does not end", Answer(transport="endless"))
    NOT_JSON = ("200 with a page of HTML", Answer(body=b"<html><body>Bad gateway</body></html>"))
    ERROR_IN_200 = (
        "200 with an error object",
        Answer(body=b'{"error":{"message":"Upstream failed","code":502}}'),
    )
    BROKEN_JSON = (
        "JSON with its punctuation damaged",
        Answer(alter=lambda text: text.replace('"', "“").replace(":", "=").rstrip("}]")),
    )
    CUT_JSON = (
        "JSON cut by the token limit",
        Answer(alter=lambda text: text[: max(1, len(text) * 2 // 3)], finish_reason="length"),
    )
    PROSE = (
        "JSON within prose",
        Answer(alter=lambda text: f"Sure, here is my judgement:\n\n{text}\n\nAnything else?"),
    )
    FENCE = ("JSON in a code fence", Answer(alter=lambda text: f"```json\n{text}\n```"))
    OUT_OF_RANGE = (
        "numbers out of range",
        Answer(alter=lambda text: re.sub(r"(?<=[:\[,] )\d+(\.\d+)?", "1009", text)),
    )
    EMPTY = ("empty text", Answer(alter=lambda _text: ""))
    UNAUTHORISED = (
        "401",
        _refusal(401, "Incorrect API key", "invalid_request_error", "invalid_key"),
    )
    FORBIDDEN = ("403", _refusal(403, "Country not supported", "request_forbidden"))
    NOT_FOUND = (
        "404",
        _refusal(404, "The model does not exist", "invalid_request_error", "model_not_found"),
    )
    NO_CREDIT = (
        "429 insufficient_quota",
        _refusal(
            429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"
        ),
    )
    TOO_LONG_OPENAI = (
        "400 context_length_exceeded",
        _refusal(
            400,
            "This model's maximum context length is 8192 tokens. However, your messages resulted in"
            " 9321 tokens. Please reduce the length of the messages.",
            "invalid_request_error",
            "context_length_exceeded",
        ),
    )
    TOO_LONG_LLAMACPP = (
        "400 exceed_context_size_error",
        _refusal(
            400,
            "request (9321 tokens) exceeds the available context size (8192 tokens), try increasing"
            " it",
            "exceed_context_size_error",
            n_prompt_tokens=9321,
            n_ctx=8192,
        ),
    )
    NO_SCHEMA = (
        "400 response_format unsupported",
        _refusal(
            400,
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
            "invalid_request_error",
            param="response_format",
        ),
    )
    NO_LOGPROBS = (
        "400 logprobs unsupported",
        _refusal(
            400,
            "You are not allowed to request logprobs from this model",
            "invalid_request_error",
            param="logprobs",
        ),
    )
    NO_IMAGES_OPENAI = (
        "400 image_url unsupported",
        _refusal(
            400,
            "Invalid content type. image_url is only supported by certain models.",
            "invalid_request_error",
            param="messages.[0].content.[0].type",
        ),
    )
    NO_IMAGES_LLAMACPP = (
        "500 image input unsupported",
        _refusal(
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide"
            " the mmproj",
            "server_error",
        ),
    )
    NO_STREAM = (
        "400 stream unsupported",
        _refusal(400, "Streaming is not supported", "invalid_request_error", param="stream"),
    )
    STREAM_IGNORED = ("a plain body where a stream was asked for", Answer(streams=False))
    STREAM_STALL = ("a stream that stops in the middle", Answer(transport="stall"))
    STREAM_SHORT = (
        "a stream that ends early in an orderly way",
        Answer(packets=lambda events: events[: len(events) // 2]),
    )
    STREAM_NO_DONE = ("a stream without [DONE]", Answer(packets=lambda events: events[:-1]))
    CALLS_ONLY = (
        "calls of tools in place of a text",
        Answer(text="", tool_calls=(("search", '{"query": "tides"}'),)),
    )
    THOUGHT_ONLY = (
        "thoughts that use up all tokens",
        Answer(text="", reasoning=_THOUGHTS, finish_reason="length"),
    )
    THOUGHT_OPEN = (
        "thoughts in the text that are cut by the token limit",
        Answer(text=f"<think>\n{_THOUGHTS}", finish_reason="length"),
    )
    NO_DECISIONS = (
        "501 not a decision model",
        _refusal(501, "This model is not a decision model", "not_supported_error"),
    )


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
)


def misbehave(fault: Fault) -> Answer:
    """Return the answer that shows a fault. Content faults alter the default answer."""
    return fault.answer


def faults(
    rate: float, kinds: Sequence[Fault] = TRANSIENT, seed: int = 0
) -> Callable[[Mapping[str, Any], int], Fault | None]:
    """Return a script that draws a fault for a share `rate` of the requests, and answers the others
    normally.

    The draw depends on the seed, the request and the number of its repetitions: concurrency does
    not change it, and a repeated request is drawn again.
    """
    seen: Counter[bytes] = Counter()

    def script(body: Mapping[str, Any], _number: int) -> Fault | None:
        described = json.dumps(body, sort_keys=True).encode()
        key = blake2b(described, digest_size=8, key=seed.to_bytes(8, "big")).digest()
        seen[key] += 1
        rng = Random(int.from_bytes(key, "big") + seen[key])
        return rng.choice(kinds) if rng.random() < rate else None

    return script


def seen_images(body: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes of the images in a request's messages, in order."""
    for message in body.get("messages") or ():
        _, images = read_text_and_images(message.get("content"))
        for url in images:
            yield base64.b64decode(url.partition(",")[2])


class WindowLimit:
    """A script that answers `limit` requests in each window of `seconds`, and answers 429 to all
    others.

    Attributes:
        tells: Whether headers report the state of the limit, as OpenAI's do.
        answered: The number of answered requests.
        refused: The number of refused requests.
    """

    def __init__(self, limit: int, seconds: float, *, tells: bool = True) -> None:
        self.limit = limit
        self.seconds = seconds
        self.tells = tells
        self.answered = self.refused = 0
        self._left = 0
        self._ends = 0.0

    def __call__(self, _body: Mapping[str, Any], _number: int) -> Answer:
        now = time.monotonic()
        if now >= self._ends:
            self._left = self.limit
            self._ends = now + self.seconds
        refused = self._left == 0
        self._left -= not refused
        self.refused = self.refused + refused
        self.answered = self.answered + (not refused)
        headers = {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self._left),
            "x-ratelimit-reset-requests": f"{1000 * (self._ends - now):.0f}ms",
        }
        answer = misbehave(Fault.RATE_LIMIT) if refused else Answer()

        return replace(answer, headers=headers if self.tells else {})
