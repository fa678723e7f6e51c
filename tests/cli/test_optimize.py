"""`textevolve optimize` as it is used, on the scripted server."""

import json

import pytest
import yaml

from textevolve.llm.testing import Answer

TASK = "Say in a sentence what moves the sea."
DRAFTS = ("The sea is moved.", "The sea is moved by the moon.", "The sea is pulled by the moon.")
RULES = {
    "name": "sea",
    "rules": [
        {"kind": "keywords", "all": ["moon"], "name": "moon"},
        {"kind": "must_not", "pattern": "moved", "gate": False},
    ],
}


def said(body):
    return body["messages"][-1]["content"]


def is_written(body):
    return "Write the answer now." in said(body) or "Write the revised answer now." in said(body)


def worth(text):
    return 0.2 + 0.3 * ("moon" in text) + 0.4 * ("pulled" in text)


def able(body, _number=0):
    """A model that revises step by step, and a judge by probes that sees how well."""
    if is_written(body):
        shown = [draft for draft in DRAFTS if draft in said(body)]
        return (
            DRAFTS[DRAFTS.index(shown[-1]) + 1] if shown and shown[-1] != DRAFTS[-1] else DRAFTS[0]
        )
    return Answer(yes=worth(said(body)))


@pytest.fixture
def ably(server):
    server.script = able
    return server


@pytest.fixture
def rules(home):
    path = home / "rules.yaml"
    path.write_text(yaml.safe_dump(RULES))
    return path


def words(text):
    return " ".join(text.split())


def asked(model, *more):
    return ("optimize", TASK, "-m", model, "-j", "probe", *more)


def test_a_text_is_made_better_shown_and_written(home, cli, ably, model):
    written = ("-o", "a.txt", "-o", "a.jsonl", "-o", "a.html", "--name", "sea")
    ended = cli(*asked(model), *written)
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out + ended.err
    shown = words(ended.out)
    for part in (
        "attempt 1 0.200",
        "attempt 3 0.900",
        "The best: attempt 3 The sea is pulled by the moon.",
        "Ended as accepted: attempt 3 reached the threshold of 0.8",
        "judge probe",
    ):
        assert part in shown, part
    assert "attempt 2: 0.500" in ended.err
    assert (home / "a.txt").read_text() == DRAFTS[2] + "\n"
    (row,) = [json.loads(line) for line in (home / "a.jsonl").read_text().splitlines()]
    assert (row["status"], row["best"], row["output"]) == ("accepted", 3, DRAFTS[2])
    assert [a["evaluation"]["score"] for a in row["attempts"]] == pytest.approx([0.2, 0.5, 0.9])
    assert row["attempts"][0]["instructions"][0].startswith("Let the answer to this be a clear yes")
    assert row["usage"]["calls"] == ably.calls == 12
    page = (home / "a.html").read_text()
    assert "accepted: attempt 3 reached the threshold" in page


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("twice.jsonl",), "two tasks have the id 'a'"),
        (("bare.jsonl",), "bare.jsonl:1: 'task' must be there"),
    ],
)
def test_bad_input_is_one_line_and_asks_nothing(home, cli, server, model, more, reason):
    (home / "twice.jsonl").write_text('{"id": "a", "task": "x"}\n' * 2)
    (home / "bare.jsonl").write_text('{"id": "a"}\n')
    ended = cli("optimize", *more, "-m", model)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1
    assert server.calls == 0


def test_a_text_that_there_is_not_is_not_written_over_an_older_one(home, cli, ably, model):
    (home / "best.txt").write_text("An older text.")
    ended = cli(*asked(model, "--max-calls", 0, "-o", "best.txt", "-o", "all.jsonl"))
    assert ended.code == 3
    assert "best.txt: is not written" in ended.err
    assert (home / "best.txt").read_text() == "An older text."
    assert (home / "all.jsonl").exists()
