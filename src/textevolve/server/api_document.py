"""The OpenAPI document, /openapi.json: its introduction, groups of paths, the shape of errors.

No page shows it here: those that usually do load scripts from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Body
from pydantic import BaseModel

DESCRIPTION = """Judges, models, agents with memories, and studies, for other programs.

Where the server asks for a key, send it with every request: `Authorization: Bearer KEY`. A key has
scopes: `read`, `run` (what costs money), `label` and `admin`; and it may be for some namespaces
alone: what belongs to others is not found. Times are in UTC.

Errors:

- 400: Something that was sent cannot be used; the message says what it may be.
- 401: A key is needed, or the one that was sent is none, or no longer.
- 403: The key does not reach so far.
- 404: There is nothing of this name, or the caller does not see it.
- 409: The name is taken, or somebody else changed meanwhile what was to be changed.
- 413: The body is too large.
- 415: The body has another type than those that are taken.
- 429: Too much at once, or a limit is reached; `Retry-After` says when to ask again.
- 500: The server failed; its log says why.
- 502: A model gave no usable answer.
- 503: Something that is needed cannot be reached or used now."""
TAGS: Mapping[str, str] = {
    "OpenAI": "The OpenAI protocol: agents, judges and models.",
    "decisions": "Typed questions, answered with probabilities: TypeSafe's System One.",
    "studies": "Anything that `textevolve run` runs, run here.",
    "namespaces": "Walls between what belongs to different owners.",
    "agents": "Whoever answers, and remembers, with all their versions.",
    "collections": "Collections of memories.",
    "memories": "The memories of a collection.",
    "users": "Whom agents talk with.",
    "jobs": "Studies by the clock.",
}
"""The groups of paths, in this order."""


class ErrorBody(BaseModel):
    """An error, in the shapes of both APIs: OpenAI's `error`, System One's `detail`."""

    detail: Any = None
    error: dict[str, Any] | None = None


RESPONSES: Mapping[int | str, dict[str, Any]] = {
    "default": {"description": "An error, as its status says.", "model": ErrorBody}
}
"""The answers that any path may give beside its own."""


def example_body(example: Mapping[str, Any]) -> Any:
    """Mark a parameter as the body, with an example of it."""
    return Body(openapi_examples={"example": {"value": dict(example)}})
