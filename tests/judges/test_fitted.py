"""The judge that a fit gives: what it makes of its signals, and what its file must be."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.judges.context import Judgement
from textevolve.judges.fitted import (
    FittedFile,
    FittedJudge,
    FittedSignal,
    load_fitted,
    parse_fitted,
    save_fitted,
)
from textevolve.judges.judge import parse_judge, require_absolute

RATINGS = {"fitted_to": "ratings", "good": 4.0, "intercept": -0.5}


def make_file(signals=(("probe", 1.2), ("look:length", -0.5)), **more):
    parts = [
        FittedSignal(
            judge=name,
            model=None if name.startswith("look") else "openai/some-model",
            weight=weight,
            mean=0.5,
            scale=2.0,
        )
        for name, weight in signals
    ]
    figure = {"value": 0.8, "low": 0.7, "high": 0.9}
    arguments = {
        "fitted_to": "pairs",
        "date": "2026-01-15",
        "signals": parts,
        "ridge": 3.0,
        "threshold": {
            "value": 0.7,
            "precision": 0.9,
            "confidence": 0.95,
            "holds": True,
            "guarantee": "With a confidence of 95%, ...",
        },
        "labels": {"items": 60, "questions": 50, "sha256": "0" * 64},
        "cross_validated": {
            "agreement": figure,
            "best_signal": "probe",
            "difference": figure,
            "log_loss": 0.5,
            "log_loss_of_nothing": 0.69,
            "brier": 0.2,
            "ece": 0.1,
        },
    }
    return FittedFile(**(arguments | more))


@dataclass
class Says:
    """A judge that says the same number, as log-odds, of each text that it knows."""

    values: dict
    asked: list = field(default_factory=list)
    by_place: float = 0.0

    async def __call__(self, case, /):
        self.asked.append(case)
        made = []
        for place, text in enumerate(case.candidates):
            value = self.values[text]
            if isinstance(value, Failure):
                made.append(value)
            else:
                odds = value + self.by_place * place
                made.append(EvaluationResult(0.5, True, "", {"log_odds": odds}))
        return Judgement(case, tuple(made), Usage(calls=1), seconds=1.0)


def fitted(values, ordered=(), **more):
    """With the signals a and b, of which `values` holds what they say of each text."""
    file = make_file((("a", 1.2), ("b", -0.5)), **more)
    judges = {
        name: Says({text: pair[n] for text, pair in values.items()})
        for n, name in enumerate(("a", "b"))
    }
    return FittedJudge(file, judges, ordered), judges


def utility(a, b):
    return 1.2 * (a - 0.5) / 2 - 0.5 * (b - 0.5) / 2


def logit(p):
    return math.log(p / (1 - p))


VALUES = {"x": (2.0, 1.0), "y": (-1.0, 0.0), "z": (0.0, 3.0)}


async def test_of_two_the_score_is_the_probability_of_being_better():
    judge, _ = fitted(VALUES)
    first_result, second_result = (await judge(Case("?", ("x", "y")))).result
    gap = utility(*VALUES["x"]) - utility(*VALUES["y"])
    assert logit(first_result.score) == pytest.approx(gap)
    assert first_result.score + second_result.score == pytest.approx(1)
    assert first_result.passed
    assert not second_result.passed
    assert first_result.metadata["log_odds"] == pytest.approx(gap)
    assert first_result.metadata["signals"]["a"] == {
        "value": 2.0,
        "adds": pytest.approx(1.2 * 3 / 2),
    }
    assert "a +1.80" in first_result.feedback


async def test_of_more_each_is_held_against_the_mean_of_the_others():
    judge, _ = fitted(VALUES)
    judgement = await judge(Case("?", ("x", "y", "z")))
    utilities = [utility(*VALUES[text]) for text in "xyz"]
    for place, result in enumerate(judgement.result):
        other_us = [u for n, u in enumerate(utilities) if n != place]
        assert logit(result.score) == pytest.approx(utilities[place] - np.mean(other_us))
    assert np.argmax([result.score for result in judgement.result]) == np.argmax(utilities)


async def test_ratings_give_the_probability_of_being_good_whatever_stands_beside():
    judge, _ = fitted(VALUES, **RATINGS)
    together = (await judge(Case("?", ("x", "y", "z")))).result
    for place, text in enumerate("xyz"):
        (alone,) = (await judge(Case("?", (text,)))).result
        assert alone == together[place]
        assert logit(alone.score) == pytest.approx(utility(*VALUES[text]) - 0.5)
        assert alone.metadata["log_odds"] == pytest.approx(logit(alone.score))


async def test_a_signal_that_the_order_sways_is_asked_in_both():
    judge, judges = fitted(VALUES, ordered=("a",))
    judges["a"].by_place = judges["b"].by_place = 5.0
    judgement = await judge(Case("?", ("x", "y")))
    assert [case.candidates for case in judges["a"].asked] == [("x", "y"), ("y", "x")]
    assert len(judges["b"].asked) == 1
    assert judgement.result[0].metadata["signals"]["a"]["value"] == 2.0 + 2.5
    assert judgement.usage.calls == 3
    once, judges = fitted(VALUES, ordered=("a",), orders="given")
    await once(Case("?", ("x", "y")))
    assert len(judges["a"].asked) == 1


async def test_a_missing_signal_is_a_missing_score():
    missing = Failure("failed", "no answer")
    judge, _ = fitted({**VALUES, "y": (missing, 0.0)})
    first_result, second_result, third = (await judge(Case("?", ("x", "y", "z")))).result
    assert second_result == Failure("failed", "signal a: no answer")
    gap = utility(*VALUES["x"]) - utility(*VALUES["z"])
    assert logit(first_result.score) == pytest.approx(gap)
    assert isinstance(third, EvaluationResult)
    judgement = await judge(Case("?", ("x", "y")))
    assert [type(result) for result in judgement.result] == [Failure, Failure]
    assert judgement.coverage == 0


async def test_the_threshold_is_the_files_unless_the_case_has_one():
    judge, judges = fitted(VALUES)
    case = Case("?", ("y", "z"))
    best = max((await judge(case)).result, key=lambda one: one.score)
    assert best.score < 0.7
    assert not best.passed
    lower = Case("?", ("y", "z"), parameters={"threshold": 0.5, "seed": 3})
    assert max((await judge(lower)).result, key=lambda one: one.score).passed
    assert judges["a"].asked[-1].parameters == {"seed": 3}


def test_the_file_is_read_as_it_was_written(tmp_path):
    for labels in ({}, RATINGS):
        file = make_file(**labels, warnings=("Use probe: alone.",))
        path = tmp_path / "my.judge"
        save_fitted(file, path)
        assert load_fitted(str(path)) == file


WRONG = [
    ("format: 9\nsignals: []", "format must be 1"),
    (make_file().text.replace("judge: probe", "judge: other.judge"), "name its signals instead"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_broken_file_is_one_line(text, said):
    with pytest.raises(InputError, match=said) as raised:
        parse_fitted(text, "my.judge")
    assert str(raised.value).startswith("my.judge:")
    assert "\n" not in str(raised.value)


def test_what_a_fitted_judge_asks_is_known_everywhere(home):
    save_fitted(make_file((("probe", 1.0), ("jury@openai/other", 1.0))), home / "my.judge")
    path = str(home / "my.judge")
    judge = parse_judge(path)
    assert judge.models(None) == ("openai/some-model", "openai/other")
    assert judge.with_model("openai/third") == judge
    message = judge.describe()
    assert message["fitted"]["signals"][0]["judge"] == "probe"
    assert message["jury@openai/other"]["profile"]["name"]
    assert judge.needs == ()
    require_absolute(judge)
    save_fitted(make_file((("pairwise", 1.0),)), home / "my.judge")
    with pytest.raises(InputError, match="compares the candidates"):
        require_absolute(judge)
    save_fitted(make_file((("metric:exact", 1.0),)), home / "my.judge")
    assert judge.needs == ("reference",)
    assert judge.reads_reference


def test_which_judges_the_order_may_sway():
    swayed = {
        name: parse_judge(name).is_swayed
        for name in ("probe+rules", "pairwise", "debate", "look:length")
    }
    assert swayed == {"probe+rules": False, "pairwise": False, "debate": True, "look:length": False}
    assert parse_judge("python:mine").is_swayed
    assert parse_judge("decide+choice").is_swayed
    assert not parse_judge("decide+pairwise").is_swayed
