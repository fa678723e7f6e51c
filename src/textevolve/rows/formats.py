"""The formats of files of rows, in one table: how each is recognised, read and written. What a file
contains decides how it is read; its name only decides where the content fits several formats.

A file may be compressed (`.gz`), or the only file of an archive (`.zip`). Its rows come with their
positions, before their columns are renamed.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from textevolve.errors import InputError, plural
from textevolve.json_texts import as_array, as_object, is_array
from textevolve.reach import allowed_path
from textevolve.rows.chats import read_chat
from textevolve.rows.columns import list_names, names_column
from textevolve.rows.spreadsheets import (
    DELIMITERS,
    HEAD,
    Header,
    read_csv,
    read_parquet,
    read_workbook,
)
from textevolve.rows.tables import (
    STANDARD_INPUT,
    Placed,
    Row,
    import_pyarrow,
    mend_halves,
    name_faults,
    open_decoded,
    open_text,
    parse_json,
    read_cells,
    read_log,
    read_results,
    read_tool_result,
    take_object,
)
from textevolve.rows.writing import RowSource, RowWriter, write_csv, write_lines, write_parquet


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows that is being read.

    Attributes:
        name: Its name in messages.
        suffix: The ending of its name, without that of a compression; it may mean nothing.
        noun: The word for a row in messages.
        is_text: Tells which columns of a table are plain text.
        header: Is called with the names of a table's columns.
    """

    name: str
    suffix: str
    noun: str
    is_text: Callable[[str], bool]
    header: Header


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A format of files of rows.

    Attributes:
        suffixes: The endings of its files.
        read: Yields the rows of a file: of its bytes, or of its text if it `is_text`.
        write: Writes rows as such a file; None for the formats of other programs.
        is_text: Whether its files are texts.
        signature: How the bytes of its files begin, or a file in its archives.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Any, RowFile], Iterator[Placed]]
    write: RowWriter | None = None
    is_text: bool = False
    signature: bytes = b""


def _read_table(file: IO[str], about: RowFile) -> Iterator[Placed]:
    for where, row in read_csv(file, about.name, about.is_text, about.header):
        for result in read_cells(row):
            yield where, result


def _read_json(file: IO[str], about: RowFile) -> Iterator[Placed]:
    """Yield the rows of JSON: an object a line, or one document, which is read as a whole."""
    head: list[str] = []
    filled: list[tuple[int, str]] = []
    while len(filled) < 2 and (line := next(iter(file), "")):
        head.append(line)
        if line.strip():
            filled.append((len(head), line))

    if not filled:
        return
    is_object = _parses_as_object(filled[0][1])
    if is_object and len(filled) > 1:
        yield from _read_lines(itertools.chain(head, file), about)
        return

    is_line = len(filled) == 1 and about.suffix in LINES.suffixes
    try:
        yield from _read_document("".join([*head, *file]), about, is_line=is_line)
    except InputError:
        # A file of lines whose first one is broken: that line is named, not the end of the file.
        if about.suffix in LINES.suffixes and not is_object:
            number, line = filled[0]
            _parse_line(line, f"{about.name}:{number}", about.noun)
        raise


def _parses_as_object(line: str) -> bool:
    try:
        return isinstance(json.loads(mend_halves(line)), dict)
    except (ValueError, RecursionError):
        return False


def _read_lines(lines: Iterable[str], about: RowFile) -> Iterator[Placed]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{about.name}:{number}"
            yield where, read_tool_result(_parse_line(line, where, about.noun))


def _parse_line(line: str, where: str, noun: str) -> Row:
    return take_object(parse_json(mend_halves(line), where, noun), where, noun)


def _read_document(text: str, about: RowFile, *, is_line: bool) -> Iterator[Placed]:
    """Yield the rows of a JSON document, or of several objects that follow each other. `is_line`:
    it is the only line of a file of lines, so that it may be a row."""
    first_line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    try:
        document = parse_json(mend_halves(text), about.name, about.noun)
    except InputError:
        objects = _split_objects(text, about)
        if not objects:
            raise
        yield from objects
        return

    rows = list_rows(document, by_name=is_line)
    is_row = rows is None and (is_line or any(map(names_column, as_object(document))))
    if is_row:
        rows = [document]
    if rows is None:
        raise InputError(
            f"{about.name}: must be a list of {plural(about.noun)}, or an object with one under"
            f" {', '.join(_WRAPPERS)}; saw {list_names(as_object(document))}"
        )

    for number, row in enumerate(rows, 1):
        where = f"{about.name}:{first_line}" if is_row else f"{about.name}: {about.noun} {number}"
        yield where, read_tool_result(take_object(row, where, about.noun))


_BLANK = re.compile(r"\s*")


def _split_objects(text: str, about: RowFile) -> list[Placed]:
    """Return the objects of a text in which several follow each other, each over several lines;
    nothing if it is no such text."""
    decoder = json.JSONDecoder()
    objects: list[Placed] = []
    line = 1
    end = 0
    while end < len(text):
        start = end + len(cast("re.Match[str]", _BLANK.match(text, end))[0])
        line += text.count("\n", end, start)
        if start == len(text):
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        where = f"{about.name}:{line}"
        objects.append((where, _parse_line(text[start:end], where, about.noun)))
        line += text.count("\n", start, end)

    return objects


_WRAPPERS = ("data", "rows", "items", "examples", "cases", "instances", "records", "memories")
"""The names under which documents have their list of rows."""


def list_rows(document: Any, *, by_name: bool = False) -> list[Any] | None:
    """Return the rows of a JSON document: those of a list, of a list under one of the usual names,
    or of a result file of another program. Unless it must be `by_name`, also the values of an
    object by id, and the rows of a table that is written by columns. None if it has no rows."""
    if is_array(document):
        return document
    fields = as_object(document)
    if (results := read_results(fields)) is not None:
        return cast("list[Any]", results)

    if not any(map(names_column, fields)):
        # The only line of a file may be a row with a list of its own under another name.
        for name in _WRAPPERS[: 2 if by_name else None]:
            rows = as_array(fields.get(name))
            if rows and all(isinstance(row, dict) for row in rows):
                return rows
            columns = as_array(fields.get("columns"))
            if rows and columns and all(len(as_array(row)) == len(columns) for row in rows):
                return [dict(zip(map(str, columns), row, strict=True)) for row in rows]

    if by_name or not fields:
        return None
    values: list[Any] = list(fields.values())
    if all(map(as_object, values)):
        return _list_objects(fields)
    lists = list(map(as_array, values))
    if len(lists) == 1 and lists[0] and all(map(as_object, lists[0])):
        return lists[0]
    lengths = {len(cells) for cells in lists}
    if len(lengths) == 1 and lengths != {0} and not any(map(read_chat, values)):
        return [dict(zip(fields, cells, strict=True)) for cells in zip(*lists, strict=True)]

    return None


def _list_objects(objects: Mapping[str, Mapping[str, Any]]) -> list[Any] | None:
    """Return the rows of an object of objects: by id, or by column as data frames write them, whose
    columns all have the numbers from 0 as their keys. None if it is a row itself."""
    keys = list(next(iter(objects.values())))
    if keys[0] == "0" and all(list(column) == keys for column in objects.values()):
        return [{name: column[key] for name, column in objects.items()} for key in keys]
    if any(map(names_column, objects)):
        return None
    return [{"id": id, **row} for id, row in objects.items()]


LINES = RowFormat((".jsonl", ".ndjson"), _read_json, write_lines, is_text=True)
DOCUMENT = RowFormat((".json", ".traj"), _read_json, is_text=True)
TABLE = RowFormat((".csv", ".tsv"), _read_table, write_csv, is_text=True)
FORMATS = (
    LINES,
    DOCUMENT,
    TABLE,
    RowFormat(
        (".parquet",),
        lambda file, about: read_parquet(file, about.name, about.header),
        write_parquet,
        signature=b"PAR1",
    ),
    RowFormat(
        (".xlsx",),
        lambda file, about: read_workbook(file, about.name, about.is_text, about.header),
        signature=b"xl/workbook.xml",
    ),
    RowFormat((".eval",), lambda file, about: read_log(file, about.name), signature=b"header.json"),
)
"""The formats. Those of texts are told apart by `_find_text_format`."""
GZIP = ".gz"
ZIP = ".zip"
SUFFIXES = (*(suffix for format in FORMATS for suffix in format.suffixes), GZIP, ZIP)
"""The endings of files of rows."""
WRITERS: Mapping[str, RowWriter] = {
    format.suffixes[0]: format.write for format in FORMATS if format.write is not None
}
"""The writers of files of rows, by the ending of the file."""
_IN_ARCHIVES = (".xlsx", ".eval")

_REFUSED = {
    b"\xd0\xcf\x11\xe0": "an old workbook of Excel; save it as .xlsx or .csv",
    b"ARROW1": "a file of Arrow; write it as Parquet",
    b"Obj\x01": "a file of Avro; write it as Parquet or JSON lines",
    b"SQLite format 3": "a database of SQLite; export the table as CSV",
    b"%PDF": "a PDF; rows need a table",
    b"BZh": "compressed with bzip2; unpack it",
    b"\xfd7zXZ": "compressed with xz; unpack it",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it",
}
"""How files begin that are no files of rows, with what they are."""


def choose_writer(suffix: str) -> RowWriter:
    """Return the writer of a suffix's format. It is chosen before the work, so that an unknown
    format costs nothing.

    Raises:
        InputError: the format is not known; names the known ones. SettingsError: the format is
            Parquet, and pyarrow is not installed.
    """
    writer = WRITERS.get(suffix.lower())
    if writer is None:
        raise InputError(f"'{suffix}': rows are written as one of {', '.join(WRITERS)}")
    if writer is write_parquet:
        import_pyarrow("pyarrow", "writing Parquet")

    return writer


def write_rows(rows: RowSource, target: IO[bytes], suffix: str) -> int:
    """Write rows in the format of a file name's suffix, and return their number.

    Raises:
        InputError: the format is not known, or the rows are not the same in the second pass.
        SettingsError: the format is Parquet, and pyarrow is not installed.
    """
    return choose_writer(suffix)(rows, target)


def suffix_of(path: str) -> str:
    """Return the ending of a file's name in lower case; that of `rows.csv.gz` is `.csv`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while len(suffixes) > 1 and suffixes[-1] in (GZIP, ZIP):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_file(path: str, about: RowFile) -> Iterator[Placed]:
    """Yield the rows of a file, or of standard input, with their positions.

    Raises:
        InputError: it cannot be read, or has no format of rows.
    """
    if path == STANDARD_INPUT:
        with open_text(path) as stream:
            yield from _read_stream(stream, replace(about, suffix=LINES.suffixes[0]))
        return

    with name_faults(path), open(allowed_path(path), "rb") as file:
        yield from _read_content(file, replace(about, suffix=suffix_of(path)))


def _read_stream(stream: IO[str], about: RowFile) -> Iterator[Placed]:
    """Yield the rows of standard input: JSON lines as they come, a table or a document when all of
    it is there."""
    head = list(itertools.islice(stream, 1))
    while head and not head[-1].strip():
        head += itertools.islice(stream, 1)
    format = _find_text_format(head, about) if head else LINES
    if format is TABLE:
        whole_text = io.StringIO("".join([*head, *stream]), newline="")
        yield from _read_table(whole_text, about)
    else:
        yield from _read_json(cast("IO[str]", itertools.chain(head, stream)), about)


def _read_content(file: IO[bytes], about: RowFile) -> Iterator[Placed]:
    start = file.read(16)
    file.seek(0)
    for signature, refused_kind in _REFUSED.items():
        if start.startswith(signature):
            raise InputError(f"{about.name}: is {refused_kind}")

    if start.startswith(b"\x1f\x8b"):
        with _name_damage(about.name), gzip.GzipFile("", "rb", fileobj=file) as content:
            yield from _read_content(cast("IO[bytes]", content), about)
        return
    if start.startswith(b"PK\x03\x04"):
        yield from _read_archive(file, about)
        return

    for format in FORMATS:
        is_named = about.suffix in format.suffixes and not format.is_text
        if (format.signature and start.startswith(format.signature)) or is_named:
            yield from format.read(file, about)
            return

    with open_decoded(file) as text:
        format = _find_text_format(list(itertools.islice(text, HEAD)), about)
        text.seek(0)
        yield from format.read(text, about)


@contextmanager
def _name_damage(name: str) -> Generator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise InputError(f"{name}: cannot be unpacked ({error})") from None


def _read_archive(file: IO[bytes], about: RowFile) -> Iterator[Placed]:
    """Yield the rows of an archive: of a workbook, a log of Inspect, or the only file in it."""
    with _name_damage(about.name), zipfile.ZipFile(file) as archive:
        members = sorted({*archive.namelist()})
        for format in FORMATS:
            if format.suffixes[0] in _IN_ARCHIVES and format.signature.decode() in members:
                file.seek(0)
                yield from format.read(file, about)
                return

        # Archives of a Mac have a folder of things about the files.
        names = [m for m in members if not (m.endswith("/") or m.startswith("__MACOSX/"))]
        if len(names) != 1:
            listing = ", ".join(names[:5]) or "none"
            raise InputError(
                f"{about.name}: an archive must have one file of {about.noun}s, and it has"
                f" {len(names)}: {listing}; unpack it and name one, or their folder"
            )

        with archive.open(names[0]) as content:
            inner = replace(about, suffix=suffix_of(names[0]))
            yield from _read_content(content, inner)


_JSON = re.compile(r"""\s*(?:\{\s*(?:"|\}|$)|\[\s*(?:\{|$))""")
"""How a document or a line of JSON begins, and no line of a table."""


def _find_text_format(lines: list[str], about: RowFile) -> RowFormat:
    """Return the format of a text by its first lines.

    Raises:
        InputError: it is no JSON, nothing separates cells, and the file's name has no usual ending.
    """
    first_line = next(filter(str.strip, lines), "")
    is_table = any(mark in line for line in lines for mark in DELIMITERS)
    if _JSON.match(first_line):
        return DOCUMENT
    if about.suffix in TABLE.suffixes or (is_table and first_line.lstrip()[:1] not in ("[", "{")):
        return TABLE
    if about.suffix in (*LINES.suffixes, *DOCUMENT.suffixes):
        return DOCUMENT
    raise InputError(
        f"{about.name}: {about.noun}s are read from {', '.join(SUFFIXES)} files, and this is"
        " neither JSON nor a table"
    )
