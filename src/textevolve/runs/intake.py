"""Cases from outside: files (JSONL, JSON, CSV, Parquet), standard input, Python objects.

A case has `input`, `candidates` (a list; in a table also the columns `candidate_1`, `candidate_2`,
...), an optional `id`, and parameters of its own, by name or under `parameters`. Other fields are
left alone. Files are read lazily, except JSON.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import json
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from textevolve.debate.profile import Profile, load_profile
from textevolve.errors import InputError, SettingsError
from textevolve.evaluation import Case

CaseLike: TypeAlias = Case | Mapping[str, Any] | tuple[str, Iterable[str]]

STANDARD_INPUT = "-"
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
_PARAMETERS = (*(name for name in Profile.model_fields if name not in ("name", "description")),)
_COLUMN = re.compile(r"candidate[_ ]?(\d+)$")


def read_cases(path: str) -> Iterator[Case]:
    """The cases of a file in order; `-` is JSON lines from standard input.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    if path == STANDARD_INPUT:
        with _opened(path) as file:
            yield from _number(_jsonl(file, _name(path)))
        return
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: cases are read from {', '.join(SUFFIXES)} files")
    if suffix == ".parquet":
        yield from _number(_parquet(path))
        return
    with _opened(path) as file:
        if suffix == ".csv":
            rows = _csv(file, path)
        elif suffix == ".json":
            rows = _json(file, path)
        else:
            rows = _jsonl(file, path)
        yield from _number(rows)


def read_text(path: str) -> str:
    """The whole text of a file; `-` is standard input.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    with _opened(path) as file:
        return file.read()


def _name(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path


@contextmanager
def _opened(path: str) -> Generator[IO[str]]:
    try:
        if path == STANDARD_INPUT:
            yield _standard_input()
        else:
            with open(path, encoding="utf-8-sig", newline="") as file:
                yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"{_name(path)}: not UTF-8 text (byte {error.start}); convert it first"
        ) from None
    except OSError as error:
        raise InputError(f"{_name(path)}: cannot be read ({error.strerror})") from None


def _standard_input() -> IO[str]:
    """As UTF-8, like the files, whatever the terminal's encoding is."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  closed from the start
        raise InputError("standard input: is closed")
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="strict")
    return sys.stdin


def take_case(given: CaseLike, where: str = "case") -> Case:
    """A case from a `Case`, a mapping, or a pair of input and candidates.

    Raises:
        InputError: it is none of these; names `where`.
    """
    if isinstance(given, Case):
        return given
    if isinstance(given, Mapping):
        return _from_mapping(given, where)
    if isinstance(given, tuple) and len(given) == 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        return _from_mapping({"input": given[0], "candidates": given[1]}, where)
    raise InputError(f"{where}: give a Case, a mapping, or a pair (input, candidates)")


def take_cases(given: Iterable[CaseLike]) -> Iterator[Case]:
    for number, case in enumerate(given, 1):
        taken = take_case(case, f"case {number}")
        yield (
            taken
            if taken.id
            else Case(taken.input, taken.candidates, str(number), taken.parameters)
        )


def _number(rows: Iterator[tuple[str, Mapping[str, Any]]]) -> Iterator[Case]:
    """Each row as a case; one without an id is called by its number."""
    number = 0
    for number, (where, row) in enumerate(rows, 1):
        case = _from_mapping(row, where)
        yield case if case.id else Case(case.input, case.candidates, str(number), case.parameters)
    if not number:
        raise InputError("no cases: the input is empty")


def _from_mapping(row: Mapping[str, Any], where: str) -> Case:
    candidates = row.get("candidates")
    if candidates is None:
        numbered = sorted((int(m[1]), k) for k in row if (m := _COLUMN.match(str(k).lower())))
        candidates = [row[k] for _, k in numbered if row[k] is not None]
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise InputError(f"{where}: 'candidates' must be a list of texts")
    texts = tuple(cast(Iterable[Any], candidates))
    if "input" not in row:
        raise InputError(f"{where}: 'input' is missing; a case has 'input' and 'candidates'")
    for name, value in (("input", row["input"]), *(("candidates", t) for t in texts)):
        if not isinstance(value, str):
            raise InputError(f"{where}: '{name}' must be text, not {type(value).__name__}")
    id = "" if row.get("id") is None else str(row["id"])
    return Case(row["input"], texts, id, _parameters(row, where))


def _parameters(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    nested: object = row.get("parameters") or {}
    if not isinstance(nested, Mapping):
        raise InputError(f"{where}: 'parameters' must be a mapping")
    found: dict[str, Any] = dict(cast(Mapping[str, Any], nested))
    for name, value in row.items():
        if name in (*_PARAMETERS, "profile"):
            if value is not None:
                found[name] = value
        elif name not in ("input", "candidates", "id", "parameters") and not _COLUMN.match(name):
            near = difflib.get_close_matches(name, _PARAMETERS, n=1, cutoff=0.85)
            if near:
                raise InputError(f"{where}: unknown field '{name}'; did you mean '{near[0]}'?")
    if "profile" in found:
        profile = load_profile(str(found.pop("profile")))
        stated = {name: getattr(profile, name) for name in profile.model_fields_set}
        data = profile.model_dump(mode="json", include=set(stated) - {"description"})
        found = {**data, **found}
    return found


def _jsonl(file: Iterable[str], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            where = f"{name}:{number}"
            yield where, _mapping(_parse(line, where), where)


def _json(file: IO[str], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    data = _parse(file.read(), name)
    if not isinstance(data, list):
        raise InputError(f"{name}: must be a list of cases")
    for number, row in enumerate(cast(list[Any], data), 1):
        where = f"{name}: case {number}"
        yield where, _mapping(row, where)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: not valid JSON: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: not a case: nested too deeply") from None


def _mapping(row: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object with 'input' and 'candidates'")
    return cast(dict[str, Any], row)


def _csv(file: IO[str], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader(file)
    try:
        for row in reader:
            where = f"{name}:{reader.line_num}"
            if None in row:
                raise InputError(f"{where}: more cells than the header has columns")
            yield where, {k: _cell(k, v) for k, v in row.items() if v not in (None, "")}
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}: not valid CSV: {error}") from None


def _cell(column: str, value: str) -> Any:
    """Texts stay as they are; a list of candidates and parameters are JSON where they can be."""
    if column in ("input", "id") or _COLUMN.match(column.lower()):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _parquet(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
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
