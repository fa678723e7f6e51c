"""Convert a `Request` to the body that the client sends, a completion to a `Response`, and pass
streamed answers to listeners.

The bodies themselves are in `textevolve.protocol`, connections in `client`, and the meaning of
refusals in `refusals`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from textevolve.errors import UnavailableError
from textevolve.evaluation import mend_text
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.prices import usage_of
from textevolve.llm.prompts import estimate_text
from textevolve.mappings import drop_none
from textevolve.protocol.chat import (
    DONE,
    Completion,
    CompletionChunk,
    join_chunks,
    parse_cached,
    read_reply,
    write_chat_message,
    write_schema_format,
    write_tool_choice,
)
from textevolve.protocol.chat_wires import CHAT_WIRES, ChatWire
from textevolve.protocol.contents import StreamedThoughts, read_loosely
from textevolve.settings import Price


def chat_body(model: str, request: Request, max_tokens_field: str) -> dict[str, Any]:
    """Return a request as a body of /v1/chat/completions, without unset fields."""
    fields = {
        "model": model,
        "messages": list(map(write_chat_message, request.messages)),
        "response_format": write_schema_format(request.schema),
        "temperature": request.temperature,
        max_tokens_field: request.max_tokens,
        "seed": request.seed,
        "logprobs": True if request.top_logprobs else None,
        "top_logprobs": request.top_logprobs or None,
        "tools": request.tools and parse_cached(request.tools),
        "tool_choice": request.tools and write_tool_choice(request.tool_choice),
    }

    return drop_none(fields)


def as_response(
    completion: Completion,
    seconds: float,
    price: Price | None,
    prompt: int = 0,
    reports_cost: bool = False,
) -> Response:
    """Return the response in a completion that has a choice. `prompt`: the estimated tokens of the
    prompt, used if the endpoint reports none. `reports_cost`: as in `usage_of`."""
    reply = read_reply(completion)
    estimate = prompt, estimate_text(reply.written)

    return Response(
        text=mend_text(reply.text),
        finish_reason=reply.finish_reason,
        usage=usage_of(completion.usage, price, completion.timings, estimate, reports_cost),
        logprobs=reply.logprobs,
        seconds=seconds,
        reasoning=reply.reasoning,
        tool_calls=reply.tool_calls,
    )


EMBEDDING = '{"embedding"'
"""The beginning of the text of a response with an embedding."""


def dump_vector(vector: Sequence[float], **more: Any) -> str:
    """Return the text of a response with an embedding, rounded to 7 digits (32-bit numbers have no
    more). `more`: further fields of the JSON object."""
    return json.dumps({"embedding": [float(f"{part:.7g}") for part in vector], **more})


# Stream the text of answers to a listener (a callback), and parse streams of events from
# endpoints.
#
# The listener is not a part of the request, so a request has the same key in the journal whether
# its answer is streamed or not. In the end the whole `Response` is returned and stored in both
# cases. A stream that breaks off is no answer: the call is repeated, and the listener receives the
# new answer from its beginning.


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A piece of an answer's text. `anew`: whether to discard the earlier pieces, since the answer
    starts again."""

    text: str
    anew: bool = False


PieceListener: TypeAlias = Callable[[AnswerPiece], None]
"""A function that receives the pieces of an answer. It runs on the event loop, so it must be quick,
and it must not raise."""


class TextSender:
    """The sender of one answer's text to a listener. It keeps track of the text that was sent so
    far."""

    def __init__(self, listener: PieceListener) -> None:
        self._listener = listener
        self._text: list[str] = []

    def add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._listener(AnswerPiece(text))

    def begin(self) -> None:
        """Start an attempt; the text of an earlier attempt becomes invalid."""
        if self._text:
            self._text.clear()
            self._listener(AnswerPiece("", anew=True))

    def finish(self, text: str) -> None:
        """Send the part of the complete answer that has not been sent, such as all of an answer
        from the journal. If the complete answer does not begin with the text sent so far, start
        again."""
        sent = "".join(self._text)
        if not text.startswith(sent):
            self.begin()
            sent = ""
        self.add(text[len(sent) :])


_telling: ContextVar[TextSender | None] = ContextVar("telling", default=None)


def telling() -> TextSender | None:
    """Return the sender for the listener of the current answer; None if nobody listens."""
    return _telling.get()


async def ask_streaming(model: Model, request: Request, listener: PieceListener) -> Response:
    """Return the answer, and pass its pieces to the listener as they arrive. The pieces since the
    last one with `anew`, joined, are the text of the answer. An answer from the journal is one
    piece.

    Raises:
        ModelError: there is no complete answer; the listener's pieces are not one.
    """
    heard = TextSender(listener)
    token = _telling.set(heard)
    try:
        response = await model(request)
    finally:
        _telling.reset(token)

    heard.finish(response.text)

    return response


LINE_END = re.compile(rb"\r(?=[^\n])|\n")
"""An end of a line of an event stream, as the HTML standard has it. A carriage return stays before
its line feed, and waits for the next byte."""


class EventStream:
    """A parser of the server-sent events of one answer, whose bytes may be split anywhere.

    Args:
        name: The model's name, for errors.
        progress: Receives the text of the answer, without reasoning at its beginning.
        without_key: Removes keys from a text of the endpoint.
        wire: The protocol of the events.
    """

    def __init__(
        self,
        name: str,
        progress: TextSender,
        without_key: Callable[[bytes], bytes],
        wire: ChatWire = CHAT_WIRES["chat"],
    ) -> None:
        self._name = name
        self._told = progress
        self._without_key = without_key
        self._read_event = wire.open_stream()
        self._begun = False
        self._plain = False
        self._rest = b""
        self._pending: list[bytes] = []
        self._chunks: list[CompletionChunk] = []
        self._done = False
        self._thoughts = StreamedThoughts()
        progress.begin()

    def received(self) -> str:
        """Return the text and the thoughts that have come so far."""
        return "".join(chunk.thoughts + chunk.text for chunk in self._chunks)

    def feed(self, part: bytes) -> bool:
        """Parse the next bytes of the stream, and pass their text on; return whether the stream
        said that it is complete.

        Raises:
            UnavailableError: an event cannot be read.
        """
        if not self._begun:
            part = part.lstrip(b"\xef\xbb\xbf \r\n\t")
            self._begun = bool(part)
            self._plain = part.startswith((b"{", b"[", b"<"))  # it does not stream

        if self._plain:
            return False
        *lines, self._rest = LINE_END.split(self._rest + part)
        for line in lines:
            self._take(self._without_key(line.rstrip(b"\r")))

        return self._done

    def _take(self, line: bytes) -> None:
        if not line:
            self._end_event()
            return
        name, _, value = line.partition(b":")
        value = value.strip()
        if not value or name not in (b"data", b"error"):  # a comment, a sign of life, an event's id
            return
        if value == DONE:
            self._done = True
        elif name == b"error":  # as older servers of llama.cpp say it
            self._chunks.append(CompletionChunk(error=value.decode("utf-8", "replace")))
        elif self._pending or not self._add(value):
            self._pending.append(value)

    def _end_event(self) -> None:
        """End an event, whose data may have several lines."""
        if self._pending and not self._add(b"\n".join(self._pending)):
            preview = self._pending[0][:80].decode("utf-8", "replace")
            raise UnavailableError(
                f"{self._name}: an event of the stream cannot be read: {preview}"
            )

        self._pending.clear()

    def _add(self, data: bytes) -> bool:
        try:
            chunk = read_loosely(self._read_event, data)
        except (ValueError, RecursionError):
            return False

        chunk.drop_repeats(self._chunks)
        self._chunks.append(chunk)
        self._told.add(self._thoughts.pass_text(chunk.text))
        return True

    def completion(self) -> Completion | None:
        """Return the complete completion; None if there was no stream, but perhaps a plain body.

        Raises:
            UnavailableError: the stream broke off.
        """
        if self._rest and not self._plain:
            self._take(self._without_key(self._rest.rstrip(b"\r")))
            self._rest = b""
        if self._plain or not self._chunks:
            return None
        self._end_event()
        joined = join_chunks(self._chunks, self._clean)
        is_complete = joined.choices and (self._done or joined.choices[0].finish_reason)
        if not (is_complete or joined.error):
            raise UnavailableError(f"{self._name}: the stream broke off before the answer's end")

        return joined

    def _clean(self, text: str) -> str:
        """Remove keys from a whole text, since a key may have come in several pieces."""
        raw = self._without_key(text.encode("utf-8", "surrogatepass"))
        return raw.decode("utf-8", "surrogatepass")
