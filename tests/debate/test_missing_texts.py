"""Debates whose models think, or call tools in place of an answer: thoughts are no answer, and what
has no text is a failure that says why."""

import pytest
from test_protocol import AGENTS, debate, prompt, turns

from textevolve.evaluation import Failure
from textevolve.llm.testing import Answer, Fault, ScriptedServer


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.CALLS_ONLY, "the model called search instead of giving the answer"),
        (Fault.THOUGHT_ONLY, "tokens were used up; allow it more"),
        (Fault.THOUGHT_OPEN, "still thinking when its"),
    ],
)
async def test_an_answer_without_text_is_a_failure_and_no_score(fault, reason):
    async with ScriptedServer(lambda _body, _number: fault) as server:
        result = await debate(server)
    assert all(
        isinstance(single_result, Failure) and reason in single_result.reason
        for single_result in result.result
    )
    assert all(turn.failure and reason in turn.failure.reason for turn in result.turns)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "text"])
async def test_thoughts_are_neither_judged_nor_read_by_the_others(field):
    def script(_body, _number):
        return Answer(reasoning="A secret draft: 0 of 100.", reasoning_field=field)

    async with ScriptedServer(script) as server:
        result = await debate(server, rounds=2)
        prompts = [prompt(body) for body in turns(server)]
    assert all(single_result.passed is not None for single_result in result.result)
    assert len(prompts) == 2 * len(AGENTS)
    assert not any("secret draft" in text for text in prompts)
    assert "secret draft" not in result.to_json()
    assert result.usage.reasoning_tokens > 0
