"""Situations of people who judge recorded chats: call ids that occur twice, calls and results in
the forms of other APIs, chats that end with the user or a tool, thoughts beside a reply.

Each right value was worked out by reading the chat, as a person would.
"""

import json

import pytest

from textevolve.messages import RecordedCall, pair_results, read_message, result_text, split_thought

USER = {"role": "user", "content": "Weather in Oslo, then in Rome?"}
REPLY = {"role": "assistant", "content": "Oslo: rain. Rome: sun."}


def openai_call(city, id="c1"):
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def openai_result(content, id="c1"):
    return {"role": "tool", "tool_call_id": id, "content": content}


ONE_ID = [
    USER,
    openai_call("Oslo"),
    openai_result("rain"),
    openai_call("Rome"),
    openai_result("sun"),
]
NO_IDS = [
    USER,
    openai_call("Oslo", None),
    openai_result("rain", None),
    openai_call("Rome", None),
    openai_result("sun", None),
]
OLD_FORM = [
    USER,
    {"role": "assistant", "function_call": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
    {"role": "function", "name": "weather", "content": "rain"},
    {"role": "assistant", "function_call": {"name": "weather", "arguments": '{"city": "Rome"}'}},
    {"role": "function", "name": "weather", "content": "sun"},
]
ANTHROPIC = [
    USER,
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "t2", "name": "weather", "input": {"city": "Rome"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t2", "content": "sun"},
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [{"type": "text", "text": "rain"}],
            },
        ],
    },
]
RESPONSES = [
    USER,
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Two cities."}]},
    {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city": "Oslo"}'},
    {"type": "function_call", "call_id": "b", "name": "weather", "arguments": '{"city": "Rome"}'},
    {"type": "function_call_output", "call_id": "b", "output": "sun"},
    {"type": "function_call_output", "call_id": "a", "output": "rain"},
]
GEMINI = [
    {"role": "user", "parts": [{"text": USER["content"]}]},
    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": "rain"}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Rome"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": "sun"}}]},
]
LANGCHAIN = [
    {"type": "human", "data": {"content": USER["content"]}},
    {
        "type": "ai",
        "data": {
            "content": "",
            "tool_calls": [
                {"name": "weather", "args": {"city": "Oslo"}, "id": "1"},
                {"name": "weather", "args": {"city": "Rome"}, "id": "2"},
            ],
        },
    },
    {"type": "tool", "data": {"content": "rain", "tool_call_id": "1"}},
    {"type": "tool", "data": {"content": "sun", "tool_call_id": "2"}},
]
FORMS = {
    "an id that occurs twice": ONE_ID,
    "calls without ids": NO_IDS,
    "function_call": OLD_FORM,
    "Anthropic": ANTHROPIC,
    "Responses": RESPONSES,
    "Gemini": GEMINI,
    "LangChain": LANGCHAIN,
}


@pytest.mark.parametrize("form", FORMS)
def test_each_call_has_its_result(form):
    pairs = pair_results(map(read_message, FORMS[form]))
    cities = [city_of(call) for call, _ in pairs]
    results = [None if result is None else result_text(result) for _, result in pairs]
    assert cities == ["Oslo", "Rome"]
    assert results == ["rain", "sun"]


def city_of(call: RecordedCall):
    arguments = call.arguments
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return arguments["city"]


def test_calls_are_counted(cli, home):
    rows = [{"id": form, "messages": [*FORMS[form], REPLY]} for form in FORMS]
    (home / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = cli("evaluate", "chat.jsonl", "--judge", "metric:tool-called:weather=2", "--json")
    assert outcome.code == 0, outcome.err
    scores = {row["id"]: row["candidates"][0]["score"] for row in outcome.rows}
    assert scores == dict.fromkeys(FORMS, 1.0)


def test_a_table_has_empty_fields():
    """Parquet gives each message every field that any of them has."""
    empty = dict.fromkeys(("tool_call_id", "tool_calls", "function_call", "name", "refusal"))
    message = read_message({**empty, **REPLY})
    assert (message.role, message.text, message.results) == ("assistant", REPLY["content"], ())


def test_a_result_is_no_word_of_the_user(cli, home, server, model):
    row = {"messages": [*ANTHROPIC, REPLY]}
    (home / "chat.jsonl").write_text(json.dumps(row) + "\n")
    assert cli("evaluate", "chat.jsonl", "--judge", "probe", "-m", model).code == 0
    prompt = json.dumps(list(server.requests))
    assert "Tool: rain" in prompt
    assert "User: rain" not in prompt


ENDINGS = {
    "the user": {"role": "user", "content": "Thanks, bye. ###STOP###"},
    "a tool": openai_result("saved", "c9"),
    "a call without a word": openai_call("Paris", "c9"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_last_reply_is_judged(cli, home, ending):
    row = {"messages": [USER, REPLY, ENDINGS[ending]]}
    (home / "chat.jsonl").write_text(json.dumps(row) + "\n")
    outcome = cli("evaluate", "chat.jsonl", "--judge", "look:length", "--json")
    assert [text["text"] for text in outcome.rows[0]["candidates"]] == [REPLY["content"]]
    assert "left out in 1 of the chats" in outcome.err


THOUGHTS = {
    "a pair": "<think>\nA long road.\n</think>\n\nYes.",
    "an empty pair": "<think></think>Yes.",
    "a closing tag alone": "A long road.\n</think>\n\nYes.",
    "brackets": "[THINK]A long road.[/THINK]Yes.",
    "channels": "<|channel|>analysis<|message|>A long road.<|end|><|start|>assistant"
    "<|channel|>final<|message|>Yes.",
}


@pytest.mark.parametrize("form", THOUGHTS)
def test_a_thought_is_no_answer(form):
    assert split_thought(THOUGHTS[form])[1] == "Yes."


@pytest.mark.parametrize(
    "text",
    [
        "End the thought with </think> and go on.",
        "Write <think>, then your thoughts.\n</think>\nends them.",
        "Yes.",
    ],
)
def test_a_quoted_tag_stays(text):
    assert split_thought(text) == ("", text)


def test_arguments_encoded_twice():
    """Some programs write the arguments of a call, which are JSON in a text, as JSON once more."""
    call = openai_call("Oslo")
    function = call["tool_calls"][0]["function"]
    twice = {**function, "arguments": json.dumps(function["arguments"])}
    expected = read_message(call).calls
    assert read_message({**call, "tool_calls": [{"id": "c1", "function": twice}]}).calls == expected
