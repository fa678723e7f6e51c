"""Situations of people whose instrumentors have attributes of their own: Langfuse's observations,
agents of older Semantic Kernel, tool calls of Vercel's SDK, results that are no text, binary files.

Each right value was worked out by reading the recording, as a person would.
"""

import json

import pytest

from textevolve.errors import InputError
from textevolve.node_eval.history import Instruction
from textevolve.node_eval.judging import read_run
from textevolve.node_eval.traces import read_episodes


@pytest.fixture
def history(tmp_path):
    def read(attributes):
        span = {
            "traceId": "0af7651916cd43dd8448eb211c80319c",
            "spanId": "00f067aa0ba902b7",
            "name": "step",
            "startTimeUnixNano": "1000000000",
            "endTimeUnixNano": "2000000000",
            "attributes": [{"key": key, "value": value} for key, value in attributes.items()],
        }
        path = tmp_path / "spans.json"
        path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
        (episode,) = read_episodes(path)
        return episode.history

    return read


def text(value):
    return {"stringValue": value if isinstance(value, str) else json.dumps(value)}


def test_observation_of_langfuse(history):
    fields = {
        "langfuse.observation.type": text("generation"),
        "langfuse.observation.input": text([{"role": "user", "content": "Weather?"}]),
        "langfuse.observation.output": text({"role": "assistant", "content": "Rain."}),
    }
    (item,) = history(fields).items

    assert item.instruction is Instruction.GENERATE
    assert item.input_state["text"] == "Weather?"
    assert item.output_state["text"] == "Rain."
    assert item.attributes == {}


def test_agent_of_older_semantic_kernel(history):
    fields = {
        "gen_ai.operation.name": text("invoke_agent"),
        "gen_ai.agent.invocation_input": text([{"role": "user", "content": "Book a table."}]),
        "gen_ai.agent.invocation_output": text([{"role": "Assistant", "content": "Booked."}]),
    }
    (item,) = history(fields).items

    assert item.input_state["text"] == "Book a table."
    assert item.output_state["text"] == "Booked."


@pytest.mark.parametrize("name", ["input", "args"])
def test_calls_of_vercel(history, name):
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", name: {"city": "Oslo"}}
    fields = {
        "ai.prompt.messages": text([{"role": "user", "content": "Weather?"}]),
        "ai.response.text": text("I look it up."),
        "ai.response.toolCalls": text([call]),
    }
    run = history(fields)
    (item,) = run.items
    (use,) = read_run(run).tool_calls

    assert use.arguments == {"city": "Oslo"}
    assert item.output_state["text"].startswith("I look it up.")


def test_result_false(history):
    fields = {
        "gen_ai.operation.name": text("execute_tool"),
        "gen_ai.tool.call.result": {"boolValue": False},
    }
    (item,) = history(fields).items

    assert item.output_state == {"text": "false", "value": False}


def test_binary_file(tmp_path):
    path = tmp_path / "spans.json"
    path.write_bytes(b"\0\0\1\7\x0a\xd8\x03\x0a")

    with pytest.raises(InputError, match="format: json without compression"):
        list(read_episodes(path))
