"""The rubrics that come with the package. Each is a file in `rubrics/`, which users can copy and
change.

A rubric has one criterion per line. A comment between `<!--` and `-->` at its beginning describes
the rubric, its requirements and its origin; judges do not see it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from textevolve.errors import InputError
from textevolve.spec import suggest

_COMMENT = re.compile(r"\s*<!--(.*?)-->", re.DOTALL)
_ONE_WORD = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Rubric:
    """A shipped rubric. `about`: the lines of its comment. `text`: the criteria that a judge sees.
    `source`: the whole file."""

    name: str
    about: tuple[str, ...]
    text: str
    source: str


@cache
def shipped_rubrics() -> tuple[str, ...]:
    """Return the names of the shipped rubrics in alphabetical order."""
    folder = resources.files("textevolve.judges") / "rubrics"
    return tuple(sorted(file.name.removesuffix(".md") for file in folder.iterdir()))


@cache
def load_rubric(name: str) -> Rubric:
    """Read the shipped rubric of this name.

    Raises:
        InputError: there is no such rubric; lists the names.
    """
    if name not in shipped_rubrics():
        raise InputError(
            f"no shipped rubric '{name}' (write your own rubric as a sentence or"
            f" @FILE){suggest(name, shipped_rubrics())}"
        )
    file = resources.files("textevolve.judges") / "rubrics" / f"{name}.md"
    source = file.read_text(encoding="utf-8")
    comment = _COMMENT.match(source)
    about = comment[1].strip().splitlines() if comment else ()
    return Rubric(name, tuple(about), without_comment(source), source)


def is_rubric_name(text: str) -> bool:
    """Tell whether a text is a single word, as the names of shipped rubrics are."""
    return _ONE_WORD.fullmatch(text.strip()) is not None


def expand_rubric(rubric: str) -> str:
    """Return the criteria of the shipped rubric that a text names, otherwise the text itself;
    comments are left out.

    Raises:
        InputError: the text is empty, or a single word that names no shipped rubric.
    """
    text = rubric.strip()
    content = load_rubric(text).text if is_rubric_name(text) else without_comment(text)
    if not content:
        raise InputError("the rubric is empty")
    return content


def without_comment(text: str) -> str:
    comment = _COMMENT.match(text)
    return text[comment.end() if comment else 0 :].strip()
