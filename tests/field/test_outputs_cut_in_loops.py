"""Answers are cut at the token limit while an input is refined, or a question is debated.

A cut answer is no bad answer: it has no score, the report counts it and names the option, and the
model that rewrites is told.
"""

import json
import re

import pytest

from textevolve.llm.testing import Answer

LIMIT = "--max-answer-tokens may be too low"


@pytest.fixture
def innovate(server, model, cli, home):
    """Refine an input whose outputs are cut where this function says so."""

    def innovate(is_cut):
        def answer(body, _number):
            prompt = body["messages"][-1]["content"]
            if "You improve the input" in prompt:
                return json.dumps({"input": "Say it shortly."})
            if is_cut(prompt, body["seed"]):
                return Answer(text="It is lo", finish_reason="length")
            return "It is short."

        server.script = answer
        judge = "def grade(output):\n    return 0.5, 'Say more.'\n"
        (home / "own.py").write_text(judge)
        options = ("--judge", "metric:own.py:grade", "--fresh", "0", "--rounds", "1")
        return cli("innovate", "Say it.", *options, "-m", model, "--json")

    return innovate


def test_cut_outputs_are_counted(innovate, server):
    outcome = innovate(lambda prompt, seed: prompt == "Say it." and seed == 0)
    assert outcome.code == 3
    assert "1 of 8 outputs have no score" in outcome.err
    assert LIMIT in outcome.err
    first, _ = json.loads(outcome.out)["attempts"]
    assert first["score"] == 0.5
    (request,) = [text for text in map(str, server.requests) if "You improve the input" in text]
    assert "1 of 4 outputs did not come to an end" in request


def test_cut_inputs_are_no_worse(innovate):
    outcome = innovate(lambda prompt, _seed: prompt != "Say it.")
    _, second = json.loads(outcome.out)["attempts"]
    assert second["score"] is None
    assert LIMIT in second["failure"]["reason"]


def test_whole_outputs_leave_nothing_out(innovate):
    outcome = innovate(lambda _prompt, _seed: False)
    assert outcome.code == 0
    assert "no score" not in outcome.err


@pytest.mark.parametrize(("cut", "number"), [({1}, 2), ({1, 2, 3}, 0)])
def test_cut_answers_are_not_debated(server, model, cli, cut, number):
    def answer(body, _number):
        text = body["messages"][-1]["content"]
        if text == "Why?" and body.get("seed") in cut:
            return Answer(text="Because the", finish_reason="length")
        return f"Because of {body.get('seed')}." if text == "Why?" else "It is right."

    server.script = answer
    outcome = cli("guide", "Why?", "-m", model, "--debate", "rounds=1", "--json")
    result = json.loads(outcome.out)
    assert len(result["candidates"]) == number
    assert re.match(rf"{len(cut)} of 3 sampled answers, the first: ", result["left_out"])
    assert LIMIT in result["left_out"]
    assert "Because the" not in result["transcript"]
