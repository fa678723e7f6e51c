"""Chats in the form of each wire, with a word in each part; and the commands that read chats."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laws.nothing_vanishes_world import (
    PICTURE,
    PICTURE_URL,
    Evidence,
    Place,
    Situation,
    World,
    run_command,
    word,
)

Message = Mapping[str, Any]
THOUGHTS = ("thought", "thinking", "reasoning")
AFTER = ("after the last reply", "ends with", "left out", "unread", "not read")


@dataclass(frozen=True)
class Chat:
    """Messages, and the places of their parts."""

    messages: Sequence[Message]
    places: Mapping[str, Place]


def name_places(*names: str) -> dict[str, Place]:
    """Return the places that hold the words of their own names."""
    return {name: Place(word(name)) for name in names}


def say(role: str, content: object, **fields: Any) -> Message:
    """Return a message as OpenAI's chats have it."""
    return {"role": role, "content": content, **fields}


def call(number: int, id: str | None = "call_1") -> Message:
    """Return a tool call as OpenAI's chats have it, with words in its name and its arguments."""
    arguments = json.dumps({"q": word(f"arguments {number}")})
    entry = {
        "type": "function",
        "function": {"name": word(f"tool {number}"), "arguments": arguments},
    }
    return entry if id is None else {"id": id, **entry}


def ask_twice(id: str | None) -> list[Message]:
    """Return two tool calls of one id with their results."""
    return [
        say("user", word("question")),
        say("assistant", word("remark"), tool_calls=[call(1, id)]),
        say("tool", word("result 1"), **({"tool_call_id": id} if id else {})),
        say("assistant", None, tool_calls=[call(2, id)]),
        say("tool", word("result 2"), **({"tool_call_id": id} if id else {})),
        say("assistant", word("reply")),
    ]


def attach(part: Message) -> list[Message]:
    """Return a chat whose question has a further part."""
    content = [{"type": "text", "text": word("question")}, part]
    return [say("user", content), say("assistant", word("reply"))]


def reply_with(**fields: Any) -> list[Message]:
    """Return a chat whose reply has further fields."""
    return [say("user", word("question")), say("assistant", word("reply"), **fields)]


EXCHANGE = ("question", "reply")
TWO_CALLS = (
    *("question", "remark", "tool 1", "arguments 1", "result 1"),
    *("tool 2", "arguments 2", "result 2", "reply"),
)
ONE_CALL = ("question", "tool 1", "arguments 1", "result 1", "reply")
ARGUMENTS = {"q": word("arguments 1")}

CHATS: Mapping[str, Chat] = {
    "OpenAI": Chat(
        [
            say("system", word("system")),
            say(
                "user",
                [
                    {"type": "text", "text": word("first text")},
                    {"type": "text", "text": word("second text")},
                ],
            ),
            *ask_twice("call_1"),
        ],
        name_places("system", "first text", "second text", *TWO_CALLS),
    ),
    "OpenAI without ids of calls": Chat(ask_twice(None), name_places(*TWO_CALLS)),
    "OpenAI with function_call": Chat(
        [
            say("user", word("question")),
            say("assistant", None, function_call=call(1)["function"]),
            say("function", word("result 1"), name=word("tool 1")),
            say("assistant", word("reply")),
        ],
        name_places(*ONE_CALL),
    ),
    "OpenAI with two speakers": Chat(
        [
            say("user", word("question"), name=word("speaker 1")),
            say("user", word("second question"), name=word("speaker 2")),
            say("assistant", word("reply")),
        ],
        name_places("question", "second question", "speaker 1", "speaker 2", "reply"),
    ),
    "OpenAI with a picture": Chat(
        attach({"type": "image_url", "image_url": {"url": PICTURE_URL}}),
        {**name_places(*EXCHANGE), "picture": Place(PICTURE, ("image", "picture", "no text"))},
    ),
    "OpenAI with audio": Chat(
        attach({"type": "input_audio", "input_audio": {"data": word("data"), "format": "wav"}}),
        {**name_places(*EXCHANGE), "audio": Place(word("data"), ("audio", "no text"))},
    ),
    "OpenAI with a file": Chat(
        attach({"type": "file", "file": {"filename": "a.pdf", "file_data": word("data")}}),
        {
            **name_places(*EXCHANGE),
            "file": Place(word("data"), ("'file'", "(file", "file part", "no text")),
        },
    ),
    "OpenAI with a refusal": Chat(
        [
            say("user", word("question")),
            say("assistant", None, refusal=word("refusal")),
            say("user", word("second question")),
            say("assistant", word("reply")),
        ],
        name_places("question", "refusal", "second question", "reply"),
    ),
    "OpenAI with reasoning_content": Chat(
        reply_with(reasoning_content=word("reasoning")),
        {**name_places(*EXCHANGE), "reasoning": Place(word("reasoning"), THOUGHTS)},
    ),
    "OpenAI that ends with the user": Chat(
        [*reply_with(), say("user", word("thanks"))],
        {"reply": Place(word("reply")), "last turn": Place(word("thanks"), AFTER)},
    ),
    "OpenAI that ends with a tool": Chat(
        [
            *ask_twice("call_1"),
            say("assistant", None, tool_calls=[call(3, "call_3")]),
            say("tool", word("end"), tool_call_id="call_3"),
        ],
        {"reply": Place(word("reply")), "last turn": Place(word("end"), AFTER)},
    ),
    "ShareGPT": Chat(
        [
            {"from": "system", "value": word("system")},
            {"from": "human", "value": word("question")},
            {"from": "function_call", "value": word("call")},
            {"from": "observation", "value": word("result 1")},
            {"from": "gpt", "value": word("reply")},
        ],
        name_places("system", "question", "call", "result 1", "reply"),
    ),
    "Responses": Chat(
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": word("question")}],
            },
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": word("tool 1"),
                "arguments": json.dumps(ARGUMENTS),
            },
            {"type": "function_call_output", "call_id": "call_1", "output": word("result 1")},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": word("reply")}],
            },
        ],
        name_places(*ONE_CALL),
    ),
    "Anthropic": Chat(
        [
            say("user", [{"type": "text", "text": word("question")}]),
            say(
                "assistant",
                [{"type": "tool_use", "id": "t1", "name": word("tool 1"), "input": ARGUMENTS}],
            ),
            say(
                "user",
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": word("result 1")}],
                    }
                ],
            ),
            say("assistant", [{"type": "text", "text": word("reply")}]),
        ],
        name_places(*ONE_CALL),
    ),
    "Anthropic with a picture": Chat(
        attach(
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/gif", "data": PICTURE},
            }
        ),
        {**name_places(*EXCHANGE), "picture": Place(PICTURE, ("image", "picture", "no text"))},
    ),
    "Anthropic with thinking": Chat(
        [
            say("user", word("question")),
            say(
                "assistant",
                [
                    {"type": "thinking", "thinking": word("thinking"), "signature": "s"},
                    {"type": "text", "text": word("reply")},
                ],
            ),
        ],
        {**name_places(*EXCHANGE), "thinking": Place(word("thinking"), THOUGHTS)},
    ),
    "Gemini": Chat(
        [
            {"role": "user", "parts": [{"text": word("question")}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"name": word("tool 1"), "args": ARGUMENTS}}],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "name": word("tool 1"),
                            "response": {"r": word("result 1")},
                        }
                    }
                ],
            },
            {"role": "model", "parts": [{"text": word("reply")}]},
        ],
        name_places(*ONE_CALL),
    ),
    "LangChain": Chat(
        [
            {"type": "human", "content": word("question")},
            {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": word("tool 1"), "args": ARGUMENTS, "id": "call_1"}],
            },
            {"type": "tool", "content": word("result 1"), "tool_call_id": "call_1"},
            {"type": "ai", "content": word("reply")},
        ],
        name_places(*ONE_CALL),
    ),
    "LangChain with a call that it could not parse": Chat(
        [
            {"type": "human", "content": word("question")},
            {
                "type": "ai",
                "content": word("remark"),
                "tool_calls": [{"name": word("tool 1"), "args": ARGUMENTS, "id": "call_1"}],
                "invalid_tool_calls": [
                    {
                        "type": "invalid_tool_call",
                        "name": word("tool 2"),
                        "args": f'{{"q": "{word("arguments 2")}',
                        "id": "call_2",
                        "error": "the arguments are not valid JSON",
                    }
                ],
            },
            {"type": "tool", "content": word("result 1"), "tool_call_id": "call_1"},
            {"type": "tool", "content": word("result 2"), "tool_call_id": "call_2"},
            {"type": "ai", "content": word("reply")},
        ],
        name_places(*TWO_CALLS),
    ),
    # A streamed part of the content has no arguments; the call beside it is whole.
    "LangChain that streamed": Chat(
        [
            {"type": "human", "content": word("question")},
            {
                "type": "ai",
                "content": [
                    {"type": "tool_use", "id": "call_1", "name": word("tool 1"), "input": {}}
                ],
                "tool_calls": [{"name": word("tool 1"), "args": ARGUMENTS, "id": "call_1"}],
            },
            {"type": "tool", "content": word("result 1"), "tool_call_id": "call_1"},
            {"type": "ai", "content": word("reply")},
        ],
        name_places(*ONE_CALL),
    ),
    "LlamaIndex": Chat(
        [
            {"role": "user", "blocks": [{"block_type": "text", "text": word("question")}]},
            {
                "role": "assistant",
                "blocks": [
                    {
                        "block_type": "tool_call",
                        "tool_call_id": "call_1",
                        "tool_name": word("tool 1"),
                        "tool_kwargs": ARGUMENTS,
                    }
                ],
            },
            {
                "role": "tool",
                "additional_kwargs": {"tool_call_id": "call_1"},
                "blocks": [{"block_type": "text", "text": word("result 1")}],
            },
            {"role": "assistant", "blocks": [{"block_type": "text", "text": word("reply")}]},
        ],
        name_places(*ONE_CALL),
    ),
    # Vercel's SDK keeps a call with its result in one part, whose type has the tool's name.
    "Vercel": Chat(
        [
            {"role": "user", "parts": [{"type": "text", "text": word("question")}]},
            {
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    {
                        "type": f"tool-{word('tool 1')}",
                        "toolCallId": "call_1",
                        "state": "output-available",
                        "input": ARGUMENTS,
                        "output": {"answer": word("result 1")},
                    },
                    {
                        "type": "dynamic-tool",
                        "toolName": word("tool 2"),
                        "toolCallId": "call_2",
                        "state": "output-error",
                        "rawInput": f'{{"q": "{word("arguments 2")}',
                        "errorText": word("result 2"),
                    },
                    {"type": "text", "text": word("reply")},
                ],
            },
        ],
        name_places(*(name for name in TWO_CALLS if name != "remark")),
    ),
}
"""A chat of each wire. The reply of the assistant that stands last is what is judged."""


def judge_chat(
    judge: str, *options: str
) -> Callable[[Sequence[Message]], Callable[[World], Evidence]]:
    """Return what judges a chat that stands in a row."""

    def build(messages: Sequence[Message]) -> Callable[[World], Evidence]:
        files = {"chats.jsonl": [{"id": "chat", "messages": messages}]}
        command = ("evaluate", "chats.jsonl", "--judge", judge, "-m", "MODEL")
        return run_command(files, *command, *options)

    return build


def judge_labelled_chat(messages: Sequence[Message]) -> Callable[[World], Evidence]:
    """Return what compares a judge with people on a chat that they labelled."""
    rows = [{"id": f"c{n}", "messages": messages, "label": ("pass", "fail")[n]} for n in range(2)]
    command = ("bench", "agreement", "chats.jsonl", "--judge", "probe", "-m", "MODEL")
    return run_command({"chats.jsonl": rows}, *command)


def fill_in_chat(messages: Sequence[Message]) -> Callable[[World], Evidence]:
    """Return what fills a chat into a prompt of a comparison."""
    files = {"p.txt": "Go on: {talk}\n", "rows.jsonl": [{"id": "r1", "talk": messages, "sum": "1"}]}
    return run_command(
        files,
        *("compare", "-p", "p.txt", "-d", "rows.jsonl", "--label", "sum", "--metric", "exact"),
        *("-m", "MODEL"),
    )


def judge_span(messages: Sequence[Message]) -> Callable[[World], Evidence]:
    """Return what judges a recorded model call whose messages are those of a chat."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(messages[:-1]),
        "gen_ai.output.messages": json.dumps(messages[-1:]),
    }
    return judge_attributes(attributes)


def judge_attributes(
    attributes: Mapping[str, Any], *options: str, events: Sequence[Mapping[str, Any]] = ()
) -> Callable[[World], Evidence]:
    """Return what judges a recorded span with these attributes and events."""
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat m",
        "kind": 3,
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2000000001",
        "attributes": list_attributes(attributes),
        "events": events,
    }
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    command = ("nodes", "evaluate", "spans.json", "--judge", "probe", "-m", "MODEL")
    return run_command({"spans.json": json.dumps(document)}, *command, *options)


def list_attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in the form of OpenTelemetry's JSON."""
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


READERS: Mapping[str, Callable[[Sequence[Message]], Callable[[World], Evidence]]] = {
    "evaluate by probe": judge_chat("probe"),
    "evaluate by trajectory": judge_chat("trajectory"),
    "bench agreement": judge_labelled_chat,
    "compare in a prompt": fill_in_chat,
    "nodes evaluate": judge_span,
}
"""The commands that read chats, each by what runs it on one."""
FEW = (
    *("OpenAI", "OpenAI with function_call", "OpenAI with two speakers", "OpenAI with a picture"),
    *("OpenAI that ends with the user", "ShareGPT", "Anthropic", "Gemini", "LangChain"),
    "LangChain with a call that it could not parse",
)
"""The chats that are tried where a reader is shared with `evaluate`, or reads any JSON."""
TRIED: Mapping[str, Sequence[str]] = {
    "evaluate by trajectory": FEW,
    "bench agreement": FEW,
    "compare in a prompt": FEW,
    "nodes evaluate": [
        name for name in CHATS if name not in ("ShareGPT", "Responses") and "ends" not in name
    ],
}
"""The chats that a command is tried on, if not all. A span ends with a model's answer, and holds no
chats of these two forms."""


def list_chats() -> dict[str, Situation]:
    """Return each command that reads chats with the chats that it is tried on."""
    situations = {}
    for reader, build in READERS.items():
        for name in TRIED.get(reader, CHATS):
            chat = CHATS[name]
            # A row that is refused as a whole is named by its file and line.
            places = {
                part: place.also_named("chats.jsonl:1") for part, place in chat.places.items()
            }
            situations[f"{reader} / {name}"] = Situation(build(chat.messages), places)
    return situations


TRAJECTORY = {
    "schema_version": "ATIF-v1.8",
    "session_id": "chat",
    "agent": {"name": word("agent"), "version": "1"},
    "notes": word("notes"),
    "steps": [
        {"step_id": 1, "source": "system", "message": word("system")},
        {"step_id": 2, "source": "user", "message": word("question")},
        {
            "step_id": 3,
            "source": "agent",
            "message": word("remark"),
            "reasoning_content": word("thought"),
            "tool_calls": [
                {"tool_call_id": "a", "function_name": word("tool 1"), "arguments": ARGUMENTS}
            ],
            "observation": {
                "results": [
                    {"source_call_id": "a", "content": word("result 1")},
                    {"content": word("event")},
                ]
            },
        },
        {"step_id": 4, "source": "agent", "message": word("reply")},
    ],
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.8",
            "trajectory_id": "inner",
            "agent": {"name": "inner", "version": "1"},
            "steps": [{"step_id": 1, "source": "agent", "message": word("errand")}],
        }
    ],
}
"""A trajectory of a harness, with a word in each part."""


def list_trajectories() -> dict[str, Situation]:
    """Return each command that reads trajectories."""
    parts = ("system", "question", "remark", *ONE_CALL[1:], "event")
    places = {**name_places(*parts), "thought": Place(word("thought"), THOUGHTS)}
    of_chats = {
        "errand": Place(word("errand"), ("sub-agent",)),
        "notes": Place(word("notes"), ("notes",)),
        "agent": Place(word("agent"), ("agent",)),
    }
    files = {"t.json": json.dumps(TRAJECTORY)}
    commands = {("evaluate", "trajectory"): of_chats, ("nodes evaluate", "probe"): {}}
    return {
        name: Situation(
            run_command(files, *name.split(), "t.json", "--judge", judge, "-m", "MODEL"),
            {**places, **more},
        )
        for (name, judge), more in commands.items()
    }


CALLED = ("OpenAI", "OpenAI without ids of calls", "OpenAI with function_call", "Anthropic")
CALLED += ("Gemini", "LangChain", "Responses", "LlamaIndex", "Vercel")
CALLED += ("LangChain with a call that it could not parse",)
"""The chats with tool calls."""


def list_calls() -> dict[str, tuple[str, Callable[[World], Evidence]]]:
    """Return for each tool call of a chat its tool, and what counts the call by a metric."""
    calls = {}
    for name in CALLED:
        for part, place in CHATS[name].places.items():
            if part.startswith("tool "):
                judge = f"metric:tool-called:{place.word}=1"
                run = judge_chat(judge, "--json")(CHATS[name].messages)
                calls[f"metric:tool-called / {name} / {part}"] = (place.word, run)
    return calls
