"""What endpoints say that a call took, and the `Usage` and cost that it comes to.

Not here: where prices are known from (`prices`).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from textevolve.evaluation import Usage
from textevolve.llm.lenient import KNOWN, READABLE, KnownCount
from textevolve.settings import Price

_Cost = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, KNOWN]


class _CacheFigures(BaseModel):
    cached_tokens: KnownCount = None
    cache_write_tokens: KnownCount = None


class _ReasoningFigures(BaseModel):
    reasoning_tokens: KnownCount = None


def _named(old: str, new: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(old, new))


class ReportedUsage(BaseModel):
    """What an endpoint says that a call took, by the names of chats or those of newer wires."""

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
