"""In which order people see items: balanced, different for each of them, and always the same."""

from hypothesis import given
from hypothesis import strategies as st

from textevolve.labelling.tasks import LabelItem, is_swapped, turn

NAMES = st.text(min_size=1, max_size=20)


def make_items(number):
    return [LabelItem(n, f"id{n}", f"in {n}", (f"a {n}", f"b {n}")) for n in range(number)]


@given(task=NAMES, labeller=NAMES, number=st.integers(1, 60))
def test_of_the_first_so_many_each_side_stands_first_equally_often(task, labeller, number):
    lead = 0
    for item in make_items(number):
        lead += 1 if is_swapped(task, item, labeller) else -1
        assert abs(lead) <= 1


def test_people_see_different_orders_and_the_same_one_again():
    items = make_items(64)
    seen = {
        who: [is_swapped("task", item, who) for item in items] for who in ("ann", "bob", "cy", "di")
    }
    assert len({tuple(value) for value in seen.values()}) == 4
    # Each item stands both ways round among many people.
    for item in items:
        assert {is_swapped("task", item, f"person {n}") for n in range(40)} == {True, False}
    assert seen["ann"] == [is_swapped("task", item, "ann") for item in items]
    assert seen["ann"] != [is_swapped("other task", item, "ann") for item in items]


@given(st.sampled_from(["first", "second", "tie", "skip", "0"]), st.booleans())
def test_an_answer_turned_twice_is_itself(answer, swapped):
    assert turn(turn(answer, swapped=swapped), swapped=swapped) == answer
