"""How far people agree, against figures from the literature and by hand."""

import math

import numpy as np
import pytest

from textevolve.labelling.tasks import (
    LabelItem,
    LabelQuestion,
    PersonLabel,
    TaskSpec,
    agree,
    item_rows,
)
from textevolve.statistics.agreement import alpha_of

PAIRS = TaskSpec(kind="pairs")
GRADES = TaskSpec(kind="single", questions=(LabelQuestion(levels=("1", "2", "3", "4", "5")),))
# Krippendorff (2011), "Computing Krippendorff's alpha-reliability", example C: four observers.
OBSERVERS = """1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 ."""


def item(place, texts=("a", "b"), **more):
    return LabelItem(place, f"id{place}", f"in {place}", texts, **more)


def test_alpha_is_that_of_the_literature():
    rows = [line.split() for line in OBSERVERS.splitlines()]
    items = [item(n, ("text",)) for n in range(12)]
    labels = [
        PersonLabel(n, f"observer {who}", str(int(said) - 1))
        for who, row in enumerate(rows)
        for n, said in enumerate(row)
        if said != "."
    ]
    found = agree(GRADES, items, labels)
    assert found.alpha.value == pytest.approx(0.849, abs=5e-4)  # of squared differences
    assert found.shared == 11
    table = np.zeros((5, 5))
    for column in zip(*rows, strict=True):
        said = [int(one) - 1 for one in column if one != "."]
        for n, one in enumerate(said):
            for m, other in enumerate(said):
                table[one, other] += (n != m) / (len(said) - 1) if len(said) > 1 else 0
    assert alpha_of(table, 1 - np.eye(5)) == pytest.approx(0.743, abs=5e-4)  # nominal
    assert math.isnan(alpha_of(np.diag([4.0, 0, 0]), 1 - np.eye(3)))


def test_people_are_described_one_by_one_and_two_by_two():
    items = [item(n, variants=("x", "y")) for n in range(4)]
    answers = {"ann": "first first tie second", "bob": "first second tie skip"}
    labels = [
        PersonLabel(n, who, answer)
        for who, said in answers.items()
        for n, answer in enumerate(said.split())
    ]
    found = agree(PAIRS, items, labels)
    ann, bob = found.people
    assert (found.items, found.labelled, found.shared, found.disputed) == (4, 4, 3, (1,))
    assert (ann.labelled, ann.skipped, bob.labelled, bob.skipped) == (4, 0, 3, 1)
    assert found.wins == {"x": (0.5, 4), "y": (0.5, 4)}


def test_nothing_labelled_is_no_figure():
    found = agree(PAIRS, [item(0)], [])
    assert (found.labelled, found.people) == (0, ())
    assert math.isnan(found.alpha.value)


def test_rows_are_means_of_answers_and_leave_out_what_nobody_answered():
    items = [item(0, context="c"), item(1), item(2)]
    said = {("ann", 0): "first", ("bob", 0): "tie", ("ann", 1): "skip"}
    labels = [PersonLabel(n, who, answer) for (who, n), answer in said.items()]
    (row,) = item_rows(PAIRS, items, labels)
    assert row == {
        "id": "id0",
        "input": "in 0",
        "candidate_1": "a",
        "candidate_2": "b",
        "scores": [0.75, 0.25],
        "context": "c",
        "labels": 2,
    }
