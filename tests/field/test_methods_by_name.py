"""Situations of people who name a published method: its rule decides, so a change of mind counts
and a moderator has the last word.

The scripted agents give their scores by round, so each right value follows from the method's paper.
"""

import json
import random
import re

import pytest

from textevolve.debate.profile import load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.evaluation import Case, Failure
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, Fault, ScriptedServer, instance

FIRST = "The harbour freezes in January."
SECOND = "The harbour freezes in March."
CASE = Case("When does the harbour freeze?", (FIRST, SECOND), "harbour")


def script_scores(score):
    """Let each agent give the scores of `score(agent, round)`, a pair or one fault."""

    def script(body, _number):
        prompt = body["messages"][1]["content"]
        agent, round = re.search(
            r"You are ([^.\n]+)\. .*\nThis is round (\d+)", prompt, re.DOTALL
        ).groups()
        scores = score(agent, int(round))
        if isinstance(scores, Fault):
            return scores
        answer = instance(body["response_format"]["json_schema"]["schema"], random.Random(1))
        for label in [name for name in answer if name.startswith("Response")]:
            number = label.split()[1]
            text = re.search(rf"response {number}\]\]\n(.*)\n\[\[/", prompt)[1]
            value = scores[text == SECOND]
            answer[label]["scores"] = dict.fromkeys(answer[label]["scores"], value)
        return Answer(text=json.dumps(answer))

    return script


async def hold(profile_name, score, case=CASE, **parameters):
    profile = override(load_profile(profile_name), parameters)
    async with (
        ScriptedServer(script_scores(score)) as server,
        OpenAIClient(server.url, "scripted") as client,
    ):
        return await Debate(profile, lambda _agent: client, today="2026-01-01")(case)


@pytest.mark.parametrize("name", ["chateval", "society-of-minds", "ensemble-refinement"])
async def test_last_round_decides(name):
    result = await hold(name, lambda _agent, number: (10, 0) if number == 1 else (4, 7))
    assert result.best == 1
    assert result.scores.tolist() == [4, 7]
    assert [result.result[1].score, *result.unit_scores] == pytest.approx([0.7, 0.4, 0.7])
    assert set(result.result[0].metadata["components"].values()) == {4}
    assert result.round_one.tolist() == [10, 0]


@pytest.mark.parametrize("name", ["mad", "multi-persona"])
async def test_moderator_decides(name):
    def score(agent, round):
        if agent != "Judge":
            return (10, 0)
        return (5, 5) if round == 1 else (2, 8)

    result = await hold(name, score)
    assert result.best == 1
    assert result.scores.tolist() == [2, 8]
    assert set(result.result[1].metadata["components"].values()) == {8}
    assert (result.stopped, len(result.convergence)) == ("certain", 2)


@pytest.mark.parametrize("name", ["mad", "multi-persona"])
async def test_clear_moderator_ends_early(name):
    result = await hold(name, lambda agent, _round: (3, 9) if agent == "Judge" else (9, 3))
    assert (result.stopped, len(result.convergence)) == ("certain", 1)
    assert result.best == 1


@pytest.mark.parametrize("name", ["mad", "multi-persona"])
async def test_undecided_moderator_hears_all(name):
    result = await hold(name, lambda _agent, _round: (5, 5))
    assert result.stopped == "rounds"
    assert len(result.convergence) == load_profile(name).rounds
    assert result.tied == (0, 1)


@pytest.mark.parametrize(("value", "rounds"), [(9, 1), (1, 1), (5, 3)])
async def test_moderator_of_one_candidate(value, rounds):
    case = Case(CASE.input, (FIRST,), "harbour")
    result = await hold("mad", lambda _agent, _round: (value, value), case)
    assert len(result.convergence) == rounds


async def test_moderator_of_one_component():
    result = await hold(
        "mad", lambda agent, _round: (3, 9) if agent == "Judge" else (9, 3), components=["accuracy"]
    )
    assert (result.stopped, len(result.convergence)) == ("certain", 1)


async def test_missing_last_round_decides_nothing():
    result = await hold(
        "society-of-minds", lambda _agent, number: (9, 1) if number == 1 else Fault.SERVER_ERROR
    )
    assert result.best is None
    assert all(isinstance(entry, Failure) for entry in result.result)


async def test_missing_moderator_is_named():
    result = await hold(
        "multi-persona",
        lambda agent, _round: Fault.SERVER_ERROR if agent == "Judge" else (9, 1),
    )
    assert result.best is None
    assert isinstance(result.result[0], Failure)


async def test_average_scored_again():
    def score(agent, round):
        if agent != "Judge":
            return (9, 1)
        return (5, 5) if round == 1 else (2, 8)

    moderated = await hold("multi-persona", score)
    average = moderated.rescore(aggregation="mean")
    assert average.best == 0
    again = average.rescore(aggregation="moderator")
    assert (again.best, again.scores.tolist()) == (1, [2, 8])
    early = moderated.rescore(aggregation="moderator", escalate_below=0.4)
    assert (early.stopped, len(early.convergence)) == ("certain", 1)
