"""Cases from outside: files and folders, data sets of the hub, standard input, Python objects.

A case has an input, outputs (its candidates), an optional id, reference answer and context, and
parameters of its own, by name or under `parameters`. `texts.columns` says what columns of these may
be called. A chat gives the input and the output at once. Other columns are left alone and named
once (`Columns`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.rows import STANDARD_INPUT, Renaming, read_rows
from textevolve.rows.hub import PREFIX
from textevolve.rows.images import IMAGE_LIMIT, IMAGES_PER_CASE, MIB, ImageReading, read_images
from textevolve.spec import Several, option
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


class ImagesSpec(MappedSpec):
    """What specifications have whose rows may have images."""

    images: Several = option(
        (),
        "The column with images of the input: a path, relative to the data file, a data URL, or a"
        " list of them. Repeatable. With an input on the command line: the images themselves.",
        group="Data",
        identity=False,
        metavar="COLUMN",
    )
    image_limit: float = option(
        IMAGE_LIMIT,
        "MiB that an image may have.",
        group="Data",
        identity=False,
        gt=0,
        le=1024,
    )
    images_per_case: int = option(
        IMAGES_PER_CASE,
        "Images that an input, or a candidate, may have.",
        group="Data",
        identity=False,
        ge=1,
        le=1000,
    )


def image_reading(spec: ImagesSpec, candidates: tuple[str, ...] = ()) -> ImageReading:
    """How a specification has images read; `candidates`: the columns of those of candidates."""
    most = int(spec.image_limit * MIB)
    return ImageReading(spec.images, candidates, most_bytes=most, most_images=spec.images_per_case)


def folder_of(file: str) -> str:
    """Where the relative paths in a file's rows begin."""
    return "" if file == STANDARD_INPUT or file.startswith(PREFIX) else os.path.dirname(file)


def in_folder_of(reading: RowReading, file: str) -> RowReading:
    """The same for the rows of a file, whose relative paths begin in its folder."""
    return replace(reading, images=replace(reading.images, folder=folder_of(file)))


def read_cases(
    path: str, columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """The cases of a file, a folder or a data set in order; `-` is JSON lines from standard input.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    columns, own = columns or Columns(), reading or RowReading()
    of_images = (*own.images.columns, *own.images.candidate_columns)

    def opened(file: str) -> None:
        nonlocal own
        own = in_folder_of(own, file)

    def is_text(column: str) -> bool:
        if column in of_images:
            return True
        return column not in PARAMETERS and is_text_column(column)

    rows = read_rows(path, "case", is_text, own.map, columns.take_header, opened)
    number = 0
    for number, (where, row) in enumerate(rows, 1):
        yield from cases_of_row(row, where, columns, own, str(number))
    if not number:
        raise InputError("no cases: the input is empty")
    columns.refuse_no_images("--images", own.images.columns)
    columns.refuse_no_images("--candidate-images", own.images.candidate_columns)
    columns.refuse_no_output(path)


def take_case(given: CaseLike, where: str = "case", columns: Columns | None = None) -> Case:
    """A case from a `Case`, a mapping, or a pair of input and candidates.

    Raises:
        InputError: it is none of these; names `where`.
    """
    (case,) = _take(given, where, columns or Columns(), RowReading(), "")
    return case


def check_iterable(given: object) -> None:
    """Raises InputError where these cannot be cases."""
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        kind: str = type(cast(object, given)).__name__
        raise InputError(f"cases must be a list or another iterable of them, not {kind}")


def take_cases(
    given: Iterable[CaseLike], columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Cases from Python objects, as `take_case` has them, by the same rules as those of files."""
    check_iterable(given)
    columns, reading = columns or Columns(), reading or RowReading()
    renaming = Renaming(reading.map)
    for number, case in enumerate(given, 1):
        one = renaming(case) if isinstance(case, Mapping) else case
        yield from _take(one, f"case {number}", columns, reading, str(number))
    renaming.refuse_unused()


def _with_read_images(case: Case, where: str, reading: ImageReading) -> Case:
    """The case with data URLs in the place of paths and bytes."""
    if not case.images and not case.candidate_images:
        return case
    return replace(
        case,
        images=read_images(case.images, f"{where}: images", reading),
        candidate_images=tuple(
            read_images(own, f"{where}: images of candidate {n}", reading)
            for n, own in enumerate(case.candidate_images, 1)
        ),
    )


def _take(
    given: CaseLike, where: str, columns: Columns, reading: RowReading, number: str
) -> list[Case]:
    if isinstance(given, Case):
        columns.references |= {} if given.reference is None else {"reference": None}
        made = given if given.id else replace(given, id=number)
        made = _with_read_images(made, where, reading.images)
        columns.note_id(made.id)
        return [made]
    if isinstance(given, Mapping):
        return cases_of_row(given, where, columns, reading, number)
    if isinstance(given, tuple) and len(given) == 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        pair: Mapping[str, Any] = {"input": given[0], "candidates": given[1]}
        return cases_of_row(pair, where, columns, reading, number)
    raise InputError(f"{where}: give a Case, a mapping, or a pair (input, candidates)")
