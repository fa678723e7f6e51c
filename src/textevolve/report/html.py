"""The HTML renderer: it writes a report as a page that opens from a file, or as a fragment for a
notebook.

All texts are escaped, and nothing is loaded from elsewhere. The only script is that of a matrix
(`matrix_page.py`), which a fragment lacks. A page is written block by block, so that a report takes
no more memory than its largest block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import count
from typing import IO, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from textevolve.report import cells, matrices, matrix_page, wording
from textevolve.report.blocks import (
    Block,
    Cell,
    Column,
    Diff,
    Matrix,
    Note,
    PlainBlock,
    Report,
    Section,
    Table,
    Texts,
    Transcript,
    Tree,
    walk,
)
from textevolve.report.differences import find_differences

TEXT_SHOWN = 20_000
CELL_SHOWN = 600
COLOURS = 6
DEEPEST_HEADING = 6
RESERVED = ("main", "rows", "standing", "trouble", "calls", "history", "results")
"""The HTML ids of other parts of pages, which no anchor may use."""


def write_html(report: Report, target: IO[bytes]) -> None:
    """Write a report as a complete HTML page in UTF-8."""
    script, script_hash = matrix_page.asset(*matrix_page.SCRIPT)
    pieces = draw_blocks(report.blocks, script=Markup("<script>{}</script>").format(script))
    style, style_hash = matrix_page.asset("style.css")
    policy = f"style-src {style_hash}; script-src {script_hash}"
    page = _template("page.html")
    for text in page.generate(report=report, pieces=pieces, style=style, policy=Markup(policy)):
        target.write(text.encode())


def html_fragment(report: Report) -> str:
    """Return the report as an HTML element with its own style, to be inserted into another page; a
    matrix becomes a plain table."""
    pieces = draw_blocks(report.blocks)
    style, _ = matrix_page.asset("style.css")
    return _template("fragment.html").render(report=report, pieces=pieces, style=style)


def draw_blocks(blocks: Iterable[Block], *, script: Markup | None = None) -> Iterator[Markup]:
    """Yield the HTML of blocks, for a page that already has the style of reports. `script`: the
    HTML element with the script for matrices; without it a matrix is a plain table."""
    return _draw_blocks(blocks, 2, script, (f"matrix-{n}" for n in count(1)), Anchors())


class Anchors:
    """A function that returns the HTML id of a figure on a page: the words of its title, with a
    number at the end if an earlier figure has the same title."""

    def __init__(self) -> None:
        self._taken = Counter[str](RESERVED)

    def __call__(self, *titles: str) -> str:
        words = re.findall("[a-z0-9]+", " ".join(titles).lower()[:80])
        name = "-".join(words) or "figure"
        self._taken[name] += 1
        return name if self._taken[name] == 1 else f"{name}--{self._taken[name]}"


def _draw_blocks(
    blocks: Iterable[Block],
    level: int,
    script: Markup | None,
    names: Iterator[str],
    anchors: Anchors,
) -> Iterator[Markup]:
    for block in blocks:
        if isinstance(block, Matrix):
            place = min(level + 1, DEEPEST_HEADING)

            def draw(below: Iterable[Block], deeper: int) -> Iterator[Markup]:
                return _draw_blocks(below, deeper, script, names, anchors)

            macro = partial(_macro, of="matrix.html")
            yield macro("start_matrix", block, place, anchors, script is not None)
            yield from matrix_page.draw_matrix(
                block, place, macro, draw, name=next(names), script=script
            )
        elif isinstance(block, Section):
            yield _macro("start_section", block, min(level, DEEPEST_HEADING))
            yield from _draw_blocks(block.blocks, level + 1, script, names, anchors)
            yield _macro("end_section")
        else:
            yield _draw(block, min(level + 1, DEEPEST_HEADING), anchors)


def _draw(block: PlainBlock, level: int, anchors: Anchors) -> Markup:
    match block:
        case Table():
            return _macro("show_table", block, level, anchors)
        case Tree():
            return _macro("show_tree", block, walk(block.roots), level, anchors)
        case Diff():
            pieces = find_differences(block.before, block.after)
            return _macro("show_diff", block, pieces, level, anchors)
        case Transcript():
            speakers = dict.fromkeys(utterance.speaker for utterance in block.utterances)
            colours = {name: n % COLOURS for n, name in enumerate(speakers)}
            return _macro("show_transcript", block, colours, level, anchors)
        case Texts():
            return _macro("show_texts", block, level, anchors)
        case Note():
            return _macro("show_note", block)


def _macro(name: str, *arguments: Any, of: str = "blocks.html") -> Markup:
    return getattr(_template(of).module, name)(*arguments)


def _template(name: str) -> Template:
    return _environment().get_template(name)


def open_templates(package: str) -> Environment:
    """Return the templates in a package's folder. They escape texts, and a missing value is an
    error."""
    return Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = open_templates("textevolve.report")
    filters: dict[str, Any] = environment.filters
    filters |= {
        "anchor": partial(quote, safe="", errors="backslashreplace"),
        "clip": partial(wording.clip, most=TEXT_SHOWN),
        "clip_cell": partial(wording.clip, most=CELL_SHOWN),
        "counted": wording.count,
        "figured": wording.number,
        "parts": _parts,
        "said": matrices.describe_entry,
        "score": cells.score_of,
        "shade": cells.shade,
        "shortened": wording.shorten,
    }
    tests: dict[str, Any] = environment.tests
    tests["figure"] = cells.is_number
    return environment


def _finalize(value: Any) -> Any:
    """Replace control characters in every text that a template prints."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return wording.visible(value) if is_text else value


def _parts(cell: Cell, column: Column) -> tuple[str, str]:
    return cells.cell_parts(cell, column.format, column.digits)
