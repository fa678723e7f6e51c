"""Cascades: how sure a judgement is, who is asked, what it costs, how the text is read."""

import json
import math
import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import BudgetError, InputError, UnavailableError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.judges.cascade import Cascade, certainty_of
from textevolve.judges.judge import parse_judge, require_absolute
from textevolve.judges.opening import Judges
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer

PAIR = Case("Name a prime.", ("Seven.", "Nine."), "pair")


@dataclass(frozen=True)
class Told:
    """An evaluation as a judge of the user's own gives it."""

    result: tuple
    usage: Usage = Usage(1, 10, cost=0.5)
    coverage: float = 1.0
    seconds: float = 2.0


def scored(*scores, threshold=0.5, **metadata):
    return Told(tuple(EvaluationResult(s, s >= threshold, f"{s}", metadata) for s in scores))


def judge(*made):
    """Gives these one after the other, or raises them; `asked` holds the cases."""
    requests = []

    async def give(case, /):
        requests.append(case)
        one = made[min(len(requests), len(made)) - 1]
        if isinstance(one, Exception):
            raise one
        return one

    give.asked = requests
    return give


# Certainty

ODDS = st.floats(-12, 12)


@given(st.lists(ODDS, min_size=2, max_size=6))
def test_of_several_it_is_the_share_of_the_best(odds):
    new_told = Told(tuple(EvaluationResult(0.5, True, "", {"log_odds": odd}) for odd in odds))
    powers = [math.exp(odd) for odd in odds]
    assert certainty_of(new_told) == pytest.approx(max(powers) / sum(powers))
    assert 1 / len(odds) - 1e-12 <= certainty_of(new_told) <= 1
    scores = [power / (1 + power) for power in powers]
    assert certainty_of(scored(*scores)) == pytest.approx(certainty_of(new_told), abs=1e-4)


@given(st.floats(0, 1), st.floats(0.05, 0.95))
def test_of_one_it_grows_with_the_distance_from_the_threshold(score, threshold):
    value = certainty_of(scored(score, threshold=threshold), threshold)
    assert 0.5 - 1e-9 <= value <= 1
    further = score + (1 - score) / 2 if score >= threshold else score / 2
    assert certainty_of(scored(further, threshold=threshold), threshold) >= value - 1e-9
    if threshold == 0.5:
        assert value == pytest.approx(max(score, 1 - score), abs=1e-5)


def test_a_judge_that_knows_its_certainty_is_believed():
    @dataclass(frozen=True)
    class Knowing(Told):
        certainty: float | None = 0.25

    assert certainty_of(Knowing(scored(1.0, 0.0).result)) == 0.25
    assert certainty_of(Knowing(scored(1.0, 0.0).result, certainty=None)) > 0.999


# Who is asked


async def test_a_first_judge_that_is_sure_decides_alone():
    first_judgement, second_judgement = (
        judge(scored(0.9, 0.1, log_odds=None)),
        judge(scored(0.4, 0.6)),
    )
    judgement = await Cascade(first_judgement, second_judgement, 0.98, ("cheap", "dear"))(PAIR)
    assert (len(first_judgement.asked), len(second_judgement.asked)) == (1, 0)
    assert [result.score for result in judgement.result] == [0.9, 0.1]
    assert judgement.result[0].metadata["decided_by"] == "cheap"
    assert judgement.result[0].metadata["certainty"] == pytest.approx(81 / 82)
    assert (judgement.usage, judgement.seconds, judgement.coverage) == (
        Usage(1, 10, cost=0.5),
        2.0,
        1.0,
    )


async def test_where_it_is_not_the_second_counts_and_both_cost():
    first_judgement, second_judgement = judge(scored(0.9, 0.1)), judge(scored(0.4, 0.6))
    judgement = await Cascade(first_judgement, second_judgement, 0.99, ("cheap", "dear"))(PAIR)
    assert [result.feedback for result in judgement.result] == ["0.4", "0.6"]
    assert judgement.result[0].metadata["decided_by"] == "dear"
    assert judgement.result[0].metadata["certainty"] == pytest.approx(81 / 82)
    assert judgement.certainty == pytest.approx(certainty_of(scored(0.4, 0.6)))
    assert (judgement.usage, judgement.seconds) == (Usage(2, 20, cost=1.0), 4.0)
    assert second_judgement.asked == [PAIR]


@pytest.mark.parametrize(
    "failing",
    [
        InputError("needs two candidates"),
        Told((Failure("failed", "503"), EvaluationResult(1.0, True))),
    ],
)
async def test_where_the_first_fails_the_second_is_asked(failing):
    second_judgement = judge(scored(0.4, 0.6))
    judgement = await Cascade(judge(failing), second_judgement, 0.0, ("cheap", "dear"))(PAIR)
    metadata = judgement.result[0].metadata
    assert (metadata["decided_by"], len(second_judgement.asked)) == ("dear", 1)
    assert metadata["first_failed"] in ("503", "needs two candidates")
    assert "certainty" not in metadata


async def test_what_a_limit_forbids_is_not_asked_of_the_second():
    second_judgement = judge(scored(0.4, 0.6))
    with pytest.raises(BudgetError):
        await Cascade(judge(BudgetError("limit")), second_judgement, 0.9)(PAIR)
    skipped = Told((Failure("skipped", "limit"),) * 2)
    judgement = await Cascade(judge(skipped), second_judgement, 0.9)(PAIR)
    assert (judgement.result, second_judgement.asked) == (skipped.result, [])


@pytest.mark.parametrize(
    ("error", "kind"), [(UnavailableError("503"), "failed"), (BudgetError("limit"), "skipped")]
)
async def test_where_the_second_fails_there_is_no_score(error, kind):
    judgement = await Cascade(judge(scored(0.6, 0.5)), judge(error), 0.9)(PAIR)
    assert judgement.result == (Failure(kind, str(error)),) * 2
    assert judgement.usage == Usage(1, 10, cost=0.5)  # what the first took is not lost
    assert (judgement.coverage, judgement.certainty) == (0.0, None)


# The text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0.9:probe+rules@local/laya,debate:general", ("probe+rules@local/laya", "debate:general")),
        ("1e-3:rules:a,b.yaml,probe@http://h:1/v1#m", ("rules:a,b.yaml", "probe@http://h:1/v1#m")),
    ],
)
def test_the_comma_that_parts_two_judges_is_found(text, parts):
    cascade = parse_judge(f"cascade:{text}")
    assert cascade.below == text.partition(":")[0]
    assert tuple(map(str, cascade.parts)) == parts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cascade:0.9:probe", "write cascade:BELOW"),
        ("cascade:0:probe,jury", "above 0 and at most 1, not '0'"),
    ],
)
def test_a_text_that_is_no_cascade_is_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        parse_judge(text)


def test_what_is_known_of_a_judge_is_known_of_a_cascade(tmp_path):
    text = "cascade:0.90:metric:exact,cascade:0.5:probe@a/b,debate+rounds=1"
    cascade = parse_judge(text)
    assert cascade.models("m") == ("a/b", "m")
    assert parse_judge("cascade:1:metric:exact,metric:contains").models(None) == ()
    name = "cascade:0.90:metric:exact,cascade:0.5:probe@a/b,debate+rounds=1@x/y"
    assert cascade.with_model("x/y").text == parse_judge(name).with_model("z").text == name
    hybrid = parse_judge(f"hybrid:r.yaml:{text}").with_model("x/y")
    assert hybrid == parse_judge(f"hybrid:r.yaml:{name}")
    assert [leaf.name for leaf in cascade.leaves()] == ["metric", "probe", "debate"]
    assert cascade.reads_reference
    assert not cascade.is_debate
    assert cascade.needs == ("reference",)
    assert parse_judge("cascade:1:faithfulness,probe").needs == ("context",)
    about = cascade.describe()
    assert about["metric:exact"]
    assert about[cascade.second.text]["debate+rounds=1"]["profile"]["rounds"] == 1
    for relative in ("cascade:1:pairwise,probe", "cascade:1:probe,pairwise"):
        with pytest.raises(InputError, match="cannot be compared"):
            require_absolute(parse_judge(relative))
    require_absolute(parse_judge("cascade:1:probe,debate"))
    rules = tmp_path / "r.yaml"
    rules.write_text("rules: [{kind: length, max: 5}]")
    assert parse_judge(f"cascade:1:rules:{rules},probe").describe()[f"rules:{rules}"]["rules"]


# From end to end


def knowing(body, _number=0):
    """Sure of 'Seven.' beside 'Nine.', in doubt of the rest; longer answers are the server's."""
    output = re.findall(r"\nResponse:\n> (.+)\n", body["messages"][-1]["content"])
    if len(output) != 1:
        return None
    return Answer(yes={"Seven.": 0.95, "Nine.": 0.1}.get(output[0], 0.5))


async def test_judges_are_opened_with_their_models_and_the_rubric(tmp_path):
    async with ScriptedServer(knowing) as server, OpenAIClient(server.url, "x") as client:
        requests = []

        def model_of(name):
            requests.append(name)
            return client

        judges = Judges("m", model_of)
        cascade = judges.open(parse_judge("cascade:0.9:probe@cheap,single"), "It is a prime.")
        sure = await cascade(PAIR)
        assert server.calls == sure.usage.calls == 2  # one question, the rubric's
        assert "It is a prime." in json.dumps(list(server.requests))
        unsure = await cascade(Case("Name a prime.", ("Six.", "Eight."), "2"))
        assert server.calls == 2 + unsure.usage.calls == 2 + 3
        assert sorted(set(requests)) == ["cheap", "m"]
        with pytest.raises(InputError, match="judge cascade takes no rubric"):
            judges.open(parse_judge("cascade:1:metric:exact,metric:contains"), "x")
