"""The agreement of people who label the same items, and the variants whose texts they prefer.

A skipped item counts as missing data, not as an answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.labelling.tasks import SKIP, LabelItem, PersonLabel, TaskSpec, scores_of
from textevolve.mappings import drop_none
from textevolve.statistics.agreement import krippendorff_alpha
from textevolve.statistics.intervals import Statistic


@dataclass(frozen=True, slots=True)
class LabellerFigures:
    """The number of items that one person has labelled, and the number skipped."""

    name: str
    labelled: int
    skipped: int


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """The agreement of people on the items of a task.

    Attributes:
        items: The number of items.
        labelled: The number of items with a label; `shared`: with labels of two people or more.
        alpha: Krippendorff's alpha.
        people: The figures of each person.
        disputed: The indices of the items on which people differ.
        wins: The mean score of each variant, and the number of items over which it is computed.
    """

    items: int
    labelled: int
    shared: int
    alpha: Statistic
    people: tuple[LabellerFigures, ...]
    disputed: tuple[int, ...]
    wins: Mapping[str, tuple[float, int]]


def agree(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[PersonLabel]
) -> PeopleAgreement:
    """Compute the agreement of people on a task. `labels` are sorted by position. For pairs
    Krippendorff's alpha is nominal, for grades it uses squared differences; its interval treats
    items with the same input as dependent."""
    labelled = labels_by_item(items, labels)
    answered = [
        [label.answer for label in chosen if label.answer != SKIP] for _, chosen in labelled
    ]
    shared = [
        (i, chosen) for (i, _), chosen in zip(labelled, answered, strict=True) if len(chosen) > 1
    ]
    classes = [list(map(spec.answers.index, chosen)) for _, chosen in shared]
    inputs, squared = [item.input for item, _ in shared], spec.kind == "single"
    answers: defaultdict[str, list[str]] = defaultdict(list)
    for label in labels:
        answers[label.labeller].append(label.answer)
    return PeopleAgreement(
        items=len(labelled),
        labelled=sum(map(bool, answered)),
        shared=len(shared),
        alpha=krippendorff_alpha(classes, len(spec.answers), inputs, squared=squared, seed=0),
        people=tuple(
            LabellerFigures(n, len(g) - g.count(SKIP), g.count(SKIP)) for n, g in answers.items()
        ),
        disputed=tuple(item.place for item, chosen in shared if len(set(chosen)) > 1),
        wins=_count_wins(spec, labelled),
    )


def labels_by_item(
    items: Sequence[LabelItem], labels: Iterable[PersonLabel]
) -> list[tuple[LabelItem, list[PersonLabel]]]:
    """Return the items in their order, each with its labels."""
    by_position: defaultdict[int, list[PersonLabel]] = defaultdict(list)
    for label in labels:
        by_position[label.position].append(label)
    return [(item, by_position[n]) for n, item in enumerate(items)]


def mean_scores(spec: TaskSpec, labels: Iterable[PersonLabel]) -> tuple[float, ...]:
    """Return the mean score that people give to each text of an item; empty if all skipped it."""
    scores = [scores for label in labels if (scores := scores_of(spec, label.answer))]
    return tuple(sum(column) / len(scores) for column in zip(*scores, strict=True))


def _count_wins(
    spec: TaskSpec, labelled: Iterable[tuple[LabelItem, list[PersonLabel]]]
) -> dict[str, tuple[float, int]]:
    by_variant: defaultdict[str, list[float]] = defaultdict(list)
    for item, labels in labelled:
        for variant, score in zip(item.variants, mean_scores(spec, labels), strict=False):
            by_variant[variant].append(score)
    return {name: (sum(scores) / len(scores), len(scores)) for name, scores in by_variant.items()}


LabelRow = dict[str, Any]


def item_rows(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[PersonLabel]
) -> Iterator[LabelRow]:
    """Yield a row for each labelled item, for a file. A pair has its candidates with their
    `scores`: the share of people who chose each. A single text has `human`, its mean score in [0,
    1], and a column `label_NAME` for each person if there are several."""
    several = len({label.labeller for label in labels}) > 1
    for item, item_labels in labels_by_item(items, labels):
        scores = mean_scores(spec, item_labels)
        if not scores:
            continue
        row: LabelRow = {"id": item.id, "input": item.input}
        if spec.kind == "pairs":
            row |= {f"candidate_{n}": text for n, text in enumerate(item.texts, 1)}
            row |= {f"variant_{n}": name for n, name in enumerate(item.variants, 1)}
            row |= {"scores": list(scores)}
        else:
            row |= {"candidate": next(iter(item.candidates), None), "output": item.texts[0]}
            row |= {"human": scores[0], "variant": next(iter(item.variants), None)}
            answers = [(label.labeller, scores_of(spec, label.answer)) for label in item_labels]
            row |= {f"label_{name}": shares[0] for name, shares in answers if shares and several}
        notes = [f"{label.labeller}: {label.note}" for label in item_labels if label.note]
        row |= {"context": item.context, "reference": item.reference}
        row |= {"labels": sum(label.answer != SKIP for label in item_labels)}
        row |= {"notes": "\n".join(notes) or None}
        yield drop_none(row)
