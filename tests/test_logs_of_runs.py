"""Runs in the formats of other programs, held against what the published schemas of these formats
require."""

import hashlib
import json
import re
from importlib import import_module
from importlib.util import find_spec

import pytest
from jsonschema import Draft202012Validator

from textevolve import Client
from textevolve.errors import InputError

ROWS = [{"id": f"r{n}", "n": n, "sum": str(2 * n)} for n in range(4)]
PROMPTS = {"plain": "What is {n} and {n}?", "kind": "Please: what is {n} and {n}?"}
TEXT = {"type": "string", "minLength": 1}
NUMBER = {"type": "number"}


def fields(optional=(), **required):
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **{name: {} for name in optional}},
        "additionalProperties": False,
    }


def holds(*required):
    return {"type": "object", "required": list(required)}


UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
SAMPLE = fields(
    ("token_usage", "performance"),
    schema_version={"const": "0.3.0"},
    evaluation_id=TEXT,
    model_id=TEXT,
    evaluation_name=TEXT,
    evaluation_result_id=TEXT,
    sample_id=TEXT,
    interaction_type={"const": "single_turn"},
    input=holds("raw", "reference"),
    output=holds("raw"),
    answer_attribution={"type": "array", "minItems": 1},
    evaluation=fields(score=NUMBER, is_correct={"type": "boolean"}),
)
SUMMARY = fields(
    schema_version={"const": "0.3.0"},
    evaluation_id=TEXT,
    retrieved_timestamp=TEXT,
    source_metadata=holds("source_type", "source_organization_name", "evaluator_relationship"),
    eval_library=holds("name", "version"),
    model_info=holds("name", "id", "additional_details"),
    evaluation_results={
        "type": "array",
        "items": holds("evaluation_name", "source_data", "metric_config", "score_details"),
    },
    detailed_evaluation_results=holds("format", "file_path", "checksum"),
)
LOG = fields(
    version={"const": 2},
    status={"enum": ["started", "success", "cancelled", "error"]},
    eval=holds("created", "task", "dataset", "model", "config"),
    results=holds("total_samples", "completed_samples", "scores"),
    stats=holds("started_at", "completed_at"),
    samples={"type": "array", "items": holds("id", "epoch", "input", "target", "messages")},
)
CALL = fields(tool_call_id=TEXT, function_name=TEXT, arguments={"type": "object"})
STEP = fields(
    (*("timestamp", "model_name", "reasoning_content", "observation", "metrics"), "extra"),
    step_id={"type": "integer"},
    source={"enum": ["system", "user", "agent"]},
    message={"type": "string"},
)
STEP["properties"]["tool_calls"] = {"type": "array", "items": CALL}
TRAJECTORY = fields(
    ("session_id", "extra"),
    schema_version={"const": "ATIF-v1.8"},
    agent=holds("name", "version"),
    steps={"type": "array", "items": STEP},
)


def check(document, schema):
    Draft202012Validator(schema).validate(document)
    assert "NaN" not in json.dumps(document)
    return document


def check_trajectory(document):
    """Check a trajectory against the rules of ATIF that no schema holds, and by the published
    models where they are installed."""
    check(document, TRAJECTORY)
    if find_spec("atif"):
        import_module("atif").Trajectory.model_validate(document)
    for number, step in enumerate(document["steps"], 1):
        assert step["step_id"] == number
        if step["source"] != "agent":
            assert not step.keys() & {"model_name", "reasoning_content", "tool_calls", "metrics"}
        ids = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        for result in step.get("observation", {}).get("results", ()):
            assert result.get("source_call_id", ids and ids[0]) in (*ids, [])
    return document


def read_folder(folder):
    return {str(f.relative_to(folder)): f.read_text() for f in sorted(folder.rglob("*.json*"))}


@pytest.fixture
def client(home, model):
    with Client(model=model) as opened:
        yield opened


@pytest.fixture
def compared(client, server):
    """Return a run of two prompts, in which one output has no score."""
    server.script = lambda body, _n: "" if "is 3" in str(body) else "4"
    options = {"models": [client.model], "label": "sum", "metric": ["edit-distance", "exact"]}
    client.compare(ROWS, PROMPTS, name="sums", **options)
    return client.runs.get("sums")


def test_a_comparison_is_a_log_of_inspect_for_each_variant(compared, home, caplog):
    compared.export(to="inspect:logs")
    logs = [check(json.loads(text), LOG) for text in read_folder(home / "logs").values()]
    assert sorted(log["eval"]["task"] for log in logs) == ["sums kind", "sums plain"]
    for log in logs:
        assert [sample["id"] for sample in log["samples"]] == ["r0", "r1", "r2", "r3"]
        assert [sample["target"] for sample in log["samples"]] == ["0", "2", "4", "6"]
        values = [sample["scores"]["exact"]["value"] for sample in log["samples"][:3]]
        assert values == [0.0, 0.0, 1.0]
        # A missing score is neither 0 nor null, and is counted.
        failed = log["samples"][3]
        assert failed["scores"] == {}
        assert failed["error"]["message"]
        (exact,) = [score for score in log["results"]["scores"] if score["name"] == "exact"]
        assert (exact["scored_samples"], exact["unscored_samples"]) == (3, 1)
        assert exact["metrics"]["mean"]["value"] == pytest.approx(1 / 3)
        assert log["samples"][0]["output"]["usage"]["total_tokens"] > 0


def test_a_comparison_is_a_record_of_every_eval_ever(compared, home):
    compared.export(to="every-eval-ever:out")
    files = read_folder(home / "out")
    assert len(files) == 4
    variants = {
        json.loads(text)["model_info"]["additional_details"]["variant"]
        for name, text in files.items()
        if name.endswith(".json")
    }
    assert len(variants) == 2
    for name, text in files.items():
        assert re.fullmatch(rf"data/[^/]+/[^/]+/[^/]+/{UUID}(_samples\.jsonl|\.json)", name)
        if name.endswith(".jsonl"):
            continue
        summary = check(json.loads(text), SUMMARY)
        detailed = summary["detailed_evaluation_results"]
        samples = files[detailed["file_path"]]
        assert hashlib.sha256(samples.encode()).hexdigest() == detailed["checksum"]
        lines = [check(json.loads(line), SAMPLE) for line in samples.splitlines()]
        assert len(lines) == detailed["total_rows"] == 6
        assert {line["evaluation_id"] for line in lines} == {summary["evaluation_id"]}
        exact = [line for line in lines if line["evaluation_name"] == "exact"]
        assert [line["evaluation"]["is_correct"] for line in exact] == [False, False, True]
        details = {r["evaluation_name"]: r["score_details"] for r in summary["evaluation_results"]}
        assert details["exact"]["uncertainty"]["num_samples"] == 3
        assert details["exact"]["score"] == pytest.approx(1 / 3)


def test_candidates_are_logs_of_their_own(client, home):
    client.evaluate("Name a prime.", ["Seven.", "Nine, I think."], judge="look:length", name="p")
    client.runs.export("p", to="inspect:logs")
    logs = [json.loads(text) for text in read_folder(home / "logs").values()]
    outputs = {log["eval"]["task"]: log["samples"][0]["messages"][1]["content"] for log in logs}
    assert outputs == {"p candidate 1": "Seven.", "p candidate 2": "Nine, I think."}
    assert {log["eval"]["model"] for log in logs} == {"none/none"}


TRACE = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "agent": {"name": "porter", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Weather?"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "Looking.",
            "model_name": "small",
            "timestamp": "2026-05-01T10:00:00+00:00",
            "reasoning_content": "Two towns.",
            "tool_calls": [
                {"tool_call_id": t, "function_name": "see", "arguments": {"town": t}} for t in "ab"
            ],
            "observation": {"results": [{"source_call_id": t, "content": t * 2} for t in "ba"]},
            "metrics": {"prompt_tokens": 8, "completion_tokens": 3, "cost_usd": 0.25},
        },
        {"step_id": 3, "source": "agent", "message": "Sun.", "model_name": "small"},
    ],
}


def test_a_trace_is_a_trajectory_with_its_rewards(home, cli):
    (home / "t.json").write_text(json.dumps(TRACE))
    assert cli("nodes", "evaluate", "t.json", "--judge", "look:length", "--name", "t").code == 0
    assert cli("runs", "export", "t", "--to", "atif:out").code == 0
    ((_, text),) = read_folder(home / "out").items()
    user, first, last = check_trajectory(json.loads(text))["steps"]
    assert user["message"] == "Weather?"
    given = TRACE["steps"][1]
    kept = ("message", "reasoning_content", "metrics", "model_name", "timestamp")
    assert {name: first[name] for name in kept} == {name: given[name] for name in kept}
    assert [call["arguments"] for call in first["tool_calls"]] == [{"town": "a"}, {"town": "b"}]
    results = {r["source_call_id"]: r["content"] for r in first["observation"]["results"]}
    assert list(results.values()) == ["aa", "bb"]
    assert last["message"] == "Sun."
    assert 0 < first["extra"]["rewards"]["look:length"] < 1


def test_calls_of_an_answer_are_steps(home, cli):
    row = {"id": "r", "input": "Sum?", "output": "4", "reference": "4"}
    row["tool_calls"] = [{"name": "add", "arguments": {"a": 2}, "result": "4"}, {"name": "end"}]
    (home / "rows.jsonl").write_text(json.dumps(row))
    cli("evaluate", "rows.jsonl", "--judge", "metric:tool-called:add", "--name", "e")
    assert cli("runs", "export", "e", "--to", "atif:out").code == 0
    ((_, text),) = read_folder(home / "out").items()
    document = check_trajectory(json.loads(text))
    assert [step["message"] for step in document["steps"]] == ["Sum?", "", "", "4"]
    assert document["steps"][1]["observation"]["results"][0]["content"] == "4"
    assert document["extra"] == {"scores": {"score": 1.0}, "reference": "4"}


def test_a_folder_is_refused_before_it_is_written(client, home, cli):
    client.innovate("Name a prime.", judge="look:length", name="i")
    for target in ("inspect:logs", "every-eval-ever:logs"):
        outcome = cli("runs", "export", "i", "--to", target)
        assert outcome.code == 2
        assert "has no outputs to write as a log" in outcome.err
    with pytest.raises(InputError, match="must be one of inspect, every-eval-ever, atif"):
        client.runs.export("i", to="inspect")
    assert not (home / "logs").exists()
