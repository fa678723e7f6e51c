"""JSON beside a JSON schema: every place where it breaks one, as an instruction.

The part of JSON Schema (2020-12) that answers of models need. A keyword outside it is refused when
the schema is read: nothing that was asked for is left unchecked without a word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.texts.patterns import compile_pattern, is_found

_CHECKED = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minProperties",
    "maxProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "$ref",
}
_SAID = {
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}
MOST_FAULTS = 10
Schema = Mapping[str, Any]


def check_schema(schema: object, where: str = "the schema") -> None:
    """
    Raises:
        InputError: it is no schema, or uses a keyword that is not checked here.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise InputError(f"{where}: must be a mapping, not {type(schema).__name__}")
    node = cast(Schema, schema)
    if unknown := sorted(set(map(str, node)) - _CHECKED - _SAID):
        raise InputError(f"{where}: the keyword '{unknown[0]}' is not checked here; leave it out")
    _check_values(node, where)
    for name in ("properties", "$defs", "definitions"):
        for key, below in cast(Schema, node.get(name, {})).items():
            check_schema(below, f"{where} > {key}")
    for name in ("items", "additionalProperties", "not"):
        if name in node:
            check_schema(node[name], f"{where} > {name}")
    for name in ("anyOf", "oneOf", "allOf"):
        for below in cast(list[Any], node.get(name, [])):
            check_schema(below, f"{where} > {name}")


def _check_values(node: Schema, where: str) -> None:
    kinds = node.get("type", [])
    for kind in cast(list[Any], kinds if isinstance(kinds, list) else [kinds]):
        if kind not in _TYPES:
            raise InputError(f"{where}: no type '{kind}'; there are: {', '.join(_TYPES)}")
    if "pattern" in node:
        try:
            compile_pattern(str(node["pattern"]))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    for name in ("required", "enum", "anyOf", "oneOf", "allOf"):
        if not isinstance(node.get(name, []), list):
            raise InputError(f"{where}: '{name}' must be a list")
    for name in ("properties", "$defs", "definitions"):
        if not isinstance(node.get(name, {}), Mapping):
            raise InputError(f"{where}: '{name}' must be a mapping")


def find_faults(text: str, schema: Schema) -> list[str]:
    """What is wrong with a text that is to be JSON by the schema; empty where nothing is."""
    body = text.strip()
    try:
        data = json.loads(body)
    except RecursionError:
        return ["The JSON is nested too deeply."]
    except ValueError as error:
        hint = " Leave out the code fence around it." if body.startswith("```") else ""
        told = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        return [f"Answer with valid JSON alone, nothing around it ({told}{line}).{hint}"]
    try:
        return [
            fault
            for fault, _ in zip(_faults(data, schema, "the JSON", schema), range(MOST_FAULTS))  # noqa: B905
        ]
    except RecursionError:
        return ["The JSON is nested too deeply."]


def _faults(data: Any, schema: Any, place: str, root: Schema) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"Leave out {place}."
        return
    node = cast(Schema, schema)
    if "$ref" in node:
        yield from _faults(data, _resolve(str(node["$ref"]), root), place, root)
    given: Any = node.get("type", [])
    kinds = cast(list[str], given if isinstance(given, list) else [given])
    if kinds and not any(_is_a(data, kind) for kind in kinds):
        yield f"Make {place} {' or '.join(kinds)}, not {_name_type(data)}."
        return
    if "enum" in node and not any(_same(data, value) for value in node["enum"]):
        known = ", ".join(json.dumps(value, ensure_ascii=False) for value in node["enum"])
        yield f"Make {place} one of: {known}."
    if "const" in node and not _same(data, node["const"]):
        yield f"Make {place} {json.dumps(node['const'], ensure_ascii=False)}."
    if isinstance(data, dict):
        yield from _object_faults(cast(dict[str, Any], data), node, place, root)
    elif isinstance(data, list):
        yield from _list_faults(cast(list[Any], data), node, place, root)
    elif isinstance(data, str):
        yield from _text_faults(data, node, place)
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield from _number_faults(data, node, place)
    yield from _combined_faults(data, node, place, root)


def _object_faults(
    data: Mapping[str, Any], node: Schema, place: str, root: Schema
) -> Iterator[str]:
    for name in node.get("required", []):
        if name not in data:
            yield f"Give {place} the field '{name}'."
    known: Mapping[str, Any] = node.get("properties", {})
    for name, value in data.items():
        within = f"'{name}'" if place == "the JSON" else f"'{name}' in {place}"
        if name in known:
            yield from _faults(value, known[name], within, root)
        elif "additionalProperties" in node:
            yield from _faults(value, node["additionalProperties"], f"the field {within}", root)
    yield from _size_faults(len(data), node, "Properties", f"fields in {place}")


def _list_faults(data: list[Any], node: Schema, place: str, root: Schema) -> Iterator[str]:
    if "items" in node:
        for number, value in enumerate(data, 1):
            yield from _faults(value, node["items"], f"item {number} of {place}", root)
    yield from _size_faults(len(data), node, "Items", f"items in {place}")
    if node.get("uniqueItems"):
        texts = [json.dumps(value, sort_keys=True) for value in data]
        if len(set(texts)) < len(texts):
            yield f"Let no two items of {place} be the same."


def _text_faults(data: str, node: Schema, place: str) -> Iterator[str]:
    yield from _size_faults(len(data), node, "Length", f"characters in {place}")
    if "pattern" in node and not is_found(compile_pattern(node["pattern"]), data):
        yield f"Make {place} match the pattern {node['pattern']}."


def _size_faults(size: int, node: Schema, what: str, noun: str) -> Iterator[str]:
    if size < node.get(f"min{what}", 0):
        yield f"Have at least {node[f'min{what}']} {noun} (now {size})."
    if size > node.get(f"max{what}", math.inf):
        yield f"Have at most {node[f'max{what}']} {noun} (now {size})."


def _number_faults(data: float, node: Schema, place: str) -> Iterator[str]:
    for name, broken, said in (
        ("minimum", data < node.get("minimum", -math.inf), "at least"),
        ("maximum", data > node.get("maximum", math.inf), "at most"),
        ("exclusiveMinimum", data <= node.get("exclusiveMinimum", -math.inf), "more than"),
        ("exclusiveMaximum", data >= node.get("exclusiveMaximum", math.inf), "less than"),
        ("multipleOf", data % node.get("multipleOf", data or 1) != 0, "a multiple of"),
    ):
        if name in node and broken:
            yield f"Make {place} {said} {node[name]} (now {data})."


def _combined_faults(data: Any, node: Schema, place: str, root: Schema) -> Iterator[str]:
    for below in node.get("allOf", []):
        yield from _faults(data, below, place, root)
    for name in ("anyOf", "oneOf"):
        if name not in node:
            continue
        tried = [list(_faults(data, below, place, root)) for below in node[name]]
        fitting = sum(not faults for faults in tried)
        if not fitting:
            yield min(tried, key=len)[0] if tried else f"Leave out {place}."
        elif name == "oneOf" and fitting > 1:
            yield f"Make {place} fit one form only; it fits {fitting}."
    if "not" in node and not list(_faults(data, node["not"], place, root)):
        yield f"Make {place} something else: it has the form that is ruled out."


def _resolve(reference: str, root: Schema) -> Any:
    found: Any = root
    if reference != "#":
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if found is None or not reference.startswith("#"):
        raise InputError(f"the schema has nothing at '{reference}'; give it under $defs")
    return found  # pyright: ignore[reportUnknownVariableType]


def _is_a(data: Any, kind: str) -> bool:
    if isinstance(data, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(data, int) or (isinstance(data, float) and data.is_integer())
    return isinstance(data, _TYPES[kind])


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _name_type(data: Any) -> str:
    return next(kind for kind in ("boolean", *_TYPES) if _is_a(data, kind))
