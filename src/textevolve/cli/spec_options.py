"""Conversion of a specification's fields to options of the command line, and of their values back
to a specification.

All values arrive as text and are checked by the specification, so that each rule is in one place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import typer
import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from textevolve.errors import InputError
from textevolve.mappings import pick
from textevolve.rows import names_rows, read_argument, read_text
from textevolve.spec import Frozen, option_properties

F = TypeVar("F", bound=Callable[..., None])


def parameters_of(spec: type[Frozen]) -> list[inspect.Parameter]:
    """Return the arguments and options of a specification: arguments first, and the fields of inner
    specifications last, since help lists them in this order."""
    names = dict.fromkeys([*spec.__annotations__, *spec.model_fields])
    fields = pick(spec.model_fields, names)
    arguments: list[inspect.Parameter] = []
    options: list[inspect.Parameter] = []
    inner_options: list[inspect.Parameter] = []

    for name, field in fields.items():
        properties = option_properties(field)
        inner = _spec_in(field)
        if inner is not None:
            group = name.replace("_", " ").capitalize()
            for inner_name, inner_field in inner.model_fields.items():
                inner_options.append(_parameter(inner_name, inner_field, group))
        elif properties.get("hidden"):
            continue
        elif properties.get("argument"):
            arguments.append(_parameter(name, field))
        else:
            options.append(_parameter(name, field))

    return [*arguments, *options, *inner_options]


def _spec_in(field: FieldInfo) -> type[Frozen] | None:
    """Return the inner specification of a field, whose own fields become options; None for other
    fields."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Frozen) else None


def give_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return the command with these parameters as its signature, from which typer builds its
    options."""
    typed_command = cast(Any, command)
    typed_command.__signature__ = inspect.Signature(list(parameters))
    typed_command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }

    return command


def takes(spec: type[Frozen], *without: str) -> Callable[[F], F]:
    """Return a decorator that replaces the `**values` of a command by the options of a
    specification. `without`: the fields that are left out."""

    def shape(command: F) -> F:
        declared = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [
            each.replace(kind=each.KEYWORD_ONLY) for each in declared if each.name != "values"
        ]
        required = [each for each in parameters if each.default is each.empty]
        optional = [each for each in parameters if each.default is not each.empty]
        fields = [each for each in parameters_of(spec) if each.name not in without]
        give_parameters(command, [*required, *fields, *optional])

        return command

    return shape


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Return a parameter of a command. `default`: `...` if a value is required."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _parameter(name: str, field: FieldInfo, group: str = "Options") -> inspect.Parameter:
    noted = option_properties(field)
    kinds = _kinds(field.annotation)
    many = _is_many(field.annotation)
    flag = kinds == (bool,)
    # Values stay texts here; the specification reads them, so that every door reads them alike.
    option_type: Any = str | None
    if flag:
        option_type = bool | None
    elif many:
        option_type = list[str] | None
    settings: dict[str, Any] = {
        "help": f"{field.description or ''}{_format_default(field)}",
        "metavar": None if flag else _metavar(name, kinds, noted),
        "show_default": False,
    }

    if noted.get("argument"):
        info: Any = typer.Argument(**settings)
    else:
        dashed = name.replace("_", "-")
        long_name = noted.get("flag", f"--{dashed}")
        if flag and field.default is not False:
            long_name = f"--{dashed}/--no-{dashed}"
        names = [long_name]
        if "short" in noted:
            names.append(noted["short"])
        info = typer.Option(*names, **settings, rich_help_panel=noted.get("group", group))

    is_required = field.is_required() and noted.get("argument")

    return keyword(name, Annotated[option_type, info], ... if is_required else None)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a field except None; for a list the types of its items. A Literal stays
    as it is."""
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Mapping:
        return (Mapping,)
    if origin in (tuple, list, Annotated):
        return _kinds(parts[0])
    if origin is Literal or not parts:
        return (annotation,)

    return tuple(kind for part in parts if part is not NoneType for kind in _kinds(part))


def _is_many(annotation: Any) -> bool:
    many = (tuple, list, Mapping)
    return any(get_origin(kind) in many for kind in (annotation, *get_args(annotation)))


def _metavar(name: str, kinds: tuple[Any, ...], noted: Mapping[str, Any]) -> str:
    if noted.get("metavar"):
        return str(noted["metavar"])
    if noted.get("argument"):
        return name.upper()
    if get_origin(kinds[0]) is Literal:
        return "|".join(map(str, get_args(kinds[0])))
    metavars = {int: "INTEGER", float: "NUMBER", Mapping: "NAME=VALUE"}
    return metavars.get(kinds[0], "TEXT")


def _format_default(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, bool):
        return "  [default: yes]" if default else ""
    if default is None or default is PydanticUndefined or default in ("", (), {}):
        return ""
    if isinstance(default, tuple):
        default = ", ".join(map(str, cast(tuple[Any, ...], default)))
    return f"  [default: {default}]"


def read_given(spec: type[Frozen], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a specification's fields that were set on the command line, by the names
    of the fields; file names are replaced by the texts of the files.

    Raises:
        InputError: a file cannot be read.
    """
    fields: dict[str, Any] = {}

    for name, field in spec.model_fields.items():
        if inner := _spec_in(field):
            if within := read_given(inner, values):
                fields[name] = within
            continue

        value = values.get(name)
        if value is None or value == []:
            continue
        many = _is_many(field.annotation)
        if get_origin(field.annotation) is Mapping:
            plain = str in get_args(field.annotation)[1:]
            pairs = [_read_pair(name, text, plain=plain) for text in value]
            fields[name] = dict(pairs)
            if len(fields[name]) < len(pairs):  # a repeatable option, but each name takes one value
                first = next(text for text in value if _repeats(text, value))
                raise InputError(
                    f"--{name.replace('_', '-')}: '{first.partition('=')[0].strip()}' is given more"
                    f" than once: {', '.join(value)}; give each name one value"
                )
            continue

        reader = _READERS.get(option_properties(field).get("text", ""))
        if reader is not None:
            value = list(map(reader, value)) if many else reader(value)
        fields[name] = tuple(value) if many else value

    return fields


def _read_pair(name: str, text: str, *, plain: bool) -> tuple[str, Any]:
    """Parse NAME=VALUE. The value is parsed as YAML; with `plain` it stays a text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--{name.replace('_', '-')}: give NAME=VALUE, not '{text}'")
    if plain:
        return key.strip(), value
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        return key.strip(), value


def _repeats(text: str, texts: Sequence[str]) -> bool:
    """Tell whether another NAME=VALUE has the same name."""
    names = [each.partition("=")[0].strip() for each in texts]
    return names.count(text.partition("=")[0].strip()) > 1


def _read_named(path: str) -> dict[str, str]:
    """Return the text of a file (`text`), its name without the ending (`name`), and its path
    (`file`), since the ending may determine the format."""
    name = "standard input" if path == "-" else Path(path).stem
    return {"name": name, "text": read_text(path), "file": path}


def _read_or_rows(text: str) -> str:
    """Return a text as `read_argument` does; the name of a file of rows is returned unchanged."""
    return text if names_rows(text) else read_argument(text)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "file": read_text,
    "named-file": _read_named,
    "argument": read_argument,
    "rows": _read_or_rows,
}
