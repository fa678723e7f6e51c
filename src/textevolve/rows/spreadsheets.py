"""Tables of spreadsheets and data frames: CSV files with any of the usual delimiters, workbooks of
Excel, and Parquet.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from textevolve.errors import InputError
from textevolve.json_texts import parse_printed
from textevolve.ledger import log
from textevolve.rows.columns import names_column
from textevolve.rows.tables import Placed, has_outputs, import_optional, import_pyarrow, mend_halves

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


HEAD = 20
"""The number of lines in which the names of a table's columns are looked for."""
_SEPARATOR = re.compile(r'"?sep=([^"\r\n])"?\s*', re.IGNORECASE)
"""The first line by which Excel tells the delimiter."""
_WHOLE = re.compile(r"(?!-0\.)-?[0-9]{1,15}\.0")
"""A whole number as a data frame writes it in a column that has missing values, too."""
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", re.IGNORECASE)
_WHOLE_CELL = re.compile(r'(?:^|[,;\t"])-?[0-9]{1,15}\.0(?=$|[,;\t"\r\n])')


@dataclass(frozen=True, slots=True)
class _CsvFile:
    """A CSV file that can be read several times.

    Attributes:
        skipped: The number of lines before those with the names of the columns.
        is_quoted: Whether quotes enclose cells.
    """

    file: IO[str]
    name: str
    delimiter: str
    skipped: int
    is_quoted: bool

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the cells of each row, the names of the columns first, with its position.

        Raises:
            InputError: it is no valid CSV; names the line.
        """
        self.file.seek(0)
        for _ in range(self.skipped):
            next(self.file)
        quoting = csv.QUOTE_MINIMAL if self.is_quoted else csv.QUOTE_NONE
        reader = csv.reader(self.file, delimiter=self.delimiter, strict=True, quoting=quoting)
        begins = self.skipped + 1  # the line in which the row begins that is being read

        try:
            for cells in reader:
                line = self.skipped + reader.line_num
                yield f"{self.name}:{line}", cells
                begins = line + 1
        except csv.Error as error:
            if "unexpected end" not in str(error):
                raise InputError(
                    f"{self.name}:{self.skipped + reader.line_num}: not valid CSV: {error}; a"
                    " quote within a quoted text is doubled"
                ) from None
            raise InputError(
                f"{self.name}:{begins}: a quote opens in this row and is never closed; close it,"
                " or double it where it is part of a text"
            ) from None


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
    table = _CsvFile(file, name, delimiter, skipped, is_quoted)

    written_names = next((cells for _, cells in table.read()), list[str]())
    is_ours = any(map({_restore(column) for column in written_names}.issuperset, _EXPORTS))
    restore = _restore if is_ours else str
    columns = list(map(restore, written_names))
    is_export = has_outputs(columns)
    if not is_export:
        check_columns(columns, f"{name}:{skipped + 1}")
    header(columns)
    whole_columns: set[int] = set()
    if not is_ours:
        whole_columns = _find_whole_columns(table, columns, is_text)

    def converter(place: int, column: str) -> Callable[[str], Any]:
        if place in whole_columns:
            return lambda cell: cell[:-2] if _WHOLE.fullmatch(cell) else cell
        return restore if is_text(column) else lambda cell: _cell(restore(cell))

    converters = list(itertools.starmap(converter, enumerate(columns)))
    rows = itertools.islice(table.read(), 1, None)
    yield from place_cells(rows, columns, converters, keeps_empty=is_export)


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
    delimiter = DELIMITERS[0]
    for line in lines[blank:]:
        bare = re.sub('"[^"]*"', "", line)
        if any(mark in bare for mark in DELIMITERS):
            delimiter = max(DELIMITERS, key=bare.count)
            break

    if first_line.count('"') % 2:  # the name of a column goes on in the next line
        return delimiter, blank

    cells = list(csv.reader(lines[blank:], delimiter=delimiter))
    titles = count_titles(cells)
    if titles:
        log.warning(
            "%s:%d: '%.60s' is read as a title, not as the name of a column",
            name,
            blank + 1,
            next(filter(str.strip, cells[0])),
        )

    return delimiter, blank + titles


def count_titles(rows: Sequence[Sequence[Any]]) -> int:
    """Return the number of rows before the one with the names of a table's columns: one with a
    title alone, and the blank ones after it. A title is followed by a row of several names, which
    are different texts, and by nothing that has more cells than it."""
    filled: list[list[str]] = []
    for row in rows:
        cells = (str(cell or "").strip() for cell in row)
        filled.append(list(filter(None, cells)))

    if not filled or len(filled[0]) != 1 or names_column(filled[0][0]):
        return 0

    place = next((n for n, cells in enumerate(filled[1:], 1) if cells), 0)
    names = filled[place]
    is_header = (
        len(names) > 1
        and len(set(names)) == len(names)
        and not any(map(_NUMBER.fullmatch, names))
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

    log.warning(
        "%s: read without quoting, since the quotes of line %d do not enclose a cell",
        name,
        open_line,
    )

    return False


def _find_whole_columns(
    table: _CsvFile, columns: Sequence[str], is_text: Callable[[str], bool]
) -> set[int]:
    """Return the places of the columns of numbers in which a data frame has written whole numbers
    as `3.0`. If a column with words has such a number, too, somebody writes numbers so, and they
    stay."""
    table.file.seek(0)
    if not any(map(_WHOLE_CELL.search, table.file)):
        return set()

    whole_columns: set[int] = set()
    words: set[int] = set()
    for _, cells in itertools.islice(table.read(), 1, None):
        for place, cell in enumerate(cells):
            if _WHOLE.fullmatch(cell):
                whole_columns.add(place)
            elif cell and not _FLOAT.fullmatch(cell):
                words.add(place)

    is_style = any(
        is_text(columns[place]) for place in whole_columns & words if place < len(columns)
    )

    return set() if is_style else whole_columns - words


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
        log.warning("%s: reads the sheet '%s', and not %s", name, sheets[0].title, left_out)

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
        header(list(map(str, table.schema_arrow.names)))
        for batch in table.iter_batches(batch_size=200):
            for row in batch.to_pylist():
                yield f"{name}: row {next(counter)}", row
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # pyarrow's own errors of content are of this kind
        raise InputError(f"{name}: not a Parquet file ({error})") from None
