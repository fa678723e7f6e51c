"""The HTML renderer: it writes a report as a page that opens from a file, or as a fragment for a
notebook.

All texts are escaped, and nothing is loaded from elsewhere. The only script is that of a matrix
(`matrix_page.py`), which a fragment lacks. A page is written block by block, so that a report takes
no more memory than its largest block.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib import resources
from itertools import count
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from textevolve.mappings import drop_empty
from textevolve.report import blocks, wording
from textevolve.report.blocks import (
    Block,
    Cell,
    Column,
    Diff,
    Entry,
    Matrix,
    MatrixRow,
    Note,
    Plot,
    Report,
    Section,
    Table,
    Texts,
    Transcript,
    Tree,
    find_differences,
    walk,
)

# A matrix on an HTML page: a plain table of its first rows, all rows as JSON for the page's
# script, and the details of rows and entries that unfold.
#
# The rows are read one by one. The parts that follow the table are written to temporary files, so
# that memory does not grow with the number of rows. The script inserts texts by `textContent`, and
# the security policy in the page's head allows only this script, by its hash.

PLAIN_ROWS = 200
"""The number of rows in the table that is shown without a script."""

LIVE_ROWS = 20_000
"""The largest number of rows that the script shows, since more would make a page unusable. Further
rows are only counted; exported files have them."""
LIVE_SIZE = 16_000_000
"""The number of characters of rows and details after which no further rows are shown, either: a
browser cannot open a page of hundreds of megabytes."""

TEXT_IN_ROWS = 20_000
# The number of characters of waiting parts that are held in memory, not in a file.
IN_MEMORY = 4_000_000
PIECE = 1 << 16

SCRIPT = ("matrix_elements.js", "matrix.js")

Macro = Callable[..., Markup]


@lru_cache(maxsize=4)
def asset(*names: str) -> tuple[Markup, str]:
    """Return the joined text of script or style files of the package, and its hash for the page's
    security policy."""
    folder = resources.files("textevolve.report").joinpath("templates")
    text = "\n".join(folder.joinpath(name).read_text(encoding="utf-8").strip() for name in names)
    digest = hashlib.sha256(text.encode()).digest()
    return Markup(text), f"'sha256-{base64.b64encode(digest).decode()}'"


def draw_matrix(
    matrix: Matrix,
    level: int,
    macro: Macro,
    draw: Callable[[Iterable[Block], int], Iterator[Markup]],
    *,
    name: str,
    script: Markup | None,
) -> Iterator[Markup]:
    """Yield the HTML of a matrix below its heading. `name`: the beginning of the HTML ids of
    details; without a `script` the page has only the plain table."""
    live = script is not None
    number = 0
    shown = 0
    size = 0

    with (
        SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8") as data,
        SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8") as details,
    ):
        head = {"expected": matrix.expected, "variants": list(map(_text, matrix.variants))}
        data.write(_json(head).removesuffix("}") + ',"rows":[')
        for number, row in enumerate(matrix.rows, 1):
            anchors = _Anchors(f"{name}-{number}") if live else None
            if number <= PLAIN_ROWS:
                yield macro("plain_row", row, matrix.expected, anchors)
            has_room = number <= PLAIN_ROWS or (size < LIVE_SIZE and number <= LIVE_ROWS)
            if anchors is None or not has_room:
                continue

            shown = number
            size += data.write((",\n" if number > 1 else "\n") + _json(_row(row, anchors)))
            for n, cell_details in blocks.find_details(row, matrix):
                section = replace(cell_details, facts={}, anchor=anchors.of(n))
                size += sum(map(details.write, draw([section], level + 1)))

        data.write("]}")
        yield macro("end_plain", number, PLAIN_ROWS, shown if live else PLAIN_ROWS)

        if live and number:
            yield Markup('<script type="application/json">')
            yield from _read(data)
            yield Markup("</script>\n{}\n").format(script)
            yield Markup('<div class="kept">\n')
            yield from _read(details)
            yield Markup("</div>\n")

    yield Markup("</section>\n")


def _read(file: SpooledTemporaryFile[str]) -> Iterator[Markup]:
    file.seek(0)
    while piece := file.read(PIECE):
        yield Markup(piece)


class _Anchors:
    """A function that returns the HTML id of the details of a row, or of one of its entries; the id
    is empty if there are no details."""

    def __init__(self, row: str) -> None:
        self._row = row

    def __call__(self, holder: MatrixRow | Entry, variant: int | None = None) -> str:
        return self.of(variant) if holder.details else ""

    def of(self, variant: int | None) -> str:
        return self._row if variant is None else f"{self._row}-{variant + 1}"


def _row(row: MatrixRow, anchors: _Anchors) -> dict[str, Any]:
    return {
        "id": _text(row.id),
        "input": _text(row.input),
        "entries": [
            None if entry is None else _entry(entry, anchors(entry, n))
            for n, entry in enumerate(row.entries)
        ],
        **drop_empty(
            {
                "title": _text(row.title),
                "columns": _texts(row.columns),
                "reference": _text(row.reference),
                "facts": _texts(row.facts),
                "details": anchors(row),
            }
        ),
    }


def _entry(entry: Entry, anchor: str) -> dict[str, Any]:
    scores: dict[str, float | None] = {}
    for name, score in entry.scores.items():
        # JSON has no NaN.
        scores[_text(name)] = None if score is None or score != score else round(score, 6)

    details: dict[str, Any] = drop_empty(
        {
            "output": _text(entry.output),
            "scores": scores,
            "reasons": _texts(entry.reasons),
            "failure": _text(entry.failure),
            "facts": _texts(entry.facts),
            "details": anchor,
            "against": _text(entry.against),
        }
    )
    if entry.passed is not None:
        details["passed"] = entry.passed

    return details


def _texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {_text(name): _text(text) for name, text in texts.items()}


def _text(text: str) -> str:
    return wording.visible(wording.clip(text, TEXT_IN_ROWS))


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside of a script element nothing but `<` can end it; the others for good measure.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


TEXT_SHOWN = 20_000
CELL_SHOWN = 600
COLOURS = 6
DEEPEST_HEADING = 6
RESERVED = ("main", "rows", "standing", "trouble", "calls", "history", "results", "figures")
"""The HTML ids of other parts of pages, which no anchor may use."""


def write_html(report: Report, target: IO[bytes]) -> None:
    """Write a report as a complete HTML page in UTF-8."""
    script, script_hash = asset(*SCRIPT)
    pieces = draw_blocks(report.blocks, script=Markup("<script>{}</script>").format(script))
    style, style_hash = asset("style.css")
    policy = f"style-src {style_hash}; script-src {script_hash}"
    page = _template("page.html")
    for text in page.generate(report=report, pieces=pieces, style=style, policy=Markup(policy)):
        target.write(text.encode())


def html_fragment(report: Report) -> str:
    """Return the report as an HTML element with its own style, to be inserted into another page; a
    matrix becomes a plain table."""
    pieces = draw_blocks(report.blocks)
    style, _ = asset("style.css")
    return _template("fragment.html").render(report=report, pieces=pieces, style=style)


def draw_blocks(blocks: Iterable[Block], *, script: Markup | None = None) -> Iterator[Markup]:
    """Yield the HTML of blocks, for a page that already has the style of reports. `script`: the
    HTML element with the script for matrices; without it a matrix is a plain table."""
    return _draw_blocks(blocks, 2, script, (f"matrix-{n}" for n in count(1)), Anchors())


class Anchors:
    """A function that returns the HTML id of a figure on a page: the words of its title, with a
    number at the end if an earlier figure has the same title. `speakers`: the number of the colour
    of each speaker, who keeps it on the whole page."""

    def __init__(self) -> None:
        self.speakers: dict[str, int] = {}
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
    inside = (level + 1, script, names, anchors)
    for block in blocks:
        if isinstance(block, Matrix):
            place = min(level, DEEPEST_HEADING)

            def draw(below: Iterable[Block], deeper: int) -> Iterator[Markup]:
                return _draw_blocks(below, deeper, script, names, anchors)

            macro = partial(_macro, of="matrix.html")
            yield macro("start_matrix", block, place, anchors, script is not None)
            yield from draw_matrix(block, place, macro, draw, name=next(names), script=script)
        elif isinstance(block, Tree):
            branches = [
                (depth, branch, Markup("").join(_draw_blocks(branch.details, *inside)))
                for depth, branch in walk(block.roots)
            ]
            yield _macro("show_tree", block, branches, min(level, DEEPEST_HEADING), anchors)
        elif isinstance(block, Section):
            yield _macro("start_section", block, min(level, DEEPEST_HEADING))
            yield from _draw_blocks(block.blocks, *inside)
            yield _macro("end_section")
        else:
            yield _draw(block, min(level, DEEPEST_HEADING), anchors)


def _draw(
    block: Table | Diff | Transcript | Texts | Note | Plot, level: int, anchors: Anchors
) -> Markup:
    match block:
        case Table():
            return _macro("show_table", block, level, anchors)
        case Plot():
            return _macro("show_plot", block, level, anchors)
        case Diff():
            pieces = find_differences(block.before, block.after)
            return _macro("show_diff", block, pieces, level, anchors)
        case Transcript():
            speakers = anchors.speakers
            for utterance in block.utterances:
                speakers.setdefault(utterance.speaker, len(speakers) % COLOURS)
            return _macro("show_transcript", block, speakers, level, anchors)
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


@cache
def _environment() -> Environment:
    environment = open_templates("textevolve.report")
    filters: dict[str, Any] = environment.filters
    filters |= {
        "bar": blocks.draw_bar,
        "scale": blocks.interval_scale,
        "anchor": partial(quote, safe="", errors="backslashreplace"),
        "text_of": blocks.cell_text,
        "clip": partial(wording.clip, most=TEXT_SHOWN),
        "clip_cell": partial(wording.clip, most=CELL_SHOWN),
        "counted": wording.count,
        "figured": wording.number,
        "parts": _parts,
        "said": blocks.describe_entry,
        "score": blocks.score_of,
        "shade": blocks.shade,
        "shortened": wording.shorten,
    }
    tests: dict[str, Any] = environment.tests
    tests["figure"] = blocks.is_number

    return environment


def _finalize(value: Any) -> Any:
    """Replace control characters in every text that a template prints."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return wording.visible(value) if is_text else value


def _parts(cell: Cell, column: Column) -> tuple[str, str]:
    return blocks.cell_parts(cell, column.format, column.digits)
