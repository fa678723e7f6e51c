"""What ends a debate early, and how certain a first round is of its winner."""

import numpy as np
import pytest

from textevolve.debate.profile import load_profile, override
from textevolve.debate.result import end_early, measure_certainty


def profile_of(**parameters):
    return override(load_profile("general"), parameters)


@pytest.mark.parametrize(
    ("parameters", "r", "cv", "certainty", "ended"),
    [
        ({"convergence": 0.1}, 0, 0.1, None, "converged"),
        ({"convergence": 0.1}, 0, 0.11, 1.0, None),
        ({"convergence": None}, 1, 0.0, None, None),
        ({"protocol": "independent", "convergence": 0.1}, 0, 0.0, 1.0, None),
        ({"protocol": "escalation"}, 0, 9.0, 0.9, "certain"),
        ({"protocol": "escalation"}, 0, 0.0, 0.89, None),
        ({"protocol": "escalation"}, 0, 0.0, None, None),
        ({"protocol": "escalation"}, 1, 0.0, 1.0, "converged"),
        ({"protocol": "escalation", "escalate_below": 0}, 0, 9.0, 0.2, "certain"),
    ],
)
def test_what_ends_a_debate(parameters, r, cv, certainty, ended):
    assert end_early(profile_of(**parameters), r, cv, certainty, voters=3) == ended


@pytest.mark.parametrize(
    ("agents", "voters", "ended"), [(2, 1, False), (3, 0, False), (3, 1, False), (3, 2, True)]
)
@pytest.mark.parametrize("readout", ["verbalized", "pointwise"])
def test_only_enough_voters_converge(agents, voters, ended, readout):
    names = [{"name": f"Agent {n}", "persona": "You judge."} for n in range(agents)]
    profile = profile_of(agents=names, readout=readout)
    assert (end_early(profile, 0, 0.0, None, voters) == "converged") == ended


def test_one_voter_of_three_makes_no_certainty():
    scores = np.full((3, 2, 5), np.nan)
    scores[0] = [[9] * 5, [1] * 5]
    assert measure_certainty(scores, profile_of(), "nonce") is None
    scores[1] = scores[0]
    assert measure_certainty(scores, profile_of(), "nonce") == 1


def test_a_single_candidate_is_certain_where_it_is_clear_of_the_threshold():
    scores = np.full((3, 1, 5), 7.0)
    scores[:, 0, 0] = (6.9, 7.0, 7.1)

    def certainty(threshold, **more):
        return measure_certainty(scores, profile_of(threshold=threshold, **more), "nonce")

    assert certainty(0.6) == certainty(0.8) == 1
    assert 0.3 < certainty(0.7) < 0.7
    assert certainty(0.6, weights={"accuracy": 0.2}) == 1
    low = scores.copy()
    low[0] = 2.0
    assert 0.5 < measure_certainty(low, profile_of(threshold=0.5), "nonce") < 1


def test_a_tie_is_half_certain_in_either_order():
    scores = np.random.default_rng(1).uniform(0, 10, (3, 2, 5))
    scores[:, 1] = scores[:, 0]
    assert measure_certainty(scores, profile_of(), "nonce") == 0.5
    far = scores.copy()
    far[0, :] = [[9] * 5, [1] * 5]
    far[1, :] = [[1] * 5, [9] * 5]
    certainties = [measure_certainty(s, profile_of(), "nonce") for s in (far, far[:, ::-1])]
    assert certainties == pytest.approx([0.5, 0.5])


def test_certainty_follows_weights_and_the_way_scores_are_put_together():
    scores = np.full((3, 2, 5), 5.0)
    scores[0, 0], scores[1:, 1] = 10.0, 6.0
    scores[:, 1, 2] = 9.0
    plain = measure_certainty(scores, profile_of(), "n")
    assert plain == measure_certainty(scores, profile_of(), "n")
    assert plain != measure_certainty(scores, profile_of(seed=4), "n")
    assert measure_certainty(scores, profile_of(weights={"accuracy": 1}), "n") > plain
    by_median = measure_certainty(scores, profile_of(aggregation="median"), "n")
    assert by_median == pytest.approx(1 - plain)
    assert measure_certainty(np.full((3, 2, 5), np.nan), profile_of(), "n") is None
