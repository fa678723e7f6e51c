"""`textevolve summarize` and `summarize` from Python, on the scripted server."""

import json
import re

import pytest

from flat_verbs import asummarize
from textevolve import Limits
from textevolve.errors import AnswerError
from textevolve.llm.testing import Answer, Fault, misbehave

LONG = "".join(f"In the year {n} the ferry carried wool to the town.\n\n" for n in range(900))
WANTED = re.compile(r"in at most (\d+) words\.\s*$")


def shortens(body, _number):
    prompt = body["messages"][0]["content"]
    return Answer(text=" ".join(prompt.split("[[")[3].split()[2:][: int(WANTED.search(prompt)[1])]))


@pytest.fixture
def server(server):
    server.script = shortens
    return server


@pytest.fixture
def book(home):
    (home / "book.txt").write_text(LONG, encoding="utf-8")
    return "book.txt"


def test_a_file_becomes_a_summary_and_files(cli, server, model, book, home):
    outcome = cli("summarize", book, "-m", model, "-b", "300", "-o", "a.txt", "-o", "a.json")
    assert outcome.code == 0, outcome.err
    assert re.search(
        r"\d+ of 300 tokens, of [\d,]+ characters, in 2 levels and \d+ calls", outcome.out
    )
    payload = json.loads((home / "a.json").read_text())
    assert payload["tokens"] <= 300
    assert payload["characters"] == len(LONG)
    assert payload["dropped"]["failed"] == []
    assert (home / "a.txt").read_text() == payload["text"] + "\n"
    calls = server.calls
    assert cli("summarize", book, "-m", model, "-b", "300", "--json").code == 0
    assert server.calls == calls


def test_a_focus_stands_in_every_prompt(cli, server, model, book):
    assert cli("summarize", book, "-m", model, "--focus", "the price of wool").code == 0
    for body in server.requests:
        assert "what bears on this: the price of wool." in body["messages"][0]["content"]


async def test_from_python_what_fails_is_raised(server, model, home):
    server.script = lambda _body, _n: misbehave(Fault.EMPTY)
    with pytest.raises(AnswerError, match="no part of the text could be shortened"):
        await asummarize(LONG, model=model, limits=Limits(calls=100))
