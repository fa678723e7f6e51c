"""What an endpoint tells of its rate limits with each answer: from headers to `RateWindow`s.

Read are `x-ratelimit-{limit,remaining,reset}-KIND` (OpenAI, Groq, Cerebras, Mistral), the same with
whose limit it is (`x-ratelimit-api_key-remaining-requests`, LiteLLM's proxy),
`anthropic-ratelimit-KIND-{limit,remaining,reset}`, and these without a kind (OpenRouter, Together
with `x-tokenlimit-...`, drafts of the IETF). Not here: what is done about them, which is
`pacing`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Literal

Unit = Literal["requests", "tokens"]

_PART = "limit|remaining|reset"
_NAME = re.compile(
    rf"(?:x-)?(?:rate-?|(?P<token>token))limit-(?P<whose>[a-z_]+-)??({_PART})(?:-([a-z-]+))?"
    rf"|anthropic-ratelimit-([a-z-]+)-({_PART})"
)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|s|m|h|d)")
_SPANS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}
_EPOCH, _EPOCH_MS = 1e9, 1e11
"""From these numbers on a reset is a point in time, in seconds or milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """A limit as an answer tells of it. `kind`: its name, such as `tokens` or `input-tokens`.
    `reset`: seconds until all of it is there again. What was not told is None."""

    kind: str
    unit: Unit
    limit: float | None
    remaining: float
    reset: float | None


def read_windows(headers: Mapping[str, str], clock: Callable[[], float]) -> tuple[RateWindow, ...]:
    """The limits that headers tell of; `clock` gives Unix time. What cannot be read counts as not
    told."""
    named = [name for name in headers if "limit" in name.lower()]
    if not named:
        return ()
    now, found = clock(), dict[str, dict[str, str]]()
    for name in named:
        if matched := _NAME.fullmatch(name.lower()):
            plain = "tokens" if matched["token"] else "requests"
            kind = (matched["whose"] or "") + (matched[4] or matched[5] or plain)
            found.setdefault(kind, {})[matched[3] or matched[6]] = headers[name].strip()
    windows: list[RateWindow] = []
    for kind, parts in found.items():
        remaining = _number(parts.get("remaining"))
        if remaining is None:
            continue
        unit: Unit = "tokens" if "token" in kind else "requests"
        limit, reset = _number(parts.get("limit")), read_reset(parts.get("reset", ""), now)
        windows.append(RateWindow(kind, unit, limit, remaining, reset))
    return tuple(windows)


def _number(text: str | None) -> float | None:
    """A count of at least 0; of `100, 100;w=60` the first."""
    try:
        value = float((text or "").split(",")[0].split(";")[0])
    except ValueError:
        return None
    return value if 0 <= value < 1e15 else None


def sum_spans(text: str) -> float:
    """Seconds of all spans in a text, such as `1m30s`."""
    return sum(float(number) * _SPANS[unit] for number, unit in _SPAN.findall(text))


def read_reset(text: str, now: float) -> float | None:
    """Seconds from `now` (Unix time) until a reset: `6m0s`, `120ms`, `2.5`, a Unix time in seconds
    or milliseconds, or a date. None where it is none of these."""
    value = _number(text)
    if value is not None:
        if value >= _EPOCH:
            value = (value / 1000 if value >= _EPOCH_MS else value) - now
        return max(0.0, value)
    spans = _SPAN.findall(text)
    if spans and "".join(number + unit for number, unit in spans) == text:
        return sum_spans(text)
    try:
        moment = datetime.fromisoformat(text)
        return max(0.0, moment.timestamp() - now) if moment.tzinfo else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
