"""An evaluation of a memory system as HTML: no script, nothing loaded. One file, and beside it
pages with all judgements, where the file has but some.

Figures and judgements come from elsewhere; here they are laid out. Memories, dialogues, reasons and
everything else from outside pass through the templates' escaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from textevolve.errors import InputError
from textevolve.evaluation import Failure
from textevolve.export.files import open_target
from textevolve.export.pages import open_template
from textevolve.memory_eval.figures import FIGURES, Answers, Figure, Figures, Pair
from textevolve.memory_eval.judgement import TASKS, Judgement, Subject, Task

TITLES: Mapping[str, str] = {
    "recall": "recall",
    "weighted_recall": "weighted recall",
    "fmr": "false memory resistance",
    "target_precision": "target precision",
    "accuracy": "accuracy",
    "f1": "extraction F1",
    "update_correct": "updates correct",
    "update_hallucination": "updates hallucinated",
    "update_omission": "updates omitted",
    "update_other": "updates otherwise wrong",
    "question_correct": "answers correct",
    "question_hallucination": "answers hallucinated",
    "question_omission": "answers omitting",
    "memory_accuracy": "memory accuracy",
}
TYPE_SHOWN = ("recall", "fmr", "update_correct", "memory_accuracy")
"""What is shown for each memory type: false memory resistance always beside recall."""

ASKED: Mapping[Task, str] = {
    "integrity": "Was it kept? The points to remember, and those that must not be kept",
    "accuracy": "Is it true? The memories that were extracted",
    "update": "Did the change arrive? What a search returned",
    "question": "Is the answer right?",
}
LISTED: Mapping[Task, str] = {
    "integrity": "expected",
    "accuracy": "memory",
    "update": "expected",
    "question": "question",
}
"""Which text of a judgement stands in the list."""
TEXT_TITLES: Mapping[str, str] = {
    "expected": "expected",
    "memories": "found",
    "original": "replaces",
    "memory": "extracted memory",
    "gold": "expected memories of the session",
    "question": "question",
    "reference": "reference answer",
    "evidence": "evidence",
    "answer": "answer",
    "dialogue": "dialogue",
}


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class AnswersRow:
    """Answers to questions of one type, or of one difficulty."""

    title: str
    answers: Answers

    def pair(self, label: str) -> Pair:
        return self.answers.figures[f"question_{label}"]


@dataclass(frozen=True, slots=True)
class Part:
    """The judgements of a task that are shown, out of all there are."""

    task: Task
    shown: Sequence[Judgement]
    number: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page of judgements, from the report, and the first subject on it."""

    link: str
    first: Subject


PAGE_SIZE = 500
"""Judgements on a page, some 5 MB at most."""


def figure_rows(figures: Figures) -> list[Row]:
    """The figures that are measured, in order."""
    return [Row(TITLES[n], figures.figures[n]) for n in FIGURES if _known(figures.figures[n])]


def unmeasured(figures: Figures) -> dict[str, str]:
    """Why figures are not measured, by their titles, those with one reason together."""
    found: dict[str, list[str]] = {}
    for name in FIGURES:
        pair = figures.figures[name]
        if not _known(pair):
            reason = pair.all.reason or pair.valid.reason
            found.setdefault(reason.removeprefix("not measured: "), []).append(TITLES[name])
    return {", ".join(titles): reason for reason, titles in found.items()}


def type_rows(figures: Figures) -> list[Row]:
    """The figures of each memory type that are measured."""
    return [
        Row(f"{type}: {TITLES[name]}", pairs[name])
        for type, pairs in figures.by_type.items()
        for name in TYPE_SHOWN
        if _known(pairs[name])
    ]


def answers_rows(figures: Figures) -> list[AnswersRow]:
    """Each question type and each difficulty that the data names, also those without a verdict."""
    sides = {"": figures.by_question_type, "difficulty ": figures.by_difficulty}
    return [
        AnswersRow(name_part(what, name), answers)
        for what, by in sides.items()
        for name, answers in by.items()
    ]


def name_part(what: str, name: str) -> str:
    """The title of a question type or difficulty; an empty name is that of what has none."""
    return what + (name or "not said")


def _known(pair: Pair) -> bool:
    return pair.all.value is not None or pair.valid.value is not None


def ends(figure: Figure) -> str:
    """The interval of a figure; empty where there is none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{figure.low:.3f} to {figure.high:.3f}"


def why_no_interval(rows: Sequence[Row]) -> str:
    """The reasons why figures that are there have no interval, each once."""
    figures = [figure for row in rows for figure in (row.pair.all, row.pair.valid)]
    reasons = [f.reason for f in figures if f.value is not None and f.reason]
    return "; ".join(dict.fromkeys(reason.removeprefix("no interval: ") for reason in reasons))


def write_memory_page(
    figures: Figures,
    worst: Mapping[Task, Sequence[Judgement]],
    path: str | Path,
    *,
    title: str,
    facts: Mapping[str, str],
    failures: Sequence[tuple[str, int]] = (),
    whole: bool = True,
    pages: Sequence[Page] = (),
) -> None:
    """Write the page; `-` is standard output. `worst`: the judgements shown of each task, in their
    order. `failures`: reasons, each with how often. `facts` are shown as given. `pages`: those
    with all judgements.

    Raises:
        InputError: the file cannot be written.
    """
    coverage = figures.coverage
    parts = [
        Part(task, worst.get(task, ()), coverage[task].asked + coverage[task].skipped)
        for task in TASKS
    ]
    rows = figure_rows(figures)
    made = open_template("memory.html").generate(
        title=title,
        whole=whole,
        figures=figures,
        rows=rows,
        type_rows=type_rows(figures),
        answers_rows=answers_rows(figures),
        unmeasured=unmeasured(figures),
        no_interval=why_no_interval(rows),
        parts=[part for part in parts if part.number],
        failures=failures,
        facts=facts,
        ends=ends,
        asked=ASKED,
        labels=_labels(),
        pages=pages,
    )
    _write(made, path)


def write_judgement_pages(
    judgements: Iterable[Judgement], folder: Path, *, report: str, title: str
) -> list[Page]:
    """All judgements, in the order given, `PAGE_SIZE` on a page of `folder`, which is beside the
    file `report`. Pages that an earlier run left there are taken away.

    Raises:
        InputError: a file cannot be written.
    """
    pages: list[Page] = []
    _clear(folder)
    left = iter(judgements)
    while shown := list(islice(left, PAGE_SIZE)):
        name = f"{len(pages) + 1:04}.html"
        made = open_template("memory_judgements.html").generate(
            title=f"{title}: judgements, page {len(pages) + 1}",
            judgements=shown,
            labels=_labels(),
            back=f"../{report}",
            back_title=title,
        )
        _make(folder)
        _write(made, folder / name)
        pages.append(Page(f"{folder.name}/{name}", shown[0].subject))
    return pages


def _clear(folder: Path) -> None:
    with suppress(OSError):  # what cannot be taken away is written over, or stays
        for old in folder.glob("[0-9][0-9][0-9][0-9].html"):
            old.unlink()
        folder.rmdir()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror})") from None


def _labels() -> Mapping[str, object]:
    """What the template of a judgement is given."""
    return {"listed": LISTED, "texts": TEXT_TITLES, "verdict": describe_verdict}


def _write(pieces: Iterable[str], path: str | Path) -> None:
    with open_target(path) as target:
        for piece in pieces:
            target.write(piece.encode("utf-8", "backslashreplace"))


def describe_verdict(judgement: Judgement) -> str:
    """The label of a judgement in words, or how it ended without one."""
    outcome = judgement.outcome
    if isinstance(outcome, Failure):
        return outcome.kind
    if isinstance(outcome.label, str):
        return outcome.label
    said = f"{outcome.label} of 2"
    if outcome.included is not None:
        said += ", among the expected" if outcome.included else ", beside the expected"
    return said
