"""Rows become examples, parted by their values; outputs are graded by code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from materials import take_material

from textevolve.errors import InputError
from textevolve.loops.calibration.trial_runner import Example, split_examples

VALUES = st.lists(st.integers(0, 60), min_size=2, max_size=40)


def make(numbers):
    return [Example(f"{n}-{k}", {"x": str(n)}, k) for k, n in enumerate(numbers)]


@given(VALUES, st.floats(0.05, 0.95))
def test_the_parts_are_whole_apart_and_do_not_depend_on_the_order(numbers, share):
    examples = make(numbers)
    if len(set(numbers)) < 2:
        return
    training, held_out = split_examples(examples, share)
    assert {e.id for e in training} | {e.id for e in held_out} == {e.id for e in examples}
    assert len(training) + len(held_out) == len(examples)
    assert training
    assert held_out
    assert not {e.values["x"] for e in training} & {e.values["x"] for e in held_out}
    assert split_examples(examples[::-1], share) == (training, held_out)


def test_the_share_is_kept_where_rows_differ():
    training, held_out = split_examples(make(range(50)), 0.3)
    assert (len(training), len(held_out)) == (35, 15)


def rows(*made):
    return [(f"values.jsonl:{n}", row) for n, row in enumerate(made, 1)]


def test_values_are_text_and_the_label_stays_what_it_is():
    data = rows({"a": 1, "b": [1, "ü"], "y": 7}, {"a": None, "b": 2, "y": 7}, {"a": 3, "y": 1})
    material = take_material("{b}", data[:2], label="y")
    assert {tuple(e.values.items()) for e in material.examples} == {
        (("b", '[1, "ü"]'),),
        (("b", "2"),),
    }
    assert {e.label for e in material.examples} == {7}
    assert material.columns == ("a", "b")


def test_rows_that_are_the_same_are_kept_once():
    material = take_material("{a}", rows({"a": 1}, {"a": 2}, {"a": 1, "other": 5}))
    assert len(material.examples) == 2


@pytest.mark.parametrize(
    ("template", "data", "label", "said"),
    [
        ("{a}", [], None, "no data"),
        ("{a}", [{"a": 1}], None, "two different rows"),
        ("{a}", [{"a": 1}, {"b": 2}], None, r"values.jsonl:2: the column 'a'.*is missing"),
        (
            "{a}",
            [{"a": 1, "y": 1}, {"a": 2}],
            "y",
            r"values.jsonl:2: the label column 'y' is missing",
        ),
        ("{a} {y}", [{"a": 1, "y": 1}, {"a": 2, "y": 2}], "y", "shows the label"),
        ("{a} {contxt}", [{"a": 1, "context": 2}], None, "write {context}"),
    ],
)
def test_data_that_cannot_be_used_are_refused(template, data, label, said):
    with pytest.raises(InputError, match=said):
        take_material(template, rows(*data), label=label)


def test_the_ends_of_lines_are_no_difference_between_templates():
    rows = [("x", {"q": str(n)}) for n in range(4)]
    assert take_material("Answer.\r\n{q}", rows).template == "Answer.\n{q}"
