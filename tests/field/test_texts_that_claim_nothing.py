"""A response greets, refuses or says that it does not know: it has no statement and no score.

Such texts are one sentence as often as several, so the number of sentences says nothing.
"""

import csv
import json

import pytest

from textevolve.llm.testing import Answer

CONTEXT = "The tower is 324 m high."
NOTHING = (
    "I do not know.",
    "Hello!",
    "I'm sorry, but I can't help with that.",
    "Guten Tag! Wie kann ich helfen?",
    "我不知道。",
)


def list_statements(body, _number):
    """A model that knows which texts claim nothing, and says Yes to every other question."""
    text = body["messages"][-1]["content"]
    claims_nothing = any(nothing in text for nothing in (*NOTHING, "Guten Tag!"))
    if body.get("max_tokens") == 1:
        return Answer(yes=0.1 if claims_nothing else 0.9)
    statements = [] if claims_nothing else ["The tower is high."]
    return Answer(text=json.dumps({"statements": statements}))


@pytest.mark.parametrize("judge", ["faithfulness", "answer-relevance"])
def test_nothing_claimed_no_score(server, model, cli, home, judge):
    server.script = list_statements
    texts = [*NOTHING, "It is 324 m high."]
    rows = [{"input": "How high?", "candidates": [t], "context": CONTEXT} for t in texts]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = cli("evaluate", "rows.jsonl", "--judge", judge, "-m", model, "-o", "out.csv")
    assert outcome.code == 3
    with (home / "out.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["score"] for line in lines[:-1]] == [""] * len(NOTHING)
    assert all("no statement" in line["reason"] for line in lines[:-1])
    assert float(lines[-1]["score"]) == pytest.approx(0.9)


def test_sentence_is_its_statement(server, model, cli, home):
    """What claims anything in one sentence is asked about as it is, however the model lists it."""
    server.script = list_statements
    outcome = cli(
        *("evaluate", "How high?", "It is 324 m high.", "--judge", "answer-relevance", "-m", model)
    )
    assert outcome.code == 0, outcome.err
    prompts = [str(body) for body in server.requests if body.get("max_tokens") == 1]
    assert all("> It is 324 m high." in text for text in prompts)
