"""What a judge that is not a debate made of cases, in the terminal."""

from __future__ import annotations

from rich.text import Text

from textevolve.cli.drawing import Column, draw_columns, open_console, safe
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.export import wording
from textevolve.judges.judged import JudgedCase


def print_case(judged: JudgedCase) -> None:
    """A row for each candidate, then what the judge says of it."""
    console = open_console()
    labels = [_label(judged, j) for j in range(len(judged.case.candidates))]
    figures = [_figures(outcome) for outcome in judged.result]
    columns = [
        Column(title, [Text(row[k]) for row in figures])
        for k, title in enumerate(("score", "log-odds", "passed"))
    ]
    console.print(draw_columns(labels, columns, console.width))
    for j, outcome in enumerate(judged.result):
        said = outcome.reason if isinstance(outcome, Failure) else outcome.feedback
        style = "red" if isinstance(outcome, Failure) else "dim"
        for line in said.splitlines():
            console.print(Text.assemble((f"{wording.letter(j)}  ", "bold")) + safe(line, style))
    console.print(_verdict(judged))


def print_line(judged: JudgedCase) -> None:
    """A case in one line: its best candidate and all scores."""
    scores = ", ".join(
        wording.figure(one.score if isinstance(one, EvaluationResult) else None, 3)
        for one in judged.result
    )
    console = open_console()
    head = safe(wording.shorten(judged.case.id, 30), "bold")
    console.print(head + Text("  ") + _verdict(judged) + Text(f"  [{scores}]", "dim"))


def _label(judged: JudgedCase, j: int) -> Text:
    style = "bold green" if j == judged.best and len(judged.result) > 1 else "bold"
    text = wording.visible(wording.shorten(judged.case.candidates[j], 60))
    return Text.assemble((wording.letter(j), style), "  ", text)


def _figures(outcome: EvaluationResult | Failure) -> tuple[str, str, str]:
    if isinstance(outcome, Failure):
        return (wording.figure(None, 3), wording.figure(None, 2), outcome.kind)
    odds = outcome.metadata.get("log_odds")
    return (
        wording.figure(outcome.score, 3),
        wording.figure(odds, 2),
        "yes" if outcome.passed else "no",
    )


def _verdict(judged: JudgedCase) -> Text:
    if judged.failure is not None:
        return Text(f"not all have a score ({judged.failure.kind})", "red")
    if len(judged.result) == 1:
        return Text("passed" if judged.scores[0].passed else "not passed")
    if judged.best is None:
        return Text("a tie", "yellow")
    return Text(f"best: {wording.letter(judged.best)}", "bold green")
