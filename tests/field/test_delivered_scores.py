"""A user gates a search for a better prompt whose best candidate was not accepted."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from textevolve.evaluation import EvaluationResult, Usage
from textevolve.loops.calibration.plan import CalibrationResult, Gain
from textevolve.loops.innovation import Innovation, RefinedInput, Sample
from textevolve.runs.gates import Gates, check_gates
from textevolve.studies.calibrate import find_row

FOUND = CalibrationResult(
    nodes=(SimpleNamespace(score=0.4), SimpleNamespace(score=0.875)),
    beam=(1,),
    leader=1,
    stopped="converged",
    reason="",
    rounds=1,
    names=("n",),
    rows=(20, 20),
    gain=Gain(0.7, 0.35, 0.35, 0.1, 0.6, 0.001, 20, 20, 20, 20),
    second=None,
    tried=40,
    failed=0,
    usage=Usage(),
    seconds=1.0,
)


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (FOUND, 0.7),
        (replace(FOUND, gain=replace(FOUND.gain, p=0.4)), 0.35),
        (replace(FOUND, gain=None), 0.4),
        (replace(FOUND, gain=None, leader=0), 0.4),
    ],
)
def test_templates_count_as_delivered(result, score):
    row = find_row(result)
    assert row.score == score
    (outcome,) = check_gates([row], Gates(min_mean=0.6))
    assert outcome.holds is (score >= 0.6)


def draw(*scores):
    return tuple(Sample("text", EvaluationResult(score, False, "")) for score in scores)


def try_input(iteration, score):
    return RefinedInput(iteration, "text", EvaluationResult(score, False, ""))


@pytest.mark.parametrize(
    ("before", "after", "tested", "score"),
    [
        ([0.2] * 12, [0.8] * 12, True, 0.8),
        ([0.2, 0.4] * 6, [0.4, 0.2] * 6, True, 0.3),
        ([], [], True, 0.3),
        ([], [], False, 0.9),
    ],
)
def test_inputs_count_as_delivered(before, after, tested, score):
    attempts = (try_input(1, 0.3), try_input(2, 0.9))
    innovation = Innovation(
        "task", attempts, "converged", draw(*before), draw(*after), tested=tested
    )
    assert innovation.score == pytest.approx(score)
