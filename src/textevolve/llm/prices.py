"""Prices of models and costs of calls, from the settings or from the package genai-prices.

The package has a list of prices. Its updates over the network are never started, so a price is as
old as the installed package.

The module also converts the usage that endpoints report (`textevolve.protocol.contents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from textevolve.addresses import is_loopback
from textevolve.errors import SettingsError
from textevolve.evaluation import Usage
from textevolve.llm.providers import PROVIDERS, Endpoint, fill_address, normalise_url, resolve
from textevolve.protocol.contents import ReportedTimings, ReportedUsage
from textevolve.settings import Price, Settings

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

LISTS: Mapping[str, str] = {
    **{name: name for name in ("openai", "anthropic", "mistral", "deepseek", "groq", "openrouter")},
    **{name: name for name in ("together", "fireworks", "cerebras")},
    "gemini": "google",
    "xai": "x-ai",
    **dict.fromkeys(("bedrock", "bedrock-anthropic"), "aws"),
}
"""The names of providers in genai-prices by our names of them."""

DECISION_LISTS: Mapping[str, str] = {
    "openai": "openai-decisions",
    "openrouter": "openrouter",
    "typesafe": "typesafe",
}
"""The names in genai-prices of the price lists for decisions, by our names of providers. A price
without a price for output means that output is free."""

USER_PRICES = "your prices"
REPORTED = "as the endpoint says"


def find_price(endpoint: Endpoint, decides: bool = False) -> Price | None:
    """Return the price of an endpoint's calls; None if it is unknown. A price in the settings comes
    first; servers on this machine without a key are free; a pool has the highest prices of its
    members. `decides`: return the price of decisions, which is also the price of a model that does
    not chat."""
    if endpoint.price is not None:
        return endpoint.price
    if endpoint.members:
        return _dearest([find_price(member, decides) for member in endpoint.members])
    if endpoint.key is None and endpoint.base_url and is_loopback(endpoint.base_url):
        return Price(input=0, output=0)
    lists = DECISION_LISTS if decides or not endpoint.chats else LISTS

    return _listed(_list_of(endpoint.base_url, lists), endpoint.model, lists is DECISION_LISTS)


def _dearest(prices: Sequence[Price | None]) -> Price | None:
    """Return the highest price of input and of output in a pool, or None if the price of any member
    is unknown; the actual cost follows from the member that answered."""
    known_prices = [price for price in prices if price is not None]
    if len(known_prices) < len(prices):
        return None
    return Price(
        input=max(p.input for p in known_prices), output=max(p.output for p in known_prices)
    )


def describe_price_source(endpoint: Endpoint) -> str | None:
    """Return the source of an endpoint's prices, with the version of a price list; None if calls
    are free or no price is known."""
    if endpoint.members:
        sources = list(map(describe_price_source, endpoint.members))
        return "; ".join(dict.fromkeys(source for source in sources if source)) or None
    price = find_price(endpoint)
    if price is not None and not (price.input or price.output or price.cached_input):
        return None
    if endpoint.price is not None:
        return USER_PRICES
    if endpoint.reports_cost:
        return REPORTED

    return None if price is None else f"prices of genai-prices {version('genai-prices')}"


def _list_of(base_url: str, lists: Mapping[str, str]) -> str | None:
    """Return the name of the price list for an address, so a provider whose address the settings
    change has no price list (None)."""
    for name, listed in lists.items():
        with suppress(SettingsError):  # its variable is not set, so that it is not the one
            if normalise_url(fill_address(name, PROVIDERS[name].base_url)) == base_url:
                return listed
    return None


def price_of(spec: str, settings: Settings) -> Price | None:
    """Return the price of a model; None if it is unknown. Models on this machine are free."""
    return find_price(resolve(spec, settings, asks=False))


def sources_of_prices(models: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Return the distinct sources of these models' prices; none if they are free."""
    sources: dict[str, None] = {}
    for spec in models:
        with suppress(SettingsError):  # reported when the model is called
            if source := describe_price_source(resolve(spec, settings, asks=False)):
                sources[source] = None

    return tuple(sources)


@cache
def _listed(listed: str | None, model: str, decides: bool) -> Price | None:
    if listed is None:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, match = get_snapshot().find_provider_model(model, None, listed, None)
    except LookupError:
        return None

    return _read(match.get_prices(datetime.now(UTC)), decides)


class ListedPrice(Price):
    """A price of genai-prices. `tiers`: the steps of each part that costs more for long prompts,
    the lowest first. `share`: the part of their prices that is paid."""

    tiers: Mapping[str, Sequence[Any]] = {}
    share: float = 1.0


def _read(listed_price: ModelPrice, decides: bool) -> Price | None:
    """Return the price of texts; None if the list lacks the price of input, or that of output,
    which is 0 for decisions."""
    parts: dict[str, Any] = {
        "input": listed_price.input_mtok,
        "output": 0 if decides else listed_price.output_mtok,
        "cached_input": listed_price.cache_read_mtok,
        "cache_write": listed_price.cache_write_mtok,
    }
    if parts["input"] is None or parts["output"] is None:
        return None
    plain = {name: getattr(part, "base", part) for name, part in parts.items()}
    tiers = {name: part.tiers for name, part in parts.items() if hasattr(part, "tiers")}

    return ListedPrice(**plain, tiers=tiers)


def price_for(price: Price, prompt: int) -> Price:
    """Return the price of a call with so many tokens of a prompt: those of the highest tier that it
    exceeds hold for all tokens of the call."""
    if not isinstance(price, ListedPrice):
        return price
    rates: dict[str, float] = {}
    for name, steps in price.tiers.items():
        for tier in steps:
            if prompt > tier.start:
                rates[name] = float(tier.price) * price.share

    return price.model_copy(update=rates)


def usage_of(
    reported: ReportedUsage | None,
    price: Price | None,
    timings: ReportedTimings | None = None,
    estimate: tuple[int, int] = (0, 0),
    reports_cost: bool = False,
) -> Usage:
    """Convert reported usage. The cost is computed from `price` and the reported tokens; the cost
    that the endpoint reports counts without a price, or before it if the endpoint `reports_cost`;
    otherwise it is None. `estimate`: tokens of prompt and answer by their texts, used if none are
    reported; their cost is None unless calls are free."""
    counts = reported or ReportedUsage()
    cached = counts.cached_tokens
    if cached is None:
        cached = timings.cache_n if timings else counts.prompt_cache_hit_tokens
    cached = cached or 0
    written = counts.cache_write_tokens or counts.cache_creation_input_tokens or 0
    # No prompt has 0 tokens, so that a 0 is not a count.
    prompt = counts.prompt_tokens or estimate[0] or counts.prompt_tokens
    answered = counts.completion_tokens or estimate[1] or counts.completion_tokens
    estimated = (prompt, answered) != (counts.prompt_tokens, counts.completion_tokens)
    if cached + written > (prompt or 0):  # then they are counted beside the prompt
        prompt = (prompt or 0) + cached + written
    # Some endpoints count thoughts beside the answer, or show them in the total alone.
    thought = counts.reasoning_tokens or 0
    hidden = 0 if estimated else (counts.total_tokens or 0) - (prompt or 0) - (answered or 0)
    if hidden > 0 and thought in (0, hidden):
        answered = (answered or 0) + hidden
        thought = hidden
    # The price that the user has set holds: a gateway says 0 for the key of a provider.
    cost = counts.cost if reports_cost or price is None else None
    saved = 0.0 if not (cached or written) else None

    if price is not None:
        free = not (price.input or price.output or price.cached_input)
        if cost is None and (free or not (estimated or prompt is None or answered is None)):
            cost = cost_of(price, prompt or 0, cached, answered or 0, written)
        saved = saved_of(price, prompt or 0, cached, written)

    return Usage(1, prompt or 0, cached, answered or 0, cost, thought, saved, int(estimated))


def cost_of(price: Price, prompt: int, cached: int, answered: int, written: int = 0) -> float:
    """Return the US dollars of one call; `cached` and `written` cache tokens are parts of
    `prompt`."""
    price = price_for(price, prompt)
    for_cached = price.input if price.cached_input is None else price.cached_input
    for_written = price.input if price.cache_write is None else price.cache_write
    uncached = (prompt - cached - written) * price.input + written * for_written
    return (uncached + cached * for_cached + answered * price.output) / 1e6


def saved_of(price: Price, prompt: int, cached: int, written: int) -> float | None:
    """Return the US dollars that caching saved on a call; below 0 if writing the cache cost more
    than reading it saved. None if the price of cached tokens is unknown."""
    price = price_for(price, prompt)
    if cached and price.cached_input is None and price.input:
        return None
    spared = cached * (price.input - (price.cached_input or 0.0))
    surcharge = 0.0 if price.cache_write is None else written * (price.cache_write - price.input)
    return (spared - surcharge) / 1e6
