"""What a person sees of an optimisation: a line for each attempt, the table, what has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from textevolve.cli.drawing import (
    Column,
    draw_columns,
    draw_facts,
    open_console,
    safe,
    score_style,
)
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.events import StepFinished, StepStarted
from textevolve.export import wording
from textevolve.export.differences import find_differences
from textevolve.export.optimization_page import first_and_best, say_minimum
from textevolve.loops.attempt import Attempt
from textevolve.loops.optimization import ATTEMPT, DONE, Optimization

BAR = 20
TEXT_SHOWN = 6000
TASKS_SHOWN = 100
NARROW = 80


def describe_step(step: StepStarted | StepFinished, many: bool) -> str | None:
    """A line for the status or the log; of many tasks only how each ended."""
    if isinstance(step, StepStarted) and step.step in ("generate", "judge"):
        doing = "is written" if step.step == "generate" else "is judged"
        which = f"{wording.shorten(step.case, 30)}: " if many else ""
        return f"{which}attempt {step.details['iteration']} {doing}"
    if not isinstance(step, StepFinished):
        return None
    if step.step == ATTEMPT and not many:
        return _attempt_line(step.value)
    if step.step == DONE and many:
        made: Optimization = step.value
        scored = "" if made.score is None else f" at {wording.figure(made.score, 3)}"
        return f"{wording.shorten(made.id, 30)}: {made.status}{scored}, {made.reason}"
    return None


def _attempt_line(attempt: Attempt) -> str:
    if isinstance(attempt.evaluation, Failure):
        why = wording.shorten(attempt.evaluation.reason, 200)
        return f"attempt {attempt.iteration}  no score ({why})"
    score = attempt.evaluation.score
    bar = "█" * round(score * BAR)
    wanted: Sequence[str] = attempt.metadata.get("instructions", ())
    said = "".join(f"; {note}" for note in attempt.notes)
    first = f"  wanted: {wording.shorten(wanted[0], 60)}" if wanted else ""
    return f"attempt {attempt.iteration}  {score:.3f}  {bar:<{BAR}}{first}{said}"


def print_results(results: Sequence[Optimization], facts: Mapping[str, str]) -> None:
    """One task in full; of many a table."""
    console = open_console()
    if len(results) == 1:
        _print_one(results[0], facts, console)
        return
    shown = results[:TASKS_SHOWN]
    labels = [safe(wording.shorten(f"{made.id}  {made.task}", 60)) for made in shown]
    first = [made.attempts[0].score if made.attempts else None for made in shown]
    columns = [
        Column("ended", [Text(made.status) for made in shown]),
        Column("first", [_score(value) for value in first]),
        Column("best", [_score(made.score) for made in shown]),
        Column("attempts", [Text(str(len(made.attempts))) for made in shown]),
        Column("tokens", [Text(f"{made.usage.tokens:,}") for made in shown]),
    ]
    console.print(draw_columns(labels, columns, console.width))
    if len(results) > len(shown):
        console.print(f"{len(results) - len(shown)} more tasks; write them with -o FILE.jsonl")
    for made in results:
        if said := say_minimum(made):
            console.print(safe(f"{made.id}: {said}", "red"))
    console.print(draw_facts([(name, safe(value)) for name, value in facts.items()]))


def _print_one(made: Optimization, facts: Mapping[str, str], console: Console) -> None:
    if made.attempts:
        console.print(_table(made, console.width))
    _print_changes(made, console)
    if made.output is not None:
        console.print(
            Text(f"\nThe best: attempt {made.best.iteration if made.best else 0}", "bold")
        )
        console.print(Padding(safe(_cut(made.output)), (0, 0, 1, 2)))
    good = made.score is not None
    told = [("Ended", safe(f"{made.status}: {made.reason}", "bold green" if good else "red"))]
    if said := say_minimum(made):
        told.append(("Minimum", safe(said, "red")))
    told.append(("Used", safe(f"{made.usage.calls:,} calls, {wording.spent(made.usage)}")))
    told += [(name, safe(value)) for name, value in facts.items()]
    console.print(draw_facts(told))


def _table(made: Optimization, width: int) -> object:
    best = made.best
    labels = [_label(attempt, best) for attempt in made.attempts]
    columns = [
        Column("score", [_score(attempt.score) for attempt in made.attempts]),
        Column("like before", [Text(wording.percent(a.similarity)) for a in made.attempts]),
        Column("characters", [_length(attempt) for attempt in made.attempts]),
        Column("tokens", [Text(f"{a.usage.tokens:,}") for a in made.attempts]),
        Column("time", [Text(wording.duration(a.seconds)) for a in made.attempts]),
    ]
    if any(attempt.second is not None for attempt in made.attempts):
        seconds = [a.second for a in made.attempts]
        scores = [s.score if isinstance(s, EvaluationResult) else None for s in seconds]
        columns.insert(1, Column("second judge", [_score(score) for score in scores]))
    if width < NARROW:  # else the attempts lose their numbers
        columns = [column for column in columns if column.title != "characters"]
    return draw_columns(labels, columns, width)


def _label(attempt: Attempt, best: Attempt | None) -> Text:
    is_best = best is not None and attempt.iteration == best.iteration
    notes = list(attempt.notes)
    if isinstance(attempt.evaluation, Failure):
        notes.insert(0, f"{attempt.evaluation.kind}: {attempt.evaluation.reason}")
    return Text.assemble(
        (f"attempt {attempt.iteration}", "bold green" if is_best else "bold"),
        (f"  {wording.shorten('; '.join(notes), 100)}" if notes else "", "dim"),
    )


def _length(attempt: Attempt) -> Text:
    return Text("–" if attempt.output is None else f"{len(attempt.output):,}")


def _score(score: float | None) -> Text:
    style = score_style(float("nan") if score is None else 10 * score)
    return Text(wording.figure(score, 3), style)


def _print_changes(made: Optimization, console: Console) -> None:
    """From the first attempt to the best: colours on a terminal, `[-old-]{+new+}` elsewhere."""
    first, best = first_and_best(made)
    if first is None or best is None:
        return
    console.print(Text(f"\nFrom attempt {first.iteration} to attempt {best.iteration}", "bold"))
    coloured = console.is_terminal and console.color_system is not None
    drawn = Text()
    for piece in find_differences(_cut(first.output or ""), _cut(best.output or "")):
        text, end = piece.text.rstrip(), piece.text[len(piece.text.rstrip()) :]
        if piece.kind == "same":
            drawn.append_text(safe(piece.text))
        elif piece.kind == "removed":
            drawn.append_text(safe(text, "red strike") if coloured else safe(f"[-{text}-]"))
            drawn.append(end)
        else:
            drawn.append_text(safe(text, "green") if coloured else safe(f"{{+{text}+}}"))
            drawn.append(end)
    console.print(Padding(drawn, (0, 0, 0, 2)))


def _cut(text: str) -> str:
    if len(text) <= TEXT_SHOWN:
        return text
    return f"{text[:TEXT_SHOWN]}… ({len(text) - TEXT_SHOWN:,} more characters)"
