"""The fields of specifications, with defaults, ranges and descriptions.

The command line, the Python functions and YAML files are all generated from these fields. `studies`
defines the specifications.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, Unpack

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from textevolve.errors import InputError
from textevolve.json_texts import as_object
from textevolve.mappings import omit
from textevolve.terms import advise, find_term


class Frozen(BaseModel):
    """The base of models for data from outside: values are validated, fields cannot be changed, and
    unknown fields are rejected.

    Raises:
        InputError: a field cannot be used; names it and the allowed values.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(explain(error, type(self))) from error


class OptionProperties(TypedDict, total=False):
    """The properties of a field of a specification beside its default and description.

    Attributes:
        short: The letter of the option on the command line.
        group: Its heading in the help.
        argument: The command line takes it by position, without a name.
        text: The value is a long text, given as the text itself, or as @FILE (`argument`), or as a
            file of rows, too (`rows`), or as the name of a file with the text (`file`), which may
            be stored with it (`named-file`).
        flag: The name of the option if it differs from the field's.
        reads: The value names input files, which no output may overwrite.
        metavar: The placeholder for the value in the help.
        hidden: Files and Python have the field, and the command line does not.
    """

    short: str
    group: str
    argument: bool
    text: Literal["argument", "rows", "file", "named-file"]
    flag: str
    reads: bool
    metavar: str
    hidden: bool


class OptionFacts(OptionProperties, total=False):
    """The properties of a field, and its ranges as pydantic's `Field` takes them."""

    ge: float
    gt: float
    le: float
    lt: float
    min_length: int
    exclude_if: Callable[[Any], bool]


def option(
    default: Any = ...,
    description: str = "",
    *,
    identity: bool = True,
    **facts: Unpack[OptionFacts],
) -> Any:
    """Declare a field of a specification.

    `identity`: whether another value makes another run; False for fields that only say where cases
    come from, since the cases themselves count.
    """
    names = OptionProperties.__annotations__.keys()
    extra: dict[str, Any] = {
        name: value for name, value in facts.items() if value and name in names
    }
    if not identity:
        extra["aside"] = True
    ranges: dict[str, Any] = omit(facts, names)

    return Field(default=default, description=description, json_schema_extra=extra, **ranges)


def option_properties(field: FieldInfo) -> Mapping[str, Any]:
    """Return the properties of a field that were passed to `option`, without its description."""
    return as_object(field.json_schema_extra)


def _as_several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Concurrency: TypeAlias = Annotated[int, Field(ge=1, le=4096)]
"""Types of fields with a range: a text that is not empty, a number of at least 1, a share from 0 to
1, and a number of calls at a time."""

Several: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(_as_several, json_schema_input_type=str | tuple[str, ...])
]
"""One or more texts; a single text needs no brackets, as in a YAML file."""


def files_read(spec: BaseModel) -> tuple[str, ...]:
    """Return the files that a specification names as sources of cases."""
    files: list[str] = []
    for name, field in type(spec).model_fields.items():
        if option_properties(field).get("reads"):
            files += _as_several(getattr(spec, name) or ())

    return tuple(files)


def identity_of(spec: BaseModel) -> dict[str, Any]:
    """Return the part of a specification that identifies a run, as JSON."""
    fields = type(spec).model_fields
    aside = {name for name, field in fields.items() if option_properties(field).get("aside")}
    return spec.model_dump(mode="json", exclude=aside)


def explain(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Describe the first validation error in one line, with the correct form or range."""
    problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    kind = problem["type"]
    context = problem.get("ctx", {})
    value = problem.get("input")
    value_note = f", not {value!r}" if isinstance(value, str | int | float | bool) else ""
    if kind == "extra_forbidden":
        names = list(model.model_fields) if model is not None and len(problem["loc"]) == 1 else []
        return f"unknown field '{place}'{suggest(place, names)}"
    if kind == "missing":
        field = model.model_fields.get(place) if model is not None else None
        description = (field.description or "").rstrip(".") if field is not None else ""
        return f"{place} is missing" + (
            f": {description[0].lower()}{description[1:]}" if description else ""
        )

    if kind == "value_error":
        problem_text = str(context.get("error", problem["msg"]))
        return f"{place}: {problem_text}" if place else problem_text
    if value is None:
        return f"{place} has no value"
    message = re.sub(r"^\w+ should\b", "must", problem["msg"].partition(", unable to")[0])

    return f"{place} {message}{value_note}" if place else f"{message}{value_note}"


def suggest(name: str, names: Sequence[str]) -> str:
    """Return the end of an error message that suggests the most similar of `names`, or lists all of
    them; empty if there are none."""
    term = find_term(name, names)
    if term is None and (advice := advise(name)):
        return f"; {advice}"
    near = [term] if term is not None else difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are: {', '.join(names)}" if names else ""
