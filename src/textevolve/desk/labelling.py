"""Labelling tasks: they are made from rows, or from the texts of a run, and their report shows each
person's labels and the agreement. `textevolve.labelling` plans the order of items and computes
agreement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Annotated, Literal

from pydantic import Field, model_validator

from textevolve.bench.items import winner_of
from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult
from textevolve.judges.opening import JudgedCase, NamedJudgement
from textevolve.labelling.drawing import Votes, draw_items, name_strata
from textevolve.labelling.tasks import (
    FIRST,
    SECOND,
    LabelItem,
    LabelQuestion,
    PeopleAgreement,
    PersonLabel,
    StoredTask,
    TaskKind,
    TaskSpec,
    agree,
    describe_answer,
    labels_by_item,
)
from textevolve.ledger import log
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Note, Report, Table, Texts, cell_text
from textevolve.rows.cases import RowReading, read_cases
from textevolve.rows.columns import Columns, list_names
from textevolve.runs.aggregates import estimate
from textevolve.runs.stored import StudyRun, read_records
from textevolve.settings import NAME_PATTERN
from textevolve.spec import Frozen, Several, option
from textevolve.store.repository import Store
from textevolve.studies.compare_cells import Output
from textevolve.studies.conversations import Grade


class LabellingSpec(Frozen):
    """Instructions for people who label. The items are given separately."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = option(
        description="The task's name.", argument=True
    )
    kind: TaskKind | None = option(
        None,
        "Show pairs of texts on the same input (which is better?), or single texts (how good?)."
        " Default: pairs if an input has two texts or more.",
    )
    scale: int | None = option(
        None,
        "The highest grade of single texts, which get grades from 1 to this number; default:"
        " pass and fail.",
        ge=2,
        le=9,
    )
    instructions: str = option(
        "",
        "Instructions for the annotators; @FILE reads them from a file; default: none.",
        text="argument",
    )
    variant: Several = option(
        (), "The variant of a run whose texts are labelled; default: all. Repeatable."
    )
    sample: int | None = option(None, "The number of items to draw at random; default: all.", ge=1)
    draw: Literal["random", "judges"] = option(
        "random",
        "How --sample draws: all items equally likely, or a share of each part of the items in"
        " which the same judges of the run agree, so that fewer labels measure the judges.",
    )
    after: str | None = option(
        None,
        "With --draw judges: an earlier task of the same run, whose items are not drawn again;"
        " its labels and the further ones are measured together.",
        metavar="TASK",
    )
    seed: int = option(0, "The seed of the random choice of items.", ge=0)

    @model_validator(mode="after")
    def _usable(self) -> LabellingSpec:
        if self.draw == "judges" and self.sample is None:
            raise InputError("--draw judges: needs --sample, the number of items to draw")
        if self.after is not None and self.draw != "judges":
            raise InputError("--after: needs --draw judges")
        return self


def read_row_items(path: str, renamed: Mapping[str, str]) -> list[Case]:
    """Read the cases of a file of rows, as other commands do.

    Raises:
        InputError: it cannot be read, or a row has no input or no text; says where.
    """
    columns = Columns()
    cases = list(read_cases(path, columns, RowReading(map=renamed)))
    columns.tell(reference=True)

    return cases


def make_items(
    spec: LabellingSpec, cases: Sequence[Case]
) -> tuple[TaskKind, list[LabelItem], list[Votes]]:
    """Return the kind of the task, the items to label, and the judges' verdicts on each item. An
    item is each text of the cases, or each pair of texts of a case. Blank texts are left out.

    Raises:
        InputError: there is nothing to label.
    """
    if any(case.images or case.candidate_images for case in cases):
        raise InputError("the cases have images, and only texts can be labelled")
    several = any(len(case.candidates) > 1 for case in cases)
    kind = spec.kind or ("pairs" if several and spec.scale is None else "single")
    if kind == "pairs" and spec.scale is not None:
        raise InputError("--scale needs single texts: set --kind single")
    items: list[LabelItem] = []
    votes: list[Votes] = []
    judges = list(dict.fromkeys(name for case in cases for name in _grades_of(case)))
    left_out: list[str] = []

    for case in cases:
        texts = [place for place, text in enumerate(case.candidates) if text.strip()]
        groups = list(combinations(texts, 2 if kind == "pairs" else 1))
        items += [_make_item(case, chosen) for chosen in groups]
        votes += [_read_votes(case, chosen, judges) for chosen in groups]
        if not groups or len(texts) < len(case.candidates):
            left_out.append(case.id)

    if items and left_out:
        missing = "two texts to compare" if kind == "pairs" else "a text"
        log.warning(
            f"{wording.count(len(left_out), 'row')} without {missing}, or with a blank text, left"
            f" out there: {list_names(left_out)}"
        )
    if not items:
        reason = "no input has two texts" if kind == "pairs" else "there are no texts"
        raise InputError(f"there is nothing to label: {reason}")

    return kind, items, votes


def _grades_of(case: Case) -> Mapping[str, Sequence[Grade | None]]:
    """Return the grade of each candidate by each judge."""
    return case.parameters.get("grades", {})


def _read_votes(case: Case, chosen: Sequence[int], judges: Sequence[str]) -> Votes:
    """Return the verdict of each judge on a text, or on which of two texts is better."""
    votes: list[int | None] = []
    for judge in judges:
        grades = _grades_of(case).get(judge, ())
        of_item = [grades[place] for place in chosen if place < len(grades)]
        present = [grade for grade in of_item if grade is not None and grade.score is not None]
        vote: int | None = None
        if len(present) == len(chosen) == 2:
            vote = winner_of([grade.score or 0.0 for grade in present])
        elif len(present) == len(chosen) and present[0].passed is not None:
            vote = int(present[0].passed)
        votes.append(vote)

    return tuple(votes)


def _make_item(case: Case, chosen: Sequence[int]) -> LabelItem:
    variants: Sequence[str] = case.parameters.get("variants", ())
    return LabelItem(
        place=0,
        id=case.id,
        input=case.input,
        texts=tuple(case.candidates[n] for n in chosen),
        context=case.context,
        reference=case.reference,
        candidates=tuple(n + 1 for n in chosen),
        variants=tuple(variants[n] for n in chosen) if variants else (),
    )


def run_cases(spec: LabellingSpec, store: Store, run: str) -> list[Case]:
    """Return the cases of a run to label, each with several texts: the candidates of a case, or the
    outputs of all variants for a row.

    Raises:
        InputError: there is no such run, or it has no texts.
    """
    study_run = StudyRun(store.get_run(run))
    rows: defaultdict[tuple[str, int], list[Output]] = defaultdict(list)
    judged: dict[int, Case] = {}

    for line in read_records(store, study_run)():
        if isinstance(line, DebateResult | JudgedCase):
            # Several judges of a run have a record each of the same case.
            case = judged.setdefault(line.index, replace(line.case, parameters={"grades": {}}))
            judge = line.judge if isinstance(line, NamedJudgement) else ""
            case.parameters["grades"][judge] = [
                Grade(outcome.score, outcome.passed)
                if isinstance(outcome, EvaluationResult)
                else None
                for outcome in line.outcomes
            ]
        elif not isinstance(line, Output) or not line.text.strip():
            continue
        elif not spec.variant or line.variant in spec.variant:
            rows[line.row, line.sample].append(line)

    cases = list(judged.values())
    for outputs in rows.values():
        shared = outputs[0]
        grades = {name: [each.grades.get(name) for each in outputs] for name in shared.grades}
        case = Case(
            shared.input,
            tuple(output.text for output in outputs),
            shared.row,
            {"variants": [output.variant for output in outputs], "grades": grades},
            reference=shared.reference,
            context=shared.context,
        )
        cases.append(case)

    if not cases:
        whose = f" of the variant {' or '.join(spec.variant)}" if spec.variant else ""
        raise InputError(f"run {study_run.id}: has no texts{whose} to label")

    return cases


def make_task(
    spec: LabellingSpec, cases: Sequence[Case], source: str, earlier: Sequence[LabelItem]
) -> tuple[TaskSpec, list[LabelItem]]:
    """Return a task and its items. `earlier`: the items of the task that `after` names.

    Raises:
        InputError: the specification does not fit the cases.
    """
    kind, items, votes = make_items(spec, cases)
    question = LabelQuestion()
    if spec.scale is not None:
        question = LabelQuestion(levels=tuple(str(n + 1) for n in range(spec.scale)))
    if spec.draw == "judges":
        items = _draw_by_judges(spec, items, votes, earlier)
    elif spec.sample is not None:
        items = Random(spec.seed).sample(items, min(spec.sample, len(items)))
    task = TaskSpec(
        kind=kind,
        questions=() if kind == "pairs" else (question,),
        instructions=spec.instructions,
        source=source,
    )

    return task, [replace(item, place=place) for place, item in enumerate(items)]


def _draw_by_judges(
    spec: LabellingSpec,
    items: Sequence[LabelItem],
    votes: Sequence[Votes],
    earlier: Sequence[LabelItem],
) -> list[LabelItem]:
    """Draw items in strata of the judges' verdicts, those of an earlier task excepted.

    Raises:
        InputError: the verdicts separate no items, or the earlier task was not drawn from these.
    """
    strata = name_strata(votes, directed=len(items[0].texts) == 1)
    sizes = Counter(strata)
    if len(sizes) < 2:
        raise InputError(
            "--draw judges: the verdicts of the run's judges are alike on all items; judge them"
            " with a second judge, or draw at random"
        )

    known: set[int] = set()
    places = {(item.id, item.texts): place for place, item in enumerate(items)}
    for item in earlier:
        place = places.get((item.id, item.texts), -1)
        if place < 0 or item.stratum != (strata[place], sizes[strata[place]]):
            raise InputError(
                f"--after {spec.after}: was not drawn from the items of this run with --draw judges"
            )
        known.add(place)

    drawn = draw_items(strata, known, spec.sample or 0, spec.seed)

    return [replace(items[place], stratum=stratum) for place, stratum in drawn.items()]


PEOPLE = (
    "who",
    Column("labelled", "count"),
    Column("skipped", "count"),
)
VARIANTS = ("variant", Column("by people", "percent", 0), Column("items", "count"))
DISPUTED_SHOWN = 50


def report_task(
    task: StoredTask, items: Sequence[LabelItem], labels: Sequence[PersonLabel]
) -> Report:
    """Report the figures of a task, and the items on which people disagree."""
    figures = agree(task.spec, items, labels)
    facts = {
        "Items": f"{figures.items:,}; {figures.labelled:,} labelled,"
        f" {figures.shared:,} by two or more",
        "Kind": task.spec.kind,
        "From": task.spec.source,
    }
    blocks = [*_draw_tables(figures), *_draw_disputed(task.spec, items, labels, figures)]

    return Report(
        f"Labelling {task.namespace}/{task.name}", describe_agreement(figures), blocks, facts
    )


def describe_agreement(figures: PeopleAgreement) -> str:
    """Return how far people agree, in a sentence."""
    if not figures.labelled:
        return "Nobody has labelled anything yet."
    if not figures.shared:
        return (
            f"{wording.count(figures.labelled, 'item')} labelled, none by two people yet, so how"
            " far people agree is not known."
        )

    alpha = cell_text(estimate(figures.alpha), Column("", "number"))
    shared = wording.count(figures.shared, "item")
    differ = f"people differ on {len(figures.disputed):,} of {shared} that two or more labelled"

    return f"Krippendorff's alpha {alpha}: {differ}."


def _draw_tables(figures: PeopleAgreement) -> Iterator[Block]:
    if figures.people:
        people = [(person.name, person.labelled, person.skipped) for person in figures.people]
        yield Table("People", PEOPLE, people)
    if figures.wins:
        rows = [(name, mean, number) for name, (mean, number) in figures.wins.items()]
        rows.sort(key=lambda row: -row[1])
        yield Table("Variants", VARIANTS, rows, note="Ties are halves; of single texts the mean.")


def _draw_disputed(
    spec: TaskSpec,
    items: Sequence[LabelItem],
    labels: Sequence[PersonLabel],
    figures: PeopleAgreement,
) -> Iterator[Block]:
    disputed = set(figures.disputed[:DISPUTED_SHOWN])
    for item, item_labels in labels_by_item(items, labels):
        if item.place not in disputed:
            continue
        texts = [("input", item.input)]
        texts += [(f"text {n}", text) for n, text in enumerate(item.texts, 1)]
        answers = "\n".join(_describe_label(spec, label) for label in item_labels)
        yield Texts(f"Disputed: {item.id}", [*texts, ("answers", answers)])

    if (more := len(figures.disputed) - DISPUTED_SHOWN) > 0:
        yield Note(f"{wording.count(more, 'more item')} on which people differ", "dim")


def _describe_label(spec: TaskSpec, label: PersonLabel) -> str:
    texts = {FIRST: "text 1", SECOND: "text 2"}
    answer = texts.get(label.answer) or describe_answer(spec, label.answer)
    return f"{label.labeller}: {answer}" + (f" ({label.note})" if label.note else "")
