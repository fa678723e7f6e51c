"""`textevolve optimize` as it is used, on the scripted server."""

import json

import pytest
import yaml

from textevolve import AsyncClient
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.llm.testing import Answer
from textevolve.loops.rules import RulesJudgement

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
        f"Model {model} (named) Spent",
        "Judge probe Model",
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


def test_a_limit_ends_it_with_the_best_so_far_and_it_can_be_gone_on_with(cli, ably, model):
    short = cli(*asked(model, "--max-calls", 7))
    assert short.code == 3
    assert ably.calls == 7
    assert "Ended as budget: the limit of 7 calls is reached" in words(short.out)
    assert "The best: attempt 1" in short.out
    assert "Go on with: textevolve runs resume" in short.err
    whole = cli(*asked(model, "--json"))
    assert whole.code == 0
    assert ably.stats()["calls"] == ably.stats()["distinct"] == 12


def test_rules_alone_cost_no_judge(cli, ably, model, rules):
    ended = cli("optimize", TASK, "-m", model, "--json", "-j", f"rules:{rules}")
    (row,) = ended.rows
    assert (row["status"], row["output"]) == ("accepted", DRAFTS[2])
    assert row["usage"]["calls"] == 3
    assert row["attempts"][0]["instructions"] == [
        "Use the word or phrase 'moon'.",
        "Remove what matches the pattern moved.",
    ]
    assert all(is_written(body) for body in ably.requests)


# Many tasks


def test_a_file_of_tasks(home, cli, ably, model):
    (home / "tasks.jsonl").write_text(
        '{"id": "a", "task": "Move the sea."}\n{"input": "Pull the sea."}\n'
    )
    ended = cli(
        "optimize", "tasks.jsonl", "-m", model, "-j", "probe", "-o", "h.jsonl", "-o", "h.html"
    )
    assert ended.code == 0, ended.err
    assert "a Move the sea. accepted 0.200 0.900 3" in words(ended.out)
    rows = [json.loads(line) for line in (home / "h.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["a", "2"]
    assert "2 of 2 tasks reached the threshold of 0.8" in words(ended.out)
    assert "2 tasks" in (home / "h.html").read_text()
    (home / "tasks.csv").write_text("id,task\na,Move the sea.\n2,Pull the sea.\n")
    calls = ably.calls
    again = cli("optimize", "tasks.csv", "-m", model, "-j", "probe", "--json")
    assert [row["output"] for row in again.rows] == [DRAFTS[2]] * 2
    assert ably.calls == calls


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ((TASK, "-j", "pairwise"), "take another judge, such as probe+rules"),
        ((TASK, "--second-judge", "pairwise"), "cannot be compared"),
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


async def test_optimize_with_a_judge_and_a_writer_of_ones_own(home, ably, model):
    async def judge(case):
        (text,) = case.candidates
        return RulesJudgement((EvaluationResult(worth(text), True, "More moon."),), Usage())

    async def write(task, /, *, previous=None, feedback=(), temperature=None):
        return DRAFTS[1] if previous is None else f"{DRAFTS[2]} {', '.join(feedback)}"

    heard = []
    found = await AsyncClient(model=model, listener=heard.append).optimize(TASK, judge=judge)
    assert found.output == DRAFTS[2]
    own = await AsyncClient(model=model).optimize(TASK, judge=judge, generator=write)
    assert own.output == f"{DRAFTS[2]} More moon."
    assert own.usage.calls == 0
    assert heard
    assert all(is_written(body) for body in ably.requests)


def test_a_text_that_there_is_not_is_not_written_over_an_older_one(home, cli, ably, model):
    (home / "best.txt").write_text("An older text.")
    ended = cli(*asked(model, "--max-calls", 0, "-o", "best.txt", "-o", "all.jsonl"))
    assert ended.code == 3
    assert "best.txt: is not written" in ended.err
    assert (home / "best.txt").read_text() == "An older text."
    assert (home / "all.jsonl").exists()
