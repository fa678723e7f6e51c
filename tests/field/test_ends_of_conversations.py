"""What a simulated user says while ending the conversation, and chats that were recorded, are
judged as they are.

The right dialogue is that of the messages that the scripted user and application wrote, in order.
(Toloka/tolokaforge#611, confident-ai/deepeval#1943, truera/trulens#2667)
"""

import json

import pytest
from asked import write_rows

MOVES = [("continues", "My login fails."), ("continues", "It is Ann."), ("reached", "Thanks, 77.")]


@pytest.mark.parametrize("last", ["Thanks, 77.", ""])
def test_last_words_are_judged(cli, home, server, last):
    moves = iter([*MOVES[:2], ("reached", last)])

    def script(body, _number):
        if body["model"] == "user":
            state, message = next(moves)
            return json.dumps({"state": state, "message": message})
        return "Done." if body["model"] == "app" else None

    server.script = script
    (home / "support.txt").write_text("You are support.")
    write_rows(home / "rows.jsonl", [{"goal": "Get a new password."}])
    command = ["compare", "-p", "support.txt", "-d", "rows.jsonl", "-m", f"{server.url}#app"]
    command += ["--user-model", f"{server.url}#user", "--judge", f"single@{server.url}#judge"]
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err

    models = [body["model"] for body in server.requests]
    assert models == ["user", "app", "user", "app", "user", "judge"]
    judged = server.requests[-1]["messages"][-1]["content"]
    dialogue = "User: My login fails.\nAssistant: Done.\nUser: It is Ann.\nAssistant: Done.\n"
    assert dialogue + (f"User: {last}\n" if last else "") + "[[/" in judged


def test_thoughts_of_users_are_not_sent(cli, home, server):
    """Also those that the user's model writes within its JSON."""
    thought = "<think>I ask for a refund.</think>"
    moves = iter([("continues", "May I?"), ("continues", "And now?"), ("reached", "Thanks.")])

    def script(body, _number):
        if body["model"] == "user":
            state, message = next(moves)
            return json.dumps({"state": state, "message": f"{thought}\n{message}"})
        return "Yes."

    server.script = script
    (home / "support.txt").write_text("You are support.")
    write_rows(home / "rows.jsonl", [{"goal": "Get a refund."}])
    command = ["compare", "-p", "support.txt", "-d", "rows.jsonl", "-m", f"{server.url}#app"]
    outcome = cli(*command, "--user-model", f"{server.url}#user", "--metric", "regex:.")
    assert outcome.code == 0, outcome.err
    assert "I ask for" not in str(server.requests)
    sent = [body["messages"][-1]["content"] for body in server.requests if body["model"] == "app"]
    assert sent == ["May I?", "And now?"]


def test_recorded_chats_need_no_input(cli, home, server, model):
    messages = [
        {"role": "user", "content": "Which planets have rings?"},
        {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "Are these gas giants?"},
        {"role": "assistant", "content": "Two are."},
    ]
    write_rows(home / "rows.jsonl", [{"id": "a", "messages": messages}])
    command = ["compare", "--outputs", "messages", "-d", "rows.jsonl", "-m", model]
    command += ["--judge", "probe", "--each-turn", "probe"]
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    last = [str(body) for body in server.requests if "Two are." in str(body)]
    assert last
    assert all("Which planets have rings?" in body and "Four." in body for body in last)
    assert "need an input" in cli(*command, "--judge", "single").err


def test_earlier_messages_of_a_row_are_named(cli, home, server, model):
    (home / "support.txt").write_text("You are support.")
    earlier = [{"role": "user", "content": "EARLIER"}, {"role": "assistant", "content": "Yes?"}]
    write_rows(home / "rows.jsonl", [{"turns": ["Hello."], "messages": earlier}])
    outcome = cli(
        "compare", "-p", "support.txt", "-d", "rows.jsonl", "-m", model, "--judge", "probe"
    )
    assert "EARLIER" not in str(server.requests)
    assert "nothing reads messages" in outcome.err
