"""Checks of JSON by a JSON schema (2020-12), which return the first `MOST_FAULTS` places that
violate it.

The `jsonschema` package checks; it is loaded when a schema is first read, which takes a fifth of a
second. Patterns are searched with a time limit, and references are not downloaded. A keyword that
no version of the standard has is rejected, since it would otherwise be ignored silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.texts.patterns import compile_pattern, is_found, may_be_slow

MOST_FAULTS = 10
MOST_SHOWN = 300
"""The number of characters of a message, which may quote a whole value."""
LONGEST_NAME = 10_000
Schema = Mapping[str, Any]
_UNCHECKED = {
    "$schema",
    "$id",
    "$anchor",
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
    "then",
    "else",
    "minContains",
    "maxContains",
    "$dynamicAnchor",
    "$vocabulary",
}
"""The keywords that are no checks by themselves: they modify other keywords, or describe the
schema."""


@cache
def _validator_type() -> Any:
    from jsonschema import Draft202012Validator, validators

    extend: Any = cast(Any, validators).extend

    def search(_: Any, pattern: str, text: object, __: Schema) -> Iterator[Exception]:
        from jsonschema import ValidationError

        if isinstance(text, str) and not is_found(compile_pattern(pattern), text):
            yield ValidationError(f"{text!r} does not match {pattern!r}")

    return extend(Draft202012Validator, {"pattern": search})


def check_schema(schema: object, where: str = "the schema") -> None:
    """Check that a JSON schema is valid and that all of its keywords and patterns are supported.

    Raises:
        InputError: it is no schema, or uses a keyword or a pattern that is not supported.
    """
    from jsonschema import SchemaError
    from referencing.jsonschema import DRAFT202012

    if not isinstance(schema, bool | Mapping):
        raise InputError(f"{where}: must be a mapping, not {type(schema).__name__}")
    validator = _validator_type()

    try:
        validator.check_schema(schema, format_checker=validator.FORMAT_CHECKER)
    except SchemaError as error:
        place = error.json_path.removeprefix("$")
        raise InputError(f"{where}{place}: {error.message[:MOST_SHOWN]}") from None

    if isinstance(schema, bool):
        return
    node = cast(Schema, schema)
    if unknown := sorted(set(map(str, node)) - set(validator.VALIDATORS) - _UNCHECKED):
        raise InputError(f"{where}: the keyword '{unknown[0]}' cannot be checked; leave it out")
    for pattern in [node["pattern"]] if "pattern" in node else []:
        compile_pattern(pattern)
    for pattern in node.get("patternProperties", ()):
        if may_be_slow(pattern, LONGEST_NAME):
            raise InputError(f"{where}: the pattern '{pattern[:60]}' may take too long on a name")
    for below in DRAFT202012.subresources_of(cast(Any, node)):
        check_schema(below, where)


def find_faults(text: str, schema: Schema) -> list[str]:
    """Return the first `MOST_FAULTS` violations of the schema in a text that must be JSON, each as
    a sentence; empty if there are none. A text that is not JSON has one violation.

    Raises:
        InputError: the schema refers to a definition that it lacks.
    """
    body = text.strip()

    try:
        data = json.loads(body)
    except RecursionError:
        return ["The JSON is nested too deeply."]
    except ValueError as error:
        hint = " Leave out the code fence around it." if body.startswith("```") else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        return [f"Answer with valid JSON alone, nothing around it ({reason}{line}).{hint}"]

    return find_data_faults(data, schema)


def find_data_faults(data: object, schema: Schema) -> list[str]:
    """Return the first `MOST_FAULTS` places where a value violates the schema, each as a sentence
    with the place and the reason; empty if there are none.

    Raises:
        InputError: the schema refers to a definition that it lacks.
    """
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = _validator_type()
    validator = kind(schema, registry=cast(Any, Registry)(), format_checker=kind.FORMAT_CHECKER)

    try:
        return [_describe(error) for error in islice(validator.iter_errors(data), MOST_FAULTS)]
    except Unresolvable as error:
        raise InputError(
            f"the schema has no definition at '{error.ref}'; add it under $defs"
        ) from None
    except RecursionError:
        return ["The JSON is nested too deeply."]


def _describe(error: Any) -> str:
    limit = error.validator_value
    limit_note = f" ({error.validator}: {limit})" if isinstance(limit, int | float | str) else ""
    return f"{error.json_path}: {error.message[:MOST_SHOWN]}{limit_note}."
