"""Labelling tasks made of rows, or of the texts of a run, and the report on a task: who labelled
how much, and how far people agree. `textevolve.labelling` plans the showings and computes
agreement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Annotated, Any

from pydantic import Field

from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, choose_candidates, with_images
from textevolve.judges.criteria import read_criteria, read_levels
from textevolve.judges.judged import JudgedCase
from textevolve.judges.shipped_rubrics import expand_rubric
from textevolve.labelling.agreement import PeopleAgreement, agree, gather_answers
from textevolve.labelling.order import plan_showings
from textevolve.labelling.tasks import (
    FIRST,
    SECOND,
    GivenLabel,
    LabelItem,
    LabelQuestion,
    StoredTask,
    TaskKind,
    TaskSpec,
    say_answer,
)
from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Note, Report, Table, Texts
from textevolve.rows import Placed, read_rows
from textevolve.settings import NAME_PATTERN
from textevolve.spec import Frozen, Several, option
from textevolve.store.repository import Store
from textevolve.studies.case_rows import RowReading, cases_of_row, in_folder_of
from textevolve.studies.cells import estimate
from textevolve.studies.columns import Columns
from textevolve.studies.compare_cells import Output
from textevolve.studies.stored import read_records
from textevolve.texts.columns import find_roles, is_text_column

_LETTERS = {"a": "candidate_1", "b": "candidate_2"}
"""What a pair's texts may be called in labelled data, and what they are called elsewhere."""


class LabellingSpec(Frozen):
    """How people are to label. Where its items come from is given beside it."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = option(
        description="The task's name.", argument=True
    )
    kind: TaskKind | None = option(
        None,
        "Show pairs of texts on the same input (which is better?), or single texts (how good?)."
        " Unset: pairs where there are two texts or more on an input.",
    )
    scale: int | None = option(
        None,
        "Of single texts: grades from 1 to this number, in place of pass and fail.",
        ge=2,
        le=9,
    )
    rubric: str | None = option(
        None,
        "Of single texts: a text, @FILE, or a shipped rubric, each of whose lines is answered by"
        " itself.",
        text="argument",
    )
    instructions: str = option(
        "", "What those who label are told; @FILE reads it from a file.", text="argument"
    )
    variant: Several = option((), "Of a run: only texts of this variant. Repeatable.")
    sample: int | None = option(None, "Take only so many items, drawn at random.", ge=1)
    repeat: float = option(
        0.1,
        "The share of items that are shown a second time, pairs the other way round, to see how far"
        " people agree with themselves.",
        ge=0,
        le=0.5,
    )
    seed: int = option(0, "Seed of what is drawn at random.", ge=0)


def read_row_items(path: str, renamed: Mapping[str, str]) -> list[Case]:
    """The cases of a file of rows, as other commands read them.

    Raises:
        InputError: it cannot be read, or a row has no input or no text; says where.
    """
    columns = Columns()

    def is_text(name: str) -> bool:
        return name in _LETTERS or is_text_column(name)

    reading = RowReading()

    def opened(file: str) -> None:
        nonlocal reading
        reading = in_folder_of(reading, file)

    rows = read_rows(path, "row", is_text, renamed, columns.take_header, opened)
    found = row_cases(rows, columns, lambda: reading)
    if not found:
        raise InputError(f"{path}: no rows: the input is empty")
    columns.refuse_no_output(path)
    columns.tell(reference=True)
    return found


def row_cases(
    rows: Iterable[Placed], columns: Columns, reading: Callable[[], RowReading]
) -> list[Case]:
    """The cases of rows; their group and subset are kept with them. `reading`: of the next row."""
    found: list[Case] = []
    for number, (where, row) in enumerate(rows, 1):
        if "candidates" not in row and not find_roles(tuple(row)).has_outputs:
            row = {_LETTERS.get(name, name): value for name, value in row.items()}
        about = {name: str(row[name]) for name in ("group", "subset") if row.get(name) is not None}
        plain = {name: value for name, value in row.items() if name not in about}
        for case in cases_of_row(plain, where, columns, reading(), str(number)):
            found.append(replace(case, id=case.id or str(number), parameters=about))
    return found


def make_items(spec: LabellingSpec, cases: Sequence[Case]) -> tuple[TaskKind, list[LabelItem]]:
    """What is labelled of cases: each text, or each two texts of one; blank ones are left out."""
    several = any(len(case.candidates) > 1 for case in cases)
    kind = spec.kind or ("pairs" if several and not _asks_of_single(spec) else "single")
    size = 2 if kind == "pairs" else 1
    made = [
        _make_item(case, chosen)
        for case in cases
        for chosen in combinations(range(len(case.candidates)), size)
        if all(case.candidates[n].strip() for n in chosen)
    ]
    if not made:
        raise InputError(
            "there is nothing to label: no input has two texts"
            if kind == "pairs"
            else "there is nothing to label: there are no texts"
        )
    return kind, made


def _asks_of_single(spec: LabellingSpec) -> bool:
    return spec.scale is not None or spec.rubric is not None


def _make_item(case: Case, chosen: Sequence[int]) -> LabelItem:
    told: Mapping[str, Any] = case.parameters

    def pick(name: str) -> tuple[Any, ...]:
        return tuple(told[name][n] for n in chosen) if name in told else ()

    return LabelItem(
        place=0,
        id=case.id,
        input=case.input,
        texts=tuple(case.candidates[n] for n in chosen),
        context=case.context,
        reference=case.reference,
        group=told.get("group", ""),
        subset=told.get("subset", ""),
        candidates=tuple(n + 1 for n in chosen),
        images=case.images,
        text_images=choose_candidates(case, chosen).candidate_images,
        variants=pick("variants"),
        scores=pick("scores"),
        passed=pick("passed"),
    )


def run_cases(spec: LabellingSpec, store: Store, run: str) -> list[Case]:
    """The texts of a run, with what is known of them: a case of several, or for each row the texts
    of its variants.

    Raises:
        InputError: there is no such run, or it has no texts.
    """
    record, wanted = store.get_run(run), spec.variant
    rows: defaultdict[tuple[str, int], list[Output]] = defaultdict(list)
    found: list[Case] = []
    for one in read_records(store, record)():
        match one:
            case DebateResult() | JudgedCase():
                found.append(_judged_case(one))
            case Output() if one.text.strip() and (not wanted or one.variant in wanted):
                rows[one.row, one.sample].append(one)
            case _:
                pass
    found += [_compared_case(outputs) for outputs in rows.values()]
    found = [with_images(case, store.find_image) for case in found]
    if not found:
        whose = f" of the variant {' or '.join(wanted)}" if wanted else ""
        raise InputError(f"run {record.id}: has no texts{whose} that people could label")
    return found


def _judged_case(judged: DebateResult | JudgedCase) -> Case:
    case, result = judged.case, judged.result
    scored = [one if isinstance(one, EvaluationResult) else None for one in result]
    told = {
        "scores": [one and one.score for one in scored],
        "passed": [one and one.passed for one in scored],
    }
    about = told if len(scored) == len(case.candidates) else {}
    return replace(case, candidates=tuple(case.candidates), parameters=about)


def _compared_case(outputs: Sequence[Output]) -> Case:
    first = outputs[0]
    about = {
        "variants": [one.variant for one in outputs],
        "scores": [one.score for one in outputs],
        "passed": [one.passed for one in outputs],
    }
    texts = tuple(one.text for one in outputs)
    return Case(
        first.input,
        texts,
        first.row,
        about,
        first.reference,
        first.context,
        images=first.images,
    )


def make_task(
    spec: LabellingSpec, cases: Sequence[Case], source: str
) -> tuple[TaskSpec, list[LabelItem]]:
    """A task and the items that are shown, second showings among them.

    Raises:
        InputError: the specification does not fit the cases.
    """
    kind, items = make_items(spec, cases)
    questions = _questions(spec) if kind == "single" else ()
    if kind == "pairs" and _asks_of_single(spec):
        raise InputError("scale and rubric are about single texts: give kind single with them")
    if spec.sample is not None:
        items = Random(spec.seed).sample(items, min(spec.sample, len(items)))
    showings = plan_showings(items, spec.repeat, spec.seed)
    told = TaskSpec(kind=kind, questions=questions, instructions=spec.instructions, source=source)
    return told, showings


def _questions(spec: LabellingSpec) -> tuple[LabelQuestion, ...]:
    if spec.scale is not None and spec.rubric is not None:
        raise InputError("give scale or rubric, not both: a line of a rubric has levels of its own")
    if spec.scale is not None:
        return (LabelQuestion(levels=tuple(str(n + 1) for n in range(spec.scale))),)
    if spec.rubric is None:
        return (LabelQuestion(),)
    lines = [read_levels(line) for line in read_criteria(expand_rubric(spec.rubric))]
    return tuple(LabelQuestion(text=one.text, levels=one.levels or ("no", "yes")) for one in lines)


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
                one.name,
                one.labelled,
                one.skipped,
                estimate(one.others),
                estimate(one.consistency),
                one.repeats,
                estimate(one.first),
                one.ties,
            )
            for one in found.people
        ]
        note = "Brackets: 95 % intervals. Chose the first: whatever stood first; 50 % is fair."
        yield Table("People", columns, rows, note=note)
    if found.pairs:
        columns = (
            Column("first"),
            Column("second"),
            Column("items", "count"),
            Column("same", "percent", 0),
            Column("kappa", "number"),
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
            Column(""),
            Column("items", "count"),
            Column("same", "percent", 0),
            Column("kappa", "number"),
            Column("it passed, people failed", "count"),
            Column("it failed, people passed", "count"),
        )
        row = (
            "judge of the run",
            judge.items,
            estimate(judge.same),
            estimate(judge.kappa),
            judge.false_passes,
            judge.false_fails,
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
