"""The arithmetic of recall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.memory.recall import decay, fit_budget, normalise, weigh
from textevolve.memory.sameness import words_of
from textevolve.texts.prose import fold_case, fold_widths, split_words

finite = st.floats(-1e300, 1e300, allow_nan=False)
shares = st.floats(0, 1)
PARTS = ("relevance", "importance", "recency")
weights = st.tuples(shares, shares, shares).filter(lambda w: sum(w) > 1e-6)


def test_recency_falls_each_hour():
    assert decay(0.0, 3600.0) == pytest.approx(0.995)
    assert decay(0.0, 24 * 3600.0) == pytest.approx(0.995**24)
    assert decay(100.0, 0.0) == 1.0


@given(st.floats(0, 1e10), st.floats(0, 1e10), st.floats(0, 1e10))
def test_recency_stays_in_bounds(since, earlier, later):
    assert 0.0 <= decay(since, max(earlier, later)) <= decay(since, min(earlier, later)) <= 1.0


@given(st.lists(finite, max_size=20))
def test_normalised_values_keep_their_order(values):
    scaled = normalise(values)
    assert all(0.0 <= part <= 1.0 for part in scaled)
    pairs = zip(values, scaled, strict=True)
    ordered = [value for _, value in sorted(pairs)]
    assert ordered == sorted(ordered)


@given(st.lists(finite, min_size=2, max_size=20))
def test_extremes_become_0_and_1(values):
    scaled = normalise(values)
    assert max(scaled) == 1.0
    assert min(scaled) == (1.0 if min(values) == max(values) else 0.0)


@given(st.fixed_dictionaries(dict.fromkeys(PARTS, shares)), weights)
def test_scores_lie_between_their_parts(parts, given_weights):
    score = weigh(parts, dict(zip(PARTS, given_weights, strict=True)))
    assert 0.0 <= score <= 1.0
    assert min(parts.values()) - 1e-9 <= score <= max(parts.values()) + 1e-9


@given(st.lists(st.integers(0, 500), max_size=30), st.integers(0, 1000))
def test_budgets_are_filled_exactly(sizes, budget):
    chosen = fit_budget(sizes, budget)
    room = budget - sum(sizes[place] for place in chosen)
    assert room >= 0
    assert chosen == sorted(set(chosen))
    assert all(sizes[place] > room for place in range(len(sizes)) if place not in chosen)


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
    | st.text("aB1 -.'", max_size=30)
)
def test_words_stand_in_the_folded_text(text):
    words = words_of(text)
    assert words == [fold_case(word) for word in split_words(text, "facts")]
    assert all(word in fold_case(fold_widths(text)) for word in words)
