"""Cases from outside: files (JSONL, JSON, CSV, Parquet), standard input, Python objects.

A case has `input`, `candidates` (a list; in a table also the columns `candidate_1`, `candidate_2`,
...), an optional `id`, and parameters of its own, by name or under `parameters`. Other fields are
left alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from textevolve.debate.profile import Profile, load_profile
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.rows import Placed, read_rows

CaseLike: TypeAlias = Case | Mapping[str, Any] | tuple[str, Iterable[str]]

_PARAMETERS = (*(name for name in Profile.model_fields if name not in ("name", "description")),)
_COLUMN = re.compile(r"candidate[_ ]?(\d+)$")


def read_cases(path: str) -> Iterator[Case]:
    """The cases of a file in order; `-` is JSON lines from standard input.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    yield from _number(read_rows(path, "case", _is_text))


def _is_text(column: str) -> bool:
    return column in ("input", "id") or _COLUMN.match(column.lower()) is not None


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


def _number(rows: Iterator[Placed]) -> Iterator[Case]:
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
