"""A judge's robustness card as one self-contained HTML file: no script, nothing loaded.

The card and the sentences about it are made elsewhere; here they are only laid out. Everything from
a case or a judge passes through the templates' escaping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textevolve.export.files import open_target
from textevolve.export.pages import open_template

if TYPE_CHECKING:
    from textevolve.bench.card import Card
    from textevolve.bench.card_figures import Check, Rate, Shown

AXIS_WIDTH = 170
MARGIN = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """A rate and its interval on an axis from 0 to 100 %; None where there is no rate."""

    width: int
    value: float | None
    low: float
    high: float
    hint: str


def write_card_page(
    card: Card, path: str | Path, headline: str, said: Mapping[str, str], facts: Mapping[str, str]
) -> None:
    """Write the page; `-` is standard output.

    `headline` is said of the whole card, `said` of each check, by its family; `facts` are shown as
    given, each under its name.

    Raises:
        InputError: the file cannot be written.
    """
    parts = open_template("card.html").generate(
        card=card,
        headline=headline,
        said=said,
        facts=facts,
        bar_of=draw_bar,
        named=_name_kinds,
        asked=describe_question,
    )
    with open_target(path) as target:
        for part in parts:
            target.write(part.encode("utf-8", "backslashreplace"))


def draw_bar(rate: Rate) -> Bar:
    if rate.rate is None or rate.interval is None:
        return Bar(AXIS_WIDTH, None, 0, 0, "nothing could be counted")
    low, high = rate.interval
    hint = f"{rate.rate * 100:.0f} %, interval {low * 100:.0f} to {high * 100:.0f} %"
    return Bar(AXIS_WIDTH, _place(rate.rate), _place(low), _place(high), hint)


def _place(share: float) -> float:
    return round(MARGIN + share * (AXIS_WIDTH - 2 * MARGIN), 1)


def _name_kinds(check: Check) -> dict[str, list[Rate]]:
    """The rates by kind, those of one figure together, under its name."""
    found: dict[str, list[Rate]] = {}
    for rate in check.kinds:
        found.setdefault(rate.name, []).append(rate)
    return found


def describe_question(shown: Shown) -> str:
    """How a judgement of an example was asked, in a few words."""
    parts = ["with the attack"] if shown.attacked else []
    parts.append("better one first" if shown.good_first else "worse one first")
    parts += [] if shown.seed is None else [f"seed {shown.seed}"]
    return ", ".join(parts)
