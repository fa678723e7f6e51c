"""What clients ask of agents and judges, read from the body of a chat completion.

Bodies for other models pass as they came; of them only the model's name is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from textevolve.llm.wire import SentToolCall
from textevolve.server.errors import INVALID, ApiError

Shape = TypeVar("Shape", bound=BaseModel)

CANNOT = ("functions", "logprobs", "top_logprobs", "audio", "stop", "web_search_options")
"""What would have to change an answer, and is refused; other fields that are not read here are
passed over."""
JUDGES_CANNOT = (*CANNOT, "tools")


class ContentPart(BaseModel):
    type: str
    text: str | None = None


class ClientMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[SentToolCall] | None = None
    tool_call_id: str | None = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class SchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class ResponseFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @property
    def asked(self) -> Mapping[str, Any] | None:
        """The JSON schema of the answer; None for text."""
        if self.type == "text":
            return None
        return (self.json_schema and self.json_schema.schema_) or {"type": "object"}


class NamedFunction(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class ClientTool(BaseModel):
    """A function; what else is said of it stays as it came."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]
    function: NamedFunction


class NamedChoice(BaseModel):
    function: NamedFunction


class OwnRequest(BaseModel):
    """A request to an agent or a judge."""

    messages: Annotated[list[ClientMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[ClientTool] | None = None
    tool_choice: str | NamedChoice | None = None


async def read_json_body(request: Request) -> dict[str, Any]:
    """The JSON object in a request, with the name of a model.

    Raises:
        ApiError: it is none.
    """
    try:
        body: object = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, INVALID, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, INVALID, "the body must be a JSON object")
    found = cast("dict[str, Any]", body)
    if not isinstance(found.get("model"), str) or not found["model"].strip():
        raise ApiError(400, INVALID, "name the model", param="model")
    if not isinstance(found.get("stream") or False, bool):
        raise ApiError(400, INVALID, "stream must be true or false", param="stream")
    return found


def read_shape(shape: type[Shape], body: Mapping[str, Any]) -> Shape:
    """
    Raises:
        ApiError: it cannot be read so; says where.
    """
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ApiError(400, INVALID, f"{where}: {first['msg']}", param=where) from None


def read_own_request(body: Mapping[str, Any], cannot: Sequence[str] = CANNOT) -> OwnRequest:
    """
    Raises:
        ApiError: it cannot be used, or asks for what neither agents nor judges can do.
    """
    for field in cannot:
        if body.get(field) not in (None, False, [], 0):
            said = (
                f"'{body['model']}' is an agent or a judge, which take no '{field}'; leave it out"
            )
            raise ApiError(400, "unsupported_parameter", said, param=field)
    asked = read_shape(OwnRequest, body)
    if asked.n not in (None, 1):
        raise ApiError(400, INVALID, "n: agents and judges give one answer each", param="n")
    return asked


def text_of(messages: Sequence[ClientMessage], place: int, tools: bool = False) -> str:
    """What a message says; with `tools` it may be the result of one.

    Raises:
        ApiError: it is no text, or that of a tool.
    """
    message, where = messages[place], f"messages.{place}"
    if message.role == "function" or (message.role == "tool" and not tools):
        raise ApiError(400, INVALID, "messages of this role are not read", param=f"{where}.role")
    if message.role == "tool" and not message.tool_call_id:
        said = "the result of a tool names the call that it is of"
        raise ApiError(400, INVALID, said, param=f"{where}.tool_call_id")
    if not isinstance(message.content, list):
        return message.content or ""
    for part in message.content:
        if part.text is None:
            said = f"agents and judges read text, not '{part.type}'"
            raise ApiError(400, INVALID, said, param=f"{where}.content")
    return "\n".join(part.text or "" for part in message.content)


def write_schema(asked: OwnRequest) -> str | None:
    """The JSON schema that the answer is to keep to."""
    schema = asked.response_format and asked.response_format.asked
    return json.dumps(schema) if schema else None
