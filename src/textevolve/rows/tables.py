"""Rows of tables: CSV files with any of the usual delimiters, workbooks, and Parquet. Also texts of
files with their encodings, and the result files of Inspect and promptfoo.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import logging
import re
import sys
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from textevolve.errors import InputError, SettingsError
from textevolve.json_texts import parse_printed, write_text
from textevolve.mappings import drop_empty, map_values
from textevolve.reach import allowed_path, check_stdin
from textevolve.rows.chats import read_chat, write_chat
from textevolve.rows.columns import names_column

# The text of files and standard input, and JSON parsed from text.

Row: TypeAlias = Mapping[str, Any]  # a row: the values of its columns by name
Placed: TypeAlias = tuple[str, Row]
"""The position of a row for messages, such as "cases.jsonl:3", and the row."""

STANDARD_INPUT = "-"  # the path that stands for standard input


# An escape of JSON from its backslash on. Of surrogates only one without its other half is a group.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def mend_halves(text: str) -> str:
    """Return JSON in which half a surrogate pair, which JSON can escape but no valid text contains,
    is replaced by U+FFFD. It is applied to all JSON from outside."""
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)


def import_pyarrow(module: str, purpose: str) -> Any:
    """Import a module of pyarrow, which is optional. `purpose`: what needs it, for the message.

    Raises:
        SettingsError: pyarrow is not installed.
    """
    return import_optional(module, purpose, "parquet")


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """Import a module of an optional package. `extra`: the extra that installs it.

    Raises:
        SettingsError: it is not installed; names `purpose`, which needs it.
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise SettingsError(
            f'{purpose} needs {package}: pip install "textevolve[{extra}]"'
        ) from None


def name_of(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def open_text(path: str, errors: str = "strict") -> Generator[IO[str]]:
    """Open a text file, or standard input, whose encoding is UTF-8 or told by a byte order mark."""
    with name_faults(path):
        if path == STANDARD_INPUT:
            yield _standard_input(errors)
            return
        with open(allowed_path(path), "rb") as file, open_decoded(file, errors) as text:
            yield text


@contextmanager
def open_decoded(file: IO[bytes], errors: str = "strict") -> Generator[IO[str]]:
    """Read a file as text within the block: in the encoding of its byte order mark, or in UTF-8.
    The file stays open."""
    encoding = find_encoding(file.read(4))
    file.seek(0)
    text = io.TextIOWrapper(file, encoding, errors, newline="")
    try:
        yield text
    finally:
        text.detach()


@contextmanager
def name_faults(path: str) -> Generator[None]:
    """Convert errors of reading a file within the block into InputErrors that name it.

    Raises:
        InputError: the file cannot be opened, or is no text; names the line and what converts it.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(_describe_encoding(path, error)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{name_of(path)}: cannot be read ({reason})") from None


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # which begins as the mark of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def find_encoding(start: bytes) -> str:
    """Return the encoding of a text by its first four bytes: that of its byte order mark, or else
    UTF-8."""
    return next((encoding for mark, encoding in _MARKS if start.startswith(mark)), "utf-8")


def _describe_encoding(path: str, error: UnicodeDecodeError) -> str:
    """Describe where a file is no UTF-8, as an editor counts, and how to convert it."""
    name = name_of(path)
    if path == STANDARD_INPUT or error.encoding != "utf-8":
        return f"{name}: not {error.encoding.upper()} text ({error.reason}); convert it first"

    # The error counts from the block that was decoded last, not from the start of the file.
    before = 0
    with open(allowed_path(path), "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as fault:
                column = len(line[: fault.start].decode()) + 1
                return (
                    f"{name}:{number}: not UTF-8 text (column {column}, byte"
                    f" {before + fault.start}); convert it first: iconv -f {_guess_encoding(line)}"
                    f" -t UTF-8 '{name}' > converted{Path(name).suffix}"
                )
            before += len(line)

    return f"{name}: not UTF-8 text within its compression; unpack and convert it first"


def _guess_encoding(line: bytes) -> str:
    """Return the name of the encoding that a line most probably has."""
    return "UTF-16LE" if b"\0" in line else "WINDOWS-1252"


def _standard_input(errors: str) -> IO[str]:
    """Read standard input as UTF-8, like files, and ignore the terminal's encoding."""
    check_stdin()
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  closed from the start
        raise InputError("standard input: is closed")
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors=errors)
    return sys.stdin


def parse_json(text: str, where: str, noun: str) -> Any:
    """Parse a text as JSON and return the value. `where`: its position for messages, to which a
    text of several lines adds the line; `noun`: the word for it.

    Raises:
        InputError: it is not JSON, or an object has the same key twice (JSON would silently drop
            the first); names `where`.
    """

    def take_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            double = next(name for name in names if names.count(name) > 1)
            raise InputError(
                f"{where}: the key '{double:.60}' is there twice in one object; keep one"
            )

        return row

    try:
        # Without the end of the line, after which a text that was cut would go on in column 1.
        return json.loads(text.rstrip(), object_pairs_hook=take_pairs)
    except json.JSONDecodeError as error:
        line = f":{error.lineno}" if "\n" in text.strip() else ""
        raise InputError(
            f"{where}{line}: not valid JSON: {error.msg} at column {error.colno}"
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not valid JSON: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: not a {noun}: nested too deeply") from None


def take_object(row: Any, where: str, noun: str) -> Row:
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object with the fields of a {noun}")
    return cast(dict[str, Any], row)


# Result files of Inspect and promptfoo, read as rows with an input, an output and a reference.

_PROVIDER = re.compile(r"\[([^\]]+)\] (.+)", re.DOTALL)
"""The name of a column with outputs in promptfoo's tables: the provider and the prompt."""
_CELL = re.compile(
    r"\s*\[(?:PASS|FAIL|ERROR)\] \([^)]*\)\s*(.*?)(?:\s*(?:Pass|Fail) Reason: .*)?", re.DOTALL
)
"""An output in older tables of promptfoo, which stands between its verdict and the reason."""
_VARIABLE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
"""A variable in a template of promptfoo."""
_EQUALITY = ("equals", "contains", "icontains", "similar", "factuality")
"""The assertions of promptfoo whose value is a reference answer."""
_ZSTANDARD = 93
"""The number of a method of compression in ZIP archives."""


def read_log(file: IO[bytes], name: str) -> Iterator[Placed]:
    """Yield the samples of an `.eval` log of Inspect, which is an archive with a file for each
    sample."""
    try:
        with zipfile.ZipFile(file) as log:
            for member in sorted(log.namelist()):
                if member.startswith("samples/"):
                    text = mend_halves(_read_member(log, member, name).decode())
                    yield f"{name}: {member}", _read_sample(json.loads(text))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: cannot be read as a log of Inspect ({error})") from None


def _read_member(log: zipfile.ZipFile, member: str, name: str) -> bytes:
    """Return the content of a file in a log. Inspect compresses with Zstandard, which `zipfile`
    reads from Python 3.14 on."""
    info = log.getinfo(member)
    if info.compress_type != _ZSTANDARD or sys.version_info >= (3, 14):
        return log.read(info)
    pyarrow = import_pyarrow("pyarrow", f"{name}: reading logs of Inspect before Python 3.14")
    # The compressed bytes are read as a file of their own, for which the checksum does not hold.
    size = info.file_size
    info.file_size = info.compress_size
    info.compress_type = 0
    del info.CRC

    return pyarrow.decompress(log.read(info), size, "zstd", asbytes=True)


def read_results(document: Mapping[str, Any]) -> list[Row] | None:
    """Return the rows of an Inspect log (a list under `samples`), or those of a list under
    `results`, where promptfoo has its results; None if the document has neither list."""
    if isinstance(document.get("samples"), list) and "eval" in document:
        return list(map(_read_sample, document["samples"]))
    results = document.get("results")
    results = cast("Row", results).get("results") if isinstance(results, dict) else results

    return (
        list(map(read_tool_result, cast("list[Row]", results)))
        if isinstance(results, list)
        else None
    )


def _checked(read: Callable[[Row], Row]) -> Callable[[Row], Row]:
    """Return the reader with errors caused by an unexpected form of a record converted to
    InputError."""

    def checked(row: Row) -> Row:
        try:
            return read(row)
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(f"not a result as Inspect or promptfoo writes it: {error}") from None

    return checked


@_checked
def _read_sample(sample: Row) -> Row:
    output: Any = sample.get("output") or {}
    chat = read_chat(sample.get("input"))
    messages: Any = sample.get("messages") or ()
    options = (f"{chr(65 + n)}) {text}" for n, text in enumerate(sample.get("choices") or ()))
    epoch = f"-{sample['epoch']}" if sample.get("epoch", 1) > 1 else ""
    row: dict[str, Any] = {
        "id": f"{sample.get('id', '')}{epoch}",
        "input": "\n".join([write_chat(chat) if chat else sample["input"], *options]),
        "output": output.get("completion"),
        "reference": sample.get("target"),
        "tool_calls": messages if any(message.get("tool_calls") for message in messages) else None,
    }

    return drop_empty(row)


@_checked
def read_tool_result(row: Row) -> Row:
    """Convert a promptfoo result to a row with input, output and reference; return any other row
    unchanged."""
    if not {"promptIdx", "testIdx", "testCase"} <= row.keys():
        return row
    response, case, prompt, provider, variables = (
        cast("Row", row.get(name) or {})
        for name in ("response", "testCase", "prompt", "provider", "vars")
    )
    output: Any = response.get("output")
    checks: list[Row] = case.get("assert") or []
    values = (check.get("value") for check in checks if check.get("type") in _EQUALITY)
    result: dict[str, Any] = {
        "id": f"{row['testIdx']}-{row['promptIdx']}-{provider.get('id', '')}",
        "input": prompt.get("raw"),
        "output": None if output is None else write_text(output),
        "reference": _fill(
            next((value for value in values if isinstance(value, str)), ""), variables
        ),
    }

    return drop_empty(result)


def _fill(template: str, variables: Mapping[str, Any]) -> str:
    """Return a template of promptfoo with its variables, such as `{{port}}`, filled in."""
    known = map_values(write_text, variables)
    return _VARIABLE.sub(lambda variable: known.get(variable[1], variable[0]), template)


def has_outputs(columns: Iterable[str]) -> bool:
    """Tell by its column names whether a table is an export of promptfoo."""
    return any(map(_PROVIDER.fullmatch, columns))


def read_cells(row: Row) -> Iterator[Row]:
    """Yield a row for each output in a row of promptfoo's table; yield any other row unchanged."""
    outputs = {name: match for name in row if (match := _PROVIDER.fullmatch(name))}
    for name, (_, prompt) in ((name, match.groups()) for name, match in outputs.items()):
        text = write_text(row[name])
        verdict = _CELL.fullmatch(text)
        yield {"input": _fill(prompt, row), "output": verdict[1] if verdict else text}

    if not outputs:
        yield row


DELIMITERS = ",;\t"
"""The possible delimiters of cells. European spreadsheets write semicolons, since their numbers
contain commas."""

_NUMBER = re.compile(r"[-+]?(\d[\d.,]*|\.\d+)(e[-+]?\d+)?\s?%?", re.IGNORECASE | re.ASCII)
_FORMULA = re.compile(r"'*[-=+@\t\r\n]")
"""The beginning of a text that a spreadsheet may run as a formula, or of one that `defuse` has
changed."""
_EXPORTS: tuple[set[str], ...] = (
    {"status", "reason"},
    {"failure", "seconds"},
    {"failure", "feedback"},
    {"superseded_by"},
    {"labeller"},
    {"human", "output"},
    {"candidate_1", "scores"},
    {"template", "parent", "leads"},
    {"question", "answer", "text", "failure"},
    {"dialogue", "turn", "point", "action"},
    {"document", "action", "position"},
    {"action", "sentence", "version"},
    {"texts", "chunks_failed", "answers_cut"},
    {"user", "session", "item", "question_type"},
    {"episode", "step", "node", "instruction"},
    {"name", "meaning", "low", "middle", "high"},
)
"""The columns by which a table that this package exported is recognised: tables of cases, chains
and refined inputs, guided answers, memories, labels, templates, dialogues, documents, personas,
summaries, memory evaluations, nodes and profiles."""

Header = Callable[[Sequence[str]], None]
"""A function that is called with the names of a table's columns, before its rows."""


def defuse(text: str) -> str:
    """Return a text as a cell that no spreadsheet runs as a formula: a leading apostrophe is added
    if it starts like a formula and is no number."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _restore(cell: str) -> str:
    """Return the text of a cell without the apostrophe that `defuse` added."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


_EMPTY_HEADER: Sequence[str] = ()
HEAD = 20
"""The number of lines in which the names of a table's columns are looked for."""
_SEPARATOR = re.compile(r'"?sep=([^"\r\n])"?\s*', re.IGNORECASE)
"""The first line by which Excel tells the delimiter."""
_WHOLE = re.compile(r"(?!-0\.)-?[0-9]{1,15}\.0")
"""A whole number as a data frame writes it in a column that has missing values, too."""
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", re.IGNORECASE)
_WHOLE_CELL = re.compile(r'(?:^|[,;\t"])-?[0-9]{1,15}\.0(?=$|[,;\t"\r\n])')
_LOG = logging.getLogger("textevolve")


def read_csv(
    file: IO[str], name: str, is_text: Callable[[str], bool], header: Header
) -> Iterator[Placed]:
    """Yield the rows of a CSV file with their positions. The first line has the column names, after
    a line with the separator and a title, if the file begins so; the delimiter is the most frequent
    of `DELIMITERS` in that line. Empty rows at the end are left out. In files that this package
    exported, the apostrophes that `defuse` added are removed."""
    csv.field_size_limit(sys.maxsize)
    delimiter, skipped = _find_header(list(itertools.islice(file, HEAD)), name)
    is_quoted = delimiter != "\t" or _has_quotes(file, name)

    def open_reader() -> Any:
        file.seek(0)
        for _ in range(skipped):
            next(file)
        quoting = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
        return csv.reader(file, delimiter=delimiter, strict=True, quoting=quoting)

    reader: Any = None
    begins = 1  # the line in which the row begins that is being read

    def numbered() -> Iterator[tuple[str, Sequence[str]]]:
        nonlocal begins
        for cells in reader:
            begins = skipped + reader.line_num + 1
            yield f"{name}:{skipped + reader.line_num}", cells

    try:
        reader = open_reader()
        written_names: Sequence[str] = next(reader, _EMPTY_HEADER)
        is_ours = any(map({_restore(column) for column in written_names}.issuperset, _EXPORTS))
        restore = _restore if is_ours else str
        columns = [restore(column) for column in written_names]
        is_export = has_outputs(columns)
        if not is_export:
            check_columns(columns, f"{name}:{skipped + 1}")
        whole: set[int] = set()
        if not is_ours:
            whole = _find_whole_columns(file, open_reader, columns, is_text)
        header(columns)

        def converter(place: int, column: str) -> Callable[[str], Any]:
            if place in whole:
                return lambda cell: cell[:-2] if _WHOLE.fullmatch(cell) else cell
            return restore if is_text(column) else lambda cell: _cell(restore(cell))

        converters = list(itertools.starmap(converter, enumerate(columns)))
        reader = open_reader()
        next(reader, None)
        begins = skipped + reader.line_num + 1
        yield from place_cells(numbered(), columns, converters, keeps_empty=is_export)
    except csv.Error as error:
        place = skipped + reader.line_num
        if "unexpected end" not in str(error):
            raise InputError(
                f"{name}:{place}: not valid CSV: {error}; a quote within a quoted text is doubled"
            ) from None
        raise InputError(
            f"{name}:{begins}: a quote opens in this row and is never closed; close it, or double"
            " it where it is part of a text"
        ) from None


def check_columns(columns: Sequence[str], where: str) -> None:
    double = [column for column in columns if column.strip() and columns.count(column) > 1]
    if double:
        raise InputError(f"{where}: two columns have the name '{double[0]}'; rename one")


def place_cells(
    rows: Iterable[tuple[str, Sequence[Any]]],
    columns: Sequence[str],
    converters: Sequence[Callable[[Any], Any]],
    *,
    keeps_empty: bool = False,
) -> Iterator[Placed]:
    """Yield the rows of a table by the names of their columns. `rows`: the cells of each row and
    its position. `converters`: for each column the function that reads a cell. Empty cells are left
    out, unless `keeps_empty`, and so are empty rows at the end.

    Raises:
        InputError: a row has more cells than there are columns.
    """
    empty_rows: list[str] = []

    for where, cells in rows:
        if not any(str(cell).strip() for cell in cells if cell is not None):
            # A blank line is no row. A row of empty cells is one, if others follow.
            empty_rows += [where] if cells else []
            continue
        yield from ((empty, {}) for empty in empty_rows)
        empty_rows.clear()

        beyond = cells[len(columns) :]
        if any(str(cell).strip() for cell in beyond if cell is not None):
            raise InputError(
                f"{where}: more cells than the header has columns ({len(cells)} for"
                f" {len(columns)}); a text with the separator in it must stand in quotes"
            )

        yield (
            where,
            {
                column: convert(cell)
                for column, convert, cell in zip(columns, converters, cells, strict=False)
                if cell or (cell is not None and (cell != "" or keeps_empty))
            },
        )


def _find_header(lines: Sequence[str], name: str) -> tuple[str, int]:
    """Return the delimiter of a table by its first lines, and the number of lines before those with
    the names of its columns."""
    if lines and (stated := _SEPARATOR.fullmatch(lines[0])):
        return stated[1], 1

    blank = sum(1 for _ in itertools.takewhile(lambda line: not line.strip(), lines))
    first_line = next(iter(lines[blank:]), "")
    counts = [_count_delimiters(line) for line in lines[blank:]]
    likely = next((count for count in counts if any(count.values())), dict.fromkeys(DELIMITERS, 0))
    delimiter = max(DELIMITERS, key=likely.__getitem__)
    if first_line.count('"') % 2:  # the name of a column goes on in the next line
        return delimiter, blank

    cells = list(csv.reader(lines[blank:], delimiter=delimiter))
    titles = count_titles(cells)
    if titles:
        _LOG.warning(
            "%s:%d: '%.60s' is read as a title, not as the name of a column",
            name,
            blank + 1,
            next(filter(str.strip, cells[0])),
        )

    return delimiter, blank + titles


def _count_delimiters(line: str) -> dict[str, int]:
    """Return how often each delimiter is in a line outside quotes."""
    bare = re.sub('"[^"]*"', "", line)
    return {mark: bare.count(mark) for mark in DELIMITERS}


def count_titles(rows: Sequence[Sequence[Any]]) -> int:
    """Return the number of rows before the one with the names of a table's columns: one with a
    title alone, and the blank ones after it. A title is followed by a row of several names, which
    are different texts, and by nothing that has more cells than it."""
    filled = [[text for cell in row if (text := str(cell or "").strip())] for row in rows]
    if not filled or len(filled[0]) != 1 or names_column(filled[0][0]):
        return 0
    place = next((n for n, cells in enumerate(filled[1:], 1) if cells), 0)
    names = filled[place]
    is_header = (
        len(names) > 1
        and len(set(names)) == len(names)
        and not any(_NUMBER.fullmatch(cell) for cell in names)
        and all(len(cells) <= len(names) for cells in filled[place:])
        and (any(map(names_column, names)) or " " in filled[0][0])
    )

    return place if is_header else 0


def _has_quotes(file: IO[str], name: str) -> bool:
    """Tell whether quotes enclose cells in a table with tabs. They do not if a line has a quote
    that it does not close, although it has all the cells; the log says so."""
    file.seek(0)
    tabs = -1
    open_line = 0
    is_complete = True
    for number, line in enumerate(file, 1):
        if line.strip("\r\n"):
            tabs = line.count("\t") if tabs < 0 else tabs
            is_complete = is_complete and line.count("\t") == tabs
            open_line = open_line or number * (line.count('"') % 2)

    file.seek(0)
    if not (open_line and is_complete):
        try:
            for _ in csv.reader(file, delimiter="\t", strict=True):
                pass
        except csv.Error:
            open_line = open_line or 1
        else:
            return True

    _LOG.warning(
        "%s: read without quoting, since the quotes of line %d do not enclose a cell",
        name,
        open_line,
    )

    return False


def _find_whole_columns(
    file: IO[str],
    open_reader: Callable[[], Iterable[Sequence[str]]],
    columns: Sequence[str],
    is_text: Callable[[str], bool],
) -> set[int]:
    """Return the places of the columns of numbers in which a data frame has written whole numbers
    as `3.0`. If a column with words has such a number, too, somebody writes numbers so, and they
    stay."""
    file.seek(0)
    if not any(map(_WHOLE_CELL.search, file)):
        return set()

    whole: set[int] = set()
    words: set[int] = set()
    for cells in itertools.islice(open_reader(), 1, None):
        for place, cell in enumerate(cells):
            if _WHOLE.fullmatch(cell):
                whole.add(place)
            elif cell and not _FLOAT.fullmatch(cell):
                words.add(place)

    is_style = any(is_text(columns[place]) for place in whole & words if place < len(columns))

    return set() if is_style else whole - words


def _cell(value: str) -> Any:
    """Return the value of a cell if it is JSON, or a list or object as Python prints it; otherwise
    its text."""
    try:
        return json.loads(mend_halves(value))
    except (ValueError, RecursionError):
        return parse_printed(value)


def read_workbook(
    file: IO[bytes], name: str, is_text: Callable[[str], bool], header: Header
) -> Iterator[Placed]:
    """Yield the rows of an Excel workbook's first sheet that is not empty, with their positions.
    The names of other sheets with values are logged.

    Raises:
        InputError: it is no workbook. SettingsError: openpyxl is not installed.
    """
    openpyxl = import_optional("openpyxl", f"{name}: reading a workbook", "xlsx")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: not a workbook of Excel ({error})") from None

    sheets = [sheet for sheet in book.worksheets if _has_values(sheet)]
    if not sheets:
        return
    if len(sheets) > 1:
        left_out = ", ".join(f"'{sheet.title}'" for sheet in sheets[1:])
        _LOG.warning("%s: reads the sheet '%s', and not %s", name, sheets[0].title, left_out)

    rows = enumerate(sheets[0].iter_rows(values_only=True), 1)
    head = list(itertools.islice(rows, HEAD))
    blank = next(n for n, (_, cells) in enumerate(head) if any(c is not None for c in cells))
    start = blank + count_titles([cells for _, cells in head[blank:]])
    line, names = head[start]
    columns = ["" if cell is None else str(cell) for cell in names]
    check_columns(columns, f"{name}:{line}")
    header(columns)
    converters = [_sheet_text if is_text(column) else _sheet_value for column in columns]
    following = itertools.chain(head[start + 1 :], rows)
    yield from place_cells(
        ((f"{name}:{number}", cells) for number, cells in following), columns, converters
    )


def _has_values(sheet: Any) -> bool:
    first_rows = itertools.islice(sheet.iter_rows(values_only=True), HEAD)
    return any(cell is not None for row in first_rows for cell in row)


def _sheet_text(cell: Any) -> Any:
    """Return a cell of a column of texts: a truth value as the sheet shows it."""
    return str(cell).upper() if isinstance(cell, bool) else _sheet_value(cell, is_text=True)


def _sheet_value(cell: Any, *, is_text: bool = False) -> Any:
    if isinstance(cell, str):
        return cell if is_text else _cell(cell)
    return cell if isinstance(cell, bool | int | float) else str(cell)


def read_parquet(file: IO[bytes], name: str, header: Header) -> Iterator[Placed]:
    """Yield the rows of a Parquet file with their positions; one batch of rows is loaded at a
    time."""
    parquet = import_pyarrow("pyarrow.parquet", f"{name}: reading Parquet")
    counter = itertools.count(1)

    try:
        table: Any = parquet.ParquetFile(file)
        header([str(column) for column in table.schema_arrow.names])
        for batch in table.iter_batches(batch_size=200):
            for row in batch.to_pylist():
                yield f"{name}: row {next(counter)}", row
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # pyarrow's own errors of content are of this kind
        raise InputError(f"{name}: not a Parquet file ({error})") from None
