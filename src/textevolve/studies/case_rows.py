"""Reading the user's rows as cases: the options for column names, and the parameters that a row may
set for its case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from textevolve.debate.profile import Profile
from textevolve.evaluation import Case
from textevolve.rows import cases
from textevolve.rows.cases import RowReading
from textevolve.spec import option
from textevolve.studies.study import StudySpec

_ABOUT = ("name", "description")
# The parameters of a debate that a row may set for its case: the fields of a profile.
PARAMETERS = tuple(name for name in Profile.model_fields if name not in _ABOUT)


class MappedSpec(StudySpec):
    """The base of specifications whose cases come from the user's rows."""

    map: Mapping[str, str] = option(
        {},
        "Rename a column: --map input=frage reads the column frage as input. Repeatable.",
        group="Data",
        identity=False,
        metavar="NEW=OLD",
    )


def read_cases(path: str) -> Iterator[Case]:
    """Read the cases of a file with their parameters.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    return cases.read_cases(path, reading=RowReading(parameters=PARAMETERS))


def name_row(row: Mapping[str, Any], number: int, counts: Counter[str]) -> str:
    """Return the id of a row, or else its number. A repeated id has a number at its end, so that no
    row takes another's place. `counts`: how often each id has occurred so far."""
    id = str(row.get("id", number))
    counts[id] += 1
    return id if counts[id] == 1 else f"{id} ({counts[id]})"
