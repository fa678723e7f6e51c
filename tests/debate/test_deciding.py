"""The readout `decide`: one request of typed questions fills a turn's scores."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.debate.deciding import ask_cell, read_score
from textevolve.debate.profile import COMPONENTS, Component, load_profile, override
from textevolve.debate.protocol import Debate
from textevolve.debate.result import DebateResult, DecidedBy
from textevolve.errors import InputError
from textevolve.evaluation import Case, Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decisions import Answer, dump_answers, load_questions
from textevolve.llm.model import Response
from textevolve.llm.testing import ScriptedServer
from textevolve.settings import Price
from textevolve.studies import judged_report

CASE = Case("What is 2 + 2?", ("It is four.", "It is five."), "sum")
DECIDER = "native/decider"
PLAIN = Component(name="plain", meaning="how plain it is", question="is it plain?")


class Decider:
    """A decision model: `decides` gives the probabilities of a question about a state, or why it
    has no answer."""

    name = DECIDER

    def __init__(self, decides=None, **more):
        self.requests, self.decides, self.more = [], decides or (lambda _s, _q: None), more

    async def __call__(self, request):
        self.requests.append(request)
        questions = load_questions(request.questions)
        made = {question.name: self.decides(self.state(-1), question) for question in questions}
        failed = {name: answer for name, answer in made.items() if isinstance(answer, str)}
        given = {
            question.name: made[question.name] or [0.0] * (len(question.options) - 1) + [1.0]
            for question in questions
            if question.name not in failed
        }
        text = dump_answers(given, failed, **self.more)
        return Response(text, "stop", Usage(1, 100, 0, 0, 0.25), seconds=2.0)

    def state(self, number):
        (message,) = self.requests[number].messages
        return message.text

    def questions(self, number):
        return load_questions(self.requests[number].questions)


async def debate(server, decider, case=CASE, *, recall=None, **parameters):
    parameters = {"readout": "decide", "decider": DECIDER, "convergence": None} | parameters
    profile = override(load_profile("general"), parameters)
    options = {"recall": recall} if recall else {}
    async with OpenAIClient(server.url, "scripted", price=Price(input=0, output=0)) as client:

        def model_of(agent):
            return decider if agent.model == DECIDER else client

        return await Debate(profile, model_of, today="2026-01-01", **options)(case)


def shown(state):
    """The labels of the candidates in the order in which a state shows them."""
    return [int(n) for n in re.findall(r"\[\[[^/\]]* response (\d)\]\]", state)]


async def test_one_request_a_turn_fills_all_scores():
    decider = Decider()
    async with ScriptedServer() as server:
        result = await debate(server, decider, rounds=2)
        remarks = [body for body in server.requests if "response_format" in body]
    assert len(remarks) == sum(not turn.is_silent for turn in result.turns)
    assert len(decider.requests) == 6
    assert result.tensor.shape == (2, 3, 2, 5)
    assert np.all(result.tensor.values == 10)
    for number, turn in enumerate(result.turns):
        names = [
            f"Response {n}: {c.name}" for n in shown(decider.state(number)) for c in COMPONENTS
        ]
        assert [question.name for question in decider.questions(number)] == names
        assert turn.decided_by == DecidedBy(DECIDER)
        assert turn.model.endswith("#scripted")
        assert turn.log_odds is None
        assert turn.usage.calls >= 3  # words, argument, decision
        assert turn.usage.cost == 0.25
        assert turn.seconds > 2
        assert turn.argument
        assert bool(turn.points) != turn.is_silent


async def test_the_state_has_the_transcript_and_who_judges_and_grows_at_its_end():
    decider = Decider()
    async with ScriptedServer() as server:
        result = await debate(server, decider, rounds=1, order="fixed")
    states = [decider.state(n) for n in range(3)]
    for n, (state, agent) in enumerate(zip(states, result.profile.agents, strict=True)):
        assert CASE.input in state
        assert f"You are {agent.name}. {agent.persona}" in state
        answers = [turn.argument for turn in result.turns]
        assert [text in state for text in answers] == [m <= n for m in range(3)]
        assert state.count("Scores by") == n
    # Up to what an agent was heard to say, the next state begins as this one does.
    for one, other in pairwise(states):
        end = one.rindex("You are ")
        assert other.startswith(one[:end].rstrip())
    parts = [request.messages[0].parts for request in decider.requests]
    assert parts[0][:2] == parts[1][:2] == parts[2][:2]


async def test_scores_belong_to_their_candidate_whatever_the_order():
    def decides(state, question):
        label = question.name.split(":")[0].split()[1]
        text = re.search(rf"response {label}\]\]\n(.*)\n\[\[/", state)[1]
        return [0.0, 0.0, 1.0] if text == "It is four." else [1.0, 0.0, 0.0]

    decider = Decider(decides)
    async with ScriptedServer() as server:
        result = await debate(server, decider, rounds=2)
    assert [turn.scores for turn in result.turns] == [((10.0,) * 5, (0.0,) * 5)] * 6
    assert len({turn.order for turn in result.turns}) == 2


@pytest.mark.parametrize(("order", "orders"), [("fixed", 1), ("swap", 2), ("balanced", 1)])
async def test_without_arguments_the_decision_is_blind(order, orders):
    decider = Decider(lambda _s, _q: [0.5, 0.5, 0.0])
    async with ScriptedServer() as server:
        result = await debate(server, decider, rounds=2, order=order, argue=False)
        assert server.calls == 0
    assert len(decider.requests) == 2 * 3 * orders
    assert all("argued" not in decider.state(n) for n in range(len(decider.requests)))
    assert np.all(result.tensor.values == 2.5)


async def test_a_cell_without_an_answer_fails_the_turn():
    def decides(state, question):
        refused = question.name.endswith("accuracy") and "You are Supporter" in state
        return "refused: not allowed" if refused else None

    async with ScriptedServer() as server:
        result = await debate(server, Decider(decides), rounds=1)
    assert [turn.scores is None for turn in result.turns] == [False, True, False]
    failure = result.turns[1].failure
    assert failure.kind == "failed"
    assert "accuracy': refused: not allowed" in failure.reason
    assert result.turns[1].usage.calls >= 4
    assert result.coverage == pytest.approx(2 / 3)


async def test_log_odds_are_there_where_all_questions_are_predicates():
    decider = Decider(lambda _s, _q: [0.2, 0.8])
    async with ScriptedServer() as server:
        result = await debate(server, decider, rounds=1, components=(PLAIN,))
    (turn, *_) = result.turns
    assert turn.scores == ((8.0,), (8.0,))
    assert turn.log_odds[0][0] == pytest.approx(np.log(4))
    assert {question.kind for question in decider.questions(0)} == {"predicate"}
    assert "Response 1: is it plain?" in {
        question.instructions for question in decider.questions(0)
    }


async def test_what_a_turn_was_decided_by_is_kept():
    decider = Decider(emulated=True, cut=1200)
    async with ScriptedServer() as server:
        result = await debate(server, decider, rounds=1)
    by = DecidedBy(DECIDER, True, 1200)
    assert [turn.decided_by for turn in result.turns] == [by] * 3
    answer = "scores decided by native/decider, emulated, 1,200 characters left out"
    assert judged_report.decided(by) == answer
    stored_result = DebateResult.from_json(result.to_json())
    assert stored_result == result
    assert stored_result.profile.decider == DECIDER
    assert json.loads(result.to_json())["profile"]["readout"] == "decide"


async def test_without_a_decider_the_agents_own_model_decides():
    decider = Decider()
    profile = override(load_profile("general"), {"readout": "decide", "rounds": 1, "argue": False})
    result = await Debate(profile, lambda _agent: decider, today="2026-01-01")(CASE)
    assert [turn.decided_by for turn in result.turns] == [DecidedBy(DECIDER)] * 3


def test_a_decider_is_for_the_readout_decide_alone():
    general = load_profile("general")
    for readout in ("auto", "pointwise", "verbalized", "after-argument"):
        with pytest.raises(InputError, match="only the readout 'decide' uses a decider"):
            override(general, {"readout": readout, "decider": "local/laya"})
    both = override(general, {"readout": "decide", "decider": "local/laya"})
    assert both.models("openai/gpt-5") == ("openai/gpt-5", "local/laya")
    assert override(both, {"decider": "none", "readout": "auto"}).decider is None


@given(
    st.dictionaries(st.integers(0, 10), st.just("x"), min_size=2, max_size=11),
    st.lists(st.floats(0.01, 1), min_size=11, max_size=11),
)
def test_a_score_is_the_expectation_of_the_levels_points(rubric, weights):
    component = Component(name="c", meaning="m", rubric=rubric)
    points = sorted(rubric)
    drawn = weights[: len(points)]
    answer = Answer(tuple(w / sum(drawn) for w in drawn))
    question = ask_cell("Response 1", component)
    assert (question.kind, len(question.options)) == ("score", len(points))
    score = read_score(component, answer)
    assert points[0] - 1e-9 <= score <= points[-1] + 1e-9
    if points == [0, 5, 10]:
        assert score == pytest.approx(10 * answer.share)
