"""Usage that endpoints report, and the `Usage` and cost that follow from it.

The field types for lenient validation are here as well: a field that an answer can do without is
None where it cannot be read. Where prices come from is the business of `prices`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import int_schema, union_schema, with_default_schema

from textevolve.evaluation import Usage, mend_text
from textevolve.settings import Price

Read = TypeVar("Read")
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


def _known(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """Return None if an optional field cannot be read, so that a good text is kept."""
    try:
        return None if isinstance(value, bool) else read(value)
    except ValidationError:
        return None


KNOWN = WrapValidator(_known)


class _Readable:
    """A variant of `KNOWN` at no cost, for texts and objects, which no truth value passes for."""

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
    """Read a body, and once more without bytes that are no text if that fails.

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


_Cost = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, KNOWN]


class _CacheFigures(BaseModel):
    cached_tokens: KnownCount = None
    cache_write_tokens: KnownCount = None


class _ReasoningFigures(BaseModel):
    reasoning_tokens: KnownCount = None


def _named(old: str, new: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(old, new))


class ReportedUsage(BaseModel):
    """The usage that an endpoint reports, by the names of chats or those of newer wires."""

    model_config = ConfigDict(populate_by_name=True)

    prompt_tokens: KnownCount = _named("prompt_tokens", "input_tokens")
    completion_tokens: KnownCount = _named("completion_tokens", "output_tokens")
    prompt_tokens_details: Annotated[_CacheFigures | None, READABLE] = _named(
        "prompt_tokens_details", "input_tokens_details"
    )
    completion_tokens_details: Annotated[_ReasoningFigures | None, READABLE] = _named(
        "completion_tokens_details", "output_tokens_details"
    )
    prompt_cache_hit_tokens: KnownCount = _named(
        "prompt_cache_hit_tokens", "cache_read_input_tokens"
    )
    cache_creation_input_tokens: KnownCount = None
    total_tokens: Any = None
    cost: _Cost = None


class ReportedTimings(BaseModel):
    cache_n: KnownCount = None


def usage_of(
    reported: ReportedUsage | None,
    price: Price | None,
    timings: ReportedTimings | None = None,
    estimate: tuple[int, int] = (0, 0),
) -> Usage:
    """A cost is known only where the endpoint says it, or all that it is made of. `estimate`:
    tokens of the prompt and of the answer by their texts, counted where none are reported; what
    they cost stays unknown."""
    said = reported or ReportedUsage()
    details = said.prompt_tokens_details
    cached = details.cached_tokens if details else None
    if cached is None:
        cached = timings.cache_n if timings else said.prompt_cache_hit_tokens
    written = (details and details.cache_write_tokens) or said.cache_creation_input_tokens or 0
    # No prompt has 0 tokens, so that a 0 is not a count.
    prompt = said.prompt_tokens or estimate[0] or said.prompt_tokens
    answered = said.completion_tokens or estimate[1] or said.completion_tokens
    estimated = (prompt, answered) != (said.prompt_tokens, said.completion_tokens)
    thought = _thinking(said)
    if thought and said.total_tokens == (prompt or 0) + (answered or 0) + thought:
        answered = (answered or 0) + thought  # some count thoughts beside the answer, none twice
    cached = cached or 0
    if cached + written > (prompt or 0):  # they are parts of the prompt
        cached, written = 0, 0
    cost, saved = said.cost, 0.0 if not (cached or written) else None
    if price is not None:
        free = not (price.input or price.output or price.cached_input)
        if cost is None and (free or not (estimated or prompt is None or answered is None)):
            cost = cost_of(price, prompt or 0, cached, answered or 0, written)
        saved = saved_of(price, prompt or 0, cached, written)
    return Usage(1, prompt or 0, cached, answered or 0, cost, thought, saved, int(estimated))


def _thinking(said: ReportedUsage) -> int:
    details = said.completion_tokens_details
    return (details.reasoning_tokens or 0) if details else 0


def cost_of(price: Price, prompt: int, cached: int, answered: int, written: int = 0) -> float:
    """US dollars for one call; `cached` tokens, and those `written` into a cache, are parts of
    `prompt`."""
    price = price.of_call(prompt)
    for_cached = price.input if price.cached_input is None else price.cached_input
    for_written = price.input if price.cache_write is None else price.cache_write
    whole = (prompt - cached - written) * price.input + written * for_written
    return (whole + cached * for_cached + answered * price.output) / 1e6


def saved_of(price: Price, prompt: int, cached: int, written: int) -> float | None:
    """US dollars that a call would have cost more without caching; below 0 where writing cost more
    than reading saved. None where what a cached token costs is not known."""
    price = price.of_call(prompt)
    if cached and price.cached_input is None and price.input:
        return None
    spared = cached * (price.input - (price.cached_input or 0.0))
    surcharge = 0.0 if price.cache_write is None else written * (price.cache_write - price.input)
    return (spared - surcharge) / 1e6
