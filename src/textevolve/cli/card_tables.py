"""A judge's robustness card in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from textevolve.bench.card import Card
from textevolve.bench.card_figures import Check, Example, Figure, Rate
from textevolve.bench.card_wording import explain_card, explain_check
from textevolve.cli.drawing import GAP, Column, draw_facts, open_console, safe
from textevolve.export import wording

EXAMPLES_SHOWN = 2
INPUT_SHOWN = 70


def print_card(card: Card, facts: Mapping[str, str], console: Console | None = None) -> None:
    """The card: facts, then each check with its figures, what they mean, and the worst examples."""
    console = console or open_console()
    console.print(draw_facts((name, safe(value)) for name, value in facts.items() if value))
    console.print()
    console.print(safe(explain_card(card), "bold"))
    for check in card.checks:
        console.print()
        console.print(_title(check))
        console.print(_figures(check, console.width))
        console.print(Padding(safe(explain_check(check)), (0, 0, 0, 2)))
        for line in _examples(check.examples):
            console.print(Padding(line, (0, 0, 0, 2)))
    console.print()
    hint = "Intervals are of 95 %. With -o card.html every example can be read whole."
    console.print(Text(hint, "dim"))


def card_facts(card: Card, more: Mapping[str, str]) -> dict[str, str]:
    """What there is to say about the card as a whole, each with its heading; pages show the same.

    `more` goes in front of what the judging has used.
    """
    asked = f"{card.scored:,} of {card.questions:,} answered"
    asked += f", {card.failed:,} missing" if card.failed else ""
    asked += f", {card.refused:,} refused" if card.refused else ""
    spent = f"{wording.count(card.usage.calls, 'call')}, {wording.spent(card.usage)}"
    spent += "; what the journal answered is counted too"
    facts = {
        "Judge": card.name,
        **more,
        "Cases": f"digest {card.cases}; {card.seeds} seeds, margin {card.margin:g}",
        "Judgements": f"{asked}; coverage {wording.percent(card.coverage)}",
        "Used": spent,
    }
    for reason in card.reasons:
        said = f"{reason.count} times: {wording.shorten(reason.reason, 160)}"
        key = reason.kind.capitalize()
        facts[key] = f"{facts[key]}\n{said}" if key in facts else said
    return facts


def _title(check: Check) -> Text:
    coverage = wording.percent(check.coverage)
    about = f"  {wording.count(check.cases, 'case')}, coverage {coverage}"
    return Text.assemble((check.title, "bold"), (about, "dim"))


def _figures(check: Check, width: int) -> Padding:
    """A row for each rate and each mean or slope; what a rate should be stands last."""
    parts: Sequence[Rate | Figure] = (*check.rates, *check.figures)
    columns = [
        Column("", [_value(part) for part in parts]),
        Column("interval", [Text(interval_text(part)) for part in parts]),
        Column("cases", [Text(_cases(part)) for part in parts]),
        Column("coverage", [_coverage(part) for part in parts]),
        Column("wanted", [_wanted(part) for part in parts]),
    ]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    room = width - 2 - sum(column.width + GAP for column in columns)
    table.add_column("", overflow="fold", max_width=max(room, 16))
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True, min_width=column.width)
    for row, part in enumerate(parts):
        table.add_row(safe(_label(part)), *(column.cells[row] for column in columns))
    return Padding(table, (0, 0, 0, 2))


def _label(part: Rate | Figure) -> str:
    return f"{part.name}: {part.meaning}"


def _value(part: Rate | Figure) -> Text:
    if isinstance(part, Rate):
        return Text(wording.percent(part.rate), "bold")
    return Text("–" if part.value is None else f"{part.value:+.3f}", "bold")


def interval_text(part: Rate | Figure) -> str:
    """Of a rate in percent, of a mean or slope in score points; a dash where there is none."""
    if part.interval is None:
        return "–"
    low, high = part.interval
    if isinstance(part, Rate):
        return f"{low * 100:.0f} to {high * 100:.0f} %"
    return f"{low:+.3f} to {high:+.3f}"


def _cases(part: Rate | Figure) -> str:
    return f"{part.hits} of {part.count}" if isinstance(part, Rate) else str(part.count)


def _coverage(part: Rate | Figure) -> Text:
    return Text(wording.percent(part.coverage) if isinstance(part, Rate) else "")


def _wanted(part: Rate | Figure) -> Text:
    return Text(part.wanted if isinstance(part, Rate) else "", "dim")


def _examples(examples: Sequence[Example]) -> list[Text]:
    """The worst of those in which the judge did what it should not."""
    faults = [example for example in examples if example.fault]
    return [
        Text.assemble(
            (wording.shorten(example.id, 40), "yellow"),
            f"  {wording.visible(example.said)} ",
            (f"({wording.shorten(example.input, INPUT_SHOWN)})", "dim"),
        )
        for example in faults[:EXAMPLES_SHOWN]
    ]
