"""A user judges the recorded steps of an agent whose model thinks before it answers, or that sends
pictures: neither a thought nor the bytes of a picture are a part of the answer.

Each right value was worked out by reading the recording, as a person would.
"""

import json

import pytest

from textevolve.llm.testing import Answer
from textevolve.messages import drop_thoughts
from textevolve.node_eval.span_states import read_messages

THOUGHT = "Perhaps three or four."
ANSWER = "The fee is 4."
TEXT = {"type": "text", "text": ANSWER}

THOUGHTS = {
    "a part of OpenTelemetry": [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": THOUGHT},
                {"type": "text", "content": ANSWER},
            ],
        }
    ],
    "a block of Anthropic": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": THOUGHT, "signature": "abc"}, TEXT],
    },
    "a hidden block": {"role": "assistant", "content": [{"type": "redacted_thinking"}, TEXT]},
    "a part of OpenInference": [
        {
            "message": {
                "role": "assistant",
                "contents": [
                    {"message_content": {"type": "reasoning", "text": THOUGHT}},
                    {"message_content": TEXT},
                ],
            }
        }
    ],
    "an item of Responses": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": ANSWER}],
            },
        ]
    },
    "a part of Gemini": {
        "role": "model",
        "parts": [{"text": THOUGHT, "thought": True}, {"text": ANSWER}],
    },
    "a block of Bedrock": {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": THOUGHT}}},
            {"text": ANSWER},
        ],
    },
    "a field": {"choices": [{"message": {"reasoning_content": THOUGHT, "content": ANSWER}}]},
    "tags": [{"role": "assistant", "content": f"<think>{THOUGHT}</think>{ANSWER}"}],
    "a closing tag alone": f"{THOUGHT}\n</think>\n\n{ANSWER}",
    "brackets": f"[THINK]{THOUGHT}[/THINK]{ANSWER}",
    "tags of Seed": f"<seed:think>{THOUGHT}</seed:think>{ANSWER}",
    "tags of Kimi": f"◁think▷{THOUGHT}◁/think▷{ANSWER}",
    "tags of Sky": f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|>{ANSWER}",
    "tags of Command": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|>{ANSWER}",
    "tags with a time": f'<think time="3">{THOUGHT}</think>{ANSWER}',
    "two thoughts": f"<think>{THOUGHT}</think>\n<think>{THOUGHT}</think>{ANSWER}",
    "a mark before it": f"\ufeff<think>{THOUGHT}</think>{ANSWER}",
    "a part of PydanticAI": {
        "kind": "response",
        "parts": [
            {"part_kind": "thinking", "content": THOUGHT},
            {"part_kind": "text", "content": ANSWER},
        ],
    },
    "a block of LlamaIndex": {
        "role": "assistant",
        "blocks": [
            {"block_type": "thinking", "content": THOUGHT},
            {"block_type": "text", "text": ANSWER},
        ],
    },
    "an event of ADK": {
        "content": {
            "role": "model",
            "parts": [{"text": THOUGHT, "thought": True}, {"text": ANSWER}],
        }
    },
}


@pytest.mark.parametrize("form", THOUGHTS)
def test_traced_thought_is_no_answer(form):
    recorded = THOUGHTS[form]
    value = recorded if isinstance(recorded, str) else json.dumps(recorded)
    messages = read_messages(value, "assistant")
    assert [message.content for message in messages if message.content] == [ANSWER]


def test_steps_drop_nested_thoughts():
    details = [{"type": "reasoning.text", "text": THOUGHT}]
    message = {"role": "assistant", "content": ANSWER, "reasoning_details": details}
    bedrock = [{"reasoningContent": {"reasoningText": {"text": THOUGHT}}}, {"text": ANSWER}]
    for state in ({"choices": [{"message": message}]}, {"content": bedrock}):
        left = json.dumps(drop_thoughts(state))
        assert ANSWER in left
        assert THOUGHT not in left


def test_user_may_quote_tags():
    quoted = f"<think>{THOUGHT}</think> What are these tags?"
    (message,) = read_messages([{"role": "user", "content": quoted}], "user")
    assert message.content == quoted


STATES = {
    "a text": {"text": f"<think>{THOUGHT}</think>{ANSWER}"},
    "another field": {"answer": f"<think>{THOUGHT}</think>{ANSWER}"},
    "a bare text": f"<think>{THOUGHT}</think>{ANSWER}",
    "streamed pieces": ["<think>", THOUGHT, "</think>", ANSWER],
    "messages of a graph": {
        "messages": [
            {
                "type": "ai",
                "content": [{"type": "thinking", "thinking": THOUGHT}, TEXT],
                "additional_kwargs": {"reasoning_content": THOUGHT},
            }
        ]
    },
}


@pytest.mark.parametrize("state", STATES)
def test_judge_sees_no_thought(cli, home, server, model, state):
    server.script = lambda _body, _number: Answer(yes=0.75)
    step = {"node": "chat", "input": {"text": "Which fee?"}, "output": STATES[state]}
    (home / "steps.jsonl").write_text(json.dumps(step) + "\n")
    outcome = cli("nodes", "evaluate", "steps.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 0, outcome.err
    prompts = json.dumps(list(server.requests))
    assert ANSWER in prompts
    assert THOUGHT not in prompts


def test_structured_reasoning_is_an_answer():
    """An answer to a schema may have a field `reasoning`, which is no thought of a message."""
    state = {"reasoning": "It rains.", "score": 4}
    assert drop_thoughts(state) == state


BYTES = "QkFTRTY0" * 9
MEDIA = {
    "Gemini": {
        "role": "model",
        "parts": [{"inline_data": {"mime_type": "image/png", "data": BYTES}}, {"text": "Here."}],
    },
    "Bedrock": {
        "role": "assistant",
        "content": [
            {"image": {"format": "png", "source": {"bytes": BYTES}}},
            {"text": "Here."},
        ],
    },
    "Anthropic": {
        "role": "assistant",
        "content": [
            {"type": "image", "source": {"type": "base64", "data": BYTES}},
            {"type": "text", "text": "Here."},
        ],
    },
}


@pytest.mark.parametrize("form", MEDIA)
def test_bytes_are_no_text(form):
    (message,) = read_messages(MEDIA[form], "assistant")
    assert message.content == "<image>\nHere."
