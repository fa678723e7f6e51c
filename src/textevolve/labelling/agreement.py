"""How far people agree: with each other, with themselves, and with the judge of the labelled run.

Repeated showings count for consistency and position preference alone; everything else uses a
person's first label. A skipped item is missing data, not a class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from textevolve.labelling.tasks import (
    CHOICES,
    SKIP,
    GivenLabel,
    LabelItem,
    TaskSpec,
    classes_of,
    scores_of,
)
from textevolve.statistics.agreement import alpha_of
from textevolve.statistics.clusters import cluster_share
from textevolve.statistics.intervals import Statistic, bootstrap_interval


@dataclass(frozen=True, slots=True)
class LabellerFigures:
    """One person. `labelled` and `skipped`: of all showings. `consistency`: the share of repeated
    items, `repeats` in number, with the same answer. `others`: the share of answers that another
    person gave."""

    name: str
    labelled: int
    skipped: int
    repeats: int
    consistency: Statistic
    others: Statistic


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """`labelled`: items with a label; `shared`: those with labels of two people or more. `same`:
    the share of equal answers among each two to one item; `alpha`: Krippendorff's. `disputed`:
    places of items on which people differ. `judge`: the share of items on which the judge of the
    labelled run agrees with the majority of people, out of `judged`. `wins`: the mean score of each
    variant, and its number of items."""

    items: int
    labelled: int
    shared: int
    same: Statistic
    alpha: Statistic
    people: tuple[LabellerFigures, ...]
    disputed: tuple[int, ...]
    judged: int
    judge: Statistic
    wins: Mapping[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])


@dataclass(frozen=True, slots=True)
class RatedUnit:
    """A question on an item, with the class that each person put it into. Units of one `group` are
    not independent."""

    place: int
    group: str
    classes: Mapping[str, int]


def agree(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel], seed: int = 0
) -> PeopleAgreement:
    """Compute all figures of a task; `labels` are in the order of their positions."""
    labelled = labels_by_item(items, labels)
    units = [unit for item, given in labelled for unit in _units_of(item, given)]
    shared = [unit for unit in units if len(unit.classes) > 1]
    judged, judge = _compare_judge(spec, labelled)
    names = list(dict.fromkeys(label.labeller for label in labels))
    return PeopleAgreement(
        items=len(labelled),
        labelled=len({unit.place for unit in units}),
        shared=len({unit.place for unit in shared}),
        same=_share_of_equal_answers(shared),
        alpha=_alpha(spec, shared, seed),
        people=tuple(_describe_labeller(items, labels, shared, name) for name in names),
        disputed=tuple(dict.fromkeys(u.place for u in shared if len(set(u.classes.values())) > 1)),
        judged=judged,
        judge=judge,
        wins=_count_wins(spec, labelled),
    )


def labels_by_item(
    items: Sequence[LabelItem], labels: Iterable[GivenLabel]
) -> list[tuple[LabelItem, list[GivenLabel]]]:
    """Return the items in their order, each with the labels of its first showing."""
    by_position: defaultdict[int, list[GivenLabel]] = defaultdict(list)
    for label in labels:
        by_position[label.position].append(label)
    return [(item, by_position[n]) for n, item in enumerate(items) if not item.again]


def mean_scores(spec: TaskSpec, labels: Iterable[GivenLabel]) -> tuple[float, ...]:
    """Return the mean score that people give to each text of an item; none if all skipped it."""
    scores = [scores for label in labels if (scores := scores_of(spec, label.answer))]
    return tuple(sum(column) / len(scores) for column in zip(*scores, strict=True))


def _units_of(item: LabelItem, labels: Iterable[GivenLabel]) -> list[RatedUnit]:
    by_question: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for label in labels:
        for question, chosen in enumerate(classes_of(label.answer)):
            by_question[question][label.labeller] = chosen
    return [RatedUnit(item.place, item.group or item.input, one) for one in by_question.values()]


def _share_of_equal_answers(units: Iterable[RatedUnit], name: str | None = None) -> Statistic:
    """Compare each two answers to a unit; with `name` only those of one person with others'."""
    equal, groups = list[float](), list[str]()
    for unit in units:
        for (first, a), (second, b) in combinations(unit.classes.items(), 2):
            if name is None or name in (first, second):
                equal.append(float(a == b))
                groups.append(unit.group)
    return cluster_share(equal, groups)


def _alpha(spec: TaskSpec, units: Sequence[RatedUnit], seed: int) -> Statistic:
    """Compute Krippendorff's alpha: of squared differences for levels, else nominal."""
    if not units:
        return Statistic()
    levels = max((len(question.levels) for question in spec.questions), default=len(CHOICES))
    places = np.arange(levels, dtype=np.float64)
    gaps = np.abs(places[:, None] - places[None, :])
    distance = gaps**2 if spec.kind == "single" else np.sign(gaps)
    tables = np.zeros((len(units), levels, levels))
    for table, unit in zip(tables, units, strict=True):
        for a, b in combinations(unit.classes.values(), 2):
            table[a, b] += 1 / (len(unit.classes) - 1)
            table[b, a] += 1 / (len(unit.classes) - 1)
    interval = bootstrap_interval(
        tables.reshape(len(units), -1),
        lambda sums: alpha_of(sums.reshape(*sums.shape[:-1], levels, levels), distance),
        [unit.group for unit in units],
        seed=seed,
        bounds=(-1, 1),
    )
    return Statistic(float(alpha_of(tables.sum(axis=0), distance)), interval)


def _describe_labeller(
    items: Sequence[LabelItem], labels: Sequence[GivenLabel], shared: Sequence[RatedUnit], name: str
) -> LabellerFigures:
    own = [label for label in labels if label.labeller == name]
    answered = [label for label in own if label.answer != SKIP]
    firsts, repeats = dict[int, str](), dict[int, str]()
    for label in answered:
        item = items[label.position]
        (repeats if item.again else firsts)[item.place] = label.answer
    twice = [float(firsts[place] == repeats[place]) for place in repeats if place in firsts]
    return LabellerFigures(
        name=name,
        labelled=len(answered),
        skipped=len(own) - len(answered),
        repeats=len(twice),
        consistency=cluster_share(twice),
        others=_share_of_equal_answers(shared, name),
    )


def _compare_judge(
    spec: TaskSpec, labelled: Iterable[tuple[LabelItem, list[GivenLabel]]]
) -> tuple[int, Statistic]:
    """Return on how many items the judge and a majority of people take a side, and how often it is
    the same one: of a pair the better text or neither, of a single text pass or fail."""
    same, groups = list[float](), list[str]()
    for item, labels in labelled:
        pairs = spec.kind == "pairs"
        judge = _side(item.scores if pairs else item.passed)
        people = _side(mean_scores(spec, labels))
        if judge is not None and people is not None and (pairs or people):
            same.append(float(judge == people))
            groups.append(item.group or item.input)
    return len(same), cluster_share(same, groups)


def _side(scores: Sequence[float | None]) -> int | None:
    """Return the sign of the first score against the second, or against one half."""
    first, second = (*scores, 0.5)[:2] if scores else (None, None)
    if first is None or second is None:
        return None
    return int(np.sign(round(first - second, 9)))


def _count_wins(
    spec: TaskSpec, labelled: Iterable[tuple[LabelItem, list[GivenLabel]]]
) -> dict[str, tuple[float, int]]:
    by_variant: defaultdict[str, list[float]] = defaultdict(list)
    for item, labels in labelled:
        for variant, score in zip(item.variants, mean_scores(spec, labels), strict=False):
            by_variant[variant].append(score)
    return {name: (sum(scores) / len(scores), len(scores)) for name, scores in by_variant.items()}
