"""Instances of a JSON schema, drawn from a seed: what an obliging model would answer.

Covers what structured answers are made of: objects, arrays, numbers with bounds, strings, enums,
`$ref`, `anyOf`, `allOf`. A `pattern` is not followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any, cast

TEXT = (
    "the answer states its main point early and supports it with one example but leaves out "
    "a limit that a careful reader would want named so the claim is stronger than its evidence"
)
WORDS = tuple(TEXT.split())


def prose(rng: Random, words: int) -> str:
    """A sentence-like text of `words` words."""
    start = rng.randrange(len(WORDS))
    chosen = [WORDS[(start + n) % len(WORDS)] for n in range(words)]
    return f"{' '.join(chosen).capitalize()} [{rng.getrandbits(24):06x}]."


def instance(schema: Mapping[str, Any], rng: Random) -> Any:
    """A value that follows `schema`, with the properties of objects in the schema's order."""
    return _value(schema, rng, schema, 0)


def _value(schema: Mapping[str, Any], rng: Random, root: Mapping[str, Any], depth: int) -> Any:
    schema = _resolve(schema, rng, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(list(schema["enum"]))
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kind = cast("list[str]", kind)[0]
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, rng, root, depth)
    if kind == "array":
        return _array(schema, rng, root, depth)
    if kind in ("number", "integer"):
        return _number(schema, rng, kind == "integer")
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    return _string(schema, rng)


def _resolve(schema: Mapping[str, Any], rng: Random, root: Mapping[str, Any]) -> Mapping[str, Any]:
    while True:
        if "$ref" in schema:
            found: Any = root
            for step in str(schema["$ref"]).removeprefix("#/").split("/"):
                found = found[step]
            schema = found
        elif "anyOf" in schema or "oneOf" in schema:
            schema = rng.choice(list(schema.get("anyOf") or schema["oneOf"]))
        elif "allOf" in schema:
            merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
            for part in schema["allOf"]:
                merged |= _resolve(part, rng, root)
            schema = merged
        else:
            return schema


def _object(schema: Mapping[str, Any], rng: Random, root: Mapping[str, Any], depth: int) -> Any:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    return {
        name: _value(part, rng, root, depth + 1)
        for name, part in properties.items()
        if name in required or depth < 4  # an optional property could nest without end
    }


def _array(schema: Mapping[str, Any], rng: Random, root: Mapping[str, Any], depth: int) -> Any:
    fixed: list[Any] = list(schema.get("prefixItems", ()))
    least = max(int(schema.get("minItems", 1)), len(fixed))
    most = int(schema.get("maxItems", max(least, 2)))
    length = rng.randint(least, max(least, most)) if depth < 4 else least
    items: Mapping[str, Any] = schema.get("items") or {"type": "string"}
    parts = fixed + [items] * (length - len(fixed))
    return [_value(part, rng, root, depth + 1) for part in parts]


def _number(schema: Mapping[str, Any], rng: Random, whole: bool) -> int | float:
    low, high = float(schema.get("minimum", 0)), float(schema.get("maximum", math.inf))
    step = float(schema.get("multipleOf", 1 if whole else 0.5))
    if "exclusiveMinimum" in schema:
        low = float(schema["exclusiveMinimum"]) + step
    if "exclusiveMaximum" in schema:
        high = float(schema["exclusiveMaximum"]) - step
    if math.isinf(high):
        high = low + 10
    first, last = math.ceil(low / step), math.floor(high / step)
    if first > last:  # bounds closer than the step
        return (low + high) / 2
    value = rng.randint(first, last) * step
    return int(value) if whole or value.is_integer() else value


def _string(schema: Mapping[str, Any], rng: Random) -> str:
    text = prose(rng, 12)
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    while len(text) < least:
        text += " " + prose(rng, 12)
    return text if most is None else text[: int(most)]
