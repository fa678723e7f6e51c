"""What a labelling task has come to, for people: who labelled how much, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from textevolve.labelling.agreement import PeopleAgreement, agree, gather_answers
from textevolve.labelling.tasks import (
    FIRST,
    SECOND,
    GivenLabel,
    LabelItem,
    StoredTask,
    TaskSpec,
    say_answer,
)
from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Note, Report, Table, Texts
from textevolve.studies.cells import estimate

DISPUTED_SHOWN = 50


def report_task(
    task: StoredTask, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> Report:
    """All figures of a task, and the items on which people differ."""
    found = agree(task.spec, items, labels)
    facts = {
        "Items": f"{found.items:,}; {found.labelled:,} labelled, {found.shared:,} by two or more",
        "Kind": task.spec.kind,
        "From": task.spec.source,
    }
    blocks = [*_draw_tables(found), *_draw_disputed(task.spec, items, labels, found)]
    return Report(f"Labelling {task.namespace}/{task.name}", sentence_of(found), blocks, facts)


def sentence_of(found: PeopleAgreement) -> str:
    """How far people agree, in one line."""
    if not found.labelled:
        return "Nobody has labelled anything yet."
    if not found.shared:
        return (
            f"{wording.count(found.labelled, 'item')} labelled, none by two people yet, so how far"
            " people agree is not known."
        )
    alpha = found.alpha.value
    beyond = f"; Krippendorff's alpha {alpha:.2f}" if math.isfinite(alpha) else ""
    return (
        f"Two answers to one item are the same {wording.percent(found.same.value)} of the time,"
        f" over {wording.count(found.shared, 'item')}{beyond}."
    )


def _draw_tables(found: PeopleAgreement) -> Iterator[Block]:
    if found.people:
        columns = (
            Column("who"),
            Column("labelled", "count"),
            Column("skipped", "count"),
            Column("same as others", "percent", 0),
            Column("same again", "percent", 0),
            Column("shown twice", "count"),
            Column("chose the first", "percent", 0),
            Column("ties", "percent", 0),
        )
        rows: list[Sequence[Cell]] = [
            (
                *(one.name, one.labelled, one.skipped, estimate(one.others)),
                *(estimate(one.consistency), one.repeats, estimate(one.first), one.ties),
            )
            for one in found.people
        ]
        note = "Brackets: 95 % intervals. Chose the first: whatever stood first; 50 % is fair."
        yield Table("People", columns, rows, note=note)
    if found.pairs:
        columns = (
            *(Column("first"), Column("second"), Column("items", "count")),
            *(Column("same", "percent", 0), Column("kappa", "number")),
        )
        pairs = [
            (one.first, one.second, one.items, estimate(one.same), estimate(one.kappa))
            for one in found.pairs
        ]
        yield Table("Between two people (Cohen's kappa)", columns, pairs)
    if found.shared:
        figures = (Column("same", "percent", 0), Column("alpha", "number"))
        columns = (Column(""), Column("items", "count"), *figures)
        whole = ("all", found.shared, estimate(found.same), estimate(found.alpha))
        yield Table("All people (Krippendorff's alpha)", columns, [whole])
    yield from _draw_of_run(found)


def _draw_of_run(found: PeopleAgreement) -> Iterator[Block]:
    judge = found.judge
    if judge is not None:
        columns = (
            *(Column(""), Column("items", "count"), Column("same", "percent", 0)),
            *(Column("kappa", "number"), Column("it passed, people failed", "count")),
            Column("it failed, people passed", "count"),
        )
        row = (
            *("judge of the run", judge.items, estimate(judge.same)),
            *(estimate(judge.kappa), judge.false_passes, judge.false_fails),
        )
        yield Table("The run's judge beside the majority of people", columns, [row])
    if found.wins:
        columns = (Column("variant"), Column("by people", "percent", 0), Column("items", "count"))
        wins = sorted(found.wins.items(), key=lambda one: -one[1][0])
        rows = [(name, mean, number) for name, (mean, number) in wins]
        yield Table("Variants", columns, rows, note="Ties are halves; of single texts the mean.")


def _draw_disputed(
    spec: TaskSpec,
    items: Sequence[LabelItem],
    labels: Sequence[GivenLabel],
    found: PeopleAgreement,
) -> Iterator[Block]:
    for item, said in list_disputed(items, labels, found)[:DISPUTED_SHOWN]:
        texts = [("input", item.input)]
        texts += [(f"text {n}", text) for n, text in enumerate(item.texts, 1)]
        answers = [f"{one.labeller}: {say_label(spec, one)}" for one in said]
        yield Texts(f"Disputed: {item.id}", [*texts, ("answers", "\n".join(answers))])
    if len(found.disputed) > DISPUTED_SHOWN:
        more = len(found.disputed) - DISPUTED_SHOWN
        yield Note(f"{wording.count(more, 'more item')} on which people differ", "dim")


def list_disputed(
    items: Sequence[LabelItem], labels: Sequence[GivenLabel], found: PeopleAgreement
) -> list[tuple[LabelItem, list[GivenLabel]]]:
    """The items on which people differ, each with what they said."""
    places = set(found.disputed)
    return [(item, said) for item, said in gather_answers(items, labels) if item.place in places]


def say_label(spec: TaskSpec, label: GivenLabel) -> str:
    """An answer in words, with its note."""
    texts = {FIRST: "text 1", SECOND: "text 2"}
    said = texts.get(label.answer) or say_answer(spec, label.answer)
    return said + (f" ({label.note})" if label.note else "")
