"""Labelling tasks, items and labels as they are kept, and what of them survives damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from textevolve.errors import InputError
from textevolve.labelling.tasks import LabelItem, LabelQuestion, PersonLabel, TaskSpec
from textevolve.store import kinds
from textevolve.store import labelling as stored_labels

PAIRS = TaskSpec(kind="pairs", source="rows.csv")


def make_items(number, text="text"):
    return [
        LabelItem(n, f"id{n}", f"in {n}", (f"{text} {n} a", f"{text} b")) for n in range(number)
    ]


def test_a_task_is_kept_with_its_items_and_what_each_person_said(resources):
    items = make_items(700)
    items[3] = replace(items[3], input="half \ud800 and \0", variants=("x", "y"))
    made = resources.write(stored_labels.create_task, "acme", "mine", PAIRS, items)
    assert (made.positions, made.done, made.spec) == (700, {}, PAIRS)
    resources.write(
        stored_labels.keep_label, made, PersonLabel(3, "ann", "first", "why \ud800", swapped=True)
    )
    for answer in ("first", "tie"):  # the last one counts
        resources.write(stored_labels.keep_label, made, PersonLabel(3, "bob", answer))
    resources.write(stored_labels.keep_label, made, PersonLabel(1, " ann ", "skip"))
    stored, labels = resources.read(stored_labels.read_task, made.id)
    assert stored == items
    assert [(label.position, label.labeller, label.answer) for label in labels] == [
        (1, "ann", "skip"),
        (3, "ann", "first"),
        (3, "bob", "tie"),
    ]
    assert (labels[1].note, labels[1].swapped) == ("why \ud800", True)
    assert resources.read(stored_labels.find_task, "acme", "mine").done == {"ann": 2, "bob": 1}
    assert resources.read(stored_labels.read_labels, made.id, "bob") == [labels[2]]


def test_names_differ_in_more_than_case(resources):
    task = resources.write(stored_labels.create_task, "acme", "mine", PAIRS, make_items(3))
    for position, name in enumerate(("Ann Lee", "ann  lee", "ANN LEE")):
        resources.write(stored_labels.keep_label, task, PersonLabel(position, name, "first"))
    assert resources.read(stored_labels.find_task, "acme", "mine").done == {"Ann Lee": 3}
    assert len(resources.read(stored_labels.read_labels, task.id, "ann lee")) == 3


@pytest.mark.parametrize(
    ("spec", "answer", "said"),
    [
        (PAIRS, "best", "one of: first, second, tie$"),
        (TaskSpec(kind="single", questions=(LabelQuestion(),)), "2", "one of: 0, 1$"),
    ],
)
def test_an_answer_that_there_is_not_is_refused(resources, spec, answer, said):
    task = resources.write(stored_labels.create_task, "acme", "mine", spec, make_items(2))
    with pytest.raises(InputError, match=said):
        resources.write(stored_labels.keep_label, task, PersonLabel(0, "ann", answer))
    with pytest.raises(InputError, match="no item 2"):
        resources.write(stored_labels.keep_label, task, PersonLabel(2, "ann", "skip"))
    with pytest.raises(InputError, match="name"):
        resources.write(stored_labels.keep_label, task, PersonLabel(0, "\u202e", "skip"))
    assert resources.read(stored_labels.get_task, task.id).done == {}


def test_tasks_are_of_one_namespace_and_end_with_it(resources):
    task = resources.write(stored_labels.create_task, "acme", "mine", PAIRS, make_items(2))
    other = resources.write(stored_labels.create_task, "other", "mine", PAIRS, make_items(1))
    for one in (task, other):
        resources.write(stored_labels.keep_label, one, PersonLabel(0, "ann", "tie"))
    with pytest.raises(InputError, match="there is a labelling task 'mine' already"):
        resources.write(stored_labels.create_task, "acme", "mine", PAIRS, make_items(1))
    with pytest.raises(InputError, match="nothing to label"):
        resources.write(stored_labels.create_task, "acme", "empty", PAIRS, [])
    with pytest.raises(InputError, match=r"no labelling task 'mien'.*did you mean 'mine'"):
        resources.read(stored_labels.find_task, "acme", "mien")
    resources.write(kinds.delete, kinds.NAMESPACES, "", "acme")
    assert [one.id for one in resources.read(stored_labels.list_tasks)] == [other.id]
    assert resources.read(stored_labels.read_task, task.id) == ([], [])
    resources.write(stored_labels.delete_task, other.id)
    assert resources.read(stored_labels.read_task, other.id) == ([], [])
    with pytest.raises(InputError, match="no such labelling task"):
        resources.read(stored_labels.get_task, other.id)
