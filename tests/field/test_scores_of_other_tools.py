"""Logs of Inspect with several scorers, and results of promptfoo: an import takes the outputs and
names the scores that it leaves out."""

import json

import pytest

SAMPLE = {"input": "1 + 1?", "target": "2", "output": {"completion": "2"}}
SCORES = {"match": {"value": "C"}, "style": {"value": 0.3}}
RESULT = {
    "promptIdx": 0,
    "testIdx": 0,
    "testCase": {},
    "prompt": {"raw": "1 + 1?"},
    "response": {"output": "2"},
    "success": True,
    "score": 1,
}


def inspect(scores):
    samples = [{**SAMPLE, "id": n, "scores": scores} for n in (1, 2)]
    return {"eval": {}, "status": "success", "samples": samples}


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (inspect(SCORES), "2 scores: match, style"),
        (inspect({"match": {"value": "I"}}), "1 score: match"),
        ({"results": {"results": [RESULT]}}, "2 scores: success, score"),
    ],
)
def test_scores_that_are_not_read_are_named(cli, home, document, names):
    (home / "log.json").write_text(json.dumps(document))
    outcome = cli("evaluate", "log.json", "--judge", "look:length")
    assert outcome.code == 0, outcome.err
    assert outcome.err.count(f"left out: {names}") == 1


def test_nothing_is_named_without_scores(cli, home):
    (home / "log.json").write_text(json.dumps(inspect(None)))
    outcome = cli("evaluate", "log.json", "--judge", "look:length")
    assert "score:" not in outcome.err
