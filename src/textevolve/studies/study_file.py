"""YAML files that describe studies: each has the kind of the study, then the fields of its
specification."""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, cast

import yaml
from pydantic import ValidationError

from textevolve.errors import InputError
from textevolve.json_texts import as_object
from textevolve.mappings import map_values
from textevolve.rows import read_text
from textevolve.spec import option_properties
from textevolve.studies.kinds import find_study, kinds
from textevolve.studies.study import AnyStudy, StudySpec
from textevolve.texts.yaml_lines import line_of, parse_yaml

KIND = "kind"
FILE = "file"
"""The key that replaces a text by a file: `{file: NAME}` stands for the content of the file."""


def read_study_file(path: str) -> tuple[AnyStudy, StudySpec]:
    """Read the study that a file describes.

    Raises:
        InputError: the file cannot be read, or something in it cannot be used; names the line.
    """
    node, data = parse_yaml(read_text(path), path)
    mapping = as_object(data)
    if not isinstance(mapping.get(KIND), str):
        raise InputError(f"{path}:1: must name the kind of study: {', '.join(kinds())}")
    try:
        find_study(mapping[KIND])
    except InputError as error:
        raise InputError(f"{path}:{line_of(node, (KIND,))}: {error}") from None
    try:
        return read_study(mapping)
    except InputError as error:
        cause = error.__cause__
        place = cause.errors()[0]["loc"] if isinstance(cause, ValidationError) else ()
        raise InputError(f"{path}:{line_of(node, place)}: {error}") from None


def read_study(mapping: Mapping[str, Any]) -> tuple[AnyStudy, StudySpec]:
    """Convert the parsed content of a study file to the study and its specification.

    Raises:
        InputError: there is no such kind, or a field cannot be used.
    """
    kind = mapping.get(KIND)
    if not isinstance(kind, str):
        raise InputError(f"{KIND}: must name the kind of study: {', '.join(kinds())}")
    study = find_study(kind)
    fields = {name: _read(value) for name, value in mapping.items() if name != KIND}
    return study, study.spec(**fields)


def _read(value: Any) -> Any:
    reference = as_object(value)
    return read_text(str(reference[FILE])) if set(reference) == {FILE} else value


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON schema of study files of one kind."""
    schema = find_study(kind).spec.model_json_schema()
    kind_schema = {KIND: {"const": kind, "description": "The kind of study."}}
    fields = cast("dict[str, Any]", schema["properties"])
    schema["properties"] = {**kind_schema, **map_values(_describe, fields)}
    schema["required"] = [KIND, *schema.get("required", [])]
    return schema


def _describe(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a field. A long text may also be written as {file: NAME}."""
    field_schema = {name: value for name, value in field.items() if name not in OURS}
    if field.get("text"):
        file_schema = {
            "type": "object",
            "properties": {FILE: {"type": "string"}},
            "required": [FILE],
        }
        return {
            "description": field_schema.get("description", ""),
            "anyOf": [field_schema, file_schema],
        }
    return field_schema


# The keys of a field's schema that only this package uses; they are removed.
OURS = ("short", "group", "argument", "text", "flag", "aside", "reads", "metavar", "hidden")


def schema_of_all() -> dict[str, Any]:
    """Return the JSON schema of all study files."""
    schemas = [schema_of(kind) for kind in kinds()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A TextEvolve study",
        "oneOf": schemas,
        "$defs": dict(ChainMap(*(schema.pop("$defs", {}) for schema in schemas))),
    }


def write_example(kind: str) -> str:
    """Write a commented study file of this kind: required fields are left to be filled in, and all
    others are comments with their defaults."""
    spec = find_study(kind).spec
    lines = [f"# {line}".rstrip() for line in inspect.cleandoc(spec.__doc__ or "").splitlines()]
    lines += ["# Run it with: textevolve run FILE.yaml", "", f"{KIND}: {kind}", ""]
    for name, field in spec.model_fields.items():
        lines.append(f"# {field.description or name}")
        if field.is_required():
            text = option_properties(field).get("text") == "file"
            lines += [f"{name}: {{file: {name}.txt}}" if text else f"{name}: ...", ""]
            continue
        written = yaml.safe_dump({name: field.default}, default_flow_style=True, width=1000)
        lines += [f"# {written.strip()[1:-1]}", ""]
    return "\n".join(lines)
