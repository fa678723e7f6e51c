"""Options of the command line made from a specification's fields, and specifications from them.

Everything arrives as text and is checked by the specification, so that each rule is in one place.
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

from textevolve.cli.options import read_argument
from textevolve.errors import InputError
from textevolve.rows import names_rows, read_text
from textevolve.spec import Frozen, noted_of

F = TypeVar("F", bound=Callable[..., None])


def parameters_of(spec: type[Frozen]) -> list[inspect.Parameter]:
    """The arguments and options of a specification: arguments first, and what it has in common with
    others last, since help groups them in this order."""
    names = dict.fromkeys([*spec.__annotations__, *spec.model_fields])
    fields = {name: spec.model_fields[name] for name in names if name in spec.model_fields}
    within = {name: inner for name, field in fields.items() if (inner := _spec_in(field))}
    shown = [n for n, f in fields.items() if n not in within and not noted_of(f).get("hidden")]
    made = [_parameter(name, fields[name]) for name in shown]
    arguments = [one for one in made if noted_of(fields[one.name]).get("argument")]
    return [
        *arguments,
        *(one for one in made if one not in arguments),
        *(
            _parameter(name, field, group.replace("_", " ").capitalize())
            for group, inner in within.items()
            for name, field in inner.model_fields.items()
        ),
    ]


def _spec_in(field: FieldInfo) -> type[Frozen] | None:
    """The specification that a field holds, whose fields are options like the others."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Frozen) else None


def give_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The command with a signature for typer."""
    made = cast(Any, command)
    made.__signature__ = inspect.Signature(list(parameters))
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def takes(spec: type[Frozen], *without: str) -> Callable[[F], F]:
    """Give a command the options of a specification in place of its `**given`."""

    def shape(command: F) -> F:
        own = inspect.signature(command, eval_str=True).parameters.values()
        named = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.name != "given"]
        required = [each for each in named if each.default is each.empty]
        optional = [each for each in named if each.default is not each.empty]
        fields = [each for each in parameters_of(spec) if each.name not in without]
        give_parameters(command, [*required, *fields, *optional])
        return command

    return shape


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a command that no specification has."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _parameter(name: str, field: FieldInfo, group: str = "Options") -> inspect.Parameter:
    noted = noted_of(field)
    kinds = _kinds(field.annotation)
    many, flag = _is_many(field.annotation), kinds == (bool,)
    wanted: Any = (bool if flag else list[str] if many else str) | None
    required = field.is_required()
    told: dict[str, Any] = {
        "help": f"{field.description or ''}{_say_default(field)}",
        "metavar": None if flag else _metavar(name, kinds, noted),
        "show_default": False,
    }
    if noted.get("argument"):
        info: Any = typer.Argument(**told)
    else:
        dashed = name.replace("_", "-")
        named = noted.get("flag", f"--{dashed}")
        names = [f"--{dashed}/--no-{dashed}" if flag and field.default is not False else named]
        names += [noted["short"]] if "short" in noted else []
        info = typer.Option(*names, **told, rich_help_panel=noted.get("group", group))
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=... if required and noted.get("argument") else None,
        annotation=Annotated[wanted, info],
    )


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """What a field may be beside None; of a list, its items. A choice stays a Literal."""
    if _is_mapping(annotation):
        return (Mapping,)
    if get_origin(annotation) in (tuple, list):
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) is Literal or not get_args(annotation):
        return (annotation,)
    return tuple(
        kind for one in get_args(annotation) if one is not NoneType for kind in _kinds(one)
    )


def _is_many(annotation: Any) -> bool:
    many = (tuple, list, Mapping)
    return any(get_origin(one) in many for one in (annotation, *get_args(annotation)))


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is Mapping


def _metavar(name: str, kinds: tuple[Any, ...], noted: Mapping[str, Any]) -> str:
    if noted.get("metavar"):
        return str(noted["metavar"])
    if noted.get("argument"):
        return name.upper()
    if get_origin(kinds[0]) is Literal:
        return "|".join(str(one) for one in get_args(kinds[0]))
    named = {int: "INTEGER", float: "NUMBER", Mapping: "NAME=VALUE"}
    return named.get(kinds[0], "TEXT")


def _say_default(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, bool):
        return "  [default: yes]" if default else ""
    if default is None or default is PydanticUndefined or default in ("", (), {}):
        return ""
    if isinstance(default, tuple):
        default = ", ".join(map(str, cast(tuple[Any, ...], default)))
    return f"  [default: {default}]"


def read_given(spec: type[Frozen], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a specification's fields, with the texts of files read.

    Raises:
        InputError: a file cannot be read.
    """
    found: dict[str, Any] = {}
    for name, field in spec.model_fields.items():
        if inner := _spec_in(field):
            if within := read_given(inner, given):
                found[name] = within
            continue
        value = given.get(name)
        if value is None or value == []:
            continue
        many = _is_many(field.annotation)
        if _is_mapping(field.annotation):
            plain = str in get_args(field.annotation)[1:]
            found[name] = dict(_read_pair(name, one, plain=plain) for one in value)
            continue
        read = _READERS.get(noted_of(field).get("text", ""))
        if read is not None:
            value = [read(one) for one in value] if many else read(value)
        found[name] = tuple(value) if many else value
    return found


def _read_pair(name: str, given: str, *, plain: bool) -> tuple[str, Any]:
    """NAME=VALUE, the value as YAML; `plain`: as a text, as it stands."""
    key, equals, value = given.partition("=")
    if not equals:
        raise InputError(f"--{name.replace('_', '-')}: give NAME=VALUE, not '{given}'")
    if plain:
        return key.strip(), value
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        return key.strip(), value


def _read_named(path: str) -> dict[str, str]:
    """The file is told too, since its ending may say what its text is."""
    name = "standard input" if path == "-" else Path(path).stem
    return {"name": name, "text": read_text(path), "file": path}


def _read_or_rows(given: str) -> str:
    """A text, as `read_argument` has it; the name of a file of rows stays."""
    return given if names_rows(given) else read_argument(given)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "file": read_text,
    "named-file": _read_named,
    "argument": read_argument,
    "rows": _read_or_rows,
}
