"""Render pages from templates, and read the forms that browsers send."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from fastapi import Request, Response
from jinja2 import Environment
from markupsafe import Markup

import textevolve
from textevolve.images import image_facts
from textevolve.report import wording
from textevolve.report.blocks import Block, describe_entry, first_text, main_score, shade
from textevolve.report.html import draw_blocks, open_templates
from textevolve.server.errors import ApiError, bad_request, respond_error
from textevolve.server.guard import parse_form, root_of
from textevolve.server.identity import THIS_MACHINE

SECTIONS = (
    ("runs", "Runs"),
    ("agents", "Agents"),
    ("labelling", "Labelling"),
    ("jobs", "Jobs"),
)
"""The entries of the menu: the first part of the path, and the name."""

TITLES = {
    401: "Log in first",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible",
    429: "Too many requests",
    500: "The server failed",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a long list.

    Attributes:
        number: The number of the page, from 1.
        size: The most entries on a page.
        total: The number of entries on all pages.
    """

    request: Request
    number: int
    size: int
    total: int

    @property
    def start(self) -> int:
        return (self.number - 1) * self.size

    @property
    def text(self) -> str:
        last = min(self.total, self.start + self.size)
        if self.start >= self.total:
            return f"none of {self.total:,}" if self.total else "0"
        is_complete = self.start == 0 and last == self.total
        return f"{last:,}" if is_complete else f"{self.start + 1:,} to {last:,} of {self.total:,}"

    @property
    def before(self) -> str:
        return self._address(self.number - 1) if self.number > 1 else ""

    @property
    def after(self) -> str:
        return self._address(self.number + 1) if self.start + self.size < self.total else ""

    def _address(self, number: int) -> str:
        return "?" + self.request.url.include_query_params(page=number).query


def draw(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Return a page, or a part of a page, rendered from a template that escapes all texts."""
    text = _environment().get_template(template).render(**_shared(request), **values)
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, media_type="text/html; charset=utf-8")


def draw_stream(request: Request, template: str, **values: Any) -> Iterator[bytes]:
    """Return a page that is sent piece by piece, for pages that take long to render."""
    for text in _environment().get_template(template).generate(**_shared(request), **values):
        yield text.encode("utf-8", "backslashreplace")


def _shared(request: Request) -> dict[str, Any]:
    """Return the variables of every template."""
    return {
        "request": request,
        "path": request.url.path,
        "root": root_of(request.scope),
        "caller": request.scope.get("textevolve.caller", THIS_MACHINE),
        "sections": SECTIONS,
        "version": textevolve.__version__,
        "csrf": request.scope.get("textevolve.csrf", ""),
    }


def answer_error(request: Request, error: ApiError) -> Response:
    """Answer with an error: a page for a browser, and JSON below /v1 and for programs."""
    of_api = request.url.path.startswith(("/v1/", "/static/"))
    if of_api or "text/html" not in request.headers.get("accept", ""):
        return respond_error(request.url.path, error)
    title = TITLES.get(error.status, "This did not work")
    return draw(request, "error.html", error.status, title=title, message=error.message)


def draw_report(blocks: Iterable[Block]) -> Markup:
    """Return the blocks of a report as HTML in the style of the pages."""
    return Markup("").join(draw_blocks(blocks))


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form by their names, as `parse_form` does.

    Raises:
        ApiError: the body is not a form.
    """
    try:
        return parse_form(await request.body())
    except ValueError:
        raise bad_request("the form cannot be read") from None


@cache
def _environment() -> Environment:
    environment = open_templates("textevolve.server.pages")
    filters: dict[str, Any] = environment.filters
    filters |= {
        "counted": wording.count,
        "described": image_facts,
        "short_models": wording.shorten_models,
        "figured": wording.number,
        "first_words": first_text,
        "shortened": wording.shorten,
        "clipped": wording.clip,
        "percent": wording.percent,
        "money": wording.money,
        "duration": wording.duration,
        "spent": wording.spent,
        "indented": partial(json.dumps, indent=2, ensure_ascii=False, default=str),
        "moment": _moment,
        "report": draw_report,
        "said": describe_entry,
        "shade": shade,
        "main_score": main_score,
    }

    return environment


def _moment(at: float | None) -> Markup:
    """Format a Unix time as an HTML element, in the time zone of this machine."""
    if at is None:
        return Markup(wording.DASH)
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return Markup('<time datetime="{}">{}</time>').format(exact, wording.moment(at))
