"""Cases from outside: files (JSONL, JSON, CSV, Parquet), standard input, Python objects.

A case has `input`, `candidates` (a list; in a table also the columns `candidate_1`, `candidate_2`,
...), an optional `id`, an optional reference answer, and parameters of its own, by name or under
`parameters`. Other fields are left alone, and named once (`Columns`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from textevolve.debate.profile import Profile, load_profile
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.report.wording import shorten
from textevolve.rows import Placed, read_rows

CaseLike: TypeAlias = Case | Mapping[str, Any] | tuple[str, Iterable[str]]

_PARAMETERS = (*(name for name in Profile.model_fields if name not in ("name", "description")),)
_COLUMN = re.compile(r"candidate[_ ]?([0-9]+)$")
REFERENCES = ("reference", "expected", "ideal", "answer")
"""Fields that may hold the reference answer; of several the first that does counts."""
NAMED = 12
"""Of how many fields that nothing reads the name is said."""


@dataclass
class Columns:
    """What the fields of cases came to, over all rows: for a warning once they are read."""

    unread: dict[str, None] = field(default_factory=dict[str, None])
    references: dict[str, None] = field(default_factory=dict[str, None])

    def warning(self, *, reference: bool) -> str:
        """Names the fields that nothing reads; empty where there are none. `reference`: whether the
        judge looks at a reference answer."""
        said: list[str] = []
        if self.unread:
            names = ", ".join(shorten(name, 40) for name in list(self.unread)[:NAMED])
            more = f" and {len(self.unread) - NAMED} more" if len(self.unread) > NAMED else ""
            said.append(f"nothing reads these fields of the cases: {names}{more}")
        if self.references and not reference:
            names = ", ".join(self.references)
            said.append(f"only judges with a reference, such as --judge reference, read: {names}")
        return "; ".join(said)


def read_cases(path: str, columns: Columns | None = None) -> Iterator[Case]:
    """The cases of a file in order; `-` is JSON lines from standard input.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    yield from _number(read_rows(path, "case", _is_text), columns or Columns())


def _is_text(column: str) -> bool:
    return column in ("input", "id", *REFERENCES) or _COLUMN.match(column.lower()) is not None


def take_case(given: CaseLike, where: str = "case", columns: Columns | None = None) -> Case:
    """A case from a `Case`, a mapping, or a pair of input and candidates.

    Raises:
        InputError: it is none of these; names `where`.
    """
    columns = columns or Columns()
    if isinstance(given, Case):
        columns.references |= {} if given.reference is None else {"reference": None}
        return given
    if isinstance(given, Mapping):
        return _from_mapping(given, where, columns)
    if isinstance(given, tuple) and len(given) == 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        return _from_mapping({"input": given[0], "candidates": given[1]}, where, columns)
    raise InputError(f"{where}: give a Case, a mapping, or a pair (input, candidates)")


def take_cases(given: Iterable[CaseLike], columns: Columns | None = None) -> Iterator[Case]:
    kind = type(given).__name__
    if isinstance(given, Mapping) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"cases must be a list or another iterable of them, not {kind}")
    for number, case in enumerate(given, 1):
        taken = take_case(case, f"case {number}", columns)
        yield taken if taken.id else replace(taken, id=str(number))


def _number(rows: Iterator[Placed], columns: Columns) -> Iterator[Case]:
    """Each row as a case; one without an id is called by its number."""
    number = 0
    for number, (where, row) in enumerate(rows, 1):
        case = _from_mapping(row, where, columns)
        yield case if case.id else replace(case, id=str(number))
    if not number:
        raise InputError("no cases: the input is empty")


def _from_mapping(row: Mapping[str, Any], where: str, columns: Columns) -> Case:
    candidates = row.get("candidates")
    read = {"input", "candidates", "id", "parameters", "profile", *_PARAMETERS}
    if candidates is None:
        numbered = sorted((int(m[1]), k) for k in row if (m := _COLUMN.match(str(k).lower())))
        candidates = [row[k] for _, k in numbered if row[k] is not None]
        read |= {k for _, k in numbered}
    if isinstance(candidates, str | bytes | Mapping) or not isinstance(candidates, Iterable):
        raise InputError(f"{where}: 'candidates' must be a list of texts")
    texts = tuple(cast(Iterable[Any], candidates))
    if "input" not in row:
        raise InputError(f"{where}: 'input' is missing; a case has 'input' and 'candidates'")
    for name, value in (("input", row["input"]), *(("candidates", t) for t in texts)):
        if not isinstance(value, str):
            raise InputError(f"{where}: '{name}' must be text, not {type(value).__name__}")
    id = "" if row.get("id") is None else str(row["id"])
    named, reference = _take_reference(row, where)
    columns.references |= {} if reference is None else {named: None}
    unread = [str(k) for k, v in row.items() if v not in (None, "") and k not in read | {named}]
    columns.unread |= dict.fromkeys(unread)
    return Case(row["input"], texts, id, _parameters(row, where, unread), reference)


def _take_reference(row: Mapping[str, Any], where: str) -> tuple[str, str | None]:
    """The reference answer and its field. It may be a number, as gold answers often are; what else
    stands in a field of these names is none, except that `reference` can mean nothing else."""
    for name in REFERENCES:
        value: object = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            value = str(value)
        if isinstance(value, str) and value.strip():
            return name, value
        if name == "reference" and value not in (None, "") and not isinstance(value, str | float):
            raise InputError(f"{where}: 'reference' must be text, not {type(value).__name__}")
    return "", None


def _parameters(row: Mapping[str, Any], where: str, unread: Iterable[str]) -> dict[str, Any]:
    nested: object = row.get("parameters") or {}
    if not isinstance(nested, Mapping):
        raise InputError(f"{where}: 'parameters' must be a mapping")
    found: dict[str, Any] = dict(cast(Mapping[str, Any], nested))
    for name, value in row.items():
        if name in (*_PARAMETERS, "profile") and value is not None:
            found[name] = value
    for name in unread:
        if near := difflib.get_close_matches(name, _PARAMETERS, n=1, cutoff=0.85):
            raise InputError(f"{where}: unknown field '{name}'; did you mean '{near[0]}'?")
    if "profile" in found:
        profile = load_profile(str(found.pop("profile")))
        stated = {name: getattr(profile, name) for name in profile.model_fields_set}
        data = profile.model_dump(mode="json", include=set(stated) - {"description"})
        found = {**data, **found}
    return found
