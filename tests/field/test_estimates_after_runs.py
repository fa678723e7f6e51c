"""A dry run says what the next run will take: what the journal answers is free, and what a model
thinks is billed.

The right figures are those of the scripted server: its count of requests, and the tokens that it
reports. (agsaru/Repo2Readme#141, topoteretes/cognee#4086)
"""

import pytest
from asked import write_rows

from textevolve.llm.testing import Answer

ROWS = [{"question": f"Why is number {n} odd?"} for n in range(8)]


def estimate(cli, *command):
    (planned,) = cli(*command, "--dry-run", "--json").rows
    return {name: figure["median"] for name, figure in planned["expected"].items()}


@pytest.mark.parametrize("judge", ["probe+rules", "single", "look:length"])
def test_stored_answers_are_free(cli, home, server, model, judge):
    (home / "ask.txt").write_text("Answer: {question}")
    write_rows(home / "rows.jsonl", ROWS)
    write_rows(home / "first.jsonl", ROWS[:3])
    command = ["compare", "-p", "ask.txt", "--judge", judge, "-m", model]

    assert cli(*command, "-d", "first.jsonl").code == 0
    made = server.calls
    planned = estimate(cli, *command, "-d", "rows.jsonl")
    assert server.calls == made
    assert cli(*command, "-d", "rows.jsonl").code == 0
    assert planned["calls"] == server.calls - made > 0

    again = estimate(cli, *command, "-d", "rows.jsonl")
    assert (again["calls"], again["tokens"]) == (0, 0)


def test_thoughts_are_expected_once_they_are_known(cli, home, server, model):
    (home / "ask.txt").write_text("Answer: {question}")
    write_rows(home / "rows.jsonl", ROWS)
    write_rows(home / "first.jsonl", ROWS[:3])
    server.script = lambda _body, _number: Answer(text="It is odd.", reasoning="Hm. " * 2000)
    command = ["compare", "-p", "ask.txt", "--judge", "look:length", "-m", model]
    assert "without reasoning" in " ".join(
        cli(*command, "-d", "rows.jsonl", "--dry-run").out.split()
    )

    assert cli(*command, "-d", "first.jsonl").code == 0
    planned = estimate(cli, *command, "-d", "rows.jsonl")
    assert planned["completion_tokens"] == 5 * (len("It is odd.") // 4 + 2000)


CHAIN = """\
name: answer
inputs: {question: text}
steps:
  - {ask: style, prompt: "Name a style."}
  - {ask: facts, prompt: "List facts: {question}"}
  - {ask: answer, prompt: "Answer {question} by {facts} as {style}"}
"""


def test_chains_count_equal_steps_once(cli, home, server, model):
    (home / "answer.yaml").write_text(CHAIN)
    write_rows(home / "rows.jsonl", ROWS)
    command = ["run", "chains", "run", "answer.yaml", "--data", "rows.jsonl", "-m", model]
    planned = estimate(cli, *command)
    assert cli(*command).code == 0
    assert planned["calls"] == server.calls == 1 + 8 + 8
    assert estimate(cli, *command)["calls"] == 0


def test_dry_runs_call_no_application(cli, home, model):
    (home / "app.py").write_text(
        "def answer(question):\n    open('calls.log', 'a').close()\n    return question\n"
    )
    write_rows(home / "rows.jsonl", ROWS)
    command = ["compare", "-d", "rows.jsonl", "--judge", "probe", "--dry-run"]
    refused = cli(*command, "-m", "app.py:answer")
    assert refused.code == 1
    assert "cannot be estimated" in refused.err
    assert cli(*command, "-m", model, "--target", "python:app.answer").code == 0
    assert not (home / "calls.log").exists()
