"""Answers that are told as they are written: who listens, and how a stream of events is read.

A listener stands beside the request and not in it, so that the same question has the same key in
the journal whether its answer was streamed or not. What is returned and kept in the end is the
whole `Response` all the same. A stream that breaks off is no answer: it is asked again, and the
listener is told to begin anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from textevolve.errors import UnavailableError
from textevolve.llm.model import Model, Request, Response
from textevolve.llm.reasoning import StreamedThoughts
from textevolve.llm.wire import CHAT, Completion, CompletionChunk, join_chunks

DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A part of an answer's text. `anew`: all that was told of the answer before it is void, since
    the answer is written once more."""

    text: str
    anew: bool = False


PieceListener: TypeAlias = Callable[[AnswerPiece], None]
"""It must be quick and must not raise; it runs on the event loop."""


class Telling:
    """What a listener has been told of one answer so far."""

    def __init__(self, listener: PieceListener) -> None:
        self._listener = listener
        self._text: list[str] = []

    def add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._listener(AnswerPiece(text))

    def begin(self) -> None:
        """An attempt begins: what an earlier one told is void."""
        if self._text:
            self._text.clear()
            self._listener(AnswerPiece("", anew=True))

    def finish(self, text: str) -> None:
        """The whole answer is known: tell what of it was not told, such as all of a kept one."""
        told = "".join(self._text)
        if not text.startswith(told):
            self.begin()
            told = ""
        self.add(text[len(told) :])


_telling: ContextVar[Telling | None] = ContextVar("telling", default=None)


def telling() -> Telling | None:
    """Who is to be told of the answer that is asked for here; None: nobody."""
    return _telling.get()


async def ask_streaming(model: Model, request: Request, listener: PieceListener) -> Response:
    """The answer, which the listener hears while it is written: joined, the pieces since the last
    one that was `anew` are its text. An answer from the journal is one piece.

    Raises:
        ModelError: no whole answer came; what the listener was told is not one.
    """
    heard = Telling(listener)
    token = _telling.set(heard)
    try:
        response = await model(request)
    finally:
        _telling.reset(token)
    heard.finish(response.text)
    return response


class EventStream:
    """The server-sent events of one answer, read as their bytes come, in whatever parts they do.

    `name`: the model's, for errors. `without_key` takes keys out of what an endpoint says.
    `read_event`: the chunk in an event's data, as the wire has it.
    """

    def __init__(
        self,
        name: str,
        told: Telling,
        without_key: Callable[[bytes], bytes],
        read_event: Callable[[bytes], CompletionChunk | None] = CHAT.read_event,
    ) -> None:
        self._name, self._told, self._without_key = name, told, without_key
        self._read_event = read_event
        self._begun, self._plain = False, False
        self._rest = b""
        self._pending: list[bytes] = []
        self._chunks: list[CompletionChunk] = []
        self._done = False
        self._thoughts = StreamedThoughts()
        told.begin()

    def feed(self, part: bytes) -> None:
        """
        Raises:
            UnavailableError: an event cannot be read.
        """
        if not self._begun:
            part = part.lstrip(b"\xef\xbb\xbf \r\n\t")
            self._begun = bool(part)
            self._plain = part.startswith((b"{", b"[", b"<"))  # it does not stream
        if self._plain:
            return
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            self._take(self._without_key(line.rstrip(b"\r")))

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
        """An event whose data is of several lines ends here."""
        if self._pending and not self._add(b"\n".join(self._pending)):
            shown = self._pending[0][:80].decode("utf-8", "replace")
            raise UnavailableError(f"{self._name}: an event of the stream cannot be read: {shown}")
        self._pending.clear()

    def _add(self, data: bytes) -> bool:
        chunk = self._read_event(data)
        if chunk is not None:
            self._chunks.append(chunk)
            self._told.add(self._thoughts.pass_text(chunk.text))
        return chunk is not None

    def completion(self) -> Completion | None:
        """The whole completion; None where no stream came, but perhaps a plain body.

        Raises:
            UnavailableError: the stream broke off.
        """
        if self._rest and not self._plain:
            self._take(self._without_key(self._rest.rstrip(b"\r")))
            self._rest = b""
        if self._plain or not self._chunks:
            return None
        self._end_event()
        whole = join_chunks(self._chunks, self._clean)
        ended = whole.choices and (self._done or whole.choices[0].finish_reason)
        if not (ended or whole.error):
            raise UnavailableError(f"{self._name}: the stream broke off before the answer's end")
        return whole

    def _clean(self, text: str) -> str:
        """A key that came in several pieces."""
        raw = self._without_key(text.encode("utf-8", "surrogatepass"))
        return raw.decode("utf-8", "surrogatepass")
