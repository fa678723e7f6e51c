"""Files of other tools, in the forms in which people met them: trajectories of harnesses, data
sets, configurations and exports. Each right value was worked out from the file's own format."""

import json
import logging

import pytest
import yaml

from textevolve.node_eval.judging import Reading
from textevolve.node_eval.traces import read_episodes
from textevolve.rows.cases import RowReading, read_cases
from textevolve.rows.columns import Columns
from textevolve.rows.trajectories import read_trajectory_row, write_trajectory
from textevolve.runs.study import read_study_file
from textevolve.studies.promptfoo import convert_config

AGENT = {"name": "porter", "version": "2.1", "model_name": "big"}


def say(source, message="", **fields):
    return {"source": source, "message": message, **fields}


def call(id, name, **arguments):
    return {"tool_call_id": id, "function_name": name, "arguments": arguments}


def observe(*results):
    return {"results": [{"source_call_id": id, "content": text} for id, text in results]}


def trajectory(*steps, **fields):
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    return {"schema_version": "ATIF-v1.7", "agent": AGENT, "steps": numbered, **fields}


def write(tmp_path, name, content):
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


def read_one(path, **options):
    (case,) = read_cases(path, reading=RowReading(trajectory=True, **options))
    return case


def nodes_of(path):
    return [item for episode in read_episodes(path) for _, item in episode.nodes]


def test_ids_of_calls_repeat_from_step_to_step(tmp_path):
    # NVIDIA/NeMo-Agent-Toolkit#1663: an id is unique within its step alone.
    document = trajectory(
        say("user", "Where is the parcel?"),
        say("agent", "First the depot.", tool_calls=[call("c", "scan", place="depot")]),
        say(
            "agent", tool_calls=[call("c", "scan", place="van")], observation=observe(("c", "yes"))
        ),
        say("agent", "It is in the van."),
    )
    case = read_one(write(tmp_path, "one.json", document))
    results = [(use.arguments["place"], use.result) for use in case.trajectory.tool_calls]
    assert results == [("depot", None), ("van", "yes")]
    assert case.candidates == ("It is in the van.",)
    assert case.trajectory.steps == 3


def test_a_result_without_an_id_is_that_of_the_only_call(tmp_path):
    document = trajectory(
        say("user", "Count."),
        say("agent", tool_calls=[call("a", "count")], observation={"results": [{"content": "7"}]}),
        say(
            "agent",
            tool_calls=[call("a", "type", keys="x"), call("b", "type", keys="y")],
            observation={"results": [{"content": "screen"}]},
        ),
        say("agent", "Seven."),
    )
    case = read_one(write(tmp_path, "one.json", document))
    assert [use.result for use in case.trajectory.tool_calls] == ["7", None, None]
    assert "Other (environment): screen" in case.input


def test_copied_steps_are_no_steps(tmp_path):
    # Arize-ai/phoenix#14975: resumed history must not count twice.
    copied = {"is_copied_context": True, "metrics": {"prompt_tokens": 900, "completion_tokens": 9}}
    document = trajectory(
        say("user", "Go on."),
        say("agent", "I was here.", **copied),
        say("agent", "Done.", metrics={"prompt_tokens": 10, "completion_tokens": 2}),
    )
    path = write(tmp_path, "one.json", document)
    reading = Reading()
    (episode,) = read_episodes(path, reading)
    ((_, item),) = episode.nodes
    assert (item.tokens, reading.others) == (12, 1)
    assert "I was here." in item.input_state["text"]
    assert read_one(path).trajectory.steps == 1


def test_a_trajectory_is_no_export_of_another_tool(tmp_path):
    document = trajectory(
        say("user", "Sum 2 and 2."),
        say(
            "agent",
            "Adding.",
            reasoning_content="Carry nothing.",
            timestamp="2026-05-01T10:00:00Z",
            tool_calls=[call("c", "add", a=2, b=2)],
            observation=observe(("c", "4")),
            metrics={"prompt_tokens": 30, "completion_tokens": 5, "cost_usd": 0.5},
        ),
        say("agent", "4"),
        session_id="s",
    )
    nodes = nodes_of(write(tmp_path, "trajectory.json", json.dumps(document, indent=1)))
    assert [(n.node, str(n.instruction.name)) for n in nodes] == [
        ("big", "GENERATE"),
        ("add", "TOOL_CALL"),
        ("big", "GENERATE"),
    ]
    assert nodes[0].tokens == 35
    assert nodes[0].attributes == {"prompt_tokens": 30, "completion_tokens": 5, "cost_usd": 0.5}
    assert nodes[0].output_state["messages"][0]["thought"] == "Carry nothing."
    assert nodes[1].output_state == {"text": "4"}


def test_the_answer_of_a_sub_agent_is_the_result_of_its_call(tmp_path, caplog):
    inner = trajectory(say("user", "Look."), say("agent", "Line 3."), trajectory_id="inner")
    result = {"source_call_id": "t", "subagent_trajectory_ref": [{"trajectory_id": "inner"}]}
    document = trajectory(
        say("user", "Find it."),
        say("agent", tool_calls=[call("t", "look")], observation={"results": [result]}),
        say("agent", "Found."),
        trajectory_id="outer",
        subagent_trajectories=[inner],
    )
    path = write(tmp_path, "one.json", document)
    with caplog.at_level(logging.WARNING):
        case = read_one(path)
    assert case.trajectory.tool_calls[0].result == "Line 3."
    assert "left out: 1 sub-agent" in caplog.text
    assert [("/".join(n.path), n.node) for n in nodes_of(path)][1] == ("look", "big")


def test_a_trajectory_is_written_as_it_was():
    document = trajectory(
        say("system", "Be brief."),
        say("user", "Weather?"),
        say(
            "agent",
            "Looking.",
            reasoning_content="Two towns.",
            model_name="small",
            tool_calls=[call("a", "see", town="Oslo"), call("b", "see", town="Bergen")],
            observation=observe(("a", "sun"), ("b", "rain")),
            metrics={"prompt_tokens": 8, "completion_tokens": 3, "cost_usd": 0.25},
        ),
        say("agent", "Sun and rain."),
        session_id="s",
    )
    row = read_trajectory_row(document)
    again = write_trajectory(row["messages"], row["id"], row["agent"])
    for step in again["steps"]:
        for called in step.get("tool_calls", ()):
            called["tool_call_id"] = called["tool_call_id"].partition(".")[2]
        for result in step.get("observation", {}).get("results", ()):
            result["source_call_id"] = result["source_call_id"].partition(".")[2]
    assert again == {**document, "schema_version": "ATIF-v1.8"}


GOLDEN = {
    "input": "How much is Pro?",
    "actual_output": "$20",
    "expected_output": "It is $20.",
    "retrieval_context": ["| Plan | Price |\n| --- | --- |", "plain"],
    "context": ["ideal"],
    "tools_called": [{"name": "price", "inputParameters": {"plan": "Pro"}, "output": "20"}],
    "source_file": None,
}


@pytest.mark.parametrize(
    ("retrieved", "context"),
    [
        (GOLDEN["retrieval_context"], "| Plan | Price |\n| --- | --- |\n\nplain"),
        ("Geography|Mountains", "Geography\n\nMountains"),
        # confident-ai/deepeval#3299: the | of a command or a table separates nothing.
        ("cat access.log | grep ERROR", "cat access.log | grep ERROR"),
    ],
)
def test_what_was_retrieved_comes_before_what_should_have_been(tmp_path, retrieved, context):
    row = {**GOLDEN, "retrieval_context": retrieved}
    columns = Columns()
    path = write(tmp_path, "goldens.json", [row])
    (case,) = read_cases(path, columns, RowReading(trajectory=True))
    assert case.context == context
    (use,) = case.trajectory.tool_calls
    assert (use.name, use.arguments, use.result) == ("price", {"plan": "Pro"}, "20")
    assert "context" in columns.unread


def test_items_of_langfuse_have_their_answers(tmp_path):
    # langfuse/langfuse#6090: items from the API, without the id of a project.
    item = {"id": "i", "datasetId": "d", "input": {"question": "Capital?"}, "metadata": None}
    of_api = {**item, "expectedOutput": {"answer": "Oslo"}}
    of_client = {**of_api, "dataset_id": "d", "expected_output": "Oslo"}
    del of_client["expectedOutput"], of_client["datasetId"]
    for row in (of_api, of_client):
        path = write(tmp_path, "items.json", {"data": [row], "meta": {"page": 1}})
        case = read_one(path, answered=True)
        assert (case.input, case.reference) == ("Capital?", "Oslo")


def test_a_failed_result_of_evals_has_no_answer_from_its_item(tmp_path):
    item = {"question": "Prime?", "answer": "7"}
    sample = {"input": [{"role": "user", "content": "Name a prime."}], "error": None}
    answer = [{"role": "assistant", "content": "Seven."}]
    results = [
        {"datasource_item_id": 1, "datasource_item": item, "sample": {**sample, "output": answer}},
        {"datasource_item_id": 2, "datasource_item": {"item": item}, "sample": {**sample}},
    ]
    path = write(tmp_path, "results.json", {"object": "list", "data": results})
    first, second = read_cases(path)
    assert (first.id, first.input, first.candidates) == ("1", "Name a prime.", ("Seven.",))
    assert (second.candidates, second.reference) == (("",), "7")
    (row,) = read_cases(write(tmp_path, "items.jsonl", json.dumps({"item": item})))
    assert (row.input, row.candidates) == ("Prime?", ("7",))


CONFIG = {
    "prompts": [{"id": "file://ask.txt", "label": "asks"}, "Say {{dish}} in {{language}}."],
    "providers": [
        "openai:chat:gpt-6-luna",
        {"id": "anthropic:messages:claude-x", "prompts": ["asks"]},
        "exec:./model.sh",
    ],
    "defaultTest": "file://default.yaml",
    "tests": [
        {"vars": {"dish": ["soup", "stew"]}, "assert": [{"type": "javascript", "value": "1"}]},
        {
            "vars": {"dish": ["rice", "fish"]},
            "options": {"disableVarExpansion": True},
            "assert": [{"type": "contains-any", "value": "{{dish}}"}],
            "threshold": 0.5,
        },
        "file://more.csv",
    ],
}


def test_a_configuration_of_promptfoo_becomes_a_study(tmp_path, caplog):
    # promptfoo/promptfoo#475 (lists), #744 (---), #1738 (labels), #7861 (variables in defaults).
    write(tmp_path, "ask.txt", "Cook {{dish}}.\n---\nServe {{dish}}!\n")
    rubric = {"type": "llm-rubric", "value": "Is it {{dish}}?"}
    write(
        tmp_path,
        "default.yaml",
        yaml.safe_dump({"vars": {"language": "Greek"}, "assert": [rubric]}),
    )
    write(tmp_path, "more.csv", "dish,language,__expected\npie,Welsh,contains: pie\n")
    path = write(tmp_path, "promptfooconfig.yaml", yaml.safe_dump(CONFIG))
    with caplog.at_level(logging.WARNING):
        study, rows = convert_config(path)

    assert study == {
        "kind": "compare",
        "prompts": {
            "asks 1": "Cook {{dish}}.",
            "asks 2": "Serve {{dish}}!",
            "prompt 2": "Say {{dish}} in {{language}}.",
        },
        "models": ["openai/gpt-6-luna", "anthropic/claude-x"],
        "judge": "checks",
        "check": [rubric],
    }
    assert rows == [
        {"language": "Greek", "dish": "soup"},
        {"language": "Greek", "dish": "stew"},
        {
            "language": "Greek",
            "dish": ["rice", "fish"],
            "checks": {"threshold": 0.5, "assert": [CONFIG["tests"][1]["assert"][0]]},
        },
        {"language": "Welsh", "dish": "pie", "checks": [{"__expected": "contains: pie"}]},
    ]
    for name in ("javascript", "exec:./model.sh", "prompts", "options"):
        assert name in caplog.text


def test_nothing_of_a_configuration_is_lost_or_run(tmp_path, caplog):
    write(tmp_path, "make.py", "raise SystemExit")
    config = {
        "prompts": [
            {"raw": "Say {{a.b}}.", "label": "same"},
            {"raw": "Tell {{a}}.", "label": "same"},
            "file://make.py:prompt",
        ],
        "providers": [
            {"id": "openai:gpt-6-luna", "config": {"temperature": temperature}}
            for temperature in (0, 1)
        ],
        "tests": [{"vars": {"a": "one", "b": "file://make.py"}}],
        "scenarios": [],
    }
    path = write(tmp_path, "promptfooconfig.yaml", yaml.safe_dump(config))
    with caplog.at_level(logging.WARNING):
        study, rows = convert_config(path)
    assert list(study["prompts"].values()) == ["Say {{a.b}}.", "Tell {{a}}."]
    assert study["models"] == ["openai/gpt-6-luna"]
    assert rows == [{"a": "one", "b": None}]
    for words in ("{{a.b}}", "make.py:prompt", "make.py: is made by code", "differ", "scenarios"):
        assert words in caplog.text


def test_a_converted_configuration_is_a_study_with_its_rows(home, cli):
    config = {
        "prompts": ["Say {{dish}} in {{language}}."],
        "providers": ["openai:gpt-6-luna"],
        "defaultTest": {"vars": {"language": "Greek"}},
        "tests": [
            {"vars": {"dish": ["soup", "stew"]}, "assert": [{"type": "contains", "value": "o"}]}
        ],
    }
    write(home, "promptfooconfig.yaml", yaml.safe_dump(config))
    outcome = cli("run", "init", "--from", "promptfooconfig.yaml")
    assert outcome.code == 0, outcome.err
    study, spec = read_study_file("study.yaml")
    cases = list(study.cases(spec))
    assert [json.loads(case.input)["dish"] for case in cases] == ["soup", "stew"]
    assert all("checks" in case.parameters for case in cases)
    assert cli("run", "init", "--from", "promptfooconfig.yaml").code == 2
    assert cli("run", "init", "compare", "--from", "promptfooconfig.yaml").code == 2
    write(home, "other.yaml", "kind: compare")
    refusal = cli("run", "init", "--from", "other.yaml", "-o", "new.yaml")
    assert "is no configuration of promptfoo" in refusal.err
