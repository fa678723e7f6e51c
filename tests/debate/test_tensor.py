"""The arithmetic against the published formulas, written out here a second time in plain loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from textevolve.debate import tensor as t
from textevolve.errors import InputError

SCORES = st.floats(0, 10, allow_nan=False, width=32)


@st.composite
def tensors(draw, missing=True, least_agents=1):
    shape = tuple(draw(st.integers(low, 4)) for low in (1, least_agents, 1, 1))
    values = draw(arrays(np.float64, shape, elements=SCORES))
    if missing:
        lost = draw(arrays(np.bool_, shape[:2]))
        values[lost] = np.nan
    return values


@st.composite
def weighted(draw, **options):
    values = draw(tensors(**options))
    weights = draw(
        arrays(np.float64, values.shape[-1], elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    )
    if not weights.any():
        weights[draw(st.integers(0, len(weights) - 1))] = 1.0
    return values, weights


def by_the_formula(values, weights):
    """s_norm[j] = 1/(r i k) * sum w_k S[r,i,j,k]; a missing turn leaves sum and count."""
    rounds, agents, candidates, components = values.shape
    result = []
    for j in range(candidates):
        total, count = 0.0, 0
        for r in range(rounds):
            for i in range(agents):
                if math.isnan(values[r, i, j, 0]):
                    continue
                for k in range(components):
                    total += weights[k] * values[r, i, j, k]
                    count += 1
        result.append(total / count if count else math.nan)
    return result


@given(weighted())
def test_mean_is_the_published_formula(case):
    values, weights = case
    assert t.normalise(values, weights) == pytest.approx(
        by_the_formula(values, weights), nan_ok=True
    )


@given(weighted(), st.sampled_from(["mean", "median", "trimmed"]))
def test_scores_stay_in_range(case, aggregation):
    values, weights = case
    scores = t.normalise(values, weights, aggregation)
    unit = t.unit_scores(scores, weights)
    assert scores.shape == (values.shape[2],)
    present = ~np.isnan(scores)
    assert ((scores[present] >= -1e-9) & (scores[present] <= 10 + 1e-9)).all()
    assert ((unit[present] >= -1e-9) & (unit[present] <= 1 + 1e-9)).all()
    assert present.all() == (not np.isnan(values).all())


@given(weighted())
def test_median_and_trimmed_agree_with_numpy_and_a_loop(case):
    values, weights = case
    medians, trimmed = (t.normalise(values, weights, a) for a in ("median", "trimmed"))
    votes = (values * weights).mean(axis=-1).reshape(-1, values.shape[2])
    votes = votes[~np.isnan(votes).any(axis=1)]
    if not len(votes):
        assert np.isnan(medians).all()
        assert np.isnan(trimmed).all()
        return
    cut = int(len(votes) * 0.2)
    stored_values = np.sort(votes, axis=0)[cut : len(votes) - cut]
    assert medians == pytest.approx(np.median(votes, axis=0))
    assert trimmed == pytest.approx(stored_values.mean(axis=0))


@given(weighted(), st.randoms(use_true_random=False))
def test_order_of_candidates_and_components_does_not_matter(case, random):
    values, weights = case
    j, k = list(range(values.shape[2])), list(range(values.shape[3]))
    random.shuffle(j)
    random.shuffle(k)
    shuffled = values[:, :, j][..., k]
    for aggregation in ("mean", "median", "trimmed"):
        expected = t.normalise(values, weights, aggregation)[j]
        assert t.normalise(shuffled, weights[k], aggregation) == pytest.approx(
            expected, nan_ok=True
        )
    assert t.disagreement(shuffled[0], weights[k]) == pytest.approx(
        t.disagreement(values[0], weights), rel=1e-6
    )


@given(weighted(missing=False))
def test_an_agent_that_repeats_the_mean_changes_nothing(case):
    values, weights = case
    extra = np.concatenate([values, values.mean(axis=1, keepdims=True)], axis=1)
    assert t.normalise(extra, weights) == pytest.approx(t.normalise(values, weights))


@given(weighted(), st.sampled_from(["mean", "median", "trimmed"]))
def test_a_batch_is_the_same_as_its_cases_one_by_one(case, aggregation):
    values, weights = case
    batch = np.stack([values, values * 0.5, np.full_like(values, np.nan)])
    together = t.normalise(batch, weights, aggregation)
    alone = np.stack([t.normalise(v, weights, aggregation) for v in batch])
    np.testing.assert_allclose(together, alone)
    np.testing.assert_allclose(t.spread(batch, weights)[0], t.spread(values, weights))
    np.testing.assert_allclose(t.softmax(together)[1], t.softmax(alone[1]))
    assert t.coverage(batch)[0] == t.coverage(values)


@given(weighted(missing=False), st.floats(0.01, 1))
def test_the_unit_score_does_not_depend_on_the_scale_of_the_weights(case, factor):
    values, weights = case
    single_values = t.unit_scores(t.normalise(values, weights), weights)
    other = t.unit_scores(t.normalise(values, weights * factor), weights * factor)
    mean = np.average(values, axis=-1, weights=weights).mean(axis=(0, 1))
    assert single_values == pytest.approx(other)
    assert single_values == pytest.approx(mean / 10)


@given(arrays(np.float64, st.integers(1, 6), elements=SCORES), st.floats(0.001, 100))
def test_softmax_sums_to_one_and_keeps_the_order(scores, temperature):
    shares = t.softmax(scores, temperature)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    assert (np.diff(shares[np.argsort(scores)]) >= -1e-12).all()


def test_softmax_is_stable_and_leaves_out_the_missing():
    assert t.softmax(np.array([1000.0, 1000.0])) == pytest.approx([0.5, 0.5])
    assert t.softmax(np.array([1.0, np.nan, 1.0])) == pytest.approx([0.5, np.nan, 0.5], nan_ok=True)
    assert np.isnan(t.softmax(np.array([np.nan]))).all()


@given(weighted())
def test_disagreement_is_never_nan_and_not_negative(case):
    values, weights = case
    for mode in ("agents", "pooled"):
        cvs = t.disagreement(values, weights, mode)
        assert cvs.shape == (values.shape[0],)
        assert not np.isnan(cvs).any()
        assert (cvs >= 0).all()


@given(weighted(missing=False, least_agents=2))
def test_disagreement_of_the_agents_by_a_loop(case):
    values, weights = case
    largest = 0.0
    for j in range(values.shape[2]):
        votes = [float((weights * values[0, i, j]).mean()) for i in range(values.shape[1])]
        mean = sum(votes) / len(votes)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in votes) / len(votes))
        largest = max(largest, 0.0 if deviation <= 1e-8 else deviation / mean if mean else math.inf)
    assert float(t.disagreement(values[0], weights)) == pytest.approx(largest, rel=1e-6)


def test_agents_that_agree_on_far_apart_candidates_converge_only_in_the_agents_mode():
    scores = np.array([[[9.0, 9.0], [1.0, 1.0]]] * 3)
    weights = np.ones(2)
    assert t.disagreement(scores, weights) == 0
    assert t.disagreement(scores, weights, "pooled") == pytest.approx(0.8)


def test_zero_scores_agree_and_a_round_without_answers_does_not():
    assert t.disagreement(np.zeros((3, 2, 2)), np.ones(2)) == 0
    assert t.disagreement(np.array([[[5.0]], [[5.0 + 1e-8]]]), np.ones(1)) == 0
    assert t.disagreement(np.full((3, 2, 2), np.nan), np.ones(2)) == math.inf


def test_a_missing_turn_is_no_zero():
    values = np.full((1, 3, 2, 1), 8.0)
    values[0, 1] = np.nan
    assert t.normalise(values, np.ones(1)) == pytest.approx([8, 8])
    assert t.coverage(values) == pytest.approx(2 / 3)
    assert t.component_scores(values)[0, 0] == pytest.approx(8)
    assert t.spread(values, np.ones(1)) == pytest.approx([0, 0])


def test_a_quorum_is_all_agents_or_two_of_a_majority():
    least = [min(n for n in range(k + 1) if t.is_quorum(n, k)) for k in range(1, 7)]
    assert least == [1, 2, 2, 3, 3, 4]
    assert not t.is_quorum(0, 0)


def test_a_tie_names_all_that_tie():
    assert t.top_candidates(np.array([7.0, 7.0 - t.TIE, 7.0 - 3 * t.TIE])) == (0, 1)
    assert t.top_candidates(np.array([3.0, 7.0, 7.0])) == (1, 2)
    assert t.top_candidates(np.array([3.0])) == (0,)
    assert t.top_candidates(np.array([np.nan])) == ()


def split(*margins, components=1):
    """A round (agents, 2, components) in which the first candidate leads by these margins."""
    scores = np.full((len(margins), 2, components), 5.0)
    scores[:, 0] += np.array(margins)[:, None]
    return scores


@pytest.mark.parametrize(
    ("margins", "exact"),
    [((1, 1, -1), 3 / 4), ((5, 5, -1), 35 / 36), ((1, -3), 1 / 4), ((2, 2, 1), 1), ((0, 0), 1 / 2)],
)
def test_certainty_over_agents_alone_is_that_of_flat_dirichlet_weights(margins, exact):
    """With w flat on the simplex: P(w_3 < 1/2), P(w_3 < 5/6), P(w_1 > 3/4)."""
    value = t.certainty(split(*margins), np.ones(1), (0,), seed=1, draws=200_000)
    assert value == pytest.approx(exact, abs=0.004 if 0.5 != exact < 1 else 0)


def test_certainty_crosses_agents_with_components():
    """Against weights from numpy's own Dirichlet numbers, multiplied cell by cell."""
    generator = np.random.default_rng(5)
    scores, weights = generator.uniform(0, 10, (3, 4, 5)), np.array([1, 0.5, 0, 1, 0.25])
    agents, components = generator.dirichlet(np.ones(3), 50_000), np.ones((50_000, 5))
    components[:, weights > 0] = generator.dirichlet(np.ones(4), 50_000)
    sums = np.einsum("di,dk,k,ijk->dj", agents, components, weights, scores)
    wins = np.bincount(sums.argmax(axis=1), minlength=4) / 50_000
    for j in range(4):
        value = t.certainty(scores, weights, (j,), seed=2, draws=50_000)
        assert value == pytest.approx(wins[j], abs=0.012)


def test_certainty_is_the_same_wherever_and_whenever_it_is_computed():
    """Debates are told again by it: another number would be another debate."""
    assert t.certainty(split(1, 1, -1, components=2), np.ones(2), (0,), seed=7) == 0.77


def test_a_single_agent_is_doubted_by_its_components_and_a_single_number_not_at_all():
    components = np.array([[[6.0, 6.0, 4.0], [5.0, 5.0, 5.0]]])
    agents = components.transpose(2, 1, 0)
    for scores in (components, agents):
        weights = np.ones(scores.shape[2])
        assert t.certainty(scores, weights, (0,), 3) == pytest.approx(3 / 4, abs=0.03)
    assert math.isnan(t.certainty(split(4), np.ones(1), (0,), 3))
    assert math.isnan(t.certainty(split(4, components=2), np.array([1.0, 0.0]), (0,), 3))
    assert math.isnan(t.certainty(np.full((3, 2, 2), np.nan), np.ones(2), (0,), 3))


@given(weighted(missing=False), st.integers(0, 2**32))
def test_certainties_of_all_candidates_sum_to_1_and_do_not_depend_on_their_places(case, seed):
    values, weights = case
    scores = values[0]
    number = scores.shape[1]
    if scores.shape[0] * np.count_nonzero(weights) < 2:
        return
    found_values = [t.certainty(scores, weights, (j,), seed, draws=100) for j in range(number)]
    assert sum(found_values) == pytest.approx(1)
    turned = [t.certainty(scores[:, ::-1], weights, (j,), seed, draws=100) for j in range(number)]
    assert turned[::-1] == pytest.approx(found_values, abs=0.011)
    tied = t.certainty(scores, weights, tuple(range(number)), seed, draws=100)
    assert tied == pytest.approx(1 / number)


@given(weighted(missing=False))
def test_a_missing_turn_leaves_the_certainty_to_the_others(case):
    values, weights = case
    scores = values[0]
    absent = np.concatenate([scores, np.full((1, *scores.shape[1:]), np.nan)])
    for j in range(scores.shape[1]):
        alone, among = (t.certainty(s, weights, (j,), 4, draws=50) for s in (scores, absent))
        assert among == pytest.approx(alone, nan_ok=True)


def test_a_temperature_near_zero_gives_all_to_the_highest_without_a_warning():
    assert t.softmax(np.array([5.0, 6.0, np.nan]), 1e-320)[:2].tolist() == [0.0, 1.0]
    assert t.softmax(np.array([5.0, 5.0]), 5e-324).tolist() == [0.5, 0.5]


def test_a_labelled_tensor_is_read_by_names_and_numbers():
    values = np.arange(24.0).reshape(3, 2, 2, 2)
    labelled = t.LabelledTensor(values, ("Ann", "Bob"), ("a", "b"), ("clear", "true"))
    assert labelled.at(round=1, agent="Bob", candidate=0, component="true") == 13.0
    assert labelled.at(agent=-2).tolist() == values[:, 0].tolist()
    for picks in ({"agent": 2}, {"agent": -3}, {"candidate": "c"}, {"round": 3}):
        with pytest.raises(InputError, match="there are: "):
            labelled.at(**picks)
    copied = np.array(labelled)
    copied[:] = -1.0
    assert labelled.values[0, 0, 0, 1] == 1.0
    assert labelled.shape == (3, *labelled.at(round=2).shape) == (3, 2, 2, 2)
    assert np.shares_memory(labelled.__array__(copy=False), values)
    assert not np.shares_memory(np.asarray(labelled), values)
    assert t.softmax(np.array([0.0, 1.0])) == pytest.approx(
        [1 / (1 + math.e), math.e / (1 + math.e)]
    )
