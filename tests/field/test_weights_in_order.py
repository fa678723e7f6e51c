"""A paper gives its weights as a list, in the order of the components; it means those by name."""

import pytest

from textevolve import evaluate
from textevolve.debate.profile import build_profile, load_profile, override
from textevolve.errors import InputError

AGENTS = [{"name": "Reader", "persona": "You read."}]
PARTS = ["accuracy", {"name": "tone", "meaning": "how kind it is"}]


@pytest.mark.parametrize("weights", [[1, 0.5], (1, 0.5), {"accuracy": 1, "tone": 0.5}])
def test_weights_of_own_components(weights):
    profile = build_profile({"agents": AGENTS, "components": PARTS, "weights": weights})
    assert profile.weights == {"accuracy": 1, "tone": 0.5}


def test_weights_of_shipped_components():
    profile = override(load_profile("general"), {"weights": [0, 1, 0, 0.5, 0]})
    assert profile.weight_list == (0, 1, 0, 0.5, 0)


@pytest.mark.parametrize("weights", [[1], [1, 1, 1], [1, 2], [0, 0], [True, 1]])
def test_wrong_lists_are_refused(weights):
    with pytest.raises(InputError, match="weights"):
        build_profile({"agents": AGENTS, "components": PARTS, "weights": weights})


def test_weights_of_a_run(home, model, server, cli):
    listed = evaluate("Why?", "So.", weights=[0, 0, 1, 0, 0], rounds=1, model=model)
    named = evaluate("Why?", "So.", weights={"accuracy": 1}, rounds=1, model=model)
    assert listed.debate.profile.weight_list == named.debate.profile.weight_list
    assert listed.debate.unit_scores == named.debate.unit_scores
    assert cli("evaluate", "Why?", "So.", "-m", model, "--weights", "0,0,1,0,0").code == 0
