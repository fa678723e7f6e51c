"""Rows of a file, each with its place: JSON lines, JSON, CSV, Parquet; or standard input.

What a row means (a case, a labelled item) is the business of whoever asks. Files are read lazily,
except JSON.
"""

from __future__ import annotations

import csv
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from textevolve.errors import InputError, SettingsError

Row: TypeAlias = Mapping[str, Any]
Placed: TypeAlias = tuple[str, Row]
"""Where a row stands ("cases.jsonl:3"), for messages, and the row."""

STANDARD_INPUT = "-"
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")


# An escape of JSON from its backslash on. Of surrogates only one without its other half is a group.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def mend_halves(text: str) -> tuple[str, bool]:
    """JSON in which half a surrogate pair, which JSON may escape and no text can have, is U+FFFD;
    and whether there was one. This is the rule wherever JSON from outside is read."""
    if not _SURROGATE.search(text):
        return text, False
    mended = _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
    return mended, mended != text


def tell_mended(where: str) -> None:
    """Warn that what stands there had half a surrogate pair."""
    logging.getLogger("textevolve").warning(
        "%s: half a surrogate pair is no text; each is read as U+FFFD", where
    )


class _Mender:
    """Mends the texts of one file, and says so once, where the first is."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, text: str, where: str) -> str:
        mended, was_half = mend_halves(text)
        if was_half and not self._told:
            self._told = True
            tell_mended(where)
        return mended


def read_rows(path: str, noun: str, is_text: Callable[[str], bool]) -> Iterator[Placed]:
    """The rows of a file in order; `-` is JSON lines from standard input.

    `noun` is what messages call a row. CSV has no types: a cell is read as JSON where it can be,
    and as it stands in the columns of which `is_text` says so; empty cells are left out.

    Raises:
        InputError: the file cannot be read, or a line is not a row; names file and line.
    """
    if path == STANDARD_INPUT:
        with _opened(path) as file:
            yield from _jsonl(file, _name(path), noun)
        return
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: {noun}s are read from {', '.join(SUFFIXES)} files")
    if suffix == ".parquet":
        yield from _parquet(path)
        return
    with _opened(path) as file:
        if suffix == ".csv":
            yield from _csv(file, path, is_text)
        elif suffix == ".json":
            yield from _json(file, path, noun)
        else:
            yield from _jsonl(file, path, noun)


def read_lines(path: str) -> Iterator[tuple[str, str]]:
    """The lines of a file of JSON that are not blank, each with its place; `-` is standard input.
    Bytes that are not UTF-8 come as lone surrogates, so that they spoil no more than their own
    line.

    Raises:
        InputError: the file cannot be read.
    """
    mend = _Mender()
    with _opened(path, "surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{_name(path)}:{number}"
                yield where, mend(line, where)


def parse_row(text: str, where: str, noun: str) -> Row:
    """The JSON object that a text is; `noun` is what messages call it.

    Raises:
        InputError: it is none; says where and why.
    """
    return _mapping(_parse(text, where, noun), where, noun)


def read_text(path: str) -> str:
    """The whole text of a file; `-` is standard input.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    with _opened(path) as file:
        return file.read()


def read_argument(text: str) -> str:
    """A text as it was given: itself, `@FILE`'s, or with `-` standard input's; `@@` is one @.

    Raises:
        InputError: the file cannot be read; or the text is a file's path, without the @.
    """
    if text == "-":
        return read_text(text)
    if not text.startswith("@"):
        if (os.path.splitext(text)[1] or os.sep in text) and os.path.isfile(text):
            raise InputError(f"'{text}' is a file: write '@{text}' for the text that is in it")
        return text
    return text[1:] if text.startswith("@@") else read_text(text[1:])


def _name(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def _opened(path: str, errors: str = "strict") -> Generator[IO[str]]:
    try:
        if path == STANDARD_INPUT:
            yield _standard_input(errors)
        else:
            with open(path, encoding="utf-8-sig", errors=errors, newline="") as file:
                yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"{_name(path)}: not UTF-8 text (byte {error.start}); convert it first"
        ) from None
    except OSError as error:
        raise InputError(f"{_name(path)}: cannot be read ({error.strerror})") from None


def _standard_input(errors: str) -> IO[str]:
    """As UTF-8, like the files, whatever the terminal's encoding is."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  closed from the start
        raise InputError("standard input: is closed")
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors=errors)
    return sys.stdin


def _jsonl(file: Iterable[str], name: str, noun: str) -> Iterator[Placed]:
    mend = _Mender()
    for number, line in enumerate(file, 1):
        if line.strip():
            where = f"{name}:{number}"
            yield where, parse_row(mend(line, where), where, noun)


def _json(file: IO[str], name: str, noun: str) -> Iterator[Placed]:
    data = _parse(_Mender()(file.read(), name), name, noun)
    if not isinstance(data, list):
        raise InputError(f"{name}: must be a list of {noun}s")
    for number, row in enumerate(cast(list[Any], data), 1):
        where = f"{name}: {noun} {number}"
        yield where, _mapping(row, where, noun)


def _parse(text: str, where: str, noun: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not valid JSON: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: not a {noun}: nested too deeply") from None


def _mapping(row: Any, where: str, noun: str) -> Row:
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object with the fields of a {noun}")
    return cast(dict[str, Any], row)


def _csv(file: IO[str], name: str, is_text: Callable[[str], bool]) -> Iterator[Placed]:
    csv.field_size_limit(sys.maxsize)
    lines: list[str] = []  # of the row that is being read; "" where it asks for more than there is

    def watch() -> Iterator[str]:
        for line in file:
            lines.append(line)
            yield line
        lines.append("")

    reader, mend = csv.DictReader(watch()), _Mender()
    try:
        columns = list(reader.fieldnames or ())
        _refuse_open_quote(lines, name, reader.line_num)
        if double := [one for one in columns if one.strip() and columns.count(one) > 1]:
            raise InputError(f"{name}:1: two columns have the name '{double[0]}'; rename one")
        for row in reader:
            _refuse_open_quote(lines, name, reader.line_num)
            where = f"{name}:{reader.line_num}"
            if None in row:
                raise InputError(f"{where}: more cells than the header has columns")
            filled = {k: v for k, v in row.items() if v not in (None, "")}
            yield where, {k: v if is_text(k) else _cell(v, where, mend) for k, v in filled.items()}
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}: not valid CSV: {error}") from None


def _refuse_open_quote(lines: list[str], name: str, last: int) -> None:
    """Forget the lines of a row that is complete; `last` is the number of its last one.

    Raises:
        InputError: the file ended within quotes; names the line in which they opened.
    """
    text = "".join(lines)
    if lines and not lines[-1] and text:
        opened = [m.start() for m in _QUOTED.finditer(text) if not m[1]]
        line = last - text.rstrip("\n").count("\n") + text.count("\n", 0, max(opened, default=0))
        raise InputError(
            f"{name}:{line}: a quote opens in this line and is never closed; close it, or double it"
            " where it is part of a text"
        )
    lines.clear()


_QUOTED = re.compile(r"""(?:^|(?<=[,\r\n]))"(?:[^"]|"")*("|\Z)""")


def _cell(value: str, where: str, mend: _Mender) -> Any:
    """What stands in a cell as JSON; the cell as it stands where that is none."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    mended = mend(value, where)
    return found if mended == value else json.loads(mended)


def _parquet(path: str) -> Iterator[Placed]:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise SettingsError(
            f'{path}: reading Parquet needs pyarrow: pip install "textevolve[parquet]"'
        ) from None
    counter = itertools.count(1)
    try:
        table: Any = parquet.ParquetFile(path)  # pyright: ignore[reportUnknownVariableType]
        for batch in table.iter_batches(batch_size=200):
            for row in batch.to_pylist():
                yield f"{path}: row {next(counter)}", row
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # pyarrow's own errors of content are of this kind
        raise InputError(f"{path}: not a Parquet file ({error})") from None
