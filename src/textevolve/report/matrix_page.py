"""A matrix on an HTML page: a plain table of its first rows, all rows as JSON for the page's
script, and the details of rows and entries that unfold.

The rows are read one by one. The parts that follow the table are written to temporary files, so
that memory does not grow with the number of rows. The script inserts texts by `textContent`, and
the security policy in the page's head allows only this script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from tempfile import SpooledTemporaryFile
from typing import Any

from markupsafe import Markup

from textevolve.mappings import drop_empty
from textevolve.report import matrices, wording
from textevolve.report.blocks import Block, Entry, Matrix, MatrixRow

PLAIN_ROWS = 200
"""The number of rows in the table that is shown without a script."""

LIVE_ROWS = 20_000
"""The largest number of rows that the script shows, since more would make a page unusable. Further
rows are only counted; exported files have them."""

TEXT_SHOWN = 20_000
# The number of characters of waiting parts that are held in memory, not in a file.
IN_MEMORY = 4_000_000
PIECE = 1 << 16

SCRIPT = ("matrix_elements.js", "matrix.js")

DrawBlocks = Callable[[Iterable[Block], int], Iterator[Markup]]
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
    draw: DrawBlocks,
    *,
    name: str,
    script: Markup | None,
) -> Iterator[Markup]:
    """Yield the HTML of a matrix below its heading. `name`: the beginning of the HTML ids of
    details; without a `script` the page has only the plain table."""
    live = script is not None
    number = 0
    with (
        SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8") as data,
        SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8") as details,
    ):
        data.write(f'{{"variants":{_json(list(map(_text, matrix.variants)))},"rows":[')
        for number, row in enumerate(matrix.rows, 1):
            anchors = _Anchors(f"{name}-{number}") if live else None
            if number <= PLAIN_ROWS:
                yield macro("plain_row", row, matrix.variants, anchors)
            if anchors is not None and number <= LIVE_ROWS:
                data.write(",\n" if number > 1 else "\n")
                data.write(_json(_row(row, anchors)))
                for n, cell_details in matrices.find_details(row, matrix):
                    section = replace(cell_details, facts={}, anchor=anchors.of(n))
                    details.writelines(draw([section], level + 1))
        data.write("]}")
        yield macro("end_plain", number, PLAIN_ROWS, LIVE_ROWS if live else PLAIN_ROWS)
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
                "reference": _text(row.reference),
                "facts": _texts(row.facts),
                "details": anchors(row),
            }
        ),
    }


def _entry(entry: Entry, anchor: str) -> dict[str, Any]:
    scores = {
        _text(name): None if score is None or score != score else round(score, 6)
        for name, score in entry.scores.items()
    }
    details = drop_empty(
        {
            "output": _text(entry.output),
            "scores": scores,
            "reasons": _texts(entry.reasons),
            "failure": _text(entry.failure),
            "facts": _texts(entry.facts),
            "details": anchor,
        }
    )
    return details if entry.passed is None else {**details, "passed": entry.passed}


def _texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {_text(name): _text(text) for name, text in texts.items()}


def _text(text: str) -> str:
    return wording.visible(wording.clip(text, TEXT_SHOWN))


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside of a script element nothing but `<` can end it; the others for good measure.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
