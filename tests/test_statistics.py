"""Agreement, intervals, tests and rankings against scipy, statsmodels and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from textevolve.bench.items import top_credit
from textevolve.errors import InputError
from textevolve.statistics import agreement as a
from textevolve.statistics import comparisons as c
from textevolve.statistics import intervals as s

NAN = float("nan")
GAPPED = st.sampled_from([0.0, 1.0, 2.0, NAN])
CREDIT = st.sampled_from([0.0, 0.5, 1.0, NAN])
SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=min(40, settings().max_examples))


def two(elements, least=0, most=40):
    """Two lists of one length."""
    return st.integers(least, most).flatmap(
        lambda n: st.tuples(*[st.lists(elements, min_size=n, max_size=n)] * 2)
    )


def whole(first, second):
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not math.isnan(a + b)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def table_of(first, second, classes=()):
    """How often each class of the first meets each of the second."""
    first, second = whole(first, second)
    name = sorted({*first, *second, *classes})
    table = np.zeros((len(name), len(name)))
    for pair in zip(first, second, strict=True):
        table[tuple(name.index(one) for one in pair)] += 1
    return table


def kappa(first, second):
    return float(a.kappa_of(table_of(first, second)))


def kappa_interval(first, second, **more):
    """Of items with the table that each adds to the sum."""
    rows = [table_of([x], [y], (0.0, 1.0)).ravel() for x, y in zip(first, second, strict=True)]
    return s.bootstrap_interval(
        np.array(rows), lambda sums: a.kappa_of(sums.reshape(*sums.shape[:-1], 2, 2)), **more
    )


# Credits


@pytest.mark.parametrize(
    ("judged", "human", "credit"),
    [(3, 1, 1), (3, -1, 0), (0, -1, 0.5), (2, 0, 0.5), (0, 0, 1), (NAN, 1, NAN), (1, NAN, NAN)],
)
def test_a_tie_is_worth_half_and_a_missing_verdict_nothing(judged, human, credit):
    scores, people = (judged, 0.0), (human, 0.0)
    assert top_credit(scores, people) == pytest.approx(credit, nan_ok=True)


def test_top_credit_shares_out_over_more_than_two_candidates():
    assert top_credit([1, 5, 3], [0, 2, 1]) == 1
    assert top_credit([5, 5, 3], [0, 2, 1]) == 0.5
    assert top_credit([5, 5, 5], [0, 2, 1]) == pytest.approx(1 / 3)
    assert top_credit([5, 3, 3], [2, 2, 1]) == 0.5
    assert top_credit([5, 3, 3], [0, 2, 1]) == 0
    assert math.isnan(top_credit([], []))


def test_means_leave_missing_ones_out():
    assert s.mean_present([1, 0, 0.5, NAN]) == 0.5
    assert math.isnan(s.mean_present([]))
    assert math.isnan(s.mean_present([NAN, NAN]))


# Agreement


@given(two(GAPPED))
def test_kappa_is_that_of_statsmodels(raters):
    first, second = whole(*raters)
    value = kappa(*raters)
    if len(set(first + second)) < 2:
        assert math.isnan(value)
        return
    from statsmodels.stats.inter_rater import cohens_kappa

    expected = cohens_kappa(table_of(*raters), return_results=False)
    assert value == pytest.approx(float(expected))


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(InputError, match="3 and 2 verdicts"):
        s.paired([1, 0, 1], [1, 0])
    with pytest.raises(InputError, match="2 groups were given for 3 items"):
        s.mean_interval([1, 0, 1], ["a", "b"])


# Intervals


@given(st.integers(0, 50), st.integers(0, 50))
def test_wilson_is_that_of_statsmodels(wins, losses):
    interval = s.wilson_interval(wins, wins + losses)
    if wins + losses == 0:
        assert math.isnan(interval.low)
        assert interval.reason == "no item"
        return
    from statsmodels.stats.proportion import proportion_confint

    expected = proportion_confint(wins, wins + losses, alpha=0.05, method="wilson")
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-12)


def test_impossible_counts_are_refused():
    for count in ((3, 2), (-1, 2)):
        with pytest.raises(InputError):
            s.wilson_interval(*count)


def test_bootstrap_of_a_mean_is_that_of_scipy():
    values = np.random.default_rng(5).exponential(size=60)
    interval = s.mean_interval(values, draws=20_000)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    assert interval.low == pytest.approx(expected.low, abs=0.01)
    assert interval.high == pytest.approx(expected.high, abs=0.01)


def test_few_groups_have_students_interval_of_a_jackknife():
    """Three groups of unequal size, each left out once; of free items it is Student's interval."""
    groups = [[0.0, 1.0, 0.0], [1.0, 1.0], [0.0]]
    values = [v for g in groups for v in g]
    names = [n for n, g in enumerate(groups) for _ in g]
    left = [np.mean([v for g in groups if g is not out for v in g]) for out in groups]
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 * np.var(left))
    interval = s.mean_interval(values, names)
    assert (interval.low, interval.high) == pytest.approx((0.5 - half, 0.5 + half))
    free = np.random.default_rng(4).random(29)
    expected = stats.t.interval(0.95, 28, free.mean(), stats.sem(free))
    interval = s.mean_interval(free)
    assert (interval.low, interval.high) == pytest.approx(expected)


def test_few_shares_have_wilsons_interval_and_ends_stay_within_bounds():
    interval = s.mean_interval([1, 1, 0.5, NAN], ["a", "a", "b", "c"], bounds=s.UNIT)
    assert interval == s.wilson_interval(2 * 2.5 / 3, 2)
    interval = s.mean_interval([0.8, 0.9, 0.97], bounds=s.UNIT)
    assert 0.0 < interval.low < interval.high == 1.0


def test_too_few_groups_have_no_interval():
    """Two groups (t is 12.7), or three far apart: the interval would hold any value."""
    two = [0.4, 0.5, 0.6], ["a", "a", "b"]
    far = [0.1, 0.5, 0.9], ["a", "b", "c"]
    for values, groups in (two, far):
        assert s.mean_interval(values, groups, bounds=s.UNIT).reason == s.TOO_FEW
    assert s.mean_interval(*two).reason == s.TOO_FEW
    assert s.cluster_mean(*two).interval.reason == s.TOO_FEW
    assert s.cluster_share([1.0, 1.0, 0.0], ["a", "a", "b"]).interval.reason == s.TOO_FEW
    assert s.cluster_share([1.0, 0.0]).interval == s.wilson_interval(1, 2)
    # Three close together say something: 0.5 +- 4.303 * 0.01 / sqrt(3).
    near = s.cluster_mean([0.49, 0.5, 0.51]).interval
    assert (near.low, near.high) == pytest.approx((0.4752, 0.5248), abs=1e-4)
    assert s.Interval(-0.2, 1.3).clipped(0, 1).reason == s.TOO_FEW
    assert s.Interval(-0.2, 0.9).clipped(0, 1) == s.Interval(0.0, 0.9)


@given(st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), min_size=1, max_size=40), SEEDS)
def test_bets_bound_a_mean_of_one_sided_exact_shares(values, seed):
    interval = s.betting_interval(values, seed=seed)
    assert 0 <= interval.low <= np.mean(values) <= interval.high <= 1
    turned = s.betting_interval([1 - v for v in values], seed=seed)
    assert (turned.low, turned.high) == pytest.approx(
        (1 - interval.high, 1 - interval.low), abs=1e-9
    )
    same = s.betting_interval([1.0] * len(values))
    assert 0 <= same.low <= 0.025 ** (1 / len(values))  # as by Clopper and Pearson, at best


def test_bets_on_what_cannot_be_are_refused():
    assert s.betting_interval([]).reason == "no item"
    with pytest.raises(InputError, match="some are outside"):
        s.betting_interval([0.5, 1.5])


def test_so_many_equal_rows_show_a_margin_as_the_chance_of_no_loss_allows():
    """With a true loss of 5 % no row of 72 is lost in 2.5 % of the cases."""
    assert s.betting_interval([0.0] * 85, (-1, 1)).low > -0.05
    assert s.betting_interval([0.0] * 71, (-1, 1)).low < -0.05


def test_items_of_a_group_make_the_interval_wider_than_as_many_free_ones():
    values = np.repeat(np.random.default_rng(2).random(30) < 0.6, 5)
    free = s.mean_interval(values)
    tied = s.mean_interval(values, np.repeat(np.arange(30), 5).tolist())
    assert tied.high - tied.low == pytest.approx((free.high - free.low) * math.sqrt(5), rel=0.15)
    assert s.mean_interval(values, [""] * 150) == free
    assert s.mean_interval(values, [None] * 150) == free


def test_bootstrap_gives_a_reason_where_there_is_no_interval():
    for values, groups, reason in [
        ([], None, "no item"),
        ([NAN, NAN], None, "no item"),
        ([1, 0, 1], ["a", "a", "a"], "one group only"),
        ([1, 0, NAN], ["a", "a", "b"], "one group only"),
        ([1, 1, 1], None, "no variation between the groups"),
    ]:
        interval = s.mean_interval(values, groups)
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)
        assert interval.reason == reason


def test_bootstrap_of_kappa_holds_what_loops_over_items_give():
    random = np.random.default_rng(3)
    first_values = random.integers(0, 2, 80).astype(float)
    second_values = np.where(random.random(80) < 0.75, first_values, 1 - first_values)
    second_values[:3] = NAN
    interval = kappa_interval(first_values, second_values, draws=4000)
    draws = [random.integers(3, 80, 77) for _ in range(2000)]
    low, high = np.quantile(
        [kappa(first_values[d], second_values[d]) for d in draws], [0.025, 0.975]
    )
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.03)


def test_kappa_that_is_mostly_undefined_has_no_interval():
    interval = kappa_interval([1, 1, 1, 1, 0], [1, 1, 1, 1, 0])
    assert math.isnan(interval.low)
    assert "undefined in" in interval.reason


@few
@given(two(CREDIT, most=12), SEEDS)
def test_one_seed_gives_one_interval(raters, seed):
    groups = ["a", "b", "", "c"] * 3
    results = [
        c.difference_interval(*raters, groups[: len(raters[0])], seed=seed, draws=300)
        for _ in range(2)
    ]
    assert repr(results[0]) == repr(results[1])
    if not math.isnan(results[0].low):
        assert -1 <= results[0].low <= results[0].high <= 1


# Tests between two judges


@few
@given(two(CREDIT, least=2, most=11))
def test_sign_flips_are_counted_exactly_as_by_scipy(raters):
    first, second = whole(*raters)
    difference = np.array(first) - np.array(second)
    found_test = c.sign_flip_test(*raters)
    if len(difference) < 2 or not difference.any():
        assert found_test.p == (1 if first else pytest.approx(NAN, nan_ok=True))
        return
    expected = stats.permutation_test(
        (difference,), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    assert found_test.exact
    assert found_test.p == pytest.approx(min(1.0, expected.pvalue))


def test_many_sign_flips_are_drawn_and_never_give_zero():
    first_values, second_values = np.ones(40), np.zeros(40)
    found_test = c.sign_flip_test(first_values, second_values, draws=999)
    assert not found_test.exact
    assert found_test.p == 1 / 1000
    assert (found_test.items, found_test.first, found_test.second) == (40, 40, 0)
    near = np.where(np.arange(60) < 36, 1.0, 0.0)
    drawn = c.sign_flip_test(near, 1 - near, draws=20_000, seed=4)
    assert drawn.p == pytest.approx(stats.binomtest(24, 60).pvalue, abs=0.01)
    assert drawn == c.sign_flip_test(near, 1 - near, draws=20_000, seed=4)


def test_signs_of_a_group_flip_together():
    first_counts, second_counts = [1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1]
    assert c.sign_flip_test(first_counts, second_counts).p == 2 / 16
    assert c.sign_flip_test(first_counts, second_counts, ["a", "a", "b", "b", "c", "c"]).p == 2 / 4
    assert c.sign_flip_test(first_counts, second_counts, ["a"] * 6).p == 1
    many = c.sign_flip_test([1] * 40, [0] * 40, [n % 4 for n in range(40)])
    assert (many.exact, many.p) == (True, 2 / 16)


@settings(max_examples=8, deadline=None)  # statsmodels collects the garbage at every call
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_that_of_statsmodels(p_values):
    from statsmodels.stats.multitest import multipletests

    expected = multipletests(p_values, method="holm")[1] if p_values else []
    assert c.holm(p_values) == pytest.approx(np.array(expected))


def test_holm_does_not_count_a_test_that_does_not_exist():
    values = c.holm([0.01, NAN, 0.04])
    assert values == pytest.approx([0.02, NAN, 0.04], nan_ok=True)


@pytest.mark.parametrize(
    ("rates", "power", "items"), [((0.45, 0.05), 0.8, 23), ((0.3, 0.15), 0.8, 155)]
)
def test_items_needed_are_those_of_published_calculators(rates, power, items):
    """Both from the formula of Connor (1987) as public sample-size calculators show it."""
    wins, losses = (round(rate * 100) for rate in rates)
    first = [1] * wins + [0] * losses + [1] * (100 - wins - losses)
    second = [0] * wins + [1] * losses + [1] * (100 - wins - losses)
    assert c.items_needed(first, second, power=power) == items


def test_items_needed_give_the_power_promised():
    first_counts, second_counts = [1] * 25 + [0] * 10 + [1] * 65, [0] * 25 + [1] * 10 + [1] * 65
    needed = int(c.items_needed(first_counts, second_counts))
    drawn = np.random.default_rng(1).multinomial(needed, [0.25, 0.10, 0.65], 4000)
    wins, losses = drawn[:, 0], drawn[:, 1]
    values = (wins - losses) ** 2 / (wins + losses) > stats.chi2.ppf(0.95, 1)
    assert values.mean() == pytest.approx(0.8, abs=0.03)


def test_no_number_of_items_finds_no_difference():
    assert math.isnan(c.items_needed([1, 0], [0, 1]))
    assert math.isnan(c.items_needed([], []))


def test_fewer_items_than_an_exact_test_can_tell_by_are_never_enough():
    """6, if all differ, and 7 where 3 tests are corrected for."""
    assert c.items_needed([1, 1, 1], [0, 0, 0]) == 6
    assert c.items_needed([1, 1, 1], [0, 0, 0], tests=3) == 7
    assert c.items_needed([1, 1, 1, 0], [0, 0, 0, 0], size=1.0) == 6
    assert c.items_needed([1, 0] * 9, [0, 0] * 9, size=0.99) == 7
    assert [stats.binomtest(n, n).pvalue <= 0.05 for n in (5, 6)] == [False, True]
    assert [3 * stats.binomtest(n, n).pvalue <= 0.05 for n in (6, 7)] == [False, True]


@few
@given(two(CREDIT, least=6, most=14), st.sampled_from([0.8, 0.95]))
def test_the_interval_of_a_difference_is_what_sign_flips_do_not_refute(raters, level):
    first_values, second_values = (np.nan_to_num(np.array(rater, dtype=float)) for rater in raters)
    second_values = second_values + np.linspace(
        0, 0.01, len(second_values)
    )  # no two means of subsets are the same
    interval = c.difference_interval(first_values, second_values, level=level)
    if interval.reason:
        return
    for end, outwards in ((interval.low, -1e-7), (interval.high, 1e-7)):
        assert (
            c.sign_flip_test(
                first_values - second_values, np.full(len(first_values), end + outwards)
            ).p
            <= 1 - level
        )
        assert (
            c.sign_flip_test(
                first_values - second_values, np.full(len(first_values), end - outwards)
            ).p
            > 1 - level
        )


def test_an_interval_leaves_out_0_where_the_corrected_test_finds_a_difference():
    rng = np.random.default_rng(8)
    seen = set()
    for rows in (5, 8, 12, 20, 40):
        for _ in range(6):
            pairs = [(rng.random(rows) + 0.1 * n, rng.random(rows)) for n in range(1, 5)]
            for compare_pair in c.compare_pairs(pairs, seed=1):
                if compare_pair.low is None:
                    assert compare_pair.p > 0.05
                else:
                    assert (compare_pair.low >= 0 or compare_pair.high <= 0) == (
                        compare_pair.p <= 0.05
                    )
                    seen.add(compare_pair.p <= 0.05)
    assert seen == {True, False}
    assert c.difference_interval([1] * 5, [0, 0, 0, 0, 0.5]).reason == "too few groups for 95%: 5"


def test_difference_of_judges_that_are_never_apart_has_no_interval():
    assert c.difference_interval([1, 0, 1], [1, 0, 1]).reason == "no variation between the groups"


def test_ends_of_shares_are_exact():
    for trials in (1, 7, 20, 1000):
        assert s.wilson_interval(0, trials).low == 0
        assert s.wilson_interval(trials, trials).high == 1
