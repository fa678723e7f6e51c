"""What the HTML pages share: templates in which everything is escaped, and nothing is loaded.

What stands on a page is the business of `report.py` and its neighbours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from textevolve.export import wording

TEXT_SHOWN = 20_000


def open_template(name: str) -> Template:
    """A template of the folder `templates`; texts in it are escaped, and control characters
    written out."""
    return _environment().get_template(name)


def clip(text: str) -> str:
    """A very long text cut for reading, with how much is left out."""
    if len(text) <= TEXT_SHOWN:
        return text
    return f"{text[:TEXT_SHOWN]}… ({len(text) - TEXT_SHOWN:,} more characters)"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("textevolve.export", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    filters |= {
        "letter": wording.letter,
        "figure": wording.figure,
        "percent": wording.percent,
        "money": wording.money,
        "duration": wording.duration,
        "counted": wording.count,
        "spent": wording.spent,
        "shortened": wording.shorten,
        "clip": clip,
    }
    return environment


def _finalize(value: Any) -> Any:
    return wording.visible(value) if type(value) is str else value
