"""Situations of people whose rows hold chats or objects: a prompt `{input}` sends the chat as
messages, a chat within a text is written turn by turn, and an object is refused.

The messages of each request were written down by hand.
"""

import json

import pytest

from field.asked import record, write_rows
from textevolve.studies.compare_rows import take_rows
from textevolve.studies.compare_spec import CompareSpec

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 and 2?"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "LEAK4"}]
TOOLS = [
    {"role": "user", "content": "Weather in Oslo?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "sky", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]
ANTHROPIC = [
    {"role": "user", "content": [{"type": "text", "text": "Weather in Oslo?"}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "sky", "input": {}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}],
    },
]


def ask(cli, home, model, rows, prompt="{input}", *more):
    write_rows(home / "rows.jsonl", rows)
    (home / "p.txt").write_text(prompt)
    return cli(
        *("compare", "-d", "rows.jsonl", "-p", "p.txt", "-m", model, "--metric", "regex:."), *more
    )


@pytest.mark.parametrize("placeholder", ["{input}", "{{ input }}\n"])
def test_chats_are_sent_as_messages(cli, home, model, server, placeholder):
    bodies = record(server)
    assert ask(cli, home, model, [{"input": CHAT}], placeholder).code == 0
    assert bodies[0]["messages"] == CHAT


def test_chats_in_tables_are_messages(cli, home, model, server):
    bodies = record(server)
    assert ask(cli, home, model, [{"input": json.dumps(CHAT)}]).code == 0
    assert bodies[0]["messages"] == CHAT


def test_chats_keep_their_system_message(cli, home, model, server):
    bodies = record(server)
    rows = [{"id": 1, "input": CHAT}, {"id": 2, "input": "3 and 3?"}]
    assert ask(cli, home, model, rows, "{input}", "--system", "Be kind.").code == 0
    sent = sorted(bodies, key=lambda body: body["messages"][0]["content"])
    assert sent[0]["messages"] == CHAT
    assert [message["content"] for message in sent[1]["messages"]] == ["Be kind.", "3 and 3?"]


def test_recorded_answers_are_not_sent(cli, home, model, server):
    bodies = record(server)
    outcome = ask(cli, home, model, [{"input": ANSWERED}])
    assert bodies[0]["messages"] == CHAT
    assert "1 of 1 chats end with an answer, which is not sent" in outcome.err


def test_judges_read_the_chat_as_sent(cli, home, model, server):
    bodies = record(server, lambda body: "Yes" if body.get("max_tokens") == 1 else "Four.")
    outcome = ask(cli, home, model, [{"input": ANSWERED}], "{input}", "--judge", "probe")
    requested_bodies = [body for body in bodies if body.get("max_tokens") == 1]
    assert requested_bodies, outcome.err
    text = json.dumps(requested_bodies)
    assert "LEAK4" not in text
    assert "User: 2 and 2?" in text


@pytest.mark.parametrize("chat", [TOOLS, ANTHROPIC])
def test_calls_and_results_stay_pairs(cli, home, model, server, chat):
    bodies = record(server)
    assert ask(cli, home, model, [{"input": chat}]).code == 0
    question, call, result = bodies[0]["messages"]
    assert question == {"role": "user", "content": "Weather in Oslo?"}
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "c1"
    assert (result["role"], result["content"]) == ("tool", "rain")


def test_chats_within_texts_are_written(cli, home, model, server):
    bodies = record(server)
    assert ask(cli, home, model, [{"input": ANSWERED}], "Sum up:\n{input}").code == 0
    (message,) = bodies[0]["messages"]
    assert message["content"] == "Sum up:\nSystem: Be brief.\nUser: 2 and 2?\nAssistant: LEAK4"


@pytest.mark.parametrize("value", [{"question": "2 and 2?"}, [{"question": "2 and 2?"}]])
def test_objects_are_refused(cli, home, model, server, value):
    outcome = ask(cli, home, model, [{"input": value}])
    assert (outcome.code, server.calls) == (2, 0)
    assert "rows.jsonl:1: 'input' must be text" in outcome.err


def test_calibrate_refuses_objects(cli, home, model, server):
    rows = [{"input": {"n": n}, "sum": str(2 * n)} for n in range(12)]
    write_rows(home / "rows.jsonl", rows)
    (home / "t.txt").write_text("Double: {input}")
    outcome = cli(
        *("calibrate", "t.txt", "-d", "rows.jsonl", "--label", "sum", "--metric", "exact"),
        *("-m", model, "--budget", "30"),
    )
    assert (outcome.code, server.calls) == (2, 0)
    assert "rows.jsonl:1: 'input' must be text" in outcome.err


def test_unread_objects_do_no_harm(cli, home, model, server):
    bodies = record(server)
    assert ask(cli, home, model, [{"input": "2 and 2?", "meta": {"n": 1}}]).code == 0
    assert bodies[0]["messages"][0]["content"] == "2 and 2?"


def test_pictures_elsewhere_are_told(cli, home, model, server):
    record(server)
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.gif"}}
    chat = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]
    for prompt in ("{input}", "Say: {input}"):
        outcome = ask(cli, home, model, [{"input": chat}], prompt)
        assert outcome.code == 0
        assert (
            "1 of 1 chats have parts that are no text, such as audio, files and images elsewhere"
            in outcome.err
        )


def test_lists_of_texts_stay_json(cli, home, model, server):
    bodies = record(server)
    rows = [{"input": "Which?", "choices": ["a", "b"]}]
    assert ask(cli, home, model, rows, "{input} {choices}").code == 0
    assert bodies[0]["messages"][0]["content"] == 'Which? ["a", "b"]'


def test_passages_are_joined_for_judges():
    rows = [{"q": "Why?", "said": "It is wet.", "docs": ["It rains.", "It is wet."]}]
    spec = CompareSpec(outputs=["said"], input="q", context="docs")
    (case,) = take_rows(spec, rows, {})
    assert case.context == "It rains.\n\nIt is wet."
