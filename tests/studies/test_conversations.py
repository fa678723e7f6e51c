"""Conversations in `compare`: scripted turns, a user that a model plays, and figures by turn."""

import json
from random import Random
from statistics import fmean

import pytest

from textevolve.llm.testing import Answer
from textevolve.studies.compare import summarise
from textevolve.studies.compare_cells import Output
from textevolve.studies.compare_spec import CompareSpec
from textevolve.studies.conversations import ConversationTurn, Grade, join_grades

SCRIPT = ["What is 1?", "And 2?", "And 3?"]


def last(body):
    return body["messages"][-1]["content"]


def played(body):
    return "You play a user" in body["messages"][0]["content"]


def assistant(body, number):
    """Right, but for the brief one at its second turn; a judge likes what is right."""
    if body.get("max_tokens") == 1:
        return Answer(yes=0.1 if "wrong" in last(body) else 0.9)
    if played(body):
        count = last(body).count("User:")
        state = (
            "reached" if count == 2 and "calm" in body["messages"][0]["content"] else "continues"
        )
        return json.dumps({"state": state, "message": f"ask {count + 1}"})
    turn = sum(message["role"] == "user" for message in body["messages"])
    if "fails" in last(body):
        return Answer(status=400, body=b'{"error": {"message": "no such thing"}}')
    return (
        "wrong" if turn == 2 and "Be brief" in body["messages"][0]["content"] else f"right {turn}"
    )


@pytest.fixture
def files(home, server):
    server.script = assistant
    (home / "brief.txt").write_text("Be brief.")
    (home / "long.txt").write_text("Be long.")
    return home


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


PROMPTS = ("-p", "brief.txt", "-p", "long.txt", "-d", "rows.jsonl")
BY_TURN = ("--judge", "probe", "--each-turn", "probe")


def test_scripted_turns_are_sent_with_the_answers_so_far(cli, files, server, model):
    bad = ["Hello", "This fails"]
    write(files / "rows.jsonl", {"turns": SCRIPT}, {"turns": bad}, {"turns": SCRIPT[:1]})
    outcome = cli("compare", *PROMPTS, "-m", model, *BY_TURN, "--json", "-o", "cells.jsonl")
    assert outcome.code == 3
    brief, long = json.loads(outcome.out)["variants"]
    assert (brief["scored"], long["scored"]) == (2, 2)  # the failed conversation is no zero
    assert long["mean"]["value"] == pytest.approx(0.9)
    assert brief["mean"]["value"] == pytest.approx((fmean([0.9, 0.1, 0.1]) + 0.9) / 2)
    by_turn = {turn["turn"]: turn for turn in brief["turns"]}
    assert {n: turn["answers"] for n, turn in by_turn.items()} == {1: 2, 2: 1, 3: 1}
    cells = [json.loads(line) for line in (files / "cells.jsonl").read_text().splitlines()]
    failed = [cell for cell in cells if cell["row"] == "2"]
    assert all(cell["reason"].startswith("turn 2: ") for cell in failed)
    assert failed[0]["text"] == "User: Hello\nAssistant: right 1\nUser: This fails"
    requested_messages = [
        body["messages"] for body in server.requests if body["messages"][0]["content"] == "Be long."
    ]
    roles = [[message["role"] for message in messages] for messages in requested_messages]
    assert ["system", "user", "assistant", "user", "assistant", "user"] in roles
    assert any(
        messages[2:4]
        == [{"role": "assistant", "content": "right 1"}, {"role": "user", "content": "And 2?"}]
        for messages in requested_messages
    )


def test_recorded_chats_have_figures_by_turn_without_a_model(cli, files, server):
    chat = [{"role": r, "content": t} for r, t in (("user", "Hi"), ("assistant", "yes"))]
    write(
        files / "rows.jsonl",
        {"input": "-", "messages": [*chat, *chat[:1], *chat[1:]]},
        {"input": "-", "messages": "no chat"},
    )
    more = ("--metric", "regex:yes", "--each-turn", "regex:yes", "--json")
    outcome = cli("compare", "--outputs", "messages", "-d", "rows.jsonl", *more)
    payload = json.loads(outcome.out)
    assert [turn["answers"] for turn in payload["variants"][0]["turns"]] == [1, 1]
    assert payload["failed"] == 1
    assert server.calls == 0


USER = {"goal": "know all", "persona": "a calm person"}


def test_a_simulated_user_talks_until_the_goal_or_the_limit(cli, files, server, model):
    write(files / "rows.jsonl", USER, {"goal": "know more"})
    options = (*PROMPTS, "-m", model, "--user-model", model, "--max-turns", "3", *BY_TURN, "--json")
    dry = json.loads(cli("compare", *options, "--dry-run").out)
    cut = cli("compare", *options, "--max-calls", "9")
    assert cut.code != 0
    payload = json.loads(cli("compare", *options).out)
    long = payload["variants"][1]
    assert long["endings"] == {"goal reached": 1, "turn limit": 1}
    prompts = [json.dumps(body, sort_keys=True) for body in server.requests]
    assert len(set(prompts)) == len(prompts)  # what was asked before the cut is not asked again
    users = [body for body in server.requests if played(body)]
    first_bodies = [body for body in users if "It has not begun" in last(body)]
    assert len(first_bodies) == 2  # variants share it
    assert any("[[/" in last(body) and "Assistant: right 1" in last(body) for body in users)
    assert cli("compare", *options).code == 0
    assert len(server.requests) == len(prompts)
    cells, turns, questions = 4, 3, 3
    most = cells * turns * (1 + questions) + 2 + cells * turns  # the last move tells how it ended
    assert dry["expected"]["calls"]["high"] == most


def test_a_user_that_cannot_be_played_fails_its_conversation_alone(cli, files, server, model):
    def script(body, number):
        silent = played(body) and "silent" in body["messages"][0]["content"]
        return '{"state": "continues", "message": ""}' if silent else assistant(body, number)

    server.script = script
    write(files / "rows.jsonl", {"goal": "be silent"}, USER)
    outcome = cli("compare", *PROMPTS, "-m", model, "--user-model", model, *BY_TURN, "--json")
    payload = json.loads(outcome.out)
    assert payload["failed"] == 2
    assert "turn 1: the simulated user: " in cli("runs", "show", "last", "--failed").out
    assert [variant["scored"] for variant in payload["variants"]] == [1, 1]


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ([{"turns": ["a"]}, {"turns": "b"}], (), "rows.jsonl:2: is not a conversation"),
        ([{"turns": ["a", " "]}], (), "turn 2 is blank"),
        ([{"n": 1}], ("--each-turn", "probe"), "no row is a conversation"),
        ([{"n": 1}], ("--user-model", "local/qwen2.5-coder-1.5b"), "'goal' with --user-model"),
        ([{"turns": ["a"]}], ("--each-turn", "exact"), "there are: probe"),
        ([{"turns": ["a"]}], ("--system", "x"), "leave out --system"),
        ([{"turns": ["a"]}], ("-p", "chat.json"), "ends with a message of the user"),
        (
            [{"turns": ["a"], "l": ["b", "c"]}],
            ("--label", "l", "--each-turn", "probe"),
            "has 2 texts for 1 turns",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_asked(
    cli, files, server, model, rows, more, said
):
    (files / "chat.json").write_text('[{"role": "user", "content": "Hi {turns"}]')
    write(files / "rows.jsonl", *rows)
    outcome = cli("compare", *PROMPTS, "-m", model, "--judge", "probe", *more)
    assert outcome.code == 2, outcome.err
    assert said in " ".join(outcome.err.split())
    assert server.calls == 0


def test_figures_by_turn_are_those_of_the_turns_that_have_a_score():
    rng, outputs, seen = Random(1), [], []
    for row in range(40):
        scores = [rng.choice((None, 0.0, 0.4, 1.0)) for _ in range(rng.randint(1, 4))]
        seen.append(scores)
        grades = [Grade(score, score is not None and score > 0.5) for score in scores]
        turns = tuple(ConversationTurn("", "", {"j": grade}) for grade in grades)
        outputs.append(Output(row, str(row), "a", turns=turns, ending="gave up"))
    (summary,) = summarise(CompareSpec(data="x", outputs=("a",)), outputs).variants
    assert len(summary.turns) == 4
    for figures in summary.turns:
        place = figures.turn - 1
        known = [own[place] for own in seen if len(own) > place and own[place] is not None]
        assert figures.answers == len(known)
        assert figures.mean.value == pytest.approx(fmean(known))
        assert figures.pass_rate.value == pytest.approx(fmean(s > 0.5 for s in known))
    assert summary.endings == {"gave up": 40}


def test_a_conversation_has_no_score_where_a_turn_has_none():
    from textevolve.evaluation import Failure

    missing = [Grade(failure=Failure("failed", "a")), Grade(failure=Failure("skipped", "b"))]
    joined = join_grades([Grade(1.0, True), *missing])
    assert joined.failure == Failure("skipped", "turn 3: b")  # so that the run goes on
    assert join_grades([Grade(1.0, True), Grade(0.5, False, "no")]) == Grade(
        0.75, False, "turn 2: no"
    )


BOT = """
import json

def reply(messages, message, **row):
    assert message == messages[-1]["content"] and not {"turns", "goal"} & set(row), row
    if message == "This fails":
        raise ValueError("no such thing")
    asked = sum(one["role"] == "user" for one in messages)
    call = {"name": f"look{asked}", "arguments": {}}
    return {"answer": f"{row['shop']} {asked}", "contexts": ["a", message], "tool_calls": [call]}
"""


def test_a_target_has_the_messages_so_far_and_its_trajectories_are_joined(cli, files, server):
    (files / "bot.py").write_text(BOT)
    write(
        files / "rows.jsonl",
        {"turns": SCRIPT[:2], "shop": "ours", "calls": '["look1", "look2"]'},
        {"turns": ["Hi", "This fails"], "shop": "theirs"},
    )
    metrics = ("--metric", "regex:ours", "--metric", "no-error", "--each-turn", "regex:ours")
    targets = ("--target", "python:bot.reply", "-d", "rows.jsonl", "-o", "cells.jsonl")
    outcome = cli("compare", *targets, *metrics, "--json")
    assert outcome.code == 3, outcome.err
    good, bad = map(json.loads, (files / "cells.jsonl").read_text().splitlines())
    answer = "User: What is 1?\nAssistant: ours 1\nUser: And 2?\nAssistant: ours 2"
    assert (good["text"], good["score"]) == (answer, 1)
    assert good["contexts"] == ["a", "What is 1?", "And 2?"]
    assert [call["name"] for call in good["tool_calls"]] == ["look1", "look2"]
    assert good["scores"]["no-error"] == 1
    assert bad["status"] == "failed"
    assert bad["reason"].startswith("turn 2: ")
