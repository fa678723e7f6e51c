"""Reading what endpoints send without asking more of it than is needed: a field that an answer can
do without is None where it cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import int_schema, union_schema, with_default_schema

from textevolve.evaluation import mend_text

Read = TypeVar("Read")
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def _known(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """None where a field that an answer can do without cannot be read: a good text stays."""
    try:
        return None if isinstance(value, bool) else read(value)
    except ValidationError:
        return None


KNOWN = WrapValidator(_known)


class _Readable:
    """As `KNOWN`, at no cost, for what no truth value passes for: texts and objects."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(handler(source), default=None, on_error="default")


READABLE = _Readable()


KnownText = Annotated[str | None, READABLE]


class _Plainly:
    """A whole number as such is taken at once; whatever else comes goes the way it is marked."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        plain = int_schema(strict=True, ge=0, lt=2**53)
        return union_schema([plain, handler(source)], mode="left_to_right")


KnownCount = Annotated[Annotated[int, Field(ge=0, lt=2**53)] | None, KNOWN, _Plainly()]


def read_loosely(read: Callable[[bytes], Read], body: bytes) -> Read:
    """What `read` makes of the body, tried again without bytes that are no text.

    Raises:
        ValueError: it is not what it should be, all the same.
    """
    try:
        return read(body)
    except _UNREADABLE:
        # Bytes that are not UTF-8 and lone surrogates come from tokens that are parts of characters
        # and must not cost the whole answer.
        loose = json.loads(body.decode("utf-8", "replace"))
        whole = mend_text(json.dumps(loose, ensure_ascii=False)).encode()
    try:
        return read(whole)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not of the form of an answer: {error}") from error
