"""Results and runs as tables in the terminal; plain lines where it is not one."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import textevolve
from textevolve.cli.drawing import (
    GAP,
    Column,
    draw_columns,
    draw_facts,
    fit_columns,
    open_console,
    safe,
    score_cell,
)
from textevolve.debate import tensor as arithmetic
from textevolve.debate.profile import Profile
from textevolve.debate.record import result_figures
from textevolve.debate.result import DebateResult, Turn
from textevolve.evaluation import Usage
from textevolve.export import wording

if TYPE_CHECKING:
    from textevolve.store.runs import RunRecord, RunTotals

CASES_SHOWN = 40


def turn_scores(turn: Turn, profile: Profile, width: int) -> RenderableType:
    """A turn's scores, candidates x components, and each candidate's score from this turn."""
    assert turn.scores is not None
    known = wording.turn_labels(turn, len(profile.agents), profile.order)
    labels = [
        Text.assemble(
            (wording.letter(j), "bold"), (f" Response {known[j]}" if known else "", "dim")
        )
        for j in range(len(turn.scores))
    ]
    scores = np.array(turn.scores)
    components = [
        Column(wording.shorten(c.name, 14), [score_cell(float(s)) for s in scores[:, k]])
        for k, c in enumerate(profile.components)
    ]
    weighted = arithmetic.turn_scores(scores, np.array(profile.weight_list))
    equal = len(set(profile.weight_list)) == 1
    mean = Column("mean" if equal else "weighted", [score_cell(float(s), 2) for s in weighted])
    return fit_columns(labels, [[*components, mean]], width, max(text.cell_len for text in labels))


def result_table(result: DebateResult, width: int) -> RenderableType:
    """The final table: a row for each candidate."""
    best, tied = result.best, result.tied
    labels: list[Text] = []
    for j, text in enumerate(result.case.candidates):
        won = j in tied or (j == best and len(result.case.candidates) > 1)
        labels.append(
            Text.assemble(
                (wording.letter(j), "bold green" if won else "bold"),
                "  ",
                (wording.shorten(text, 60), "" if won else "dim"),
            )
        )
    return fit_columns(labels, _result_columns(result), width, min(24, width // 5))


def _result_columns(result: DebateResult) -> tuple[list[Column], list[Column]]:
    """What is said of each candidate as a whole, and its score on each component."""
    figures = result_figures(result)
    number = len(result.case.candidates)

    def plain(values: Sequence[float | None], digits: int, style: str = "") -> list[Text]:
        return [Text(wording.figure(value, digits), style) for value in values[:number]]

    shares = [Text(wording.percent(p, 1)) for p in figures["probabilities"]]
    columns = [
        Column("s_norm", [score_cell(v, 2) for v in figures["s_norm"]]),
        Column("softmax", shares),
        Column("score", plain(figures["scores"], 3, "bold")),
        Column("round 1", plain(figures["round_one"], 2)),
        Column("± agents", plain(figures["spread"], 2)),
    ]
    rows = figures["components"][:number]
    components = [
        Column(wording.shorten(name, 14), [score_cell(row[name] if row else None) for row in rows])
        for name in result.components
    ]
    return columns, components


def result_facts(
    result: DebateResult, *, kept: str = "", replayed: int | None = None
) -> list[tuple[str, Text]]:
    """What is to be said below the final table, each with its heading."""
    heading, style = ("Winner", "bold green") if result.scored else ("Result", "red")
    facts = [(heading, Text(wording.verdict(result), style))]
    if result.scored and (changes := wording.changes(result)):
        facts.append(("Debate", Text(changes)))
    planned = int(np.prod(result.tensor.shape[:2]))
    present = sum(t.scores is not None for t in result.turns)
    facts.append(
        (
            "Coverage",
            Text(
                f"{wording.percent(result.coverage)} ({present} of {wording.count(planned, 'turn')}"
                f"); {wording.ending(result)}",
                "" if present == planned else "yellow",
            ),
        )
    )
    calls = wording.count(result.usage.calls, "call")
    if replayed:
        calls += f" ({replayed:,} answered by the journal)"
    spent = f"{calls}, {wording.spent(result.usage)}, {wording.duration(result.seconds)}"
    facts.append(("Spent", Text(spent)))
    marks = result.disarmed + sum(t.disarmed for t in result.turns)
    if marks:
        said = wording.count(marks, "forged mark")
        facts.append(("Disarmed", Text(f"{said} in the texts, made harmless", "yellow")))
    for failure, turns in wording.failures(result).items():
        named = ", ".join(f"{result.agents[t.agent]} in round {t.round + 1}" for t in turns)
        facts.append((failure.kind.capitalize(), safe(f"{named}: {failure.reason}", "red")))
    if kept:
        facts.append(("Kept", safe(kept)))
    return facts


def print_result(
    result: DebateResult,
    console: Console | None = None,
    *,
    kept: str = "",
    replayed: int | None = None,
    feedback: bool = False,
) -> None:
    """The final table of one debate and what there is to say about it."""
    console = console or open_console()
    if any(turn.scores is not None for turn in result.turns):
        console.print(result_table(result, console.width))
        console.print()
    console.print(draw_facts(result_facts(result, kept=kept, replayed=replayed)))
    if feedback:
        print_feedback(result, console)


def print_feedback(result: DebateResult, console: Console) -> None:
    """For each candidate, what the agents found and asked to change."""
    for j, found in enumerate(result.feedback):
        if not str(found):
            continue
        console.print()
        console.print(Text.assemble((f"Feedback on {wording.letter(j)}", "bold")))
        console.print(Padding(safe(str(found)), (0, 0, 0, 2)))


def print_results(
    results: Iterable[DebateResult], console: Console | None = None, *, shown: int = CASES_SHOWN
) -> None:
    """A run's results: the one debate in full, or a row for each of the first cases and a sum."""
    console = console or open_console()
    first: list[DebateResult] = []
    total, counts = 0, {"scored": 0, "failed": 0, "skipped": 0}
    usage = Usage()
    for result in results:
        total += 1
        counts[result_figures(result)["status"]] += 1
        usage += result.usage
        if len(first) < shown:
            first.append(result)
    if total == 1:
        print_result(first[0], console, feedback=True)
        return
    console.print(_cases_table(first, console.width))
    if total > len(first):
        left = f"{wording.count(total - len(first), 'more case')}; export the run to see them all"
        console.print(Text(left, "dim"))
    console.print()
    states = ", ".join(f"{number:,} {status}" for status, number in counts.items() if number)
    facts = [("Cases", Text(f"{total:,}: {states}" if total else "none"))]
    facts.append(("Took", Text(f"{wording.count(usage.calls, 'call')}, {wording.spent(usage)}")))
    console.print(draw_facts(facts))


def _cases_table(results: Sequence[DebateResult], width: int) -> Table:
    labels: list[Text] = []
    cells: dict[str, list[Text]] = {
        name: [] for name in ("winner", "s_norm", "softmax", "round 1", "coverage", "rounds")
    }
    for result in results:
        name = result.case.id or str(result.index + 1)
        labels.append(
            Text.assemble(
                (wording.shorten(name, 16), "bold"),
                "  ",
                (wording.shorten(result.case.input, 60), "dim"),
            )
        )
        best = result.best
        if best is None:
            status = result_figures(result)["status"]
            found = [Text(status, "red"), *(Text("–", "dim") for _ in range(3))]
        else:
            before = arithmetic.top_candidates(result.round_one)
            winner = wording.letters(result.tied) if result.tied else wording.letter(best)
            found = [
                Text(wording.shorten(winner, 14), "bold green"),
                score_cell(float(result.scores[best]), 2),
                Text(wording.percent(float(result.probabilities[best]), 1)),
                Text(wording.shorten(wording.letters(before), 14) or "–"),
            ]
        found += [Text(wording.percent(result.coverage)), Text(str(len(result.convergence)))]
        for column, cell in zip(cells.values(), found, strict=True):
            column.append(cell)
    return draw_columns(labels, [Column(name, found) for name, found in cells.items()], width)


def print_runs(
    rows: Sequence[tuple[RunRecord, RunTotals]],
    console: Console | None = None,
    *,
    as_json: bool = False,
) -> None:
    """The runs that a store keeps, with what they have used."""
    if as_json:
        import json

        for run, totals in rows:
            print(json.dumps(run_data(run, totals)))
        return
    console = console or open_console()
    styles = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "red"}
    labels = [
        Text.assemble(
            (wording.shorten(run.id, 20), "bold"),
            "  ",
            wording.shorten(run.name or run.source, 60),
        )
        for run, _ in rows
    ]
    when = [time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created)) for run, _ in rows]
    columns = [
        Column("begun", [Text(text, "dim") for text in when]),
        Column("state", [Text(run.status, styles.get(run.status, "")) for run, _ in rows]),
        Column("cases", [Text("–" if r.n_cases is None else f"{r.n_cases:,}") for r, _ in rows]),
        Column("what", [Text(str(run.spec.get("kind", "evaluate")), "dim") for run, _ in rows]),
        Column("calls", [Text(f"{totals.spent.calls:,}") for _, totals in rows]),
        Column("tokens", [Text(f"{totals.spent.tokens:,}") for _, totals in rows]),
        Column("cost", [Text(_cost(totals.spent.cost)) for _, totals in rows]),
        Column(
            "model",
            [Text(wording.shorten(str(run.spec.get("model", "")), 24), "dim") for run, _ in rows],
        ),
    ]
    room = 28
    while len(columns) > 2 and room + sum(c.width + GAP for c in columns) > console.width:
        columns.pop()
    console.print(draw_columns(labels, columns, console.width))


def _cost(cost: float | None) -> str:
    return "–" if cost is None else wording.money(cost)


def run_data(run: RunRecord, totals: RunTotals) -> dict[str, object]:
    """A run as JSON-ready data."""
    return {
        "id": run.id,
        "name": run.name,
        "kind": run.spec.get("kind", "evaluate"),
        "status": run.status,
        "created": run.created,
        "updated": run.updated,
        "source": run.source,
        "cases": run.n_cases,
        "model": run.spec.get("model"),
        "calls": totals.spent.calls,
        "failed_calls": totals.failed,
        "reused_calls": totals.reused.calls,
        "tokens": totals.spent.tokens,
        "cost": totals.spent.cost,
    }


def run_facts(run: RunRecord, totals: RunTotals) -> dict[str, str]:
    """What there is to say about a run, each with its heading; the report shows the same."""
    profile: Mapping[str, object] = run.spec.get("profile") or {}
    spent = f"{wording.count(totals.spent.calls, 'call')}, {wording.spent(totals.spent)}"
    if totals.reused.calls:
        spent += f"; {wording.count(totals.reused.calls, 'call')} had been paid for by other runs"
    if totals.failed:
        spent += f"; {wording.count(totals.failed, 'call')} failed"
    facts = {
        "Run": f"{run.id} {run.name}".strip(),
        "State": run.status,
        "Begun": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created)),
        "Cases from": run.source,
        "Model": str(run.spec.get("model", "")),
        "Why this model": str(run.spec.get("why", "")),
        "Profile": str(profile.get("name", "")),
        "Protocol": str(profile.get("protocol", "")),
        "Seed": str(profile.get("seed", "")),
        "Spent": spent,
        "Shown by": f"textevolve {textevolve.__version__}, Python {platform.python_version()}",
    }
    return {name: value for name, value in facts.items() if value}


def show_run(
    run: RunRecord,
    totals: RunTotals,
    results: Iterable[DebateResult],
    console: Console | None = None,
    *,
    as_json: bool = False,
) -> None:
    """A run's facts and results; as JSON, a line for each result and nothing else."""
    if as_json:
        for result in results:
            print(result.to_json())
        return
    console = console or open_console()
    console.print(draw_facts((name, safe(value)) for name, value in run_facts(run, totals).items()))
    console.print()
    print_results(results, console)
