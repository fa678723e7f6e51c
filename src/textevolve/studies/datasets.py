"""Cases from outside: files and folders, data sets of the hub, standard input, Python objects.

A case has an input, outputs (its candidates), an optional id, reference answer and context, and
parameters of its own, by name or under `parameters`. `texts.columns` says what columns of these may
be called. A chat gives the input and the output at once. Other columns are left alone and named
once (`Columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.rows import Renaming, read_rows
from textevolve.spec import option
from textevolve.studies.case_rows import PARAMETERS, RowReading, cases_of_row
from textevolve.studies.columns import Columns
from textevolve.studies.study import StudySpec
from textevolve.texts.columns import is_text_column

CaseLike: TypeAlias = Case | Mapping[str, Any] | tuple[str, Iterable[str]]


class MappedSpec(StudySpec):
    """What specifications have whose cases come from rows of the user's own."""

    map: Mapping[str, str] = option(
        {},
        "What a column of the data is to be called, as in --map input=frage. Repeatable.",
        group="Data",
        identity=False,
        metavar="NEW=OLD",
    )


def read_cases(
    path: str, columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """The cases of a file, a folder or a data set in order; `-` is JSON lines from standard input.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    columns, reading = columns or Columns(), reading or RowReading()
    rows = read_rows(path, "case", _is_text, reading.map, columns.take_header)
    number = 0
    for number, (where, row) in enumerate(rows, 1):
        yield from cases_of_row(row, where, columns, reading, str(number))
    if not number:
        raise InputError("no cases: the input is empty")
    columns.refuse_no_output(path)


def _is_text(column: str) -> bool:
    return column not in PARAMETERS and is_text_column(column)


def take_case(given: CaseLike, where: str = "case", columns: Columns | None = None) -> Case:
    """A case from a `Case`, a mapping, or a pair of input and candidates.

    Raises:
        InputError: it is none of these; names `where`.
    """
    (case,) = _take(given, where, columns or Columns(), RowReading(), "")
    return case


def take_cases(
    given: Iterable[CaseLike], columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Cases from Python objects, as `take_case` has them, by the same rules as those of files."""
    kind = type(given).__name__
    if isinstance(given, Mapping) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"cases must be a list or another iterable of them, not {kind}")
    columns, reading = columns or Columns(), reading or RowReading()
    renaming = Renaming(reading.map)
    for number, case in enumerate(given, 1):
        one = renaming(case) if isinstance(case, Mapping) else case
        yield from _take(one, f"case {number}", columns, reading, str(number))
    renaming.refuse_unused()


def _take(
    given: CaseLike, where: str, columns: Columns, reading: RowReading, number: str
) -> list[Case]:
    if isinstance(given, Case):
        columns.references |= {} if given.reference is None else {"reference": None}
        made = given if given.id else replace(given, id=number)
        columns.note_id(made.id)
        return [made]
    if isinstance(given, Mapping):
        return cases_of_row(given, where, columns, reading, number)
    if isinstance(given, tuple) and len(given) == 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        pair: Mapping[str, Any] = {"input": given[0], "candidates": given[1]}
        return cases_of_row(pair, where, columns, reading, number)
    raise InputError(f"{where}: give a Case, a mapping, or a pair (input, candidates)")
