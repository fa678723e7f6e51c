"""People who label write their names in several ways, and a user names a label that no row has."""

import json

import pytest

from textevolve.bench.items import items_of
from textevolve.errors import InputError

TEXT = {"input": "Q?", "output": "A."}


def test_case_makes_no_person():
    rows = [
        {**TEXT, "id": "1", "label_Ann Lee": "pass", "label_bo": "fail"},
        {**TEXT, "id": "2", "label_ann lee": "pass", "label_bo": "fail"},
    ]
    people = [[name for name, _ in item.labels] for item in items_of(rows)]
    assert people == [["ann_lee", "bo"], ["ann_lee", "bo"]]


def test_one_person_labels_once():
    row = {**TEXT, "label_Ann": "pass", "label_ann": "fail"}
    with pytest.raises(InputError, match="'label_Ann' and 'label_ann' have labels of one person"):
        items_of([row])
    (item,) = items_of([{**row, "label_Ann": None}])
    assert item.human == (0.0,)


def test_good_labels_exist():
    rows = [{**TEXT, "id": str(n), "label": word} for n, word in enumerate(("fine", "poor"))]
    with pytest.raises(InputError, match="--good: no row has the label gut; there are: fine, poor"):
        items_of(rows, "gut")
    assert [item.human for item in items_of(rows, "gut,fine")] == [(1.0,), (0.0,)]
    bad = [{**row, "label": "fail"} for row in rows]
    assert [item.human for item in items_of(bad, "pass")] == [(0.0,), (0.0,)]


@pytest.mark.parametrize("command", ["rate", "agreement"])
def test_people_are_named(command, home, cli):
    rows = [
        {**TEXT, "id": str(n), "judged": n % 2, "label_ann": "pass", "label_bo": "fail"}
        for n in range(6)
    ]
    (home / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = {
        "rate": ("labels.jsonl", "labels.jsonl"),
        "agreement": ("labels.jsonl", "--judge", "look:length"),
    }
    outcome = cli("bench", command, *arguments[command])
    assert "labels in label_ann, label_bo (each a person)" in outcome.err
