"""What `textevolve compare` says of variants, against scipy, statsmodels and what was simulated."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from textevolve.bench.variants import compare_variants, describe_differences
from textevolve.runs.aggregates import Aggregates
from textevolve.runs.study import Row
from textevolve.statistics.comparisons import (
    MANY_UNITS,
    compare_pairs,
    difference_interval,
    items_needed,
    permutation_p,
    sign_flip_test,
)
from textevolve.statistics.intervals import cluster_mean, cluster_share, t_quantile

SIMULATIONS = 500


def figures_of(by_row):
    rows = [(row, value) for row, values in by_row.items() for value in values]
    figures = Aggregates()
    for row, value in rows:
        figures.add(Row("", case=row, score=float(value), passed=bool(value)))
    return figures


def clustered(seed, rows=30, most=4):
    """Values of rows with one to `most` outputs each, alike within a row."""
    rng = np.random.default_rng(seed)
    groups = [str(row) for row in range(rows) for _ in range(rng.integers(1, most + 1))]
    level = dict(enumerate(rng.normal(0.5, 0.2, rows)))
    return np.array([level[int(g)] + rng.normal(0, 0.1) for g in groups]), groups


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 30, 59, 200, 201, 5000])
def test_quantiles_are_students(freedom):
    for level in (0.5, 0.9, 0.95, 0.999):
        assert t_quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom))


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_of_a_mean_is_that_of_a_regression_with_clustered_errors(seed):
    values, groups = clustered(seed)
    numbers = np.array([int(g) for g in groups])
    from statsmodels.regression.linear_model import OLS

    fit = OLS(values, np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": numbers}, use_t=True
    )
    found = cluster_mean(values, groups)
    assert found.value == pytest.approx(fit.params[0])
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(fit.conf_int()[0]))


@given(st.lists(st.floats(0, 1), min_size=3, max_size=40).filter(lambda v: np.ptp(v) > 1e-3))
def test_without_clusters_it_is_students_interval(values):
    interval = cluster_mean(values).interval
    expected_interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx(
        (expected_interval.low, expected_interval.high), abs=1e-9
    )


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_without_clusters_a_share_has_wilsons_interval(passed):
    found = cluster_share([float(p) for p in passed])
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(sum(passed), len(passed), method="wilson")
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=1e-9)


def test_a_figure_of_nothing_or_of_one_group_has_no_interval():
    for figure in (cluster_mean, cluster_share):
        assert math.isnan(figure([]).value)
        alone = figure([1.0, 0.0], ["a", "a"])
        assert alone.value == 0.5
        assert alone.interval.reason == "one group only"
        assert math.isnan(figure([1.0, 1.0, 0.0], ["a", "a", "b"]).interval.high)
        assert math.isfinite(figure([1.0, 1.0, 0.0], ["a", "b", "c"]).interval.high)
    assert math.isnan(cluster_mean([math.nan]).value)


def test_pairs_are_compared_with_the_items_that_a_test_needs():
    equal, better = compare_pairs([([0.5] * 8, [0.5] * 8), ([1.0] * 8, [0.0] * 8)])
    assert (equal.p, equal.needed, equal.difference) == (1.0, None, 0.0)
    assert (better.items, better.difference) == (8, 1.0)
    assert better.p == pytest.approx(2 * 2 / 2**8)
    assert better.needed == 7


def test_copies_of_a_row_tell_no_more_about_a_share_than_the_row():
    passed = [True] * 12 + [False] * 8
    once = figures_of({str(n): [p] for n, p in enumerate(passed)}).pass_rate
    often = figures_of({str(n): [p] * 5 for n, p in enumerate(passed)}).pass_rate
    assert often.high - often.low >= once.high - once.low


def test_paired_differences_are_those_of_scipy_and_statsmodels():
    rng = np.random.default_rng(5)
    base = rng.random(14)
    scores = {"base": base, **{f"v{n}": base + rng.normal(0.05 * n, 0.1, 14) for n in range(1, 4)}}
    by_row = {
        v: {str(n): float(s) for n, s in enumerate(own_values)} for v, own_values in scores.items()
    }
    found = compare_variants(by_row, "base")
    exact = []
    for variant, paired_difference in found.items():
        gap = scores[variant] - base
        assert paired_difference.low < gap.mean() < paired_difference.high
        assert (paired_difference.low > 0 or paired_difference.high < 0) == (
            paired_difference.p <= 0.05
        )
        test = stats.permutation_test(
            (gap,), np.mean, permutation_type="samples", n_resamples=2**14
        )
        exact.append(test.pvalue)
    from statsmodels.stats.multitest import multipletests

    corrected = multipletests(exact, method="holm")[1]
    assert [paired_difference.p for paired_difference in found.values()] == pytest.approx(
        list(corrected)
    )


@pytest.mark.slow
def test_false_findings_are_as_rare_as_promised():
    """Two variants that do not differ: 'beats' is said in 5 % of simulations at most, but for the
    noise of so many (two standard errors)."""
    rng, beats = random.Random(7), 0
    for _ in range(SIMULATIONS):
        scores = {v: {str(n): float(rng.random() < 0.6) for n in range(40)} for v in ("a", "b")}
        beats += "beats" in describe_differences(compare_variants(scores, "a"), "a")
    assert beats <= SIMULATIONS * 0.05 + 2 * (SIMULATIONS * 0.05 * 0.95) ** 0.5


def simulate(rng, shift, rows=50, samples=2):
    """A variant's scores, alike within rows and bounded as a judge's are."""
    return {
        str(n): list(np.clip(rng.normal(0.5 + shift + level, 0.1, samples), 0, 1))
        for n, level in enumerate(np.random.default_rng(rng.integers(2**32)).normal(0, 0.12, rows))
    }


@pytest.mark.slow
def test_intervals_cover_what_they_should():
    """Of means, pass rates, and differences: 93 to 97 % of simulations."""
    rng = np.random.default_rng(3)
    share = np.mean(np.clip(0.7 + rng.normal(0, 0.2, 200_000), 0, 1))
    mean, passed, gap = 0, 0, 0
    for _ in range(SIMULATIONS):
        one, other = simulate(rng, 0.0), simulate(rng, 0.05)
        interval = figures_of(one).mean
        mean += interval.low <= 0.5 <= interval.high
        chances = np.clip(0.7 + rng.normal(0, 0.2, 50), 0, 1)
        verdicts = {str(row): list(rng.random(3) < p) for row, p in enumerate(chances)}
        interval = figures_of(verdicts).pass_rate
        passed += interval.low <= share <= interval.high
        gaps = [np.mean(other[row]) - np.mean(one[row]) for row in one]
        interval = cluster_mean(gaps).interval  # as `compare_variants` has it, see above
        gap += interval.low <= 0.05 <= interval.high
    covered = np.array([mean, passed, gap]) / SIMULATIONS
    assert covered.min() >= 0.93, covered
    assert covered.max() <= 0.97, covered


@given(
    st.lists(st.integers(0, 5).map(float), min_size=2, max_size=5),
    st.lists(st.integers(0, 5).map(float), min_size=2, max_size=5),
)
def test_a_permutation_test_counts_all_partings(first, second):
    """Against scipy's exact one, whichever of the two is given first."""
    result = stats.permutation_test(
        (first, second),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        vectorized=True,
        n_resamples=np.inf,
        alternative="greater",
    )
    assert permutation_p(first, second) == pytest.approx(result.pvalue)
    shifted = permutation_p([x + 9 for x in first], second)
    assert shifted == pytest.approx(1 / math.comb(len(first) + len(second), len(first)))


def test_a_permutation_test_of_many_draws_some_of_them():
    generator = np.random.default_rng(1)
    first_values, second_values = generator.normal(0.5, 1, 40), generator.normal(0, 1, 40)
    drawn = permutation_p(list(first_values), list(second_values))
    pvalue = stats.ttest_ind(first_values, second_values, alternative="greater").pvalue
    assert drawn == pytest.approx(pvalue, abs=0.02)
    assert math.isnan(permutation_p([], [1.0]))
    assert permutation_p([1.0] * 30, [1.0] * 30) == 1.0


def test_more_tests_need_more_items():
    """Four tests, of which the strictest has a quarter of the level."""
    treatment, control = [1.0] * 14 + [0.0] * 6, [0.0] * 6 + [1.0] * 8 + [0.0] * 6
    needed = items_needed(treatment, control, tests=4)
    assert needed == items_needed(treatment, control, alpha=0.0125)
    assert needed > items_needed(treatment, control)


@given(better=st.integers(500, 560), groups=st.sampled_from([None, "pairs"]))
@settings(max_examples=5)
def test_many_equal_differences_are_drawn_by_value(better, groups):
    """Right and wrong answers of many rows: McNemar's exact test, worked out by the binomial
    distribution."""
    rows = 2 * MANY_UNITS
    theirs = np.zeros(rows)
    theirs[:500] = 1.0
    ours = np.zeros(rows)
    ours[500 : 500 + better] = 1.0
    names = None if groups is None else [str(n // 2) for n in range(rows)]

    test = sign_flip_test(ours, theirs, names, draws=4000)
    exact = stats.binomtest(better, better + 500).pvalue
    if groups is None:
        assert test.p == pytest.approx(exact, abs=5 * math.sqrt(exact / 4000))
        interval = difference_interval(ours, theirs)
        spread = 1.96 * (ours - theirs).std() / math.sqrt(rows)
        middle = (better - 500) / rows
        assert (interval.low, interval.high) == pytest.approx(
            (middle - spread, middle + spread), abs=0.2 * spread
        )
    assert (test.first, test.second) == (better, 500)
