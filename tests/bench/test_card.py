"""The robustness card finds a weakness that was planted in a judge, and no other."""

import math
from collections import Counter
from dataclasses import dataclass

import pytest

from asking import make_card
from textevolve.bench.card import (
    CardCase,
    parse_cases,
    plan_questions,
    shipped_cases,
)
from textevolve.errors import AccessError, AnswerError, BudgetError, InputError
from textevolve.evaluation import EvaluationResult, Failure, Usage
from textevolve.rows import read_text

CASES = shipped_cases()
GOOD = {case.good for case in CASES}
FAULTS = ("order-flips", "longer-wins", "shorter-wins", "content-free-wins", "injection-wins")
FAULTS += ("injection-rises", "control-rises")


@dataclass(frozen=True)
class Judged:
    result: tuple
    usage: Usage = Usage(calls=1, prompt_tokens=10, completion_tokens=1)
    coverage: float = 1.0


def judge_by(score):
    """An evaluator from a function of the text, its place (from 0) and the case."""

    async def judge(case):
        scores = [score(text, place, case) for place, text in enumerate(case.candidates)]
        return Judged(tuple(EvaluationResult(float(s), s >= 0.5) for s in scores))

    return judge


def quality(text, _place, _case):
    return 0.9 if text in GOOD else 0.2


def faults(card):
    rates = [rate for check in card.checks for rate in check.rates]
    return {rate.name: rate.rate for rate in rates if rate.name in FAULTS and rate.hits}


def rate_of(card, name):
    return next(rate for check in card.checks for rate in check.rates if rate.name == name)


async def test_a_perfect_judge_has_no_weakness():
    card = await make_card(judge_by(quality), name="perfect")
    assert faults(card) == {}
    assert rate_of(card, "sound").rate == rate_of(card, "same-winner").rate == 1
    assert card.coverage == 1
    assert (card.failed, card.refused, card.name) == (0, 0, "perfect")
    assert card.usage.calls == card.questions == len(plan_questions(CASES, 3))


async def test_a_judge_that_prefers_the_first_flips_with_the_order():
    card = await make_card(judge_by(lambda _text, place, _case: 0.8 if place == 0 else 0.3))
    assert faults(card) == {"order-flips": 1}
    assert rate_of(card, "sound").hits == 0
    flips = rate_of(card, "order-flips")
    assert flips.interval[0] > 0.9
    assert flips.interval[1] == 1


async def test_a_judge_that_obeys_orders():
    kinds = {"orders", "forged scores"}
    attacks = {case.attacked for case in CASES if case.attack and case.kind in kinds}

    def obeys(text, place, case):
        return 1.0 if text in attacks else quality(text, place, case)

    card = await make_card(judge_by(obeys))
    expected_value = len(attacks) / sum(
        c.family == "injection" and c.kind != "control" for c in CASES
    )
    assert faults(card) == {
        "injection-wins": pytest.approx(expected_value),
        "injection-rises": pytest.approx(expected_value),
    }
    assert rate_of(card, "wins-before").hits == 0


async def test_failed_judgements_are_coverage_and_never_a_zero():
    async def fails(case):
        if case.id.startswith(("order-ice/", "order-pens/bad-first")):
            raise AnswerError("no usable answer")
        if case.id.startswith("consistency-walk/") and case.id[-1] in "12":
            return Judged((Failure("failed", "cut off"),) * 2)
        if case.id.startswith("injection-role-plain/good-first/attacked"):
            raise BudgetError("the limit is reached")
        if case.id.startswith("content-free-dot/"):
            return Judged((EvaluationResult(math.nan, False), EvaluationResult(0.5, True)))
        return await judge_by(quality)(case)

    card = await make_card(fails)
    assert faults(card) == {}
    assert card.failed == 3 + 2 + 1 + 2
    assert card.scored == card.questions - card.failed
    assert card.coverage == pytest.approx(card.scored / card.questions)
    flips = rate_of(card, "order-flips")
    assert (flips.asked - flips.count, flips.refused) == (2, 0)
    assert flips.coverage == pytest.approx(flips.count / flips.asked)
    assert rate_of(card, "sound").rate == 1
    consistent = rate_of(card, "same-winner")
    assert (consistent.asked - consistent.count, consistent.rate) == (1, 1)
    injected = rate_of(card, "injection-wins")
    assert injected.asked - injected.count == 1
    assert rate_of(card, "wins-before").count == injected.asked
    assert card.reasons["failed: no usable answer"] == 3
    assert card.reasons["skipped: the limit is reached"] == 1


async def test_fatal_errors_and_misuse_stop_the_card():
    async def locked(_case):
        raise AccessError("401: wrong key")

    async def refuses(_case):
        raise InputError("only poems are judged")

    with pytest.raises(AccessError):
        await make_card(locked)
    with pytest.raises(InputError, match="refuses every case: only poems"):
        await make_card(refuses)
    with pytest.raises(InputError, match="no judgement was made"):
        await make_card(judge_by(quality), [])


def test_questions_stand_in_both_orders_with_and_without_the_attack():
    attack = next(case for case in CASES if case.family == "injection")
    cases = [question.as_case() for question in plan_questions([attack], 3)]
    pairs = [(attack.good, attack.bad), (attack.bad, attack.good)]
    pairs += [(attack.good, attack.attacked), (attack.attacked, attack.good)]
    assert [case.candidates for case in cases] == pairs
    assert not any(case.parameters for case in cases)
    samples = [q for q in plan_questions(CASES, 3) if q.case.family == "consistency"]
    assert Counter(q.good_first for q in samples) == {True: 18, False: 18}
    assert {q.as_case().parameters["seed"] for q in samples} == {0, 1, 2}
    ids = [question.as_case().id for question in plan_questions(CASES, 3)]
    assert len(set(ids)) == len(ids)


VALID = "- id: a\n  family: order\n  input: Why?\n  good: So.\n  bad: No idea.\n"


def test_own_cases_are_read(tmp_path):
    path = tmp_path / "own.yaml"
    attack = VALID.replace("id: a", "id: b").replace("order", "injection")
    path.write_text(VALID + attack + "  attack: |-\n    before\n    {response}\n", encoding="utf-8")
    first_card_case, second_card_case = parse_cases(read_text(str(path)), str(path))
    assert first_card_case == CardCase(
        id="a", family="order", input="Why?", good="So.", bad="No idea."
    )
    assert (first_card_case.attacked, second_card_case.attacked) == ("No idea.", "before\nNo idea.")
    empty = parse_cases(VALID.replace("order", "content-free").replace("No idea.", "''"), "x")
    assert empty[0].bad == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VALID + VALID, "own:6: two cases have the id 'a'"),
        (VALID.replace("  good: So.\n", ""), "own:1: good is missing"),
    ],
)
def test_wrong_cases_are_named_with_their_line(text, message):
    with pytest.raises(InputError) as caught:
        parse_cases(text, "own")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
