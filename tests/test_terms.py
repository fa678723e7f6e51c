"""Words of papers and other tools are answered by what is meant here."""

import pytest

from textevolve import InputError, load_profile
from textevolve.spec import suggest
from textevolve.terms import TERMS, find_term


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("evaluate", "a", "b", "--adaptive-threshold", "0.1"), "Did you mean --convergence?"),
        (("evaluate", "a", "b", "--debaters=acme/ada"), "Did you mean --agents?"),
        (("spo",), "Did you mean 'calibrate'?"),
        (("gr", "a question"), "Did you mean 'guide'?"),
    ],
)
def test_a_command_that_is_called_otherwise_is_named(cli, command, hint):
    outcome = cli(*command)
    assert outcome.code == 2
    assert hint in outcome.err


def test_a_term_is_offered_only_where_it_is_known():
    assert find_term("Adaptive-Threshold", ["convergence"]) == "convergence"
    assert find_term("adaptive_threshold", ["threshold"]) is None
    assert find_term("window", ["history_rounds", "rounds"]) == "history_rounds"
    assert suggest("adaptive_threshold", ["convergence", "threshold"]) == (
        "; did you mean 'convergence'?"
    )
    assert not set(TERMS) & set(TERMS.values())


def test_weights_as_a_list_name_the_line(tmp_path):
    (tmp_path / "a.yaml").write_text("agents: [{name: A, persona: B}]\nweights: [1, 0.5]\n")
    with pytest.raises(InputError, match=r"a.yaml:2: weights: a list has one number"):
        load_profile(tmp_path / "a.yaml")
