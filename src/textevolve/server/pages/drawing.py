"""How pages are made of templates, and what forms send is read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import textevolve
from textevolve.report import wording
from textevolve.server.access import caller_of
from textevolve.server.errors import ApiError

SECTIONS = (
    ("runs", "Runs"),
    ("agents", "Agents"),
    ("labelling", "Labelling"),
    ("jobs", "Jobs"),
)
"""The menu: the first part of the path, and its name."""


def draw(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page, or a part of one, from a template; all texts in it are escaped."""
    text = (
        _environment()
        .get_template(template)
        .render(
            request=request,
            path=request.url.path,
            caller=caller_of(request),
            sections=SECTIONS,
            version=textevolve.__version__,
            csrf=request.scope.get("textevolve.csrf", ""),
            **values,
        )
    )
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, media_type="text/html; charset=utf-8")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, each once.

    Raises:
        ApiError: it is no form.
    """
    try:
        found = parse_qs(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=100
        )
    except ValueError:
        raise ApiError(400, "invalid_request", "the form cannot be read") from None
    return {name: values[-1] for name, values in found.items()}


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("textevolve.server.pages", "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    filters |= {
        "counted": wording.count,
        "figured": wording.number,
        "shortened": wording.shorten,
    }
    return environment


def _finalize(value: Any) -> Any:
    """Control characters are written out in every text."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return wording.visible(value) if is_text else value
