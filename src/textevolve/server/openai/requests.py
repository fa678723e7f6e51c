"""Read requests to agents and judges from the body of a chat completion.

Of a request to another model only the model's name is read; its body is forwarded unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from textevolve.llm.wire import SentToolCall
from textevolve.server.errors import ApiError, bad_request

Shape = TypeVar("Shape", bound=BaseModel)

CANNOT = ("functions", "logprobs", "top_logprobs", "audio", "web_search_options")
"""The fields of a request that are refused, since they would have to change the answer. Other
unknown fields are ignored."""
JUDGES_CANNOT = (*CANNOT, "tools")
JUDGE_TOOLS = (
    "ask for its answer by a JSON schema in response_format (LangChain: method='json_schema',"
    " Pydantic AI: NativeOutput)"
)


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
    def schema_text(self) -> str | None:
        """The JSON schema that the answer must follow, as text; None if the answer is text."""
        if self.type == "text":
            return None
        schema = self.json_schema and self.json_schema.schema_
        return json.dumps(schema or {"type": "object"})


class NamedFunction(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class ClientTool(BaseModel):
    """A function that the model may call; fields that are unknown here are kept unchanged."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]
    function: NamedFunction


class NamedChoice(BaseModel):
    function: NamedFunction


class ServedRequest(BaseModel):
    """The body of a chat completion that an agent or a judge answers."""

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
    stop: str | list[str] | None = None
    response_format: ResponseFormat | None = None
    tools: list[ClientTool] | None = None
    tool_choice: str | NamedChoice | None = None


async def read_json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request, after a check that it names a model.

    Raises:
        ApiError: the body is not such an object.
    """
    try:
        body: object = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    content = cast("dict[str, Any]", body)
    if not isinstance(content.get("model"), str) or not content["model"].strip():
        raise bad_request("the field model is missing or empty: name a model", param="model")
    if not isinstance(content.get("stream") or False, bool):
        raise bad_request("stream must be true or false", param="stream")
    return content


def read_shape(shape: type[Shape], body: Mapping[str, Any]) -> Shape:
    """Validate a body against a pydantic model, and return it.

    Raises:
        ApiError: a field is invalid; the message names it.
    """
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise bad_request(f"{where}: {fault['msg']}", param=where) from None


def read_own_request(body: Mapping[str, Any], cannot: Sequence[str] = CANNOT) -> ServedRequest:
    """Read a request to an agent or a judge.

    Raises:
        ApiError: the body is invalid, or uses a feature that agents and judges lack.
    """
    for field in cannot:
        if body.get(field) not in (None, False, [], 0):
            message = f"'{body['model']}' is an agent or a judge, which take no '{field}'; "
            message += JUDGE_TOOLS if field == "tools" else "leave it out"
            raise ApiError(400, "unsupported_parameter", message, param=field)
    request = read_shape(ServedRequest, body)
    if request.n not in (None, 1):
        raise bad_request("n: must be 1, since agents and judges give one answer each", param="n")
    return request


def pair_texts(
    messages: Sequence[ClientMessage], *, tools: bool = False
) -> list[tuple[ClientMessage, str]]:
    """Return each message with its text. `tools`: messages may be the results of tools.

    Raises:
        ApiError: a message is not text, or comes from a tool.
    """
    return [
        (message, _text_of(message, f"messages.{place}", tools))
        for place, message in enumerate(messages)
    ]


def _text_of(message: ClientMessage, where: str, tools: bool) -> str:
    if message.role == "function" or (message.role == "tool" and not tools):
        raise bad_request(
            "agents read no result of a function, and judges none of a tool either: leave it out",
            param=f"{where}.role",
        )
    if message.role == "tool" and not message.tool_call_id:
        raise bad_request(
            "the result of a tool must have the id of its call",
            param=f"{where}.tool_call_id",
        )
    if not isinstance(message.content, list):
        return message.content or ""
    for part in message.content:
        if part.text is None:
            raise bad_request(
                f"agents and judges read text, not '{part.type}'",
                param=f"{where}.content",
            )
    return "\n".join(part.text or "" for part in message.content)
