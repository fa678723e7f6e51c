"""Callables of the user's own as evaluators and generators, async or plain."""

import asyncio
import math

import pytest

from textevolve.evaluation import Case, EvaluationResult, Failure, PlainEvaluation, Usage
from textevolve.loops.attempt import as_evaluator, as_generator
from textevolve.user_code import UserCodeError

ONE = Case("Say moon.", ("The moon.",))
TWO = Case("Say moon.", ("The moon.", "The sun."))


def has_moon(case):
    return float("moon" in case.candidates[0])


async def has_moon_soon(case):
    await asyncio.sleep(0)
    return has_moon(case)


class Judge:
    async def __call__(self, case):
        return PlainEvaluation(tuple(EvaluationResult(0.7, True) for _ in case.candidates))


def each(case):
    return [0.75 if "moon" in text else Failure("failed", "no moon") for text in case.candidates]


@pytest.mark.parametrize(
    ("given", "case", "scores"),
    [
        (has_moon, ONE, [1.0]),
        (has_moon_soon, ONE, [1.0]),
        (lambda _: EvaluationResult(0.25, False, "Say more."), ONE, [0.25]),
        (each, TWO, [0.75, None]),
        (Judge(), TWO, [0.7, 0.7]),
    ],
)
async def test_what_is_natural_to_write_is_an_evaluator(given, case, scores):
    evaluation = await as_evaluator(given)(case)
    assert [getattr(result, "score", None) for result in evaluation.result] == scores
    assert evaluation.coverage == sum(score is not None for score in scores) / len(scores)
    assert evaluation.usage == Usage()


@pytest.mark.parametrize(
    ("gives", "case", "reason"),
    [
        (None, ONE, "gave NoneType for a candidate: it must give a number from 0 to 1"),
        (0.5, TWO, "gave 1 results for 2 candidates"),
        (math.nan, ONE, "the score nan is outside 0 to 1"),
        (PlainEvaluation((EvaluationResult(1.01, True),)), ONE, "the score 1.01 is outside"),
        (EvaluationResult("0.5", True), ONE, "the score is not a number but str"),
    ],
)
async def test_what_is_no_judgement_is_a_failure_that_says_why(gives, case, reason):
    evaluation = await as_evaluator(lambda _: gives)(case)
    assert len(evaluation.result) == len(case.candidates)
    assert all(reason in result.reason for result in evaluation.result)
    assert evaluation.coverage == 0


@pytest.mark.parametrize("soon", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", [StopIteration("no more"), SystemExit(2)])
async def test_whatever_a_judge_raises_comes_as_an_error_that_names_it(error, soon):
    def judge(_case):
        raise error

    async def judge_soon(case):
        judge(case)

    async with asyncio.timeout(30):
        with pytest.raises(UserCodeError) as caught:
            await as_evaluator(judge_soon if soon else judge)(ONE)
    assert f".judge{'_soon' * soon} raised " in str(caught.value)
    assert type(error).__name__ in str(caught.value)
    str(caught.value).encode()


async def test_half_a_surrogate_pair_of_the_users_code_is_a_replacement_character():
    result = EvaluationResult(0.5, True, "no \ud83d", {"why": ["\ud83d", "\ud83d\ude00"]})
    new_result = (await as_evaluator(lambda _: result)(ONE)).result[0]
    assert (new_result.feedback, new_result.metadata) == ("no \ufffd", {"why": ["\ufffd", "😀"]})


async def test_plain_functions_write_too_and_async_ones_stay_what_they_are():
    def write(task, *, previous=None, feedback=(), temperature=None):
        return f"{previous or task} {len(feedback)}"

    assert await as_generator(write)("Say moon.", previous="Moon", feedback=("a",)) == "Moon 1"

    async def later(task, **_):
        return task

    assert as_generator(later) is later
