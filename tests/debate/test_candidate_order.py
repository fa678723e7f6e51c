import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from textevolve.debate.modes import draw_labels, place_candidates


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 5), st.integers())
def test_places_are_as_even_as_can_be_in_each_round_and_over_rounds(
    candidates, agents, rounds, seed
):
    labels = draw_labels(candidates, random.Random(seed))
    orders = [place_candidates(n, labels, "balanced") for n in range(agents * rounds)]
    for order in orders:
        assert sorted(order) == list(range(candidates))
    for start, stop in [(0, len(orders)), *((r * agents, (r + 1) * agents) for r in range(rounds))]:
        for place in range(candidates):
            seen = Counter(order[place] for order in orders[start:stop])
            counts = [seen[c] for c in range(candidates)]
            blocks = 1 if start == 0 else 2  # a round may reach over two blocks
            assert max(counts) - min(counts) <= blocks


def test_both_orders_of_each_pair_occur():
    labels = draw_labels(4, random.Random(1))
    orders = [place_candidates(n, labels, "balanced") for n in range(8)]
    for a in range(4):
        for b in range(a):
            before = sum(order.index(a) < order.index(b) for order in orders)
            assert before == 4


def test_a_fixed_order_stays():
    labels = (2, 1, 3)
    assert {place_candidates(n, labels, "fixed") for n in range(9)} == {(1, 0, 2)}


def test_labels_are_drawn_by_lot_and_evenly():
    drawn = Counter(draw_labels(3, random.Random(seed)) for seed in range(600))
    assert len(drawn) == 6
    assert min(drawn.values()) > 60
