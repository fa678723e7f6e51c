"""Exports of Phoenix, MLflow and LangSmith give the nodes that the same run's OTLP gives.

The tools themselves wrote the files in `fixtures/exports`; git keeps the script that did it, at
e8f392a6: tests/node_eval/fixtures/export.py.
"""

import json
from pathlib import Path

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure, PlainEvaluation
from textevolve.node_eval import History, HistoryItem, Instruction, JudgeEvaluator
from textevolve.node_eval.judging import Episode, Reading, evaluate_episodes
from textevolve.node_eval.traces import read_episodes

FIXTURES = Path(__file__).with_name("fixtures")
EXPORTS = FIXTURES / "exports"


def read(path):
    reading = Reading()
    episodes = list(read_episodes(path, reading))
    assert reading.faults == []
    return episodes


def outline(path):
    """What the nodes of a trace say, but for their times, which exports round."""
    return [
        (
            episode.id,
            step,
            *(item.node, item.path, item.instruction, item.tokens, item.error, item.thread_id),
            *(item.input_state, item.output_state, item.ids),
        )
        for episode in read(path)
        for step, item in episode.nodes
    ]


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("phoenix-*")), ids=lambda path: path.name)
def test_phoenix(path):
    assert outline(path) == outline(FIXTURES / "openinference-langchain.jsonl")


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("mlflow-[ft]*")), ids=lambda path: path.name)
def test_mlflow(path):
    expected = outline(EXPORTS / "mlflow-otlp.jsonl")
    found = outline(path)
    if path.name == "mlflow-trace.json":
        expected = [row for row in expected if row[0] == found[0][0]]
    names = ("session_id", "user_id")
    for row in found:
        assert [row[-1].pop(name) for name in names] == ["voyage-1", "sailor-7"]
    assert found == expected
    assert len(found) in (5, 10)


@pytest.mark.parametrize("name", ["langsmith.json", "langsmith.jsonl"])
def test_langsmith(name):
    first, tool, last, pilot = [item for _, item in read(EXPORTS / name)[0].nodes]
    call = 'tide_table({"port": "Brest"})'
    assert (first.output_state["text"], first.input_state["tools"][0]["name"]) == (call, tool.node)
    assert (tool.instruction, tool.input_state) == (Instruction.TOOL_CALL, {"port": "Brest"})
    assert tool.output_state == {"text": "12:00"}
    assert last.output_state["text"] == "High water is at noon."
    assert pilot.output_state == {"text": "High water is at noon."}
    assert (pilot.thread_id, pilot.ids["user_id"], last.path) == (
        "voyage-1",
        "sailor-7",
        ("pilot",),
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"trace_id": "tr-1", "state": "OK", "request": "?"}, "of MLflow, but has no spans"),
        ({"run_type": "llm", "inputs": {}}, "of LangSmith, but has no spans"),
        ({"project_id": "x", "cumulative": 1}, "of Phoenix, but has no spans"),
        ({"observations": [], "sessionId": "s"}, "of Langfuse, but has no spans"),
    ],
)
def test_a_form_without_spans_is_refused_with_the_command_for_one(tmp_path, record, message):
    path = tmp_path / "export.json"
    path.write_text(json.dumps([record]))
    with pytest.raises(InputError, match=message):
        read(path)


def test_an_error_in_a_table_that_is_json_stays_json(tmp_path):
    path = tmp_path / "spans.tsv"
    heads = ("context.trace_id", "context.span_id", "span_kind", "start_time", "status_code")
    error = '{"error": {"code": null}}'
    path.write_text("\t".join((*heads, "status_message\n1", "2", "LLM", "3", "ERROR", error)))
    ((node,),) = [episode.history.items for episode in read(path)]
    assert node.error == error


async def judge_nodes(path, judge):
    """What a judge is asked about each node, and what came out."""
    evaluator = JudgeEvaluator("judge", judge)
    nodes = evaluate_episodes(read(path), [evaluator], 1)
    return [node.item async for node in nodes]


async def test_a_call_is_judged_by_the_request_and_the_tools_on_offer():
    cases = []

    async def judge(case):
        cases.append(case)
        return PlainEvaluation((EvaluationResult(0.5, True),))

    items = await judge_nodes(EXPORTS / "mlflow-trace.json", judge)
    (call,) = [case for case in cases if "Tools on offer" in case.input]
    assert call.input.startswith("And the day after?\n\nTools on offer:\n- {")
    assert "When the water is high." in call.input
    assert call.candidates == ('tide_table({"port": "Brest"})',)
    # Nothing is known of the tools on offer when this one failed.
    outcomes = {item.node: item.evaluation_results["judge"] for item in items}
    assert outcomes["moon_phase"] == Failure("skipped", "the node failed")


async def test_a_failed_call_is_judged_as_one():
    cases = []

    async def judge(case):
        cases.append(case)
        return PlainEvaluation((EvaluationResult(0.0, False),))

    model = HistoryItem(0, Instruction.GENERATE, {"text": "When?", "tools": [{"name": "look"}]}, {})
    call = HistoryItem(1, Instruction.TOOL_CALL, {"x": 1}, node="look", error="timeout")
    episode = Episode("1", History([[model], [call]]))
    nodes = evaluate_episodes([episode], [JudgeEvaluator("judge", judge)], 1)
    outcomes = [node.item.evaluation_results["judge"] async for node in nodes]
    assert outcomes[1].passed is False
    assert cases[-1].candidates == ('look({"x": 1})\n\nThe call failed: timeout',)
