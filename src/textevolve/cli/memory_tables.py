"""An evaluation of a memory system in the terminal: figures, coverage, what failed; and two runs
side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from textevolve.cli.drawing import (
    Column,
    draw_columns,
    draw_facts,
    fit_columns,
    open_console,
    safe,
)
from textevolve.export import wording
from textevolve.export.memory_page import (
    TITLES,
    AnswersRow,
    Row,
    answers_rows,
    ends,
    figure_rows,
    name_part,
    type_rows,
    unmeasured,
    why_no_interval,
)

if TYPE_CHECKING:
    from textevolve.memory_eval.comparison import Comparison, DifferencePair
    from textevolve.memory_eval.figures import Figure, Figures
    from textevolve.runs.memory_evaluation import Survey
    from textevolve.runs.memory_records import Collection
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

REASONS_SHOWN = 10
LABEL_ROOM = 26
ANSWERS_ROOM = 18
"""How much of the width titles get at least before columns go below one another."""


def print_evaluation(
    collected: Collection,
    figures: Figures,
    facts: Mapping[str, str],
    console: Console | None = None,
) -> None:
    """Figures by task and by memory type, what each is of, and what there is no verdict of."""
    console = console or open_console()
    rows, by_type = figure_rows(figures), type_rows(figures)
    for table, brief in ((rows, False), (by_type, True)):
        if table:
            console.print(draw_figures(table, console.width, brief=brief))
            console.print()
    if answers := answers_rows(figures):
        console.print(Text("Answers by question type and difficulty", "dim"))
        console.print(_draw_answers(answers, console.width))
        console.print()
    console.print(_draw_coverage(figures, console.width))
    console.print()
    notes = [(f"Not measured: {names}", safe(why)) for names, why in unmeasured(figures).items()]
    for name, why in notes:
        console.print(Text.assemble((f"{name}: ", "yellow"), why))
    if reason := why_no_interval(rows):
        console.print(safe(f"Where there is no interval: {reason}", "dim"))
    for line in failure_lines(collected):
        console.print(safe(line, "red"))
    console.print(draw_facts((name, safe(value)) for name, value in facts.items() if value))


def draw_figures(rows: Sequence[Row], width: int, *, brief: bool = False) -> Any:
    """`brief`: without the intervals of what is valid, which leaves room for longer names."""

    def column(title: str, cell: Callable[[Row], str]) -> Column:
        return Column(title, [Text(cell(row)) for row in rows])

    columns = [
        column("all", lambda row: wording.figure(row.pair.all.value, 3)),
        column("95 %", lambda row: ends(row.pair.all)),
        column("valid", lambda row: wording.figure(row.pair.valid.value, 3)),
        *([] if brief else [column("95 %", lambda row: ends(row.pair.valid))]),
        column("of", lambda row: _of(row.pair.all)),
    ]
    return draw_columns([safe(row.title) for row in rows], columns, width)


def _of(figure: Figure) -> str:
    return "" if figure.of is None else f"{round(figure.of, 1):,g}"


def _draw_answers(rows: Sequence[AnswersRow], width: int) -> Any:
    def share(title: str, label: str, kind: str = "all") -> Column:
        pairs = [row.pair(label) for row in rows]
        return Column(title, [Text(wording.figure(getattr(p, kind).value, 3)) for p in pairs])

    coverage = [row.answers.coverage for row in rows]
    correct = [
        share("correct", "correct"),
        Column("95 %", [Text(ends(row.pair("correct").all)) for row in rows]),
        share("valid", "correct", "valid"),
        Column("of", [Text(f"{one.asked + one.skipped:,}") for one in coverage]),
        Column("coverage", [Text(wording.percent(one.share, 1)) for one in coverage]),
    ]
    wrong = [share("hallucinated", "hallucination"), share("omitting", "omission")]
    return fit_columns([safe(row.title) for row in rows], [correct, wrong], width, ANSWERS_ROOM)


def _draw_coverage(figures: Figures, width: int) -> Any:
    shown = {task: one for task, one in figures.coverage.items() if one.asked or one.skipped}
    columns = [
        Column("judged", [Text(f"{one.valid:,}") for one in shown.values()]),
        Column("failed", [Text(f"{one.failed:,}") for one in shown.values()]),
        Column("not asked", [Text(f"{one.skipped:,}") for one in shown.values()]),
        Column("coverage", [Text(wording.percent(one.share, 1)) for one in shown.values()]),
    ]
    return draw_columns([Text(task) for task in shown], columns, width)


def failure_lines(collected: Collection) -> list[str]:
    """Why judgements failed, the most frequent reasons first."""
    found = collected.failures.most_common()
    lines = [
        f"{number:,} of {task} failed: {wording.shorten(reason, 300)}"
        for (task, reason), number in found[:REASONS_SHOWN]
    ]
    left = sum(number for _, number in found[REASONS_SHOWN:])
    return lines + ([f"{left:,} more failed for other reasons"] if left else [])


def evaluation_facts(
    collected: Collection, figures: Figures, survey: Survey, run: RunRecord, store: Store
) -> dict[str, str]:
    """Where the figures come from and what they took, each part with its heading."""
    parameters: Mapping[str, Any] = run.spec["parameters"]
    model = f"{run.spec.get('model')} ({run.spec.get('why')})"
    minutes = figures.minutes
    spent = {"adding": minutes.adding, "searching": minutes.searching}
    spent |= {"answering": minutes.answering, "adding and searching": minutes.total}
    took = [f"{name} {wording.duration(60 * m)}" for name, m in spent.items() if m is not None]
    users = wording.count(survey.users, "user")
    malformed = f"; {len(survey.malformed)} malformed, skipped" if survey.malformed else ""
    return {
        "System": str(parameters["system"]),
        "Data": f"{run.source}: {users}, {wording.count(survey.sessions, 'session')}{malformed}",
        "Judge": f"{parameters['judge']}; {model}" if parameters["judge"] else model,
        "Answers by": str(parameters["answer_model"] or ""),
        "Time": ", ".join(took),
        "Used": wording.spent(collected.usage),
        "Run": f"{run.id} in {store.path}",
    }


def print_comparison(found: Comparison, facts: Mapping[str, str]) -> None:
    """The differences of figures, those first that chance does not explain being marked."""
    console = open_console()
    rows = [(TITLES[name], pair) for name, pair in found.figures.items()]
    rows += [
        (f"{type}: {TITLES[name]}", pairs[name])
        for type, pairs in found.by_type.items()
        for name in pairs
        if name in ("recall", "fmr", "update_correct", "memory_accuracy")
    ]
    sides = {"": found.by_question_type, "difficulty ": found.by_difficulty}
    rows += [
        (f"{name_part(what, name)}: {TITLES['question_correct']}", pairs["question_correct"])
        for what, by in sides.items()
        for name, pairs in by.items()
    ]
    known = [(title, pair) for title, pair in rows if pair.all.difference is not None]
    if known:
        console.print(_draw_differences(known, console.width))
        console.print()
    reasons: dict[str, list[str]] = {}
    for title, pair in rows:
        if pair.all.reason:
            reasons.setdefault(pair.all.reason, []).append(title)
    for reason, titles in reasons.items():
        console.print(safe(f"{', '.join(titles)}: {reason}", "yellow"))
    console.print(draw_facts((name, safe(value)) for name, value in facts.items() if value))


def _draw_differences(rows: Sequence[tuple[str, DifferencePair]], width: int) -> Any:
    def interval(pair: DifferencePair, kind: str) -> str:
        one = getattr(pair, kind)
        return "" if one.low is None else f"{one.low:+.3f} to {one.high:+.3f}"

    def signed(value: float | None) -> str:
        return "–" if value is None else f"{value:+.3f}"

    both = [
        Column("first", [Text(wording.figure(pair.all.first, 3)) for _, pair in rows]),
        Column("second", [Text(wording.figure(pair.all.second, 3)) for _, pair in rows]),
        Column(
            "difference",
            [Text(signed(p.all.difference), "bold" if p.all.clear else "") for _, p in rows],
        ),
        Column("95 %", [Text(interval(pair, "all")) for _, pair in rows]),
    ]
    valid = [
        Column("valid only", [Text(signed(pair.valid.difference)) for _, pair in rows]),
        Column("95 %", [Text(interval(pair, "valid")) for _, pair in rows]),
    ]
    return fit_columns([safe(title) for title, _ in rows], [both, valid], width, LABEL_ROOM)
