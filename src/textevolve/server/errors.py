"""Errors as clients of each API read them: the status, and the body in the API's own shape.

System One: `{"detail": {"error_type", "message"}}`, and a list of what is wrong under `detail` for
a body that cannot be used (422). OpenAI, and every other path below /v1: `{"error": {"message",
"type", "param", "code"}}`. The list of models, which both share, has both.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError

from textevolve.errors import (
    BudgetError,
    BusyError,
    ConflictError,
    InputError,
    MismatchError,
    ModelError,
    NotFoundError,
    RejectedError,
    SettingsError,
    StoreAwayError,
    StoreError,
    TakenError,
    TooLongError,
    UnavailableError,
    public_message,
)

SYSTEM_ONE, DECISIONS, MODELS = "/v1/systemone", "/v1/decisions", "/v1/models"

INVALID = "invalid_request"
TOO_LONG = "max_tokens_exceeded"
"""As DeepEval's client knows a request that does not fit into the model's context."""
ERRORS_SHOWN = 20
log = logging.getLogger("textevolve.server")

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_OPENAI_CODES = {TOO_LONG: "context_length_exceeded", "authentication_error": "invalid_api_key"}


class ApiError(Exception):
    """What a client is told in place of an answer. `code` names the kind of error in both APIs;
    `retry_after`: seconds after which it may ask again; `param`: the field that is at fault."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: float | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after, self.param = retry_after, param


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of an error of ours, with the status that fits its cause."""
    said = public_message(error)
    match error:
        case ApiError():
            return error
        case BudgetError():
            return ApiError(429, "insufficient_quota", said)
        case UnavailableError(status=429):
            return ApiError(429, "rate_limit_exceeded", said, retry_after=error.retry_after)
        case UnavailableError():
            return ApiError(503, "upstream_unavailable", said, retry_after=error.retry_after)
        case TooLongError():
            return ApiError(400, TOO_LONG, said)
        case RejectedError() | ModelError():
            return ApiError(502, "upstream_error", said)
        case NotFoundError():
            return ApiError(404, "not_found", said)
        case TakenError() | ConflictError() | BusyError() | MismatchError():
            return ApiError(409, "conflict", said)
        case InputError():
            return ApiError(400, INVALID, said)
        case RecursionError():
            return ApiError(400, INVALID, "the JSON is nested too deeply")
        case StoreAwayError():
            log.warning("the store cannot be used: %s", error)
            return ApiError(503, "server_unavailable", said, retry_after=5)
        case SettingsError() | StoreError():
            return ApiError(503, "server_unavailable", said)
        case _:
            return ApiError(500, "internal_error", "the server failed; its log says why")


def no_model(name: str) -> ApiError:
    said = f"the model '{name:.200}' does not exist, or you may not use it; see GET /v1/models"
    return ApiError(404, "model_not_found", said, param="model")


def respond(data: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """A response with JSON in ASCII, since what clients send may hold half a surrogate pair."""
    body = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


def respond_error(path: str, error: ApiError) -> Response:
    """The error in the shape of the API that the path belongs to."""
    if path == SYSTEM_ONE and error.code == INVALID:
        fault = {"loc": ["body"], "msg": error.message, "type": "value_error"}
        return respond({"detail": [fault]}, 422)
    system_one = {"detail": {"error_type": error.code, "message": error.message}}
    openai = openai_error(error)
    wait = error.retry_after
    headers = {} if wait is None else {"retry-after": str(math.ceil(wait))}
    return respond(_choose_shape(path, system_one, openai), error.status, **headers)


def respond_invalid(path: str, error: RequestValidationError) -> Response:
    """What is wrong with the body of a request, and where; not what stood there, which may be
    long and is the client's own."""
    found = [_describe_fault(one) for one in error.errors()[:ERRORS_SHOWN]]
    first = found[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    message = f"{where}: {first['msg']}" if where else first["msg"]
    openai = _openai_shape(400, message, where or None, INVALID)
    if path == SYSTEM_ONE:
        return respond({"detail": found}, 422)
    other = {"detail": {"error_type": INVALID, "message": message}}
    return respond(_choose_shape(path, other, openai), 400)


def _describe_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    loc: Sequence[str | int] = fault["loc"]
    said = fault["msg"]
    if fault["type"] == "json_invalid":
        said = f"{said}: {fault.get('ctx', {}).get('error', '')}"
    return {"loc": list(loc), "msg": said, "type": fault["type"]}


def openai_error(error: ApiError) -> dict[str, Any]:
    """The error in OpenAI's shape."""
    return _openai_shape(error.status, error.message, error.param, error.code)


def _openai_shape(status: int, message: str, param: str | None, code: str) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else _OPENAI_TYPES.get(status, "invalid_request_error")
    code = _OPENAI_CODES.get(code, code)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _choose_shape(path: str, system_one: dict[str, Any], openai: dict[str, Any]) -> dict[str, Any]:
    if path == SYSTEM_ONE:
        return system_one
    return openai if path.startswith("/v1/") and path != MODELS else {**system_one, **openai}
