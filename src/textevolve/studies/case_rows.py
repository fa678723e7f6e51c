"""Cases of rows in studies: the options that say how rows are read, and the parameters of a case,
which may name a profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from textevolve.debate.profile import Profile, load_profile
from textevolve.evaluation import Case
from textevolve.rows import cases
from textevolve.rows.cases import CaseLike, RowReading
from textevolve.rows.columns import Columns
from textevolve.rows.images import ImageReading
from textevolve.spec import Several, option
from textevolve.studies.study import StudySpec

_ABOUT = ("name", "description")
PARAMETERS = (*(name for name in Profile.model_fields if name not in _ABOUT), "profile")


class MappedSpec(StudySpec):
    """What specifications have whose cases come from rows of the user's own."""

    map: Mapping[str, str] = option(
        {},
        "A new name for a column: --map input=frage.",
        group="Data",
        identity=False,
        metavar="NEW=OLD",
    )


class ImagesSpec(MappedSpec):
    """What specifications have whose rows may have images."""

    images: Several = option(
        (), "A column with images of the input.", group="Advanced", identity=False, metavar="COLUMN"
    )


def image_reading(spec: ImagesSpec, candidates: tuple[str, ...] = ()) -> ImageReading:
    """Return how a specification has images read. `candidates`: columns with images of those."""
    return ImageReading(spec.images, candidates)


def read_cases(
    path: str, columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Read the cases of a file with their parameters, those of a profile that they name included.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    reading = replace(reading or RowReading(), parameters=PARAMETERS)
    return map(_open_profile, cases.read_cases(path, columns, reading))


def take_cases(
    given: Iterable[CaseLike], columns: Columns | None = None, reading: RowReading | None = None
) -> Iterator[Case]:
    """Take cases from Python objects, by the same rules as those of files.

    Raises:
        InputError: one of them is no case; names its place.
    """
    reading = replace(reading or RowReading(), parameters=PARAMETERS)
    return map(_open_profile, cases.take_cases(given, columns, reading))


def _open_profile(case: Case) -> Case:
    """Return the case with the parameters that its profile states, below its own."""
    if "profile" not in case.parameters:
        return case
    own: dict[str, Any] = dict(case.parameters)
    profile = load_profile(str(own.pop("profile")))
    stated = {name: getattr(profile, name) for name in profile.model_fields_set}
    data = profile.model_dump(mode="json", include=set(stated) - {"description"})
    return replace(case, parameters={**data, **own})
