"""What several scripts share: how a share, a cost and the machine are written."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from textevolve.evaluation import Usage
from textevolve.events import CallFinished, Event
from textevolve.statistics.intervals import wilson_interval


@dataclass
class Spent:
    """What was asked in this sitting, which the journal did not have."""

    usage: Usage = Usage()
    began: float = field(default_factory=time.monotonic)

    def hear(self, event: Event) -> None:
        if isinstance(event, CallFinished) and not event.replayed:
            self.usage += event.usage

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return f"asked in this sitting: {tell_usage(self.usage)}, {seconds:,.0f} s"


def tell_usage(used: Usage) -> str:
    return (
        f"{used.calls} calls, {used.prompt_tokens:,} prompt tokens"
        f" ({used.cached_tokens:,} cached), {used.completion_tokens:,} written"
    )


def format_share(results: Sequence[float | None]) -> str:
    """Return how many of the values are hits, with the share and Wilson's interval at 95 %. What
    has no value is named, not counted."""
    hits = [result for result in results if result is not None]
    missing = f", {len(results) - len(hits)} without a score" if len(hits) < len(results) else ""
    if not hits:
        return f"none{missing}"
    interval = wilson_interval(sum(hits), len(hits))
    ends = f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"
    share = f"{100 * sum(hits) / len(hits):.0f} % ({ends})"
    return f"{sum(hits):g} of {len(hits)}, {share}{missing}"


def describe_machine() -> str:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    version = sys.version.split()[0]
    return f"{os.cpu_count()} cores, load {load}, {platform.platform()}, Python {version}"
