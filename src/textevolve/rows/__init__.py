"""Rows of data from outside, each with its position: from files in the formats of `formats.py`,
folders and glob patterns of files, data sets of the Hugging Face hub, or standard input.

Callers decide what a row means, such as a case or a labelled item. Files are read row by row,
except JSON.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from textevolve.errors import InputError, plural
from textevolve.json_texts import as_array, as_object, find_path, parse_printed
from textevolve.ledger import log
from textevolve.mappings import map_values, omit
from textevolve.reach import is_file, is_folder, is_there, matching_files
from textevolve.rows.exports import (
    KNOWN_EXPORTS,
    KnownExport,
    gather_checks,
    join_sessions,
)
from textevolve.rows.formats import SUFFIXES, RowFile, read_file
from textevolve.rows.images import PREFIX, fetch_files
from textevolve.rows.spreadsheets import Header
from textevolve.rows.tables import (
    STANDARD_INPUT,
    Placed,
    Row,
    has_outputs,
    mend_halves,
    name_of,
    open_text,
    parse_json,
    take_object,
)

DATA_ENDINGS = (".yaml", ".yml", ".json")
"""The endings of files with fields. A prompt in one is a chat, or a template with its name; in any
other file it is the whole text."""

__all__ = ["STANDARD_INPUT", "SUFFIXES", "Placed", "Row", "mend_halves"]


def read_rows(
    path: str,
    noun: str,
    is_text: Callable[[str], bool],
    renamed: Mapping[str, str] | None = None,
    header: Header = lambda _columns: None,
    opened: Callable[[str], None] = lambda _path: None,
) -> Iterator[Placed]:
    """Yield the rows of a path, each with its position. A path is a file, a folder or a glob
    pattern (whose files of rows are read in the order of their names), a data set of the Hugging
    Face hub (`hf:NAME`), or `-` for JSON lines from standard input.

    `noun`: the word for a row in messages. `is_text`: tells which columns of a CSV file are plain
    text; other cells are read as JSON if they are valid JSON, and empty cells are left out.
    `renamed`: the old name of a column for each new name. `header`: is called with a table's column
    names before its rows, including empty columns. `opened`: is called with the path of each file
    before its rows. `is_text` and `header` get the new names.

    Raises:
        InputError: the file cannot be read, or a line is not a row; names file and line. Or no row
            has a column that is to be renamed.
    """
    renaming = Renaming(renamed or {})
    files = find_files(path, noun)

    def tell(columns: Sequence[str]) -> None:
        if not has_outputs(columns):  # the rows of promptfoo's table have other columns
            renaming.note_columns(columns)
            if len(files) == 1:
                renaming.refuse_unused()

        header(list(map(renaming.new_name, columns)))

    def is_text_here(column: str) -> bool:
        return column not in renaming.roots and is_text(renaming.new_name(column))

    for file, name in files:
        opened(file)
        renaming.open(name)
        about = RowFile(name, "", noun, is_text_here, tell)
        for where, row in join_sessions(read_file(file, about), name):
            yield where, renaming(row)

    renaming.refuse_unused()


def names_rows(text: str) -> bool:
    """Tell whether a text looks like the name of a file of rows, a folder, or a data set of the
    hub."""
    if text.startswith(PREFIX):
        return not any(map(str.isspace, text))
    return is_row_file(text) or is_folder(text)


def is_row_file(name: str) -> bool:
    """Tell by its ending whether a name is that of a file of rows."""
    return Path(name).suffix.lower() in SUFFIXES


def find_files(path: str, noun: str) -> list[tuple[str, str]]:
    """Return the files of a path, each with its name in messages. A path that is no data set,
    folder or pattern is returned as the only file, without a check that it exists.

    Raises:
        InputError: a folder or a pattern has no files of rows, or a data set cannot be read.
    """
    if path.startswith(PREFIX):
        return fetch_files(path)
    is_pattern = glob.has_magic(path) and not is_there(path)
    if is_folder(path):
        matches = matching_files(os.path.join(glob.escape(path), "*"))
    elif is_pattern:
        matches = matching_files(path)
    else:
        return [(path, name_of(path))]

    files = sorted(filter(is_row_file, matches))
    if not files:
        reason = "the folder has no files of"
        if is_pattern:
            slash = "" if "\\" not in path else " (folders are separated by / here)"
            reason = f"no file matches this pattern{slash}; it should name files of"
        raise InputError(f"{path}: {reason} {plural(noun)} ({', '.join(SUFFIXES)})")

    return [(file, file) for file in files]


_PLAIN = frozenset((str, int, bool, list, dict, type(None)))
_MISSING = ("NAType", "NaTType")  # the types of missing values of pandas
_EXACT = 2**53
"""The largest number up to which floats have all whole numbers."""


def clean_row(row: Row) -> Row:
    """Return the row with plain values for those of data frames: None for missing ones, lists for
    arrays, and whole numbers where a column with missing values has made them floats."""
    if _PLAIN.issuperset(map(type, row.values())):
        return row
    return map_values(_clean_value, row)


def _clean_value(value: Any) -> Any:
    if type(value).__name__ in _MISSING:
        return None
    if hasattr(value, "tolist"):  # an array or a number of numpy
        value = value.tolist()
    if not isinstance(value, float):
        return value
    if value != value:
        return None
    is_whole = value.is_integer() and abs(value) < _EXACT and str(value) != "-0.0"

    return int(value) if is_whole else value


class Renaming:
    """A function that gives the columns of rows their usual names: by the table of known exports,
    and as the user says. `renamed`: the old name for each new name, or the path of a nested value,
    such as `data.0.text`. If a row already has a column of the new name, that column gets the
    suffix ` (as it was)`. Values are cleaned (`clean_row`).

    Attributes:
        roots: The columns that paths lead into.
    """

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._new = {old: new for new, old in renamed.items()}
        self._unused = dict(self._new)
        self._seen: dict[str, None] = {}
        self._has_rows = False
        self._nearest: dict[str, str] = {}
        self._export: KnownExport | None = None
        self.roots = {old.partition(".")[0] for old in self._new if "." in old}
        self.open("rows")
        if len(self._new) < len(renamed):
            double = next(old for old in renamed.values() if list(renamed.values()).count(old) > 1)
            raise InputError(f"--map: the column '{double}' is given two new names; choose one")

    def open(self, name: str) -> None:
        """Begin with the rows of a file, whose first row tells what wrote it."""
        self._name = name
        self._is_first = True

    def new_name(self, column: str) -> str:
        if column in self._new:
            return self._new[column]
        return f"{column} (as it was)" if column in self._new.values() else column

    def note_columns(self, columns: Iterable[str]) -> None:
        """Record the columns of a table or row. A path into one of them is settled by its rows."""
        self._seen |= dict.fromkeys(map(str, columns))
        for name in columns:
            self._unused.pop(name, None)

    def __call__(self, row: Row) -> Row:
        row = gather_checks(row)
        is_first = self._is_first
        if is_first:
            self._is_first = False
            exports = (export for export in KNOWN_EXPORTS if row.keys() >= export.fields)
            self._export = next(exports, None)
        usual_row = row
        if self._export is not None:
            usual_row = self._export.read(row, self._new.values())
            columns = [name for name in usual_row if name not in row]
            if is_first and columns:
                log.info(
                    "%s: an export of %s, read as %s",
                    self._name,
                    self._export.program,
                    ", ".join(columns),
                )
        if not self._new:
            return clean_row(usual_row)

        self._has_rows = True
        if self._unused:
            self.note_columns(row)
        nested = self._find_nested(row)
        roots = {path.partition(".")[0] for path in nested}
        renamed_row = omit(usual_row, roots)
        # A field of an export may be renamed although the table of exports has used it.
        renamed_row |= {
            name: row[name] for name in self._new if name in row and name not in renamed_row
        }
        renamed = {self.new_name(name): value for name, value in renamed_row.items()}

        return clean_row({**renamed, **{self._new[path]: nested[path] for path in nested}})

    def _find_nested(self, row: Row) -> dict[str, Any]:
        """Return the values at the paths that lead into columns of the row."""
        nested: dict[str, Any] = {}
        for path in self._new:
            root = path.partition(".")[0]
            if path in row or "." not in path or root not in row:
                continue
            value = find_path(row, path)
            if value is not None:
                nested[path] = value
                self._unused.pop(path, None)
            elif path in self._unused:
                self._nearest[path] = _describe_nearest(row, path)

        return nested

    def refuse_unused(self) -> None:
        """Raise an InputError if no row had a column that was to be renamed."""
        for old, new in self._unused.items():
            if old.partition(".")[0] in self._seen and not self._has_rows:
                continue  # of a path only the rows can tell
            seen = self._nearest.get(old) or f"saw {', '.join(self._seen) or 'no columns'}"
            raise InputError(f"--map {new}={old}: no row has a column '{old}'; {seen}")


def _describe_nearest(row: Row, path: str) -> str:
    """Describe the fields at the longest part of a path that a row has a value at."""
    steps = path.split(".")
    for length in range(len(steps) - 1, 0, -1):
        part = ".".join(steps[:length])
        if (value := find_path(row, part)) is not None:
            value = parse_printed(value)
            if entries := as_array(value):
                return f"'{part}' is a list of {len(entries)}"
            fields = ", ".join(map(str, as_object(value)))
            return f"'{part}' has {fields}" if fields else f"'{part}' has no fields"
    return ""


def place_rows(rows: Iterable[Row]) -> Iterator[Placed]:
    """Yield the rows of a Python program, each with its position, cleaned as those of files.

    Raises:
        InputError: a row is no mapping.
    """
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"row {number}: must be a mapping of columns to values, not"
                f" {type(row).__name__}; give a data frame as frame.to_dict('records')"
            )

        yield f"row {number}", clean_row(row)


def read_lines(path: str) -> Iterator[tuple[str, str]]:
    """Yield the non-blank lines of a JSON lines file, each with its position; `-` is standard
    input. Bytes that are not UTF-8 become lone surrogates, so that only their own line is invalid.

    Raises:
        InputError: the file cannot be read.
    """
    with open_text(path, "surrogateescape") as file:
        yield from place_lines(file, name_of(path))


def place_lines(lines: Iterable[str], name: str) -> Iterator[tuple[str, str]]:
    """Yield the non-blank lines, each with its position, `NAME:NUMBER`."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{name}:{number}", mend_halves(line)


def parse_row(text: str, where: str, noun: str) -> Row:
    """Parse a text as a JSON object. `noun`: the word for a row in messages.

    Raises:
        InputError: it is no JSON object; names the position and the reason.
    """
    return take_object(parse_json(text, where, noun), where, noun)


def read_text(path: str) -> str:
    """Return the whole text of a file, with the ends of lines that all systems share; `-` is
    standard input.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    with open_text(path) as file:
        return file.read().replace("\r\n", "\n")


def read_argument(text: str) -> str:
    """Return the text of a command-line argument: `@FILE` reads a file, `-` reads standard input,
    `@@` at the start stands for `@`; any other text is returned unchanged.

    Raises:
        InputError: the file cannot be read; or the text is the path of a file, without the @.
    """
    if text == "-":
        return read_text(text)
    if not text.startswith("@"):
        if (os.path.splitext(text)[1] or os.sep in text) and is_file(text):
            raise InputError(f"'{text}' is a file: write '@{text}' for the text that is in it")
        return text

    return text[1:] if text.startswith("@@") else read_text(text[1:])
