"""Situations of people who judge the tool calls of recorded runs: a call that stands in the
messages of the tool's span, and one call that a framework and its client have both recorded.

Each right value was worked out by counting the calls, as a person would.
"""

import json

import pytest

from textevolve.node_eval.judging import read_run
from textevolve.node_eval.traces import read_episodes

TRACE = "0af7651916cd43dd8448eb211c80319c"
OUTER = "00f067aa0ba902b7"
INNER = "b7ad6b7169203331"
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
OSLO = {"gen_ai.tool.call.arguments": '{"city": "Oslo"}'}
ROME = {"gen_ai.tool.call.arguments": '{"city": "Rome"}'}


def span(span_id, attributes, parent="", events=()):
    return {
        "traceId": TRACE,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": "execute_tool weather",
        "startTimeUnixNano": "1000000000",
        "endTimeUnixNano": "2000000000",
        "attributes": encode(attributes),
        "events": [{"name": name, "attributes": encode(fields)} for name, fields in events],
    }


def encode(attributes):
    return [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]


@pytest.fixture
def calls(tmp_path):
    def read(*spans):
        path = tmp_path / "spans.json"
        path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
        (episode,) = read_episodes(path)
        return [(call.name, call.arguments) for call in read_run(episode.history).tool_calls]

    return read


@pytest.mark.parametrize("in_event", [True, False])
def test_call_in_messages(calls, in_event):
    part = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
    result = {"type": "tool_call_response", "id": "c1", "response": "rain"}
    fields = {
        "gen_ai.input.messages": json.dumps([{"role": "tool", "parts": [part]}]),
        "gen_ai.output.messages": json.dumps([{"role": "tool", "parts": [result]}]),
    }
    event = ("gen_ai.client.inference.operation.details", fields)
    tool = span(OUTER, TOOL, events=[event]) if in_event else span(OUTER, TOOL | fields)

    assert calls(tool) == [("weather", {"city": "Oslo"})]


@pytest.mark.parametrize("inner", [OSLO, {}])
def test_call_of_two_libraries(calls, inner):
    spans = [span(OUTER, TOOL | OSLO), span(INNER, TOOL | inner, OUTER)]

    assert calls(*spans) == [("weather", {"city": "Oslo"})]


def test_call_within_another(calls):
    spans = [span(OUTER, TOOL | OSLO), span(INNER, TOOL | ROME, OUTER)]

    assert len(calls(*spans)) == 2
