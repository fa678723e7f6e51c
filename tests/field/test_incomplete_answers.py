"""An answer was cut, filtered or refused, or is a tool call: what users see is a reason, no score.

The finish reasons are those that providers document. Advice to raise the limit of tokens stands
only where the tokens were used up.
"""

import csv
import json

import pytest

from textevolve.evaluation import Usage
from textevolve.llm.model import Response, ToolCall
from textevolve.llm.structured import describe_fault
from textevolve.llm.testing import Answer
from textevolve.protocol.contents import answer_ending

ENDINGS = {
    "whole": ("stop", "eos", "end_turn", "STOP", "tool_calls", "", "something new"),
    "cut": ("length", "model_length", "MAX_TOKENS", "max_tokens", "max_output_tokens"),
    "filtered": ("content_filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "sensitive"),
    "failed": ("error", "abort", "insufficient_system_resource", "network_error"),
    "refused": ("refusal",),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_ending_of_finish_reason(ending):
    assert [answer_ending(reason) for reason in ENDINGS[ending]] == [ending] * len(ENDINGS[ending])


THOUGHT = Response("", "length", Usage(1, completion_tokens=9), reasoning="Hm.")
CALL = Response("", "tool_calls", Usage(1), tool_calls=(ToolCall("1", "find", "{}"),))


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response("Half of", "MAX_TOKENS", Usage(1)), "the answer was cut at the token limit"),
        (Response("Half of", "RECITATION", Usage(1)), "content filter cut off the answer"),
        (Response("I cannot.", "refusal", Usage(1)), "the model refused to give the answer"),
        (Response("Half of", "abort", Usage(1)), "could not finish the answer (abort)"),
        (Response(" \n", "stop", Usage(1)), "the answer was empty"),
        (THOUGHT, "still thinking when its 9 tokens were used up"),
        (CALL, "called find instead of giving the answer"),
    ],
)
def test_fault_of_answer(response, reason):
    assert reason in describe_fault(response)


ROWS = "".join(
    json.dumps({"id": f"r{n}", "q": f"Question {n}?", "a": "4"}) + "\n" for n in range(2)
)
BAD = {
    "cut": (Answer(text="It is 4", finish_reason="length"), "cut at the token limit"),
    "cut by another name": (Answer(text="It is 4", finish_reason="model_length"), "cut at the"),
    "filtered": (Answer(text="It is 4", finish_reason="SAFETY"), "content filter"),
    "refused": (Answer(refusal="I cannot."), "refused"),
    "tool call": (Answer(text="", tool_calls=(("find", "{}"),)), "called find instead"),
}


@pytest.mark.parametrize("name", BAD)
def test_compared_output_is_missing(server, model, cli, home, name):
    bad, reason = BAD[name]
    server.script = lambda body, _number: bad if "Question 1" in str(body) else "4"
    (home / "rows.jsonl").write_text(ROWS)
    options = ("-d", "rows.jsonl", "--label", "a", "--metric", "contains", "-o", "out.csv")
    (home / "prompt.txt").write_text("Answer this: {q}")
    outcome = cli("compare", "-p", "prompt.txt", *options, "-m", model)
    assert outcome.code == 3, outcome.err
    with (home / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["score"], second["score"]) == ("1.0", "")
    assert reason in second["reason"]
    assert ("--max-output-tokens" in second["reason"]) == name.startswith("cut")


CHAIN = "inputs: {topic: text}\nsteps:\n  - {ask: story, prompt: 'Tell of {topic}.'}\n"


def test_cut_output_of_a_chain(server, model, cli, home):
    server.script = lambda _body, _number: Answer(text="Once upon", finish_reason="length")
    (home / "story.yaml").write_text(CHAIN)
    outcome = cli("run", "chains", "run", "story.yaml", "-i", "topic=the sea", "-m", model)
    assert outcome.code == 3, outcome.err
    assert "step 'story': the answer was cut at the token limit" in outcome.err
