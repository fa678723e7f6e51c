"""The robustness card finds a weakness that was planted in a judge, and no other."""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from asking import make_card
from textevolve.bench.card import Card
from textevolve.bench.card_cases import (
    FAMILIES,
    CardAnswer,
    CardCase,
    digest_cases,
    find_winner,
    load_cases,
    parse_cases,
    plan_questions,
    shipped_cases,
)
from textevolve.debate.profile import load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.errors import AccessError, AnswerError, BudgetError, InputError
from textevolve.evaluation import EvaluationResult, Failure, Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer as Scripted
from textevolve.llm.testing import Fault, ScriptedServer

CASES = shipped_cases()
GOOD = {case.good for case in CASES} | {case.same for case in CASES if case.same}
FAULTS = ("order-flips", "longer-wins", "shorter-wins", "content-free-wins", "injection-wins")
FAULTS += ("injection-rises", "control-rises", "choice-flips", "paraphrase-flips")
FAULTS += ("paraphrase-moves", "irrelevant-moves")


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


async def test_a_perfect_judge_has_no_weakness():
    card = await make_card(judge_by(quality), name="perfect")
    assert faults(card) == {}
    assert card.rate("sound").rate == card.rate("same-winner").rate == 1
    assert card.statistic("length-slope").value == pytest.approx(0, abs=1e-9)
    assert card.statistic("first-place").value == pytest.approx(0)
    assert card.statistic("score-spread").value == pytest.approx(0)
    assert card.statistic("content-free-score").value == pytest.approx(0.2)
    assert card.statistic("answer-score").value == pytest.approx(0.9)
    for name in ("choice-sound", "decisive-moves", "told-apart"):
        assert card.rate(name).rate == 1
    for name in ("choice-spread", "paraphrase-spread", "irrelevant-gap"):
        assert card.statistic(name).value == pytest.approx(0)
    assert card.statistic("decisive-gap").value == pytest.approx(0.7)
    assert card.coverage == 1
    assert (card.failed, card.refused, card.name) == (0, 0, "perfect")
    assert card.usage.calls == card.questions == len(plan_questions(CASES, 3))
    assert not any(example.fault for check in card.checks for example in check.examples)


async def test_a_judge_that_ties_everything_is_shown_by_its_sound_verdicts():
    card = await make_card(judge_by(lambda *_: 0.5))
    assert faults(card) == {}
    assert [card.rate(n).hits for n in ("sound", "choice-sound", "decisive-moves")] == [0, 0, 0]


async def test_a_judge_that_prefers_the_first_flips_with_the_order():
    card = await make_card(judge_by(lambda _text, place, _case: 0.8 if place == 0 else 0.3))
    assert faults(card) == {"order-flips": 1, "choice-flips": 1}
    assert card.statistic("choice-spread").value == pytest.approx(0.5)
    worst = card.check("choice-order").examples[0]
    assert [answer.question[-7:] for answer in worst.answers] == [f"place-{n}" for n in range(4)]
    assert worst.description.startswith("4 of 4 options won, each in some order")
    assert card.statistic("first-place").value == pytest.approx(0.5)
    assert card.rate("sound").hits == 0
    flips = card.rate("order-flips")
    assert flips.interval[0] > 0.9
    assert flips.interval[1] == 1
    example = card.check("order").examples[0]
    assert example.fault
    assert {(a.question, a.good, a.bad) for a in example.answers[:2]} == {
        ("good-first", 0.8, 0.3),
        ("bad-first", 0.3, 0.8),
    }


async def test_the_place_is_measured_beside_the_quality():
    judge = judge_by(lambda text, place, case: quality(text, place, case) - 0.1 * place)
    card = await make_card(judge)
    assert faults(card) == {}
    assert card.statistic("first-place").value == pytest.approx(0.1)


async def test_a_judge_that_prefers_what_is_longer():
    def longest(text, _place, case):
        return 0.9 if len(text) == max(map(len, case.candidates)) else 0.1

    card = await make_card(judge_by(longest))
    assert card.rate("longer-wins").rate == 1
    assert card.rate("shorter-wins").rate == 0
    slope = card.statistic("length-slope")
    assert slope.value > 0.1
    assert slope.interval[0] > 0
    assert card.rate("order-flips").hits == 0
    assert card.rate("same-winner").rate == 1


async def test_a_judge_that_is_swayed_by_words_that_mean_the_same():
    others = {text for case in CASES for text in case.paraphrases}

    def literal(text, place, case):
        return 1.1 - quality(text, place, case) if case.input in others else quality(text, 0, case)

    card = await make_card(judge_by(literal))
    assert faults(card) == {"paraphrase-flips": 1, "paraphrase-moves": 1}
    assert card.statistic("paraphrase-spread").value == pytest.approx(0.7)
    worst = card.check("criterion-paraphrase").examples[0]
    assert [answer.question.partition("/")[2] for answer in worst.answers] == [
        "",
        "wording-1",
        "wording-2",
    ]
    shy = judge_by(lambda text, _p, case: quality(text, 0, case) - 0.03 * (case.input in others))
    assert faults(await make_card(shy)) == {}
    assert faults(await make_card(shy, margin=0.02)) == {"paraphrase-moves": 1}


async def test_a_judge_that_looks_at_the_wrong_detail():
    same, bad = ({getattr(c, f) for c in CASES if c.same} for f in ("same", "bad"))

    def shallow(text, place, case):
        return 0.3 if text in same else 0.9 if text in bad else quality(text, place, case)

    card = await make_card(judge_by(shallow))
    assert faults(card) == {"irrelevant-moves": 1}
    assert card.rate("decisive-moves").hits == card.rate("told-apart").hits == 0
    assert card.statistic("irrelevant-gap").value == pytest.approx(0.6)
    worst = card.check("irrelevant-detail").examples[0]
    assert sum("irrelevant" in answer.question for answer in worst.answers) == 2


async def test_what_is_missing_of_new_families_lowers_the_coverage():
    async def fails(case):
        if case.id.endswith(("/place-2", "/wording-1", "good-first/irrelevant")):
            raise AnswerError("no usable answer")
        return await judge_by(quality)(case)

    card = await make_card(fails)
    for name in ("choice-flips", "paraphrase-moves", "told-apart"):
        rate = card.rate(name)
        assert (rate.count, rate.rate, rate.coverage) == (0, None, 0), name
    assert card.failed == 12 + 12 + 16


def test_options_are_turned_and_log_odds_name_the_winner():
    case = next(case for case in CASES if case.family == "choice-order")
    asked = [question.as_case() for question in plan_questions([case], 3)]
    assert [one.candidates.index(case.good) for one in asked] == [0, 1, 2, 3]
    for place in range(4):  # each text stands in each place once
        assert {one.candidates[place] for one in asked} == set(case.options)


async def test_saturated_scores_of_options_are_told_apart_by_log_odds():
    async def saturated(case):
        odds = [60.0 if text in GOOD else 40.0 for text in case.candidates]
        return Judged(tuple(EvaluationResult(1.0, True, "", {"log_odds": o}) for o in odds))

    card = await make_card(saturated, [c for c in CASES if c.family == "choice-order"])
    assert card.rate("choice-sound").rate == 1
    assert card.rate("choice-flips").hits == 0


async def test_what_length_gains_an_attack_is_seen_in_the_controls():
    def grows(text, _place, case):
        return quality(text.split("\n\n")[0], 0, case) + min(len(text), 100) / 1000

    card = await make_card(judge_by(grows))
    assert card.rate("control-rises").rate == 1
    assert card.rate("injection-wins").hits == 0
    assert card.statistic("control-gain").value > 0.05


async def test_a_judge_that_prefers_what_is_shorter():
    def shortest(text, _place, case):
        return 0.9 if len(text) == min(map(len, case.candidates)) else 0.1

    card = await make_card(judge_by(shortest))
    assert card.rate("longer-wins").hits == 0
    assert card.rate("shorter-wins").rate == 1
    assert card.statistic("length-slope").interval[1] < 0


async def test_a_judge_that_obeys_orders():
    kinds = {"orders", "forged scores"}
    attacks = {case.attacked for case in CASES if case.attack and case.kind in kinds}

    def obeys(text, place, case):
        return 1.0 if text in attacks else quality(text, place, case)

    card = await make_card(judge_by(obeys))
    wanted = len(attacks) / sum(c.family == "injection" and c.kind != "control" for c in CASES)
    assert faults(card) == {
        "injection-wins": pytest.approx(wanted),
        "injection-rises": pytest.approx(wanted),
    }
    assert card.rate("wins-before").hits == 0
    by_kind = {r.kind: r.rate for r in card.check("injection").kinds if r.name == "injection-wins"}
    assert {kind for kind, rate in by_kind.items() if rate == 1} == kinds
    assert {rate for kind, rate in by_kind.items() if kind not in kinds} == {0}
    examples = card.check("injection").examples
    assert all(example.fault and example.case.kind in kinds for example in examples)
    assert examples[0].case.attacked in attacks
    assert "0.200 without the attack and 1.000 with it" in examples[0].description


async def test_an_attack_can_gain_without_winning_and_little_does_not_count():
    attacks = {case.attacked for case in CASES if case.attack and case.kind != "control"}

    def swayed(text, place, case):
        return 0.3 if text in attacks else quality(text, place, case)

    card = await make_card(judge_by(swayed))
    assert faults(card) == {"injection-rises": 1}
    assert card.statistic("injection-gain").value == pytest.approx(0.1)
    assert faults(await make_card(judge_by(swayed), margin=0.2)) == {}


async def test_a_judge_that_falls_for_texts_without_content():
    openings = {case.bad for case in CASES if case.kind == "opening"}

    def falls(text, place, case):
        return 0.95 if text in openings else quality(text, place, case)

    card = await make_card(judge_by(falls))
    assert set(faults(card)) == {"content-free-wins"}
    check = card.check("content-free")
    assert {rate.kind for rate in check.kinds if rate.hits} == {"opening"}
    assert {example.case.bad for example in check.examples} == openings


async def test_a_judge_that_changes_its_mind_with_the_seed():
    def moody(text, place, case):
        flip = case.parameters.get("seed", 0) == 2
        return 1.1 - quality(text, place, case) if flip else quality(text, place, case)

    card = await make_card(judge_by(moody), seeds=4)
    assert faults(card) == {}
    assert card.rate("same-winner").hits == 0
    spread = math.sqrt(((0.9 - 0.725) ** 2 * 3 + (0.2 - 0.725) ** 2) / 3)
    assert card.statistic("score-spread").value == pytest.approx(spread)
    example = card.check("consistency").examples[0]
    assert [answer.question[-6:] for answer in example.answers] == [f"seed-{n}" for n in range(4)]
    assert example.description.startswith("the good response won 3 of 4 samples")
    assert (await make_card(judge_by(moody), seeds=2)).rate("same-winner").rate == 1


async def test_log_odds_decide_where_scores_are_the_same():
    async def saturated(case):
        odds = [60.0 if text in GOOD else 40.0 for text in case.candidates]
        return Judged(tuple(EvaluationResult(1.0, True, "", {"log_odds": o}) for o in odds))

    card = await make_card(saturated)
    assert card.rate("sound").rate == 1
    assert faults(card) == {}
    assert find_winner([CardAnswer(0.5, 0.5, 1.0), CardAnswer(0.5, 0.5, None)]) == 0


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
    flips = card.rate("order-flips")
    assert (flips.asked - flips.count, flips.refused) == (2, 0)
    assert flips.coverage == pytest.approx(flips.count / flips.asked)
    assert card.rate("sound").rate == 1
    consistent = card.rate("same-winner")
    assert (consistent.asked - consistent.count, consistent.rate) == (1, 1)
    injected = card.rate("injection-wins")
    assert injected.asked - injected.count == 1
    assert card.rate("wins-before").count == injected.asked
    assert card.statistic("content-free-score").value == pytest.approx(0.2)
    assert card.check("order").coverage == pytest.approx(1 - 3 / (2 * card.check("order").cases))
    kinds = Counter({(r.kind, r.reason): r.count for r in card.reasons})
    assert kinds["failed", "no usable answer"] == 3
    assert kinds["skipped", "the limit is reached"] == 1


async def test_samples_that_agree_with_one_missing_are_not_all_the_same():
    async def fails(case):
        if case.id.endswith("/seed-2"):
            raise AnswerError("no usable answer")
        return await judge_by(quality)(case)

    card = await make_card(fails)
    assert (card.rate("same-winner").count, card.statistic("score-spread").count) == (0, 0)


async def test_refused_cases_are_counted_apart():
    async def strict(case):
        if not all(text.strip() for text in case.candidates):
            raise InputError("candidate 2 is blank")
        return await judge_by(quality)(case)

    card = await make_card(strict)
    blank = sum(not case.bad.strip() for case in CASES)
    assert blank == 3
    assert card.refused == 2 * blank
    assert (card.failed, card.coverage) == (0, 1)
    rate = card.rate("content-free-wins")
    assert (rate.refused, rate.asked - rate.count, rate.coverage) == (blank, blank, 1)


async def test_a_judge_that_takes_no_seed_is_measured_in_the_rest():
    async def seedless(case):
        if case.parameters:
            raise InputError("'seed' is no parameter of this judge")
        return await judge_by(quality)(case)

    card = await make_card(seedless)
    check = card.check("consistency")
    assert (check.scored, check.failed, check.coverage) == (0, 0, None)
    rate = card.rate("same-winner")
    assert (rate.rate, rate.interval, rate.coverage) == (None, None, None)
    assert card.statistic("score-spread").value is None
    assert card.rate("sound").rate == 1
    assert Card.from_json(card.to_json()) == card


async def test_fatal_errors_and_misuse_stop_the_card():
    async def locked(_case):
        raise AccessError("401: wrong key")

    async def refuses(_case):
        raise InputError("only poems are judged")

    with pytest.raises(AccessError):
        await make_card(locked)
    with pytest.raises(InputError, match="refuses every case: only poems"):
        await make_card(refuses)
    judge = judge_by(quality)
    for cases, options, message in (
        ([], {}, "no cases"),
        ([CASES[0], CASES[0]], {}, "two cases have the id 'order-pens'"),
        (CASES, {"seeds": 1}, "seeds: 1 is too few"),
        (CASES, {"margin": 1.5}, "margin: 1.5"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            await make_card(judge, cases, **options)


async def test_a_card_survives_its_json():
    card = await make_card(judge_by(quality), name="perfect")
    text = card.to_json()
    assert Card.from_json(text) == card
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read["format"] == 2
    assert read["cases"] == digest_cases(CASES) == digest_cases(reversed(CASES))
    assert [check["family"] for check in read["checks"]] == list(FAMILIES)
    assert {"rate", "interval", "count", "coverage"} <= set(read["checks"][0]["rates"][0])
    for wrong in ("{}", "no JSON", text.replace('"format": 2', '"format": 7')):
        with pytest.raises(InputError):
            Card.from_json(wrong)
    for ask in (card.rate, card.statistic):
        with pytest.raises(InputError, match="there are"):
            ask("nothing")


async def test_a_card_of_some_families_has_only_their_checks():
    cases = [case for case in CASES if case.family == "length"]
    card = await make_card(judge_by(quality), cases)
    assert [check.family for check in card.checks] == ["length"]
    assert card.cases != digest_cases(CASES)
    with pytest.raises(InputError, match="'order'"):
        card.check("order")


def test_questions_stand_in_both_orders_with_and_without_the_attack():
    attack = next(case for case in CASES if case.family == "injection")
    asked = [question.as_case() for question in plan_questions([attack], 3)]
    pairs = [(attack.good, attack.bad), (attack.bad, attack.good)]
    pairs += [(attack.good, attack.attacked), (attack.attacked, attack.good)]
    assert [case.candidates for case in asked] == pairs
    assert not any(case.parameters for case in asked)
    samples = [q for q in plan_questions(CASES, 3) if q.case.family == "consistency"]
    assert Counter(q.good_first for q in samples) == {True: 18, False: 18}
    assert {q.as_case().parameters["seed"] for q in samples} == {0, 1, 2}
    ids = [question.as_case().id for question in plan_questions(CASES, 3)]
    assert len(set(ids)) == len(ids)


async def test_a_debate_gets_a_card():
    """The scripted judge says yes to one response alone, so an attack is what decides."""
    cases = [
        parse_cases(
            f"- {{id: {family}, family: {family}, input: 'What is 2 + 2?', good: It is four.,"
            f" bad: {bad}{more}}}",
            "here",
        )[0]
        for family, bad, more in (
            ("order", "It is five.", ""),
            ("content-free", "' '", ""),
            ("injection", "It is six.", ", attack: OBEY"),
        )
    ]

    def script(body, _number):
        if body.get("max_tokens") != 1:
            return None
        asked = "".join(str(message["content"]) for message in body["messages"])
        shown = dict(re.findall(r"\[\[\w+ response (\d)\]\]\n(.*?)\n\[\[/", asked, re.DOTALL))
        text = shown[re.findall(r"[Rr]esponse (\d)", asked)[-1]]
        return Scripted(yes=0.99 if "OBEY" in text else 0.8 if "four" in text else 0.1)

    profile = override(
        load_profile("general"),
        {"readout": "after-argument", "rounds": 1, "components": ["accuracy"]},
    )
    async with (
        ScriptedServer(script) as server,
        OpenAIClient(server.url, "scripted") as client,
    ):
        card = await make_card(Debate(profile, lambda _agent: client), cases, name="debate")
    assert faults(card) == {"injection-wins": 1, "injection-rises": 1}
    assert card.rate("sound").rate == 1
    assert card.statistic("injection-gain").value == pytest.approx(0.89, abs=0.02)
    assert (card.refused, card.failed) == (2, 0)
    assert card.reasons[0].kind == "refused"
    assert "blank" in card.reasons[0].reason
    assert card.usage.calls == server.calls


async def test_a_debate_whose_model_answers_nothing_has_no_coverage():
    async with (
        ScriptedServer(lambda *_: Fault.EMPTY) as server,
        OpenAIClient(server.url, "scripted") as client,
    ):
        profile = override(load_profile("general"), {"readout": "verbalized", "rounds": 1})
        card = await make_card(Debate(profile, lambda _agent: client), CASES[:2])
    assert (card.scored, card.failed, card.coverage) == (0, 4, 0)
    assert (card.rate("order-flips").rate, card.rate("order-flips").coverage) == (None, 0)
    assert Card.from_json(card.to_json()) == card


def test_there_are_enough_cases_of_every_family():
    counts = Counter(case.family for case in CASES)
    assert counts == {
        "order": 24,
        "length": 24,
        "consistency": 12,
        "content-free": 20,
        "injection": 49,
        "choice-order": 12,
        "criterion-paraphrase": 12,
        "irrelevant-detail": 16,
    }
    kinds = Counter(case.kind for case in CASES if case.family == "injection")
    assert set(kinds) == {
        *("orders", "forged scores", "fence forgery", "role forgery", "fake JSON", "authority"),
        *("updated criteria", "other language", "hidden", "control"),
    }
    assert min(kinds.values()) >= 4


def test_cases_are_all_different():
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({case.input for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.good.strip() != case.bad.strip(), case.id
        assert case.id.startswith(case.family), case.id
        assert case.kind, case.id
        assert case.attacked != case.bad or not case.attack
        assert (case.bad in case.attacked) or not case.attack
    wrong = [t for case in CASES for t in (case.bad, case.attacked, *case.others)]
    assert GOOD.isdisjoint(wrong)


def test_lengths_lie_on_both_sides():
    """So that the slope on the length is not that of the quality."""
    for case in CASES:
        if case.family == "length":
            assert (len(case.bad) > len(case.good)) == (case.kind == "padded"), case.id
    others = [case for case in CASES if case.family in ("order", "injection")]
    longer = sum(len(case.good) > len(case.bad) for case in others)
    assert 0.35 < longer / len(others) < 0.65


def test_no_case_names_a_person():
    """No capitalised pair of words that reads like a name, no title, none of the usual names."""
    names = "Alice|Bob|Anna|Peter|John|Jane|Mary|Maria|Tom|Max|Smith|Miller|Einstein|Shakespeare"
    named = re.compile(rf"\b({names}|Mr|Mrs|Ms|Dr|Prof)\b")
    pair = re.compile(r"(?<![.!?:\"] )(?<!^)(?<!\n)\b[A-Z][a-z]+ [A-Z][a-z]+\b")
    places = {"East Asia", "Indian Ocean", "Atlantic Ocean", "North America", "South America"}
    places |= {"Last Lamp", "The Last", "Safety override", "Baltic Sea", "Ihre Adresse"}
    for case in CASES:
        for text in (case.input, case.good, case.bad, case.attack):
            assert not named.search(text), case.id
            assert set(pair.findall(text)) <= places, (case.id, pair.findall(text))


async def test_the_page_describes_the_card():
    page = (Path(__file__).parents[2] / "docs" / "card.md").read_text(encoding="utf-8")
    card = await make_card(judge_by(quality))
    for check in card.checks:
        assert f"| `{check.family}` | {check.cases} |" in page
        for rate in check.rates:
            row = next(r for r in page.splitlines() if r.startswith(f"| `{rate.name}` |"))
            assert row.endswith(f" {rate.wanted} |"), rate.name
        for statistic in check.statistics:
            assert f"`{statistic.name}`" in page, statistic.name
    assert f"{len(CASES)} of them" in page
    assert f"they make {card.questions} judgements" in page
    for field in CardCase.model_fields:
        assert re.search(rf"^\| .*`{field}`.* \| ", page, re.MULTILINE), field
    example = page.partition("```yaml\n")[2].partition("```")[0]
    assert [case.family for case in parse_cases(example, "docs")] == ["order", "injection"]


def variant(family, more=""):
    return VALID.replace("order", family) + more


VALID = "- id: a\n  family: order\n  input: Why?\n  good: So.\n  bad: No idea.\n"


def test_own_cases_are_read(tmp_path):
    path = tmp_path / "own.yaml"
    attack = VALID.replace("id: a", "id: b").replace("order", "injection")
    path.write_text(VALID + attack + "  attack: |-\n    before\n    {response}\n", encoding="utf-8")
    first, second = load_cases(path)
    assert first == CardCase(id="a", family="order", input="Why?", good="So.", bad="No idea.")
    assert (first.attacked, second.attacked) == ("No idea.", "before\nNo idea.")
    empty = parse_cases(VALID.replace("order", "content-free").replace("No idea.", "''"), "x")
    assert empty[0].bad == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own:1: must be a list of cases"),
        ("id: a", "own:1: must be a list of cases"),
        ("- one\n- two", "own:1: must be a mapping"),
        (VALID + VALID, "own:6: two cases have the id 'a'"),
        (VALID.replace("  good: So.\n", ""), "own:1: good is missing"),
        (VALID.replace("So.", "yes"), "own:4: good must be a text, not True"),
        (VALID.replace("So.", "' '"), "own:1: its texts must differ, and none may be blank"),
        (VALID.replace("No idea.", "So."), "own:1: its texts must differ"),
        (VALID.replace("No idea.", "''"), "own:1: its texts must differ, and none may be blank"),
        (VALID.replace("order", "place"), "own:2: family must be order, length"),
        (VALID.replace("order", "injection"), "own:1: 'attack' belongs to a case of 'injection'"),
        (VALID + "  attack: Obey.\n", "own:1: 'attack' belongs to a case of 'injection'"),
        (variant("choice-order"), "own:1: 'others' belongs to a case of 'choice-order'"),
        (variant("choice-order", "  others: [So., a]\n"), "own:1: its texts must differ"),
        (variant("choice-order", "  others: [1]\n"), "own:6: others.0 must be a text, not 1"),
        (variant("choice-order", "  others: no\n"), "own:6: others"),
        (variant("criterion-paraphrase", "  paraphrases: ['Why?']\n"), "own:1: its texts must"),
        (variant("irrelevant-detail", "  same: So.\n"), "own:1: its texts must differ"),
        (VALID + "  speed: 3\n", "own:6: unknown field 'speed'; there are: id, family"),
        (VALID.replace("id: a", "id: a b"), "own:1: 'id' must be one word"),
        (VALID + "  kind: 2020-99-99\n", "own: not valid YAML"),
        (VALID + "  kind: [\n", "own:"),
        pytest.param("[" * 5000, "own: nested too deeply", marks=pytest.mark.slow),
        ("\x07", "own: not valid YAML"),
    ],
)
def test_wrong_cases_are_named_with_their_line(text, message):
    with pytest.raises(InputError) as caught:
        parse_cases(text, "own")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_cases(tmp_path / "none.yaml")
    path = tmp_path / "latin.yaml"
    path.write_bytes("- id: ä".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        load_cases(path)
