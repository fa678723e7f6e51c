"""What every run of a loop can do: stopped, listed, shown, gone on with, described by a file."""

import pytest
from test_guidance import QUESTION, answering

from textevolve.llm.testing import Answer

DRAFTS = ("The sea is moved.", "The sea is moved by the moon.", "The sea is pulled by the moon.")
TASK = "Say what moves the sea."


def revising(body, _number):
    """Each revision is the next draft; the judge likes the last."""
    content = body["messages"][-1]["content"]
    if body.get("max_tokens") == 1:
        return Answer(yes=0.2 + 0.3 * ("moon" in content) + 0.4 * ("pulled" in content))
    known_names = [draft for draft in DRAFTS if draft in content]
    return DRAFTS[min(2, DRAFTS.index(known_names[-1]) + 1)] if known_names else DRAFTS[0]


@pytest.fixture
def asked(cli, server, model):
    server.script = revising
    return lambda *more: cli("optimize", TASK, "--judge", "probe", "-m", model, *more)


def test_a_limit_stops_it_and_it_is_listed_shown_and_gone_on_with(asked, cli, server):
    short = asked("--max-calls", 3, "--name", "mine")
    assert short.code == 3
    assert "Resume with: textevolve runs resume" in short.err
    assert "mine" in cli("runs", "list").out
    failed = cli("runs", "show", "mine", "--failed").out
    assert "skipped" in failed
    assert "1 record" in failed
    assert cli("runs", "resume", "mine", "--json").code == 0
    calls = server.calls
    assert calls == len(server.seen)
    assert asked().code == 0
    assert "0 records" in cli("runs", "show", "mine", "--failed").out
    assert server.calls == calls


def test_parameters_of_a_debate_are_given_by_name(cli, server, model):
    server.script = answering
    requests = ("guide", QUESTION, "A.", "B.", "-m", model, "--debate")
    assert cli(*requests, "rounds=1", "--debate", "readout=verbalized").code == 0
    assert server.calls == 1 + 3 + 1
    assert "give NAME=VALUE" in cli(*requests, "rounds").err
    assert "did you mean 'rounds'" in cli(*requests, "round=1").err
