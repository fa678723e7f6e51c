"""`textevolve judges fit` where there is nothing to fit, on the scripted server."""

import json

import pytest

from textevolve.llm.testing import Answer


@pytest.fixture
def labels(home):
    row = {"candidates": ["good", "poor"], "winner": 1}
    path = home / "labels.jsonl"
    path.write_text("".join(json.dumps(row | {"input": f"{n}?"}) + "\n" for n in range(20)))
    return path


def test_nothing_is_fitted_to_nothing(home, cli, server, model, labels):
    """Where no signal answers there is no judge, and no file."""
    server.script = lambda body, number: Answer(text="maybe", yes=None)
    outcome = cli(
        "judges", "fit", labels, "--signals", "probe", "-m", model, "-o", home / "my.judge"
    )
    assert outcome.code == 3
    assert "No judge was fitted: too few labelled items to fit: 0" in " ".join(outcome.out.split())
    assert "my.judge: was not written" in outcome.err
    assert not (home / "my.judge").exists()
