"""Judges that decide, on the scripted server: emulated, and on a decision wire."""

import asyncio
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.bench.agreement import best_probabilities
from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.judges.decide import DECIDED
from textevolve.judges.judge import parse_judge
from textevolve.judges.opening import Judges
from textevolve.judges.rubric import ask_criteria, read_criteria, read_levels
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decisions import dump_answers, load_questions, probability
from textevolve.llm.model import Response
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.verdicts import Deciding

CASE = Case("Name a prime below ten.", ("Seven.", "Nine.", "Eight."), "prime")
PAIR = replace(CASE, candidates=CASE.candidates[:2])
WORTH = {"Seven.": 0.9, "Nine.": 0.4, "Eight.": 0.2}
RUBRIC = """\
<!-- Ours -->
- The response is a number.
- How sure does it sound? [doubtful | neutral | certain]
"""


def text_of(body):
    """What a chat model or a decision model is shown, with the questions of a decision."""
    if "questions" in body:
        return "\n".join([body["state"], *(one["instructions"] for one in asked_of(body))])
    return body["messages"][-1]["content"]


def asked_of(body):
    return list(body["questions"].values())


def shown(text):
    """The candidates of a state, in their places."""
    return re.findall(r"\n(?:Response|First response|Second response):\n> (.+)\n", text)


def odds_of(share):
    return math.log(share) - math.log1p(-share)


def by_worth(text):
    """P(yes) of one candidate, or the chance that the first of two is better."""
    worth = [WORTH[one] for one in shown(text) if one in WORTH]
    return worth[0] if len(worth) == 1 else worth[0] / sum(worth)


def chatting(body, _number=0):
    """A chat model that likes by worth; in a list of two it wants what stands for the better."""
    if body.get("max_tokens") != 1:
        return None
    text = text_of(body)
    first_value = by_worth(text)
    return Answer(yes=first_value if "A: first" in text or "Yes or No" in text else 1 - first_value)


def answered(*answers):
    """System One's answers to q1, q2, ...; or to the one question of a pair."""
    names = [f"q{n}" for n in range(1, len(answers) + 1)]
    return said(dict(zip(names, answers, strict=True)))


def said(answers):
    usage = {"input_tokens": 50, "output_tokens": 0}
    return Answer(body=json.dumps({"model": "m", "answers": answers, "usage": usage}).encode())


def noul(yes):
    return {"type": "noul", "noul": yes}


def deciding(body, _number=0):
    """A decision model that likes by worth."""
    if "questions" not in body:
        return None
    share = by_worth(body["state"])
    if "better" in body["questions"]:
        shares = {"first": share, "second": 1 - share}
        return said({"better": {"type": "choice", "choice": "first", "probabilities": shares}})
    return answered(*[noul(share) for _ in body["questions"]])


async def ask(name, case=CASE, script=chatting, *, rubric="", wire=None):
    """The judgement, and what was asked: by chat calls, or on a wire."""
    async with (
        ScriptedServer(script, wires=(wire,) if wire else ()) as server,
        OpenAIClient(server.url, "scripted", decisions=wire) as client,
    ):
        opened = Judges("scripted", lambda _: Deciding(client, wire)).open(
            parse_judge(name), rubric
        )
        return await opened(case), server.requests


async def decided(name, case=CASE, script=deciding, **more):
    return await ask(name, case, script, wire="systemone", **more)


# Each candidate alone


@pytest.mark.parametrize("judge", [ask, decided])
async def test_each_candidate_is_decided_alone_and_its_score_is_the_share_of_yes(judge):
    made, requests = await judge("decide")
    assert [one.score for one in made.result] == pytest.approx([0.9, 0.4, 0.2], abs=1e-6)
    assert [one.passed for one in made.result] == [True, False, False]
    assert made.usage.calls == len(requests) == len(CASE.candidates)
    assert all(len(shown(text_of(body))) == 1 for body in requests)
    metadata = made.result[0].metadata
    assert metadata["emulated"] is (judge is ask)
    assert metadata["cut"] == 0
    assert set(metadata["answers"]) == set(DECIDED)
    assert metadata["log_odds"] == pytest.approx(odds_of(0.9), abs=1e-5)


async def test_all_criteria_of_a_candidate_are_asked_in_one_request():
    def script(body, _number):
        level = {"type": "score", "probabilities": {"0": 0.1, "1": 0.4, "2": 0.5}}
        return answered(noul(by_worth(body["state"])), level)

    evaluation, records = await decided("decide", script=script, rubric=RUBRIC)
    assert len(records) == len(CASE.candidates)
    for body in records:
        so, far = asked_of(body)
        assert so["type"] == "noul"
        assert so["instructions"] == "Is this true of the response: The response is a number."
        assert far["type"] == "score"
        assert far["instructions"] == "How sure does it sound?"
        assert far["criteria"] == ["doubtful", "neutral", "certain"]
    first_result = evaluation.result[0]
    assert first_result.metadata["log_odds"] == pytest.approx((odds_of(0.9) + odds_of(0.7)) / 2)
    assert first_result.feedback.splitlines() == [
        "The response is a number. 90% yes",
        "How sure does it sound? 70% of the way up, most likely: certain",
    ]


async def test_a_criterion_without_an_answer_leaves_its_candidate_without_a_score():
    refusal = {"type": "refusal"}

    def script(body, _number):
        *answers, _last = (noul(0.5) for _ in body["questions"])
        return answered(*answers, refusal) if shown(body["state"]) == ["Nine."] else None

    evaluation, _ = await decided("decide", script=script, rubric=RUBRIC)
    kinds = [type(result) for result in evaluation.result]
    assert kinds == [EvaluationResult, Failure, EvaluationResult]
    assert evaluation.result[1].kind == "failed"
    assert "'How sure does it sound?'" in evaluation.result[1].reason
    assert "refuses to answer" in evaluation.result[1].reason
    assert evaluation.coverage == pytest.approx(2 / 3)


# Two beside each other


@pytest.mark.parametrize(("judge", "calls"), [(ask, 4), (decided, 2)])
async def test_a_pair_is_decided_in_both_places(judge, calls):
    made, requests = await judge("decide+pairwise", PAIR)
    assert made.usage.calls == len(requests) == calls
    places = {tuple(shown(text_of(body))) for body in requests}
    assert places == {("Seven.", "Nine."), ("Nine.", "Seven.")}
    assert [one.score for one in made.result] == pytest.approx([9 / 13, 4 / 13], abs=1e-6)
    assert made.result[0].metadata["emulated"] is (judge is ask)
    assert all("fence" not in text_of(body) and "[[" not in text_of(body) for body in requests)


# The other judges, where the model decides by itself


# Arithmetic


@dataclass(frozen=True)
class Decider:
    """A model that decides by itself; `rows` give the probabilities of each question on a state."""

    rows: Callable[[str, int], Sequence[float]]
    name: str = "decider"

    async def __call__(self, request):
        questions = load_questions(request.questions)
        state = request.messages[0].text
        answers = {q.name: self.rows(state, n) for n, q in enumerate(questions)}
        return Response(dump_answers(answers, {}), "stop", Usage(calls=1))


def judged(name, case, rows, rubric=""):
    judge = Judges("d", lambda _: Deciding(Decider(rows), "systemone")).open(
        parse_judge(name), rubric
    )
    return asyncio.run(judge(case)).result


SHARE = st.floats(0, 1)


@given(st.lists(SHARE, min_size=1, max_size=6), st.randoms())
def test_the_score_is_a_mean_of_the_criteria_in_any_order(shares, random):
    def score_of(shares):
        rubric = "\n".join(f"Criterion {n} holds." for n in range(len(shares)))
        rows = [(1 - share, share) for share in shares]
        return judged("decide", Case("x", ("y",)), lambda _, n: rows[n], rubric)[0]

    result = score_of(shares)
    assert min(shares) - 1e-5 <= result.score <= max(shares) + 1e-5
    assert result.score == pytest.approx(probability(result.metadata["log_odds"]))
    mixed = list(shares)
    random.shuffle(mixed)
    assert score_of(mixed).score == pytest.approx(result.score, abs=1e-9)
    assert score_of([min(1, share + 0.1) for share in shares]).score >= result.score


# Names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("decide+pairwise+few-shot", "single texts"),
        ("probe+decider=local/laya", "no parameter 'decider'"),
    ],
)
def test_options_that_make_no_sense_are_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        parse_judge(text)


# Criteria


def test_levels_stand_in_brackets_at_the_end_of_a_line():
    assert read_levels("Clear? [no | partly | yes]").levels == ("no", "partly", "yes")
    for plain in ("It holds [x].", "It is [a|b] or not.", "[a | b]", "Clear? [yes]"):
        assert read_levels(plain).text == plain
        assert read_levels(plain).levels == ()
    for wrong in ("Clear? [a | a]", "Clear? [ | b]", "Clear? [|]"):
        with pytest.raises(InputError, match="levels as different, non-empty texts"):
            read_levels(wrong)
    with pytest.raises(InputError, match="a criterion twice"):
        ask_criteria(read_criteria("Clear? [a | b]\nClear? [c | d]"))


# All candidates at once


def picking(body, _number=0):
    """A decision model that takes the options by worth; a chat model that takes the last letter."""
    if "questions" not in body:
        return None
    (question,) = asked_of(body)
    worth = {key: WORTH[key] for key in question["criteria"]}
    shares = {key: value / sum(worth.values()) for key, value in worth.items()}
    best = max(shares, key=shares.__getitem__)
    return said({"option": {"type": "choice", "choice": best, "probabilities": shares}})


async def test_all_candidates_are_the_options_of_one_choice():
    evaluation, records = await decided("decide+choice", script=picking)
    (body,) = records
    (question,) = asked_of(body)
    assert body["state"] == CASE.input
    assert list(question["criteria"]) == list(CASE.candidates)
    total = sum(WORTH.values())
    shares = [WORTH[text] / total for text in CASE.candidates]
    assert [result.score for result in evaluation.result] == pytest.approx(shares, abs=1e-6)
    odds = [result.metadata["log_odds"] for result in evaluation.result]
    assert odds[0] - odds[1] == pytest.approx(math.log(0.9 / 0.4), abs=1e-5)
    assert best_probabilities(odds) == pytest.approx(shares, abs=1e-6)
    assert evaluation.usage.calls == 1
    _, records = await decided("decide+choice+rules", script=picking, rubric="Be right.")
    (question,) = asked_of(records[0])
    assert "Which option does best what this rubric asks?\nBe right." in question["instructions"]
    assert len(question["instructions"]) > 200
