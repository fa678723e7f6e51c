"""What a model's calls cost: prices of the user's own, or else those that genai-prices has.

That package carries a list of prices, kept by its makers. Nothing is fetched: its means of bringing
itself up to date are never started, so a price is as old as the package that is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from textevolve.errors import SettingsError
from textevolve.llm.providers import PROVIDERS, Endpoint, is_loopback, normalise_url, resolve
from textevolve.settings import Price, Settings

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

LISTS: Mapping[str, str] = {
    **{name: name for name in ("openai", "anthropic", "mistral", "deepseek", "groq", "openrouter")},
    **{name: name for name in ("together", "fireworks", "cerebras")},
    "gemini": "google",
    "xai": "x-ai",
}
"""Our names of providers, and those of genai-prices."""

DECISION_LISTS: Mapping[str, str] = {
    "openai": "openai-decisions",
    "openrouter": "openrouter",
    "typesafe": "typesafe",
}
"""Likewise for decisions, where a price without one of output means that output costs nothing."""

OWN = "your prices"
REPORTED = "as the endpoint says"


class ListedPrice(Price):
    """A price of the list. `longer`: what all tokens of a call cost whose prompt has more tokens
    than the number beside it, the highest number first."""

    longer: tuple[tuple[int, Price], ...] = ()

    def of_call(self, prompt: int) -> Price:
        return next((price for above, price in self.longer if prompt > above), self)


def find_price(endpoint: Endpoint, decides: bool = False) -> Price | None:
    """The price of an endpoint's calls, None where it is not known. What runs on this machine and
    wants no key is free. `decides`: of its decisions, which is the only one of a model that does
    not chat."""
    if endpoint.price is not None:
        return endpoint.price
    if endpoint.members:
        return _dearest([find_price(one, decides) for one in endpoint.members])
    if endpoint.key is None and endpoint.base_url and is_loopback(endpoint.base_url):
        return Price(input=0, output=0)
    lists = DECISION_LISTS if decides or not endpoint.chats else LISTS
    return _listed(_list_of(endpoint.base_url, lists), endpoint.model, lists is DECISION_LISTS)


def _dearest(prices: Sequence[Price | None]) -> Price | None:
    """What a call of a pool costs at most; what it did cost is known by the member that
    answered."""
    known = [price for price in prices if price is not None]
    if len(known) < len(prices) or all(price == known[0] for price in known):
        return known[0] if len(known) == len(prices) else None
    cached = [p.input if p.cached_input is None else p.cached_input for p in known]
    return Price(
        input=max(p.input for p in known),
        output=max(p.output for p in known),
        cached_input=max(cached),
        cache_write=max(p.cache_write or p.input for p in known),
    )


def describe_price_source(endpoint: Endpoint) -> str | None:
    """Where the costs of an endpoint's calls come from, and of what date; None where there are
    none."""
    if endpoint.members:
        sources = [describe_price_source(one) for one in endpoint.members]
        return "; ".join(dict.fromkeys(source for source in sources if source)) or None
    price = find_price(endpoint)
    if price is None or isinstance(price, ListedPrice):
        if endpoint.reports_cost:
            return REPORTED
        return None if price is None else f"prices of {_package()}"
    return OWN if price.input or price.output or price.cached_input else None


def describe_missing_price(endpoint: Endpoint) -> str:
    """Why no price was found, where the list has been asked for one."""
    lists = LISTS if endpoint.chats else DECISION_LISTS
    return f"{_package()} has none" if _list_of(endpoint.base_url, lists) else ""


def _package() -> str:
    return f"genai-prices {version('genai-prices')}"


def _list_of(base_url: str, lists: Mapping[str, str]) -> str | None:
    """By the address, so that a provider that the settings put elsewhere has no price."""
    for name, listed in lists.items():
        if normalise_url(PROVIDERS[name].base_url) == base_url:
            return listed
    return None


def price_of(spec: str, settings: Settings) -> Price | None:
    """The price of a model, None where it is not known. What runs on this machine is free."""
    return find_price(resolve(spec, settings, asks=False))


def sources_of_prices(models: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Where the costs of these models come from, each source once; none where nothing costs."""
    found: dict[str, None] = {}
    for spec in models:
        with suppress(SettingsError):  # it is said when the model is asked, if it ever is
            if source := describe_price_source(resolve(spec, settings, asks=False)):
                found[source] = None
    return tuple(found)


@cache
def _listed(listed: str | None, model: str, decides: bool) -> Price | None:
    if listed is None:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, listed, None)
    except LookupError:
        return None
    return _read(found.get_prices(datetime.now(UTC)), decides)


def _read(found: ModelPrice, decides: bool) -> Price | None:
    """What is paid for texts; None where a chat's price is not whole."""
    parts: dict[str, Any] = {
        "input": found.input_mtok,
        "output": 0 if decides else found.output_mtok,
        "cached_input": found.cache_read_mtok,
        "cache_write": found.cache_write_mtok,
    }
    if parts["input"] is None or parts["output"] is None:
        return None
    steps = {tier.start for part in parts.values() for tier in getattr(part, "tiers", ())}

    def above(tokens: int) -> dict[str, float]:
        return {name: _at(part, tokens) for name, part in parts.items() if part is not None}

    longer = [(step, Price(**above(step + 1))) for step in sorted(steps, reverse=True)]
    return ListedPrice(**above(0), longer=tuple(longer))


def _at(part: Any, tokens: int) -> float:
    """One price where a prompt has so many tokens; the last step that is passed counts."""
    price = getattr(part, "base", part)
    for tier in getattr(part, "tiers", ()):
        price = tier.price if tokens > tier.start else price
    return float(price)
