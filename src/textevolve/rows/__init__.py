"""Rows of data from outside, each with its position: from files of JSON lines, JSON, CSV or
Parquet, folders and glob patterns of files, data sets of the Hugging Face hub, or standard input.

Callers decide what a row means, such as a case or a labelled item. Files are read row by row,
except JSON.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from textevolve.errors import InputError
from textevolve.reach import is_file, is_folder, is_there, matching_files
from textevolve.rows.images import PREFIX, fetch_files
from textevolve.rows.sessions import join_sessions
from textevolve.rows.tables import (
    STANDARD_INPUT,
    Header,
    Placed,
    Row,
    has_outputs,
    mend_halves,
    name_of,
    open_text,
    parse_json,
    read_cells,
    read_csv,
    read_log,
    read_parquet,
    read_results,
    read_tool_result,
    take_object,
)

__all__ = ["STANDARD_INPUT", "Placed", "Row", "mend_halves"]

# The endings of files of rows.
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".eval", ".traj")


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

        header([renaming.new_name(column) for column in columns])

    def is_text_here(column: str) -> bool:
        return is_text(renaming.new_name(column))

    for file, name in files:
        opened(file)
        for where, row in join_sessions(_read_file(file, name, noun, is_text_here, tell), name):
            yield where, renaming(row)

    renaming.refuse_unused()


def names_rows(text: str) -> bool:
    """Tell whether a text looks like the name of a file of rows, a folder, or a data set of the
    hub."""
    if text.startswith(PREFIX):
        return not any(map(str.isspace, text))
    return Path(text).suffix.lower() in SUFFIXES or is_folder(text)


def find_files(path: str, noun: str) -> list[tuple[str, str]]:
    """Return the files of a path, each with its name in messages. A path that is no data set,
    folder or pattern is returned as the only file, without a check that it exists.

    Raises:
        InputError: a folder or a pattern has no files of rows, or a data set cannot be read.
    """
    if path.startswith(PREFIX):
        return fetch_files(path)
    if is_folder(path):
        matches = matching_files(os.path.join(glob.escape(path), "*"))
    elif glob.has_magic(path) and not is_there(path):
        matches = matching_files(path)
    else:
        return [(path, name_of(path))]

    files = sorted(name for name in matches if Path(name).suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"{path}: the folder has no files of {noun}s ({', '.join(SUFFIXES)})")

    return [(file, file) for file in files]


def _read_file(
    path: str, name: str, noun: str, is_text: Callable[[str], bool], header: Header
) -> Iterator[Placed]:
    suffix = ".jsonl" if path == STANDARD_INPUT else Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{name}: {noun}s are read from {', '.join(SUFFIXES)} files")
    if suffix == ".parquet":
        yield from read_parquet(path, name, header)
    elif suffix == ".eval":
        yield from read_log(path, name)
    else:
        with open_text(path) as file:
            if suffix in (".csv", ".tsv"):
                for where, row in read_csv(file, name, is_text, header):
                    yield from ((where, each) for each in read_cells(row))
            elif suffix in (".json", ".traj"):
                yield from _json(file, name, noun)
            else:
                for where, line in place_lines(file, name):
                    yield where, read_tool_result(parse_row(line, where, noun))


class Renaming:
    """A function that renames the columns of rows. `renamed`: the old name for each new name. If a
    row already has a column of the new name, that column gets the suffix ` (as it was)`."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._new = {old: new for new, old in renamed.items()}
        self._unused = dict(self._new)
        self._seen: dict[str, None] = {}
        if len(self._new) < len(renamed):
            double = next(old for old in renamed.values() if list(renamed.values()).count(old) > 1)
            raise InputError(f"--map: the column '{double}' is given two new names; choose one")

    def new_name(self, column: str) -> str:
        if column in self._new:
            return self._new[column]
        return f"{column} (as it was)" if column in self._new.values() else column

    def note_columns(self, columns: Iterable[str]) -> None:
        self._seen |= dict.fromkeys(map(str, columns))
        for name in columns:
            self._unused.pop(name, None)

    def __call__(self, row: Row) -> Row:
        if not self._new:
            return row
        if self._unused:
            self.note_columns(row)
        return {self.new_name(name): value for name, value in row.items()}

    def refuse_unused(self) -> None:
        """Raise an InputError if no row had a column that was to be renamed."""
        for old, new in self._unused.items():
            raise InputError(
                f"--map {new}={old}: no row has a column '{old}'; saw"
                f" {', '.join(self._seen) or 'no columns'}"
            )


def place_rows(rows: Iterable[Row]) -> Iterator[Placed]:
    """Yield the rows of a Python program, each with its position. NaN, by which data frames mark
    missing values, becomes None.

    Raises:
        InputError: a row is no mapping.
    """
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"row {number}: must be a mapping of columns to values, not"
                f" {type(row).__name__}; give a data frame as frame.to_dict('records')"
            )

        yield (
            f"row {number}",
            {n: None if isinstance(v, float) and v != v else v for n, v in row.items()},
        )


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
    """Return the whole text of a file; `-` is standard input.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    with open_text(path) as file:
        return file.read()


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


def _json(file: IO[str], name: str, noun: str) -> Iterator[Placed]:
    data = parse_json(mend_halves(file.read()), name, noun)
    if isinstance(data, dict) and (results := read_results(cast("Row", data))) is not None:
        data = results
    if not isinstance(data, list):
        raise InputError(f"{name}: must be a list of {noun}s")
    for number, row in enumerate(cast(list[Any], data), 1):
        where = f"{name}: {noun} {number}"
        yield where, take_object(row, where, noun)
