"""Situations of people whose agents make calls that fail: arguments that LangChain could not parse,
tools behind MCP whose result is marked as an error, and tools of Google's ADK, whose spans hold
arguments and results under names of their own.

Each right value was worked out by reading the chat or the span, as a person would.
"""

import json

import pytest

from textevolve.messages import pair_results, read_message, result_text
from textevolve.node_eval.traces import read_episodes

USER = {"role": "user", "content": "Delete the pod web-0."}
REPLY = {"role": "assistant", "content": "I may not."}
BROKEN = '{"path": "a.txt", "text": "Os'
ARGUMENTS = {"name": "web-0"}


def mcp_result(is_error=True):
    """Return what MCP gives for a call."""
    return {"content": [{"type": "text", "text": "pods is forbidden"}], "isError": is_error}


def test_calls_that_langchain_could_not_parse():
    messages = [
        {
            "type": "ai",
            "content": "",
            "tool_calls": [{"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}],
            "invalid_tool_calls": [{"name": "write", "args": BROKEN, "id": "c2", "error": "?"}],
        },
        {"type": "tool", "content": "broken", "tool_call_id": "c2", "status": "error"},
        {"type": "tool", "content": "12", "tool_call_id": "c1", "status": "success"},
    ]
    pairs = pair_results(map(read_message, messages))
    calls = [(call.name, call.arguments) for call, _ in pairs]
    assert calls == [("weather", {"city": "Oslo"}), ("write", BROKEN)]
    assert [result and result_text(result) for _, result in pairs] == ["12", "broken"]
    assert [result and result.is_error for _, result in pairs] == [False, True]


def test_calls_in_chats_of_vercel():
    """One part holds the call and its result; arguments that are not valid JSON stand apart."""
    weather = {"toolCallId": "c1", "state": "output-available", "input": {"city": "Oslo"}}
    write = {"toolCallId": "c2", "state": "output-error", "rawInput": BROKEN}
    parts = [
        {"type": "step-start"},
        {"type": "tool-weather", **weather, "output": "12"},
        {"type": "dynamic-tool", "toolName": "write", **write, "errorText": "broken"},
        {"type": "text", "text": "It is 12."},
    ]
    message = read_message({"role": "assistant", "parts": parts})
    pairs = pair_results([message])
    calls = [(call.name, call.arguments) for call, _ in pairs]
    assert calls == [("weather", {"city": "Oslo"}), ("write", BROKEN)]
    assert [result and result_text(result) for _, result in pairs] == ["12", "broken"]
    assert [result and result.is_error for _, result in pairs] == [False, True]
    assert (message.text, message.others) == ("It is 12.", 0)


def openai_chat(result):
    function = {"name": "delete", "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "c1", "type": "function", "function": function}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"role": "tool", "tool_call_id": "c1", **result}
    return {"messages": [USER, calling, answer, REPLY]}


def gemini_chat(result):
    call = {"functionCall": {"name": "delete", "args": ARGUMENTS}}
    answer = {"functionResponse": {"name": "delete", "response": result}}
    return {
        "messages": [
            {"role": "user", "parts": [{"text": "Delete the pod web-0."}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [answer]},
            {"role": "model", "parts": [{"text": "I may not."}]},
        ]
    }


def columns(result):
    calls = [{"name": "delete", "arguments": ARGUMENTS, "result": result}]
    return {"input": "Delete the pod web-0.", "output": "I may not.", "tool_calls": calls}


def columns_of_json(result):
    return columns(json.dumps(result))


@pytest.mark.parametrize("row_of", [openai_chat, gemini_chat, columns, columns_of_json])
@pytest.mark.parametrize("is_error", [True, False])
def test_results_that_mcp_marks_as_errors(cli, home, row_of, is_error):
    (home / "rows.jsonl").write_text(json.dumps(row_of(mcp_result(is_error))) + "\n")
    outcome = cli("evaluate", "rows.jsonl", "--judge", "metric:no-error", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.rows[0]["candidates"][0]["score"] == float(not is_error)


def adk_span(**texts):
    """Return the span of a tool of ADK, whose arguments and result have names of its own."""
    names = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "delete",
        "gcp.vertex.agent.event_id": "v-1",
        **{f"gcp.vertex.agent.{name}": text for name, text in texts.items()},
    }
    return {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "execute_tool delete",
        "startTimeUnixNano": "1000000000",
        "endTimeUnixNano": "2000000000",
        "attributes": [{"key": key, "value": {"stringValue": names[key]}} for key in names],
    }


def write_spans(path, *spans):
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}))


def test_a_tool_of_adk(cli, home):
    call = {"tool_call_args": json.dumps(ARGUMENTS), "tool_response": json.dumps(mcp_result())}
    write_spans(home / "spans.json", adk_span(**call))
    ((_, item),) = [
        node for episode in read_episodes(home / "spans.json") for node in episode.nodes
    ]
    assert (item.input_state, item.output_state) == (ARGUMENTS, mcp_result())
    assert item.attributes == {"gcp.vertex.agent.event_id": "v-1"}

    arguments = f"metric:tool-args:delete={json.dumps(ARGUMENTS)}"
    judges = ("--judge", arguments, "--judge", "metric:no-error")
    outcome = cli("nodes", "evaluate", "spans.json", *judges, "--json")
    assert outcome.rows[0]["rewards"] == {arguments: 1.0, "metric:no-error": 0.0}


def test_a_tool_of_adk_that_records_no_texts(home):
    write_spans(home / "spans.json", adk_span(tool_call_args="{}", tool_response="{}"))
    ((_, item),) = [
        node for episode in read_episodes(home / "spans.json") for node in episode.nodes
    ]
    assert (item.input_state, item.output_state) == (None, None)
