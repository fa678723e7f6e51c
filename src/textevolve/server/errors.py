"""Errors as clients of each API read them: the HTTP status, and the body in the API's own format.

System One: `{"detail": {"error_type", "message"}}`; for an invalid body (422), `detail` is a list
of its faults. OpenAI, and every other path below /v1: `{"error": {"message", "type", "param",
"code"}}`. The list of models, which both APIs share, has both fields.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Body, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from textevolve.errors import (
    BudgetError,
    BusyError,
    ConflictError,
    InputError,
    MismatchError,
    ModelError,
    NotFoundError,
    SettingsError,
    StoreAwayError,
    StoreError,
    TakenError,
    TooLongError,
    UnavailableError,
    public_message,
)

SYSTEM_ONE = "/v1/systemone"
MODELS = "/v1/models"

INVALID = "invalid_request"
TOO_LONG = "max_tokens_exceeded"
"""The code of a request that exceeds the model's context, as DeepEval's client expects it."""
ERRORS_SHOWN = 20
log = logging.getLogger("textevolve.server")

_STATUSES: tuple[tuple[tuple[type[Exception], ...], int, str], ...] = (
    ((BudgetError,), 429, "insufficient_quota"),
    ((TooLongError,), 400, TOO_LONG),
    ((ModelError,), 502, "upstream_error"),
    ((NotFoundError,), 404, "not_found"),
    ((TakenError, ConflictError, BusyError, MismatchError), 409, "conflict"),
    ((InputError,), 400, INVALID),
    ((SettingsError, StoreError), 503, "server_unavailable"),
)
"""The HTTP status and the code for each group of exceptions; the first group that matches
counts."""
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_OPENAI_CODES = {TOO_LONG: "context_length_exceeded", "authentication_error": "invalid_api_key"}


class ApiError(Exception):
    """The error that a client receives.

    Attributes:
        status: The HTTP status.
        code: The kind of error, the same in both APIs.
        retry_after: The seconds after which the client may try again; None if unknown.
        param: The name of the invalid field; None if no single field is invalid.
        faults: The faults of an invalid body, for System One; may be empty.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after: float | None = None,
        param: str | None = None,
        faults: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.param = param
        self.faults = faults


def as_api_error(error: Exception) -> ApiError:
    """Convert an exception into the error for the client, with the status of its cause."""
    if isinstance(error, RequestValidationError):  # its text has the whole body
        return _describe_invalid(error)
    message = public_message(error)
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StoreAwayError):
        log.warning("the store cannot be used: %s", error)
        return ApiError(503, "server_unavailable", message, retry_after=5)
    if isinstance(error, UnavailableError):
        status = 503
        code = "upstream_unavailable"
        if error.status == 429:
            status = 429
            code = "rate_limit_exceeded"
        return ApiError(status, code, message, retry_after=error.retry_after)

    for kinds, status, code in _STATUSES:
        if isinstance(error, kinds):
            return ApiError(status, code, message)
    if isinstance(error, RecursionError):
        return bad_request("the JSON is nested too deeply")

    return ApiError(500, "internal_error", "the server failed; its log says why")


def bad_request(message: str, *, param: str | None = None) -> ApiError:
    return ApiError(400, INVALID, message, param=param)


def refuse_idempotency_key(request: Request, instead: str) -> None:
    """Check that a client does not expect a repeated request to change nothing.

    Raises:
        ApiError: 400, the request has the header Idempotency-Key; the message says what to do
            instead.
    """
    if "idempotency-key" in request.headers:
        raise bad_request(f"Idempotency-Key: is not heeded here; {instead}")


def no_model(name: str) -> ApiError:
    return ApiError(
        404,
        "model_not_found",
        f"the model '{name:.200}' does not exist, or you may not use it; see GET /v1/models",
        param="model",
    )


def respond(data: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """Return a JSON response in ASCII, since clients' texts may contain lone surrogates."""
    body = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


def respond_error(path: str, error: ApiError) -> Response:
    """Return the response for an error, in the format of the API that the path belongs to. For
    System One, an invalid request has the status 422."""
    if path == SYSTEM_ONE and error.code == INVALID:
        fault = {"loc": ["body"], "msg": error.message, "type": "value_error"}
        return respond({"detail": error.faults or [fault]}, 422)
    body: dict[str, Any] = {"detail": {"error_type": error.code, "message": error.message}}
    if path.startswith("/v1/") and path not in (SYSTEM_ONE, MODELS):
        body = openai_error(error)
    elif path != SYSTEM_ONE:  # clients of both APIs
        body |= openai_error(error)

    wait = error.retry_after
    headers = {} if wait is None else {"retry-after": str(math.ceil(wait))}

    return respond(body, error.status, **headers)


def _describe_invalid(error: RequestValidationError) -> ApiError:
    """Return the error for an invalid body, with its first `ERRORS_SHOWN` faults; the message
    describes the first one. A fault names its field, but not the invalid value, which may be long
    or private."""
    faults = list(map(_describe_fault, error.errors()[:ERRORS_SHOWN]))
    message = faults[0]["msg"]
    if where := ".".join(map(str, faults[0]["loc"][1:])):
        message = f"{where}: {message}"
    return ApiError(400, INVALID, message, param=where or None, faults=faults)


def _describe_fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    message = fault["msg"]
    if fault["type"] == "json_invalid":
        message = f"{message}: {fault.get('ctx', {}).get('error', '')}"
    return {"loc": list(fault["loc"]), "msg": message, "type": fault["type"]}


def openai_error(error: ApiError) -> dict[str, Any]:
    """Return the error in OpenAI's shape."""
    kind = _OPENAI_TYPES.get(error.status, "invalid_request_error")
    return {
        "error": {
            "message": error.message,
            "type": "server_error" if error.status >= 500 else kind,
            "param": error.param,
            "code": _OPENAI_CODES.get(error.code, error.code),
        }
    }


DESCRIPTION = """Judges, models, agents with memories, and studies, for other programs.

If the server requires a key, send it with every request: `Authorization: Bearer KEY`. A key has
scopes: `read`, `run` (costs money), `label` and `admin`. It may be limited to some namespaces:
resources of other namespaces are not found. Times are in UTC.

Errors:

- 400: The request is invalid; the message says what is expected.
- 401: A key is missing, invalid or revoked.
- 403: The key lacks the scope.
- 404: The resource does not exist, or the caller may not see it.
- 409: The name is taken, or the resource was changed meanwhile.
- 413: The body is too large.
- 415: The media type of the body is not accepted.
- 429: Too many requests, or a limit is reached; `Retry-After` says when to try again.
- 500: The server failed; its log says why.
- 502: A model gave no usable answer.
- 503: A service that the request needs is unavailable."""
TAGS: Mapping[str, str] = {
    "OpenAI": "The OpenAI protocol: agents, judges and models.",
    "decisions": "Typed questions, answered with probabilities: TypeSafe's System One.",
    "studies": "Studies, as `textevolve run` runs them, on this server.",
    "namespaces": "Isolated workspaces.",
    "agents": "Agents with a persona and memories, with all their versions.",
    "collections": "Collections of memories.",
    "memories": "The memories of a collection.",
    "users": "The people that agents talk with.",
    "jobs": "Scheduled studies (cron).",
}
"""The groups of paths in the OpenAPI description, in this order, each with its description."""


class ErrorBody(BaseModel):
    """An error, in the shapes of both APIs: OpenAI's `error`, System One's `detail`."""

    detail: Any = None
    error: dict[str, Any] | None = None


RESPONSES: Mapping[int | str, dict[str, Any]] = {
    "default": {"description": "An error; its status says of which kind.", "model": ErrorBody}
}
"""The OpenAPI description of the errors that any path may answer with."""


def example_body(example: Mapping[str, Any]) -> Any:
    """Mark a parameter as the body, with an example of it."""
    return Body(openapi_examples={"example": {"value": dict(example)}})
