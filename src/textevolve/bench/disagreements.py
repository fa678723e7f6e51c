"""Where judges and people disagree, item by item, for reading. Figures are in `agreement.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from textevolve.bench.credit import winner_of
from textevolve.bench.items import Item
from textevolve.bench.verdicts import ItemOutcome, Verdict, gather_outcomes, index_items
from textevolve.statistics.intervals import TIE

SHOWN = 50


@dataclass(frozen=True, slots=True)
class Disagreements:
    """`disputed`: how many items a judge and people see differently; where no item has labels, how
    many it sees differently in the two orders. `listed`: ids of the first of these, the worst
    first. `items` are all that any judge has listed, with what every judge made of them."""

    disputed: Mapping[str, int]
    flips: Mapping[str, int]
    listed: Mapping[str, tuple[str, ...]]
    items: tuple[Disputed, ...]


@dataclass(frozen=True, slots=True)
class Disputed:
    """An item with its outcomes by judge; `human`: people's winner, `TIED`, None without labels.
    `failures`: why a judge has no verdict on it."""

    item: Item
    human: int | None
    outcomes: Mapping[str, ItemOutcome]
    failures: Mapping[str, str] = field(default_factory=dict[str, str])


def find_disagreements(
    items: Sequence[Item], verdicts: Sequence[Verdict], most: int = SHOWN
) -> Disagreements:
    """At most `most` items are listed for each judge: those wrong altogether before those half
    right, and among them the ones of which the judge is surest."""
    known = index_items(items)
    outcomes = gather_outcomes(items, verdicts)
    labelled = any(item.labelled for item in items)
    disputed: dict[str, list[ItemOutcome]] = {}
    for name, of in outcomes.items():
        found = [o for o in of.values() if (o.credit < 1 - TIE if labelled else o.flipped)]
        disputed[name] = sorted(found, key=lambda o: (o.credit if labelled else 0.0, -_margin(o)))
    listed = {name: tuple(o.item for o in found[:most]) for name, found in disputed.items()}
    wanted = {id for ids in listed.values() for id in ids}
    failures: dict[tuple[str, str], str] = {}
    for verdict in verdicts:
        if verdict.failure:
            failures.setdefault((verdict.item, verdict.judge), verdict.failure.reason)
    return Disagreements(
        disputed={name: len(found) for name, found in disputed.items()},
        flips={name: sum(o.flipped for o in of.values()) for name, of in outcomes.items()},
        listed=listed,
        items=tuple(
            Disputed(
                item,
                winner_of(item.human) if item.labelled else None,
                {name: of[id] for name, of in outcomes.items()},
                {name: failures[id, name] for name in outcomes if (id, name) in failures},
            )
            for id, item in known.items()
            if id in wanted
        ),
    )


def _margin(outcome: ItemOutcome) -> float:
    """How far the best candidate is ahead of the next."""
    if len(outcome.scores) < 2:
        return 0.0
    *_, second, first = sorted(outcome.scores)
    return first - second
