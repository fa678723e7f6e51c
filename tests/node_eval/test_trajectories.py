"""Metrics and judges of whole runs, on traces of others and on our own lines."""

import json
from pathlib import Path

import pytest
from otlp_lines import span

from textevolve.llm.testing import Answer
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.judging import read_run
from textevolve.node_eval.traces import read_episodes
from textevolve.trajectory import ToolUse

FIXTURES = Path(__file__).with_name("fixtures")
INSTRUMENTORS = ("traceloop", "traceloop-events", "openinference-openai", "openai-v2-messages")


@pytest.mark.parametrize("name", [*INSTRUMENTORS, "openinference-langchain", "pydantic-ai"])
def test_the_calls_in_traces_of_instrumentors_that_record_tools_or_messages_alone(name):
    runs = [read_run(episode.history) for episode in read_episodes(FIXTURES / f"{name}.jsonl")]
    calls = [call for run in runs for call in run.tool_calls]
    recorded = {"text" if name == "openinference-langchain" else "port": "Brest"}
    assert [(call.name, call.arguments) for call in calls] == [("tide_table", recorded)]
    assert all(call.error is None for call in calls)


def test_messages_of_a_graph_give_each_call_once_with_its_result():
    call = {"id": "7", "name": "search", "args": {"city": "Oslo"}}
    request = {"type": "ai", "content": "", "tool_calls": [call]}
    gave = {"type": "tool", "content": "no room", "tool_call_id": "7", "status": "error"}
    states = [{"messages": [request]}, {"messages": [gave]}, {"messages": [request, gave]}]
    run = read_run(History([[HistoryItem(0.0, output_state=state)] for state in states]))
    assert run.tool_calls == (ToolUse("search", {"city": "Oslo"}, "no room", "no room"),)
    assert run.steps == 3


@pytest.fixture
def trace(home):
    """A run of an agent whose second tool failed, and one that ended with an error."""
    tools = {"gen_ai__operation__name": "execute_tool"}
    spans = [
        span(
            "agent",
            0,
            9,
            gen_ai__operation__name="invoke_agent",
            input__value="A room in Oslo?",
            output__value="Booked.",
        ),
        span(
            "s",
            1,
            2,
            parent="agent",
            gen_ai__tool__name="search",
            **tools,
            gen_ai__tool__call__arguments='{"city": "Oslo"}',
            gen_ai__tool__call__result="7 rooms",
        ),
        span(
            "b",
            3,
            4,
            parent="agent",
            gen_ai__tool__name="book",
            **tools,
            status={"code": 2, "message": "full"},
        ),
        span(
            "c",
            0,
            1,
            trace="u",
            gen_ai__operation__name="chat",
            input__value="Hi",
            status={"code": 2, "message": "down"},
        ),
    ]
    lines = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (home / "spans.json").write_text(json.dumps(lines))
    return "spans.json"


def test_whole_runs_are_judged_once_each_whether_they_failed_or_not(cli, trace):
    expected = {
        "metric:tool-sequence:search,book": (1, 0),
        'metric:tool-args:search={"city":"Oslo"}': (1, 0),
        "metric:no-error": (0, 0),
        "metric:max-steps:2": (1, 1),
    }
    judges = [part for judge in expected for part in ("--judge", judge)]
    outcome = cli("nodes", "evaluate", trace, *judges, "--only", "GENERATE", "--json")
    assert outcome.code == 0, outcome.err
    scores = [{name: r["score"] for name, r in row["results"].items()} for row in outcome.rows]
    assert [row["node"] for row in outcome.rows if row["results"]] == ["agent", "c"]
    assert [score for score in scores if score] == [
        {name: pair[n] for name, pair in expected.items()} for n in (0, 1)
    ]
    assert "book: full" in outcome.rows[2]["results"]["metric:no-error"]["feedback"]
    outcome = cli("nodes", "evaluate", trace, "--judge", 'metric:tool-args:book={"n":1}', "--json")
    assert outcome.code == 3
    assert "were not recorded" in outcome.err


def test_a_model_judges_the_whole_run(cli, server, model, trace):
    server.script = lambda body, _: Answer(yes=0.75)
    outcome = cli("nodes", "evaluate", trace, "--judge", "trajectory", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    result = outcome.rows[2]["results"]["trajectory"]
    assert result["score"] == pytest.approx(0.75)
    output = str(server.requests[0])
    for text in ("A room in Oslo?", "7 rooms", '"error": "full"', "Final answer:", "Booked."):
        assert text.replace('"', '\\"') in output or text in output
    assert outcome.rows[3]["results"]["trajectory"]["score"] == pytest.approx(0.75)
