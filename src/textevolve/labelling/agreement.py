"""How far people agree: with each other, with themselves, and with the judge of the run that the
texts come from; and whether the place of a text decides.

Second showings count for consistency and position preference alone; everywhere else it is the
first label of a person that counts. What was skipped is missing, not a class.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from textevolve.labelling.tasks import (
    CHOICES,
    FIRST,
    SECOND,
    SKIP,
    TIE,
    GivenLabel,
    LabelItem,
    TaskSpec,
    first_labels,
    levels_of,
    turn,
    value_of,
)
from textevolve.statistics.agreement import alpha_of, kappa_of
from textevolve.statistics.clusters import cluster_share
from textevolve.statistics.intervals import Array, Statistic, bootstrap_interval

MOST_PEOPLE = 8
"""Of how many people each two are set side by side."""


@dataclass(frozen=True, slots=True)
class LabellerFigures:
    """One person. `labelled` and `skipped`: of all showings. `consistency`: how often the second
    answer to the same item was the first one, of `repeats`. `first`: how often whatever stood first
    was chosen, ties apart; of pairs. `others`: how often an answer was another person's, too."""

    name: str
    labelled: int
    skipped: int
    ties: float
    repeats: int
    consistency: Statistic
    first: Statistic
    others: Statistic


@dataclass(frozen=True, slots=True)
class TwoPeople:
    """Two people over the `items` that both have labelled."""

    first: str
    second: str
    items: int
    same: Statistic
    kappa: Statistic


@dataclass(frozen=True, slots=True)
class BesideJudge:
    """What the run's own judge said, beside the majority of people. Of single texts: it passed so
    many that people failed, and failed so many that they passed."""

    items: int
    same: Statistic
    kappa: Statistic
    false_passes: int = 0
    false_fails: int = 0


@dataclass(frozen=True, slots=True)
class PeopleAgreement:
    """`labelled`: items that somebody has labelled; `shared`: that two or more have. `same`: how
    often two answers to one item are the same; `alpha`: Krippendorff's, beyond chance. `disputed`:
    places of items on which people differ. `wins`: how often each variant was chosen."""

    items: int
    labelled: int
    shared: int
    same: Statistic
    alpha: Statistic
    people: tuple[LabellerFigures, ...]
    pairs: tuple[TwoPeople, ...]
    disputed: tuple[int, ...]
    judge: BesideJudge | None = None
    wins: Mapping[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])


@dataclass(frozen=True, slots=True)
class _Unit:
    """Something that several people put into one of the same classes: an item, or one question on
    it. `group`: units of one group are not independent."""

    place: int
    group: str
    said: Mapping[str, int]


def agree(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel], seed: int = 0
) -> PeopleAgreement:
    """All figures of a task; `labels` are in the order of their positions."""
    firsts = first_labels(items, labels)
    units = list(_make_units(spec, items, firsts))
    names = list(dict.fromkeys(one.labeller for one in labels))
    shared = [unit for unit in units if len(unit.said) > 1]
    pairs = combinations(names[:MOST_PEOPLE], 2)
    return PeopleAgreement(
        items=sum(not item.again for item in items),
        labelled=len({unit.place for unit in units}),
        shared=len({unit.place for unit in shared}),
        same=_same_answers(shared),
        alpha=_alpha(spec, shared, seed),
        people=tuple(_describe(spec, items, labels, shared, name) for name in names),
        pairs=tuple(_compare(spec, units, a, b, seed) for a, b in pairs),
        disputed=tuple(dict.fromkeys(u.place for u in shared if len(set(u.said.values())) > 1)),
        judge=_beside_judge(spec, items, firsts, seed),
        wins=_count_wins(spec, items, firsts),
    )


def _make_units(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Iterable[GivenLabel]
) -> Iterable[_Unit]:
    said: defaultdict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for label in labels:
        for question, chosen in enumerate(classes_of(spec, label.answer)):
            said[label.position, question][label.labeller] = chosen
    for (position, _), answers in sorted(said.items()):
        item = items[position]
        yield _Unit(item.place, item.group or item.input, answers)


def classes_of(spec: TaskSpec, answer: str) -> list[int]:
    """The class of an answer for each question; none where it was skipped."""
    if spec.kind == "pairs":
        return [] if answer == SKIP else [CHOICES.index(answer)]
    return levels_of(answer)


def _classes(spec: TaskSpec) -> int:
    levels = [len(question.levels) for question in spec.questions]
    return max(levels) if spec.kind == "single" else len(CHOICES)


def _same_answers(units: Sequence[_Unit]) -> Statistic:
    found = [
        (unit.group, float(a == b))
        for unit in units
        for a, b in combinations(unit.said.values(), 2)
    ]
    return cluster_share([same for _, same in found], [group for group, _ in found])


def _alpha(spec: TaskSpec, units: Sequence[_Unit], seed: int) -> Statistic:
    classes = _classes(spec)
    places = np.arange(classes, dtype=np.float64)
    ordered = spec.kind == "single" and classes > 2
    gaps = np.abs(places[:, None] - places[None, :])
    distance = gaps**2 if ordered else np.sign(gaps)
    tables = np.zeros((len(units), classes, classes))
    for table, unit in zip(tables, units, strict=True):
        values = list(unit.said.values())
        for n, one in enumerate(values):
            for m, other in enumerate(values):
                table[one, other] += (n != m) / (len(values) - 1)
    return _bootstrap(tables, lambda sums: alpha_of(sums, distance), [u.group for u in units], seed)


def _bootstrap(
    tables: Array, measure: Callable[[Array], Array], groups: Sequence[str], seed: int
) -> Statistic:
    """A figure of a table of two by classes, summed over items (items, classes, classes)."""
    if not len(tables):
        return Statistic()
    shape = tables.shape[1:]
    interval = bootstrap_interval(
        tables.reshape(len(tables), -1),
        lambda sums: measure(sums.reshape(*sums.shape[:-1], *shape)),
        groups,
        seed=seed,
        bounds=(-1, 1),
    )
    return Statistic(float(measure(tables.sum(axis=0))), interval)


def _table_of(first: int, second: int, classes: int) -> Array:
    table = np.zeros((classes, classes))
    table[first, second] = 1
    return table


def _kappa(found: Sequence[tuple[int, int, str]], classes: int, seed: int) -> Statistic:
    """Of two raters' classes of each item, with its group."""
    tables = np.array([_table_of(a, b, classes) for a, b, _ in found])
    return _bootstrap(tables, kappa_of, [group for _, _, group in found], seed)


def _compare(
    spec: TaskSpec, units: Sequence[_Unit], first: str, second: str, seed: int
) -> TwoPeople:
    both = [unit for unit in units if {first, second} <= unit.said.keys()]
    found = [(unit.said[first], unit.said[second], unit.group) for unit in both]
    same = cluster_share([float(a == b) for a, b, _ in found], [group for *_, group in found])
    kappa = _kappa(found, _classes(spec), seed)
    return TwoPeople(first, second, len({unit.place for unit in both}), same, kappa)


def _describe(
    spec: TaskSpec,
    items: Sequence[LabelItem],
    labels: Sequence[GivenLabel],
    shared: Sequence[_Unit],
    name: str,
) -> LabellerFigures:
    own = [one for one in labels if one.labeller == name]
    answered = [one for one in own if one.answer != SKIP]
    firsts = {items[o.position].place: o.answer for o in answered if not items[o.position].again}
    agains = {items[o.position].place: o.answer for o in answered if items[o.position].again}
    twice = [float(firsts[place] == agains[place]) for place in agains if place in firsts]
    shown = [turn(one.answer, swapped=one.swapped) for one in answered]
    decided = [float(one == FIRST) for one in shown if one in (FIRST, SECOND)]
    others = [
        (unit.group, float(answer == unit.said[name]))
        for unit in shared
        if name in unit.said
        for who, answer in unit.said.items()
        if who != name
    ]
    return LabellerFigures(
        name=name,
        labelled=len(answered),
        skipped=len(own) - len(answered),
        ties=shown.count(TIE) / len(shown) if shown else math.nan,
        repeats=len(twice),
        consistency=cluster_share(twice),
        first=cluster_share(decided),
        others=cluster_share([same for _, same in others], [group for group, _ in others]),
    )


def vote(spec: TaskSpec, answers: Sequence[str]) -> tuple[float, ...] | None:
    """What people say of an item together, the mean of what each says: of a pair a number for each
    text that sum to 1, of a single text one in [0, 1]; None where all skipped it."""
    if spec.kind == "pairs":
        given = [{FIRST: 1.0, SECOND: 0.0, TIE: 0.5}[one] for one in answers if one != SKIP]
        return (sum(given) / len(given), 1 - sum(given) / len(given)) if given else None
    values = [value for one in answers if (value := value_of(spec, one)) is not None]
    return (sum(values) / len(values),) if values else None


def gather_answers(
    items: Sequence[LabelItem], labels: Iterable[GivenLabel]
) -> list[tuple[LabelItem, list[GivenLabel]]]:
    """The items in their order, each with the first labels of all who labelled it."""
    found: defaultdict[int, list[GivenLabel]] = defaultdict(list)
    for label in labels:
        found[label.position].append(label)
    return [(item, found[n]) for n, item in enumerate(items) if not item.again]


def _beside_judge(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel], seed: int
) -> BesideJudge | None:
    found: list[tuple[int, int, str]] = []
    for item, given in gather_answers(items, labels):
        people = vote(spec, [one.answer for one in given])
        judged = _choose(item.scores) if spec.kind == "pairs" else _first_verdict(item.passed)
        if people is None or judged is None:
            continue
        own = _choose(people) if spec.kind == "pairs" else _side(people[0])
        if own is not None:
            found.append((judged, own, item.group or item.input))
    if not found:
        return None
    counted = Counter((judge, own) for judge, own, _ in found)
    return BesideJudge(
        items=len(found),
        same=cluster_share([float(a == b) for a, b, _ in found], [group for *_, group in found]),
        kappa=_kappa(found, len(CHOICES) if spec.kind == "pairs" else 2, seed),
        false_passes=counted[1, 0] if spec.kind == "single" else 0,
        false_fails=counted[0, 1] if spec.kind == "single" else 0,
    )


def _choose(scores: Sequence[float | None]) -> int | None:
    """Which of `CHOICES` two numbers make; None where one is missing."""
    known = [one for one in scores if one is not None]
    if len(known) < 2:
        return None
    gap = known[0] - known[1]
    return CHOICES.index(TIE) if abs(gap) < 1e-9 else int(gap < 0)


def _first_verdict(passed: Sequence[bool | None]) -> int | None:
    return None if not passed or passed[0] is None else int(passed[0])


def _side(value: float) -> int | None:
    """Above one half people pass it, below they fail it; None where they are even."""
    return None if value == 0.5 else int(value > 0.5)


def _count_wins(
    spec: TaskSpec, items: Sequence[LabelItem], labels: Sequence[GivenLabel]
) -> dict[str, tuple[float, int]]:
    """Of each variant its mean, over so many items."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for item, given in gather_answers(items, labels):
        people = vote(spec, [one.answer for one in given])
        if people is not None and item.variants:
            for variant, value in zip(item.variants, people, strict=True):
                found[variant].append(value)
    return {name: (sum(values) / len(values), len(values)) for name, values in found.items()}
