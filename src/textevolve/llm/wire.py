"""Bodies of the OpenAI protocol: write a `Request` as the body to send, and read an answer's body.

Answers are validated here and nowhere else. Decisions are in `decision_wires`, connections in
`client`, and the meaning of refusals in `refusals`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticSerializationError, to_json

from textevolve.errors import UnavailableError
from textevolve.json_texts import as_array
from textevolve.llm.model import Message, Model, Request, Response, TokenLogprobs, ToolCall
from textevolve.llm.prices import (
    READABLE,
    KnownCount,
    KnownText,
    ReportedTimings,
    ReportedUsage,
    read_loosely,
    usage_of,
)
from textevolve.llm.prompts import count_tokens
from textevolve.llm.structured import StreamedThoughts, split_reasoning, tokens_of_end
from textevolve.mappings import drop_none
from textevolve.settings import Price

Shape = TypeVar("Shape")


def chat_body(model: str, request: Request, max_tokens_field: str) -> dict[str, Any]:
    """Return a request as a body of /v1/chat/completions, without unset fields."""
    fields = {
        "model": model,
        "messages": [chat_message(message) for message in request.messages],
        "response_format": json_schema_format(request.schema),
        "temperature": request.temperature,
        max_tokens_field: request.max_tokens,
        "seed": request.seed,
        "logprobs": True if request.top_logprobs else None,
        "top_logprobs": request.top_logprobs or None,
        "tools": request.tools and parse_cached(request.tools),
        "tool_choice": request.tools and tool_choice(request.tool_choice),
    }

    return drop_none(fields)


def tool_choice(choice: str | None) -> Any:
    """Return a mode of calling functions unchanged; a function's name in the protocol's form."""
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def json_schema_format(schema: str | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    answer_format = {"name": "answer", "schema": parse_cached(schema), "strict": True}
    return {"type": "json_schema", "json_schema": answer_format}


@lru_cache(maxsize=320)
def parse_cached(text: str) -> Any:
    """Parse a schema or functions from JSON."""
    return json.loads(text)


def encode(body: Mapping[str, Any]) -> bytes:
    """Serialize a body as JSON; lone surrogates, which UTF-8 cannot express, are escaped."""
    try:
        return to_json(body)
    except PydanticSerializationError:
        return json.dumps(body).encode("ascii")


def _readable(value: object, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate log-probabilities. If they are invalid, return `UNREADABLE`, to distinguish them
    from missing ones (None)."""
    try:
        return validate(value)
    except ValidationError:
        return UNREADABLE


def _first(value: object) -> object:
    """Keep only the first choice, since others are not used and may be invalid."""
    return cast("list[object]", value)[:1] if isinstance(value, list) else value or []


_Bytes = Annotated[list[Annotated[int, Field(strict=True, ge=0, le=255)]] | None, READABLE]
_Logprob = Annotated[Annotated[float, Field(strict=True, allow_inf_nan=False)] | None, READABLE]


def _as_text(value: object) -> str:
    """Convert arguments to text, since some endpoints send an object instead."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


_Written = Annotated[str, BeforeValidator(_as_text)]


class SentFunction(BaseModel):
    name: _Written = ""
    arguments: _Written = ""


class SentToolCall(BaseModel):
    """A tool call, or the part of one in a chunk of a stream. `index`: the position of the call
    among the answer's calls; None if the endpoint does not name it."""

    index: KnownCount = None
    id: _Written = ""
    function: SentFunction = SentFunction()


class _Thought(BaseModel):
    text: KnownText = None


class _Part(BaseModel):
    text: KnownText = None
    thinking: Annotated[list[_Thought] | None, READABLE] = None


class _Message(BaseModel):
    """The message of an answer. Endpoints put the reasoning into `reasoning_content`, into
    `reasoning`, or into parts of the content."""

    content: str | list[_Part] | None = None
    refusal: KnownText = None
    reasoning_content: KnownText = None
    reasoning: KnownText = None
    tool_calls: Annotated[list[SentToolCall] | None, READABLE] = None


class _Alternative(BaseModel):
    token: str
    logprob: _Logprob = None


class _Token(_Alternative):
    bytes: _Bytes = None
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


UNREADABLE = _Logprobs()


class _Choice(BaseModel):
    message: _Message
    finish_reason: KnownText = None
    logprobs: Annotated[_Logprobs | None, WrapValidator(_readable)] = None


class _Reported(BaseModel):
    """The fields that completions and their chunks share. `error`: some endpoints report errors
    here with the status 200."""

    model: KnownText = None
    usage: Annotated[ReportedUsage | None, READABLE] = None
    timings: Annotated[ReportedTimings | None, READABLE] = None
    error: Any = None


class Completion(_Reported):
    """A chat completion with the fields that are read here."""

    choices: Annotated[list[_Choice], BeforeValidator(_first)] = []


class _ChunkChoice(BaseModel):
    """The part of an answer in a chunk of a stream; some servers name the field `message` and not
    `delta`."""

    delta: Annotated[_Message | None, Field(validation_alias=AliasChoices("delta", "message"))] = (
        None
    )
    finish_reason: KnownText = None
    logprobs: Annotated[_Logprobs | None, WrapValidator(_readable)] = None


def _first_choices(value: object) -> object:
    """Keep only the chunks of the first answer, since chunks of several answers may be mixed."""
    choices: list[Any] = as_array(value)
    return [choice for choice in choices if not isinstance(choice, dict) or not choice.get("index")]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class CompletionChunk(_Reported):
    """A chunk of a streamed completion. The last ones may have the usage and no choice."""

    choices: Annotated[list[_ChunkChoice], BeforeValidator(_first_choices)] = []

    @property
    def text(self) -> str:
        return "".join(_text_of(choice.delta) for choice in self.choices if choice.delta)


class _Vector(BaseModel):
    embedding: list[float]
    index: int = 0


class Embeddings(BaseModel):
    data: list[_Vector]
    usage: Annotated[ReportedUsage | None, READABLE] = None


class _ModelName(BaseModel):
    id: str = Field(validation_alias=AliasChoices("id", "name"))


class ModelList(BaseModel):
    """An endpoint's list of models. `models`: the field that endpoints which only decide use
    instead of `data`."""

    data: list[_ModelName] | None = None
    models: list[_ModelName] | None = None


def join_chunks(chunks: Sequence[CompletionChunk], clean: Callable[[str], str]) -> Completion:
    """Join the chunks of a stream into a completion. `clean`: removes keys from a text; it is
    applied to the whole answer, reasoning and refusal, and not to tool calls. The first chunk with
    an error makes the completion that error alone."""
    for chunk in chunks:
        if chunk.error:
            return Completion(error=chunk.error)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    timings = [chunk.timings for chunk in chunks if chunk.timings]
    deltas = [part.delta for part in choices if part.delta]
    text = clean("".join(chunk.text for chunk in chunks))
    refused = clean("".join(delta.refusal or "" for delta in deltas))
    thoughts = clean("".join(map(_thoughts_of, deltas)))
    calls = join_tool_calls(call for delta in deltas for call in delta.tool_calls or ())
    message = _Message(
        content=text, refusal=refused or None, reasoning=thoughts or None, tool_calls=calls or None
    )
    choice = _Choice(
        message=message,
        finish_reason=next((part.finish_reason for part in choices if part.finish_reason), None),
        logprobs=_join_logprobs([part.logprobs for part in choices if part.logprobs]),
    )

    return Completion(
        model=next((chunk.model for chunk in chunks if chunk.model), None),
        choices=[choice] if choices else [],
        usage=usage[-1] if usage else None,
        timings=timings[-1] if timings else None,
    )


def _join_logprobs(parts: Sequence[_Logprobs]) -> _Logprobs | None:
    if not parts or any(part is UNREADABLE for part in parts):
        return UNREADABLE if parts else None
    return _Logprobs(content=[token for part in parts for token in part.content or ()])


def _text_of(message: _Message) -> str:
    content = message.content
    if isinstance(content, list):
        return "".join(part.text or "" for part in content)
    return content or ""


def _thoughts_of(message: _Message) -> str:
    if thoughts := message.reasoning_content or message.reasoning:
        return thoughts
    parts = message.content if isinstance(message.content, list) else ()
    return "".join(thought.text or "" for part in parts for thought in part.thinking or ())


def as_response(
    completion: Completion, seconds: float, price: Price | None, prompt: int = 0
) -> Response:
    """Return the response in a completion that has a choice. `prompt`: the estimated tokens of the
    prompt, used if the endpoint reports none.

    An answer that the model declined to give is an empty text with the finish reason "refusal".
    """
    choice = completion.choices[0]
    message = choice.message
    finish_reason = choice.finish_reason or "stop"
    content = _text_of(message)
    thoughts = _thoughts_of(message)
    if message.refusal and not content:
        finish_reason = "refusal"
    tokens = choice.logprobs.content if choice.logprobs and choice.logprobs.content else ()
    logprobs = tuple(_token(token) for token in tokens)
    in_text, text = split_reasoning(content, finish_reason)
    if in_text:
        logprobs = tokens_of_end(logprobs, len(content) - len(text))
    calls = as_tool_calls(message.tool_calls) if message.tool_calls else ()
    answered = count_tokens(content + thoughts + "".join(call.arguments for call in calls))

    return Response(
        text=text,
        finish_reason=finish_reason,
        usage=usage_of(completion.usage, price, completion.timings, (prompt, answered)),
        logprobs=logprobs,
        seconds=seconds,
        reasoning=thoughts or in_text,
        tool_calls=calls,
    )


def as_vector(embeddings: Embeddings, seconds: float, price: Price | None, prompt: int) -> Response:
    """Return the response with the embedding of one text. `prompt`: the estimated tokens of the
    text, used if the endpoint reports none."""
    (vector,) = embeddings.data
    usage = (embeddings.usage or ReportedUsage()).model_copy(update={"completion_tokens": 0})
    text = dump_vector(vector.embedding)
    return Response(text, "stop", usage_of(usage, price, None, (prompt, 0)), seconds=seconds)


def dump_vector(vector: Sequence[float], **more: Any) -> str:
    """Return the text of a response with an embedding, rounded to 7 digits (32-bit numbers have no
    more). `more`: further fields of the JSON object."""
    return json.dumps({"embedding": [float(f"{part:.7g}") for part in vector], **more})


def _token(token: _Token) -> TokenLogprobs:
    pairs = ((other.token, other.logprob) for other in token.top_logprobs or ())
    top = tuple((text, logprob) for text, logprob in pairs if logprob is not None)
    return TokenLogprobs(token.token, token.logprob if token.logprob is not None else -9999.0, top)


def chat_message(message: Message) -> dict[str, Any]:
    """Return the message in the chat format, with images before the text."""
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.images:
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in message.images]
        body["content"] = [*pictures, {"type": "text", "text": message.text}]
    if message.tool_calls:
        body["content"] = body["content"] or None
        body["tool_calls"] = as_sent(message.tool_calls)
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id

    return body


def join_tool_calls(parts: Iterable[SentToolCall]) -> list[SentToolCall]:
    """Join the parts of tool calls in a stream into whole calls, by index. Some endpoints send no
    indexes or always the same one; their calls are distinguished by the id, which only the first
    part of a call has."""
    calls: list[SentToolCall] = []

    for part in parts:
        same = [call for call in calls if part.index is None or call.index == part.index]
        call = same[-1] if same else None
        if call is None or (part.id and call.id and part.id != call.id):
            calls.append(part.model_copy(deep=True))
        else:
            call.id = call.id or part.id
            call.function.name = call.function.name or part.function.name
            call.function.arguments += part.function.arguments

    return sorted(calls, key=lambda call: call.index or 0)


def as_tool_calls(sent: Iterable[SentToolCall]) -> tuple[ToolCall, ...]:
    """Convert tool calls; a call without an id is named by its position."""
    return tuple(
        ToolCall(call.id or f"call_{place}", call.function.name, call.function.arguments)
        for place, call in enumerate(sent)
    )


def as_sent(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """Return tool calls in the form of the chat protocol."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


CHATS = "/chat/completions"
"""The path of chats, after the base URL."""
STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""The additional fields of a body for a streamed answer."""


def read_completion(raw: bytes) -> Completion:
    """Parse an answer.

    Raises ValueError if the bytes are no chat completion.
    """
    return read_loosely(Completion.model_validate_json, raw)


# Stream the text of answers to a listener (a callback), and parse streams of events from
# endpoints.
#
# The listener is not a part of the request, so a request has the same key in the journal whether
# its answer is streamed or not. In the end the whole `Response` is returned and stored in both
# cases. A stream that breaks off is no answer: the call is repeated, and the listener receives the
# new answer from its beginning.

DONE = b"[DONE]"


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


class EventStream:
    """A parser of the server-sent events of one answer, whose bytes may be split anywhere.

    Args:
        name: The model's name, for errors.
        progress: Receives the text of the answer, without reasoning at its beginning.
        without_key: Removes keys from a text of the endpoint.
    """

    def __init__(
        self, name: str, progress: TextSender, without_key: Callable[[bytes], bytes]
    ) -> None:
        self._name = name
        self._told = progress
        self._without_key = without_key
        self._begun = False
        self._plain = False
        self._rest = b""
        self._pending: list[bytes] = []
        self._chunks: list[CompletionChunk] = []
        self._done = False
        self._thoughts = StreamedThoughts()
        progress.begin()

    def feed(self, part: bytes) -> None:
        """Parse the next bytes of the stream, and pass their text on.

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
        """End an event, whose data may have several lines."""
        if self._pending and not self._add(b"\n".join(self._pending)):
            preview = self._pending[0][:80].decode("utf-8", "replace")
            raise UnavailableError(
                f"{self._name}: an event of the stream cannot be read: {preview}"
            )

        self._pending.clear()

    def _add(self, data: bytes) -> bool:
        try:
            chunk = read_loosely(CompletionChunk.model_validate_json, data)
        except (ValueError, RecursionError):
            return False

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
