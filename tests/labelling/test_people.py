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
        PersonLabel(n, f"observer {who}", str(int(answer) - 1))
        for who, row in enumerate(rows)
        for n, answer in enumerate(row)
        if answer != "."
    ]
    people_agreement = agree(GRADES, items, labels)
    assert people_agreement.alpha.value == pytest.approx(0.849, abs=5e-4)  # of squared differences
    assert people_agreement.shared == 11
    table = np.zeros((5, 5))
    for column in zip(*rows, strict=True):
        answer = [int(count) - 1 for count in column if count != "."]
        for n, count in enumerate(answer):
            for m, other in enumerate(answer):
                table[count, other] += (n != m) / (len(answer) - 1) if len(answer) > 1 else 0
    assert alpha_of(table, 1 - np.eye(5)) == pytest.approx(0.743, abs=5e-4)  # nominal
    assert math.isnan(alpha_of(np.diag([4.0, 0, 0]), 1 - np.eye(3)))


def test_people_are_described_one_by_one_and_two_by_two():
    items = [item(n, variants=("x", "y")) for n in range(4)]
    answers = {"ann": "first first tie second", "bob": "first second tie skip"}
    labels = [
        PersonLabel(n, who, answer)
        for who, spoken_answer in answers.items()
        for n, answer in enumerate(spoken_answer.split())
    ]
    people_agreement = agree(PAIRS, items, labels)
    ann, bob = people_agreement.people
    assert (
        people_agreement.items,
        people_agreement.labelled,
        people_agreement.shared,
        people_agreement.disputed,
    ) == (4, 4, 3, (1,))
    assert (ann.labelled, ann.skipped, bob.labelled, bob.skipped) == (4, 0, 3, 1)
    assert people_agreement.wins == {"x": (0.5, 4), "y": (0.5, 4)}


def test_nothing_labelled_is_no_figure():
    people_agreement = agree(PAIRS, [item(0)], [])
    assert (people_agreement.labelled, people_agreement.people) == (0, ())
    assert math.isnan(people_agreement.alpha.value)


def test_rows_are_means_of_answers_and_leave_out_what_nobody_answered():
    items = [item(0, context="c"), item(1), item(2)]
    answers = {("ann", 0): "first", ("bob", 0): "tie", ("ann", 1): "skip"}
    labels = [PersonLabel(n, who, answer) for (who, n), answer in answers.items()]
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
