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
    prompt_cache_hit_tokens: KnownCount = None
    total_tokens: Any = None
    cost: _Cost = None


class ReportedTimings(BaseModel):
    cache_n: KnownCount = None


def usage_of(
    reported: ReportedUsage | None, price: Price | None, timings: ReportedTimings | None = None
) -> Usage:
    """A cost is known only where the endpoint says it, or all that it is made of."""
    said = reported or ReportedUsage()
    details = said.prompt_tokens_details
    cached = details.cached_tokens if details else None
    if cached is None:
        cached = timings.cache_n if timings else said.prompt_cache_hit_tokens
    prompt, answered, thought = said.prompt_tokens, said.completion_tokens, _thinking(said)
    if thought and said.total_tokens == (prompt or 0) + (answered or 0) + thought:
        answered = (answered or 0) + thought  # some count thoughts beside the answer, none twice
    if cached is None or cached > (prompt or 0):  # it is a part of the prompt
        cached = 0
    cost = said.cost
    if cost is None and price is not None:
        free = not (price.input or price.output or price.cached_input)
        if free or (prompt is not None and answered is not None):
            cost = cost_of(price, prompt or 0, cached, answered or 0)
    return Usage(1, prompt or 0, cached, answered or 0, cost, thought)


def _thinking(said: ReportedUsage) -> int:
    details = said.completion_tokens_details
    return (details.reasoning_tokens or 0) if details else 0


def cost_of(price: Price, prompt: int, cached: int, answered: int) -> float:
    """US dollars for one call; `cached` tokens are a part of `prompt`."""
    price = price.of_call(prompt)
    for_cached = price.input if price.cached_input is None else price.cached_input
    whole = (prompt - cached) * price.input + cached * for_cached + answered * price.output
    return whole / 1e6
