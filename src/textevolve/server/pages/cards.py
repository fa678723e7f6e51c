"""Robustness cards: all of them, and the newest of each judge side by side.

A card whole is the report of its run; what it says is in `studies/robustness.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from textevolve.bench.card import Card, Check, Rate, explain_card
from textevolve.errors import TextEvolveError, public_message
from textevolve.report.blocks import Block, Cell, Column, Estimate, Section, Table
from textevolve.server.access import Caller
from textevolve.server.pages.drawing import draw
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import ServerState, server_of
from textevolve.store import served
from textevolve.store.runs import RunRecord
from textevolve.store.served import WantedRuns
from textevolve.studies.robustness import STUDY
from textevolve.studies.stored import read_records, read_spec, read_stored

KIND = "robustness"
CARDS = 100
"""Of the newest ones that are listed."""
COMPARED = 6
"""Judges side by side."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class ListedCard:
    """`judge` with its `model`; `newest`: of this judge. `card` is None where it is not read, or
    cannot be, and then `why` says so."""

    run: RunRecord
    judge: str
    model: str
    newest: bool
    card: Card | None = None
    why: str = ""

    @property
    def sentence(self) -> str:
        return explain_card(self.card) if self.card else self.why


@router.get("/cards")
async def show_cards(request: Request, caller: RunReader) -> Response:
    cards = await asyncio.to_thread(_list_cards, server_of(request), caller)
    compared = [one for one in cards if one.card is not None]
    values: dict[str, Any] = {"cards": cards, "compared": compared}
    values["blocks"] = list(_compare(compared))
    return await asyncio.to_thread(draw, request, "cards.html", **values)


def _list_cards(state: ServerState, caller: Caller) -> list[ListedCard]:
    """List the newest cards; those of few judges are read, the newest of each."""
    wanted = WantedRuns(kind=KIND, namespaces=caller.namespaces)
    runs, _ = state.store.read(served.find_runs, wanted, 0, CARDS)
    cards: list[ListedCard] = []
    seen: set[tuple[str, str]] = set()
    for run in runs:
        judge, model = str(run.spec.get("spec", {}).get("judge", "")), str(run.spec.get("model"))
        newest = (judge, model) not in seen
        card, why = None, ""
        if newest and len(seen) < COMPARED:
            try:
                spec = read_spec(STUDY, read_stored(run))
                card = STUDY.summarise(spec, read_records(state.store, run)())
            except (TextEvolveError, ValueError) as error:
                why = f"no card: {public_message(error)}"
        seen.add((judge, model))
        cards.append(ListedCard(run, judge, model, newest, card, why))
    return cards


def _compare(cards: Sequence[ListedCard]) -> Iterator[Block]:
    """A table for each family of cases: a line for each rate, a column for each judge."""
    families: dict[str, Check] = {}
    for one in cards:
        for check in one.card.checks if one.card else ():
            families.setdefault(check.family, check)
    for family, check in families.items():
        columns = [Column("rate"), Column("wanted")]
        columns += [Column(one.judge, "percent", 0) for one in cards]
        rows = [
            (f"{rate.name}: {rate.meaning}", rate.wanted, *(_cell(c, family, rate) for c in cards))
            for rate in check.rates
        ]
        yield Section(check.title, [Table("", columns, rows)], anchor=f"compared-{family}")


def _cell(listed: ListedCard, family: str, wanted: Rate) -> Cell:
    checks = listed.card.checks if listed.card else ()
    rates = [rate for check in checks if check.family == family for rate in check.rates]
    found = next((rate for rate in rates if rate.name == wanted.name), None)
    if found is None or found.rate is None:
        return None
    return Estimate(found.rate, *(found.interval or (None, None)))
