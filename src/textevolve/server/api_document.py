"""The OpenAPI document, /openapi.json: what the paths say of themselves, with what all have in
common: their groups, the errors that may come, and examples.

No page shows it here: those that usually do load scripts from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict

from textevolve.studies.study_file import OURS

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
    "openai": "The OpenAI protocol: agents, judges and models.",
    "decisions": "Typed questions, answered with probabilities: TypeSafe's System One, and OpenAI's"
    " Decisions API.",
    "studies": "Anything that `textevolve run` runs, run here.",
    "namespaces": "Walls between what belongs to different owners.",
    "agents": "Whoever answers, and remembers, with all their versions.",
    "collections": "Collections of memories.",
    "memories": "The memories of a collection.",
    "users": "Whom agents talk with.",
    "jobs": "Studies by the clock.",
}
"""The groups of paths, in this order; those without paths are left out."""


class ErrorBody(BaseModel):
    """What went wrong, in the shapes of both APIs."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "detail": {"error_type": "not_found", "message": "no namespace 'acme'"},
                "error": {
                    "message": "no namespace 'acme'",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "not_found",
                },
            }
        }
    )

    detail: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


RESPONSES: Mapping[int | str, dict[str, Any]] = {
    "default": {"description": "An error, as its status says.", "model": ErrorBody}
}
"""What any path may answer with, beside its own."""
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "/v1/systemone": {
        "model": "judge/probe+rules",
        "state": {"input": "What is 2 + 2?", "output": "4"},
        "questions": {"right": {"type": "noul", "instructions": "Is the output right?"}},
    },
    "/v1/studies": {
        "kind": "evaluate",
        "cases": ["cases.jsonl"],
        "judge": "probe+rules",
        "run": {
            "name": "nightly",
            "limits": {"calls": 5000},
            "files": {"cases.jsonl": '{"input": "2 + 2?", "candidates": ["4", "5"]}\n'},
        },
    },
    "/v1/studies/{run_id}/resume": {"limits": {"calls": 10000}},
    "/v1/namespaces/{namespace}/jobs": {
        "name": "nightly",
        "cron": "0 3 * * *",
        "zone": "Europe/Vienna",
        "study": {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "probe+rules"},
        "files": {"cases.jsonl": '{"input": "2 + 2?", "candidates": ["4", "5"]}\n'},
    },
}
"""Of bodies that say none themselves, by their paths."""

_FILES = re.compile(r"; @FILE reads it from a file(, - from standard input)?|, @FILE")


def document_api(app: FastAPI) -> None:
    """Makes the app's document as above, with the first request for it."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                summary="TextEvolve over HTTP.",
                description=DESCRIPTION,
                routes=app.routes,
            )
            app.openapi_schema = complete_document(found)
        return app.openapi_schema

    app.openapi = openapi  # pyright: ignore[reportAttributeAccessIssue]


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Complete a document that FastAPI made with what all paths have in common."""
    used = set[str]()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            used |= set(operation.get("tags", ()))
            if path in EXAMPLES and "requestBody" in operation:
                operation["requestBody"]["content"]["application/json"]["example"] = EXAMPLES[path]
    document["tags"] = [{"name": n, "description": d} for n, d in TAGS.items() if n in used]
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}, {}]
    return cast(dict[str, Any], _without_ours(document))


def _without_ours(data: Any) -> Any:
    """Without what specifications note for other doors, such as the command line."""
    if isinstance(data, list):
        return [_without_ours(one) for one in cast(list[Any], data)]
    if not isinstance(data, dict):
        return data
    held = cast(dict[str, Any], data)
    is_field = "description" in held and ("type" in held or "anyOf" in held)
    kept = {name: _without_ours(value) for name, value in held.items()}
    if is_field:
        kept = {name: value for name, value in kept.items() if name not in OURS}
        kept["description"] = _FILES.sub("", str(kept["description"]))
    return kept
