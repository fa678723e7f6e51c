"""Shares of variance against statsmodels' analysis of variance and loops over all orders."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.anova import anova_lm

from textevolve.bench import variance as v
from textevolve.errors import InputError

NAN = float("nan")
SEEDS = st.integers(0, 2**32 - 1)
some = settings(max_examples=10, deadline=None)


def draw_case(random, shape=(2, 3, 3, 2)):
    """Scores with an effect of every factor, and orders at random; (tensor, positions)."""
    rounds, agents, candidates, _ = shape
    shown = np.array(
        [[random.permutation(candidates) for _ in range(agents)] for _ in range(rounds)]
    ).astype(float)
    tensor = random.normal(size=shape) - 0.8 * shown[..., None]
    for axis, size in enumerate(shape):
        effect = random.normal(size=size)
        tensor += effect.reshape([-1 if a == axis else 1 for a in range(4)])
    return tensor, shown


def frame(tensor, shown):
    """One row a present score, with its levels."""
    index = np.indices(tensor.shape).reshape(4, -1)
    table = pd.DataFrame(index.T, columns=["round", "agent", "candidate", "component"])
    table["position"] = np.broadcast_to(shown[..., None], tensor.shape).ravel()
    table["score"] = tensor.ravel()
    return table.dropna()


def explained(table, factors):
    """Sum of squares and parameters of main effects, by statsmodels."""
    if not factors:
        return 0.0, 0.0
    fit = OLS.from_formula("score ~ " + " + ".join(f"C({f})" for f in factors), table).fit()
    return fit.centered_tss - fit.ssr, fit.df_model


def test_a_balanced_design_gives_the_classical_analysis_of_variance():
    """Four agents see two candidates in alternating orders, so all factors are orthogonal."""
    random = np.random.default_rng(1)
    shape = (2, 4, 2, 3)
    shown = np.zeros(shape[:-1])
    shown[:, ::2] = [0, 1]
    shown[:, 1::2] = [1, 0]
    tensor = random.normal(size=shape) + np.array([0, 1])[:, None] - shown[..., None]
    table = frame(tensor, shown)
    factors = " + ".join(f"C({f})" for f in v.FACTORS)
    # With the agents' two orders, the position is orthogonal to each main effect.
    expected = anova_lm(OLS.from_formula("score ~ " + factors, table).fit())
    found = v.share_variance([tensor], [shown])
    squares = expected["sum_sq"] / expected["sum_sq"].sum()
    for name in v.FACTORS:
        assert found.raw[name] == pytest.approx(squares[f"C({name})"])
        chance = expected["mean_sq"]["Residual"] * expected["df"][f"C({name})"]
        corrected = (expected["sum_sq"][f"C({name})"] - chance) / expected["sum_sq"].sum()
        assert found.corrected[name] == pytest.approx(corrected)
    assert found.raw["rest"] == pytest.approx(squares["Residual"])
    assert sum(found.raw.values()) == pytest.approx(1)
    assert sum(found.corrected.values()) == pytest.approx(1)
    assert (found.scores, found.cases, dict(found.reasons)) == (48, 1, {})


def test_missing_turns_and_random_orders_give_the_average_over_all_orders_of_factors():
    random = np.random.default_rng(8)
    cases = [draw_case(random) for _ in range(2)]
    cases[0][0][1, 2] = NAN
    cases[1][0][0, 0] = NAN
    tables = [frame(*case) for case in cases]
    known = {
        subset: np.sum([explained(t, subset) for t in tables], axis=0)
        for size in range(6)
        for subset in itertools.combinations(v.FACTORS, size)
    }
    parts = {name: np.zeros(2) for name in v.FACTORS}
    orders = list(itertools.permutations(v.FACTORS))
    for order in orders:
        before = ()
        for name in order:
            after = tuple(f for f in v.FACTORS if f in (*before, name))
            parts[name] += (known[after] - known[before]) / len(orders)
            before = after
    total = sum(((t["score"] - t["score"].mean()) ** 2).sum() for t in tables)
    squares, parameters = known[v.FACTORS]
    noise = (total - squares) / (sum(len(t) for t in tables) - 2 - parameters)
    found = v.share_variance(*zip(*cases, strict=True))
    assert found.total == pytest.approx(total)
    for name in v.FACTORS:
        assert found.raw[name] == pytest.approx(parts[name][0] / total)
        assert found.corrected[name] == pytest.approx(
            (parts[name][0] - noise * parts[name][1]) / total
        )


@some
@given(SEEDS, st.floats(-50, 50), st.floats(0.1, 10))
def test_shares_do_not_depend_on_the_scale_or_on_differences_between_cases(seed, shift, scale):
    random = np.random.default_rng(seed)
    first, second = (draw_case(random) for _ in range(2))
    shown = [first[1], second[1]]
    plain = v.share_variance([first[0], second[0]], shown)
    moved = v.share_variance([first[0] * scale + shift, second[0] * scale], shown)
    for name in (*v.FACTORS, "rest"):
        assert moved.raw[name] == pytest.approx(plain.raw[name], abs=1e-9)
        assert moved.corrected[name] == pytest.approx(plain.corrected[name], abs=1e-9)


@some
@given(SEEDS)
def test_shares_do_not_depend_on_how_agents_rounds_or_cases_are_ordered(seed):
    random = np.random.default_rng(seed)
    cases = [draw_case(random) for _ in range(3)]
    agents, rounds = random.permutation(3), random.permutation(2)
    turned = [(t[rounds][:, agents], p[rounds][:, agents]) for t, p in cases[::-1]]
    plain, moved = (v.share_variance(*zip(*c, strict=True)) for c in (cases, turned))
    assert dict(moved.raw) == pytest.approx(dict(plain.raw))


@pytest.mark.slow
def test_unrelated_scores_have_no_corrected_share():
    random = np.random.default_rng(3)
    shape = (2, 2, 2, 1)
    shown = np.array([[[0, 1], [1, 0]]] * 2, dtype=float)
    found = v.share_variance([random.normal(size=shape) for _ in range(2000)], [shown] * 2000)
    for name in ("candidate", "agent", "round", "position"):
        assert found.raw[name] == pytest.approx(1 / 7, abs=0.02)
        assert found.corrected[name] == pytest.approx(0, abs=0.02)
    assert found.corrected["rest"] == pytest.approx(1, abs=0.02)


def test_each_factor_alone_has_all_of_the_variance():
    shape = (2, 2, 2, 3)
    shown = np.array([[[0, 1], [1, 0]]] * 2, dtype=float)
    index = dict(zip(("round", "agent", "candidate", "component"), np.indices(shape), strict=True))
    index["position"] = np.broadcast_to(shown[..., None], shape)
    for name in v.FACTORS:
        found = v.share_variance([index[name].astype(float)], [shown])
        wanted = {n: float(n == name) for n in (*v.FACTORS, "rest")}
        assert dict(found.raw) == pytest.approx(wanted, abs=1e-9)
        assert dict(found.corrected) == pytest.approx(wanted, abs=1e-9)


def test_an_order_that_never_changes_cannot_be_told_from_the_candidates():
    random = np.random.default_rng(4)
    tensor = random.normal(size=(2, 3, 2, 2))
    fixed = np.broadcast_to(np.array([1.0, 0.0]), (2, 3, 2))
    found = v.share_variance([tensor], [fixed])
    unknown = v.share_variance([tensor])
    assert math.isnan(found.raw["position"])
    assert math.isnan(found.corrected["position"])
    assert "position and candidate are one" in found.reasons["position"]
    assert unknown.reasons["position"] == "the orders are not known"
    squares, _ = explained(frame(tensor, fixed), ["candidate"])
    for shares in (found, unknown):
        assert shares.raw["candidate"] == pytest.approx(squares / shares.total)
        present = [s for s in shares.raw.values() if not math.isnan(s)]
        assert sum(present) == pytest.approx(1)


def test_a_factor_with_one_level_has_no_share():
    tensor = np.random.default_rng(0).normal(size=(1, 1, 4, 3))
    found = v.share_variance([tensor], [np.arange(4.0)[None, None]])
    assert {n for n, share in found.raw.items() if math.isnan(share)} == {
        "agent",
        "round",
        "position",
    }
    assert found.reasons["agent"] == "no case has more than one agent"


def test_no_case_no_score_and_no_difference_give_no_share():
    for tensors in (
        [],
        [np.zeros((0, 2, 2, 2))],
        [np.full((1, 2, 2, 2), NAN)],
        [np.full((2, 2, 2, 2), 7.0)],
    ):
        found = v.share_variance(tensors)
        assert all(math.isnan(s) for s in (*found.raw.values(), *found.corrected.values()))


def test_one_turn_leaves_nothing_to_judge_chance_by():
    found = v.share_variance([np.array([[[[2.0], [5.0]]]])])
    assert found.raw["candidate"] == pytest.approx(1)
    assert math.isnan(found.corrected["candidate"])


def test_shapes_that_do_not_fit_are_refused():
    tensor = np.zeros((1, 1, 2, 1))
    with pytest.raises(InputError, match="1 orders were given for 2 tensors"):
        v.share_variance([tensor] * 2, [np.zeros((1, 1, 2))])
    with pytest.raises(InputError, match="the same without the last"):
        v.share_variance([tensor], [np.zeros((1, 1, 3))])
    with pytest.raises(InputError, match="each candidate once"):
        v.positions([0, 0, 1])


def test_places_turn_an_order_round():
    assert v.positions([2, 0, 1]).tolist() == [1, 2, 0]


# Votes


def test_votes_by_the_formula():
    random = np.random.default_rng(6)
    shared = random.normal(size=(4000, 1))
    votes = math.sqrt(0.6) * shared + math.sqrt(0.4) * random.normal(size=(4000, 5))
    found = v.count_votes(votes)
    pairs = np.corrcoef(votes.T)[np.triu_indices(5, 1)]
    assert found.correlation == pytest.approx(pairs.mean())
    assert found.effective == pytest.approx(5 / (1 + 4 * pairs.mean()))
    assert found.effective == pytest.approx(5 / 3.4, rel=0.05)
    assert (found.agents, found.pairs) == (5, 10)


def test_copies_are_one_vote_and_strangers_are_as_many_as_they_are():
    column = np.array([1.0, 4, 2, 5])
    assert v.count_votes(np.stack([column] * 3, axis=1)).effective == pytest.approx(1)
    strangers = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    assert v.count_votes(strangers) == v.Votes(2, 0.0, 2.0, 1)
    assert v.count_votes(column[:, None]).effective == 1


def test_votes_without_a_correlation_have_no_number():
    for votes in (
        np.zeros((0, 3)),
        np.zeros((4, 3)),  # errors of judges that are always right
        np.array([[1.0, NAN], [NAN, 2.0], [3.0, NAN]]),
        np.array([[1.0, -1.0], [-1.0, 1.0]]),  # r = -1: the formula ends
    ):
        assert math.isnan(v.count_votes(votes).effective)
    mixed = np.array([[1.0, 1, 0], [0, 0, 0], [1, 1, 0], [NAN, 1, 0]])
    assert v.count_votes(mixed) == v.Votes(3, pytest.approx(1), pytest.approx(1), 1)
    with pytest.raises(InputError, match="rows, agents"):
        v.count_votes(np.zeros(3))


def test_agent_votes_are_scores_around_the_mean_of_the_case():
    first = np.zeros((2, 2, 2, 1))
    first[0, :, :, 0] = [[2, 4], [6, 6]]
    first[1, :, :, 0] = [[4, 8], [NAN, NAN]]
    second = np.full((1, 2, 3, 1), NAN)
    second[0, 0, :, 0] = [1, 2, 6]
    found = v.agent_votes([first, second])
    assert found == pytest.approx(
        np.array([[-1.5, 0], [1.5, 0], [-2, NAN], [-1, NAN], [3, NAN]]), nan_ok=True
    )
    assert v.agent_votes([first], round=1)[:, 0].tolist() == [-2, 2]
    assert v.agent_votes([]).shape == (0, 0)
    with pytest.raises(InputError, match="the same agents"):
        v.agent_votes([first, np.zeros((1, 3, 2, 1))])
