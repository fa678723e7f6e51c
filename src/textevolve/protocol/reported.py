"""Fields of other programs' bodies that are read leniently, and the usage that endpoints report.

An optional field that cannot be read is None, so that a usable answer is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import with_default_schema

from textevolve.evaluation import Usage, mend_text

Read = TypeVar("Read")
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


class _Readable:
    """A validator for optional fields: an unreadable value becomes None, so that a usable answer is
    kept."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(handler(source), default=None, on_error="default")


READABLE = _Readable()


KnownText = Annotated[str | None, READABLE]


def _as_count(value: object) -> object:
    """Return a whole number that was written as 16.0, as some servers do."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Count = Annotated[int, Field(strict=True, ge=0, lt=2**53), BeforeValidator(_as_count)]
KnownCount = Annotated[_Count | None, READABLE]


def read_loosely(parse: Callable[[bytes], Read], body: bytes) -> Read:
    """Parse a body with `parse`. If that fails, replace the bytes that are not valid text by
    U+FFFD, and parse it once more.

    Raises:
        ValueError: the body is invalid even with these bytes replaced.
    """
    try:
        return parse(body)
    except _UNREADABLE:
        # Bytes that are not UTF-8 and lone surrogates come from tokens that are parts of characters
        # and must not cost the whole answer.
        loose = json.loads(body.decode("utf-8", "replace"))
        mended = mend_text(json.dumps(loose, ensure_ascii=False)).encode()

    try:
        return parse(mended)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the fields are not those of an answer: {error}") from error


_Cost = Annotated[Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None, READABLE]


def either(*names: str) -> Any:
    """Return a field that is read by the first of these names."""
    return Field(validation_alias=AliasChoices(*names))


def _detail(name: str, *kinds: str) -> Any:
    paths = (AliasPath(f"{kind}_tokens_details", name) for kind in kinds)
    return Field(validation_alias=AliasChoices(*paths))


class ReportedUsage(BaseModel):
    """The usage that an endpoint reports. Each field is read by its name in chat completions, or by
    its name in newer protocols."""

    prompt_tokens: Annotated[KnownCount, either("prompt_tokens", "input_tokens")] = None
    completion_tokens: Annotated[KnownCount, either("completion_tokens", "output_tokens")] = None
    cached_tokens: Annotated[KnownCount, _detail("cached_tokens", "prompt", "input")] = None
    cache_write_tokens: Annotated[KnownCount, _detail("cache_write_tokens", "prompt", "input")] = (
        None
    )
    reasoning_tokens: Annotated[KnownCount, _detail("reasoning_tokens", "completion", "output")] = (
        None
    )
    prompt_cache_hit_tokens: Annotated[
        KnownCount, either("prompt_cache_hit_tokens", "cache_read_input_tokens")
    ] = None
    cache_creation_input_tokens: KnownCount = None
    total_tokens: KnownCount = None
    cost: _Cost = None

    @property
    def whole_prompt(self) -> int:
        """The most tokens that the prompt has: some endpoints count cached ones beside the others,
        which this counts twice where they are among them."""
        cached = self.cached_tokens or self.prompt_cache_hit_tokens or 0
        written = self.cache_write_tokens or self.cache_creation_input_tokens or 0
        return (self.prompt_tokens or 0) + cached + written


class ReportedTimings(BaseModel):
    """The timings that llama.cpp's server reports. `cache_n`: the number of tokens found in its
    prompt cache."""

    cache_n: KnownCount = None


def write_chat_usage(usage: Usage) -> dict[str, Any]:
    """Return usage by its names in chat completions."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return usage by its names in newer protocols: Responses and Decisions."""
    details = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": details,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.tokens,
    }
