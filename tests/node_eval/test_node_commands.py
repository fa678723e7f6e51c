"""`textevolve nodes` as it is used on the command line."""

import json
import signal
import time
from pathlib import Path

import pytest

from textevolve.llm.testing import Answer, Fault

LINES = [
    {
        "episode": "a",
        "step": 0,
        "node": "plan",
        "instruction": "DECOMPOSE",
        "input": {"text": "Explain tides."},
        "output": {"text": "The moon, then the sun.", "confidence": 0.8},
        "seconds": 0.4,
        "tokens": 30,
    },
    {
        "episode": "a",
        "step": 1,
        "node": "write",
        "instruction": "GENERATE",
        "input": {"text": "Explain tides."},
        "output": {"text": "The moon pulls on the sea.", "confidence": 0.4},
        "seconds": 2.0,
        "tokens": 130,
    },
    {
        "episode": "a",
        "step": 1,
        "node": "look",
        "instruction": "TOOL_CALL",
        "input": {"city": "Paris"},
        "error": "timeout",
        "seconds": 5,
    },
    {
        "episode": "b",
        "node": "write",
        "instruction": "GENERATE",
        "input": {"text": "Explain tides."},
        "output": {"text": "Wind.", "confidence": 0.6},
        "seconds": 1.0,
    },
]


def opinion(body, _number):
    """A judge by questions that likes the moon."""
    return Answer(yes=0.9 if "moon" in body["messages"][-1]["content"].lower() else 0.2)


@pytest.fixture
def trace(home):
    def write(*lines, name="trace.jsonl"):
        path = home / name
        path.write_text("".join(json.dumps(one) + "\n" for one in lines or LINES))
        return name

    return write


@pytest.fixture
def judged(cli, server, model, trace):
    server.script = opinion

    def run(*more):
        return cli("nodes", "evaluate", trace(), "--judge", "probe", "-m", model, *more)

    return run


def scores(rows, name):
    return [row["results"].get(name, {}).get("score") for row in rows]


def words(text):
    return " ".join(text.split())


def test_checks_judge_without_a_model(cli, server, trace, home):
    (home / "rules.yaml").write_text("rules: [{kind: keywords, all: [moon]}]\n")
    ended = cli(
        *("nodes", "evaluate", trace(), "--json", "-o", "out.jsonl", "--rules", "rules.yaml"),
        *("--length", "10:", "--latency", 1, "--tokens", 100, "--threshold", "confidence=0.5"),
        "--consistency",
    )
    assert (ended.code, server.calls) == (0, 0), ended.err
    rows = ended.rows
    assert scores(rows, "rules") == [1.0, 1.0, None, 0.0]
    assert scores(rows, "length") == [1.0, 1.0, None, 0.5]
    assert scores(rows, "latency") == [1.0, 0.5, None, 1.0]
    assert scores(rows, "tokens") == [1.0, pytest.approx(100 / 130), None, None]
    assert scores(rows, "confidence") == [0.8, 0.4, None, 0.6]
    assert rows[2]["results"]["rules"] == {"failure": "skipped", "reason": "the node failed"}
    assert rows[2]["error"] == "timeout"
    written = [json.loads(line) for line in (home / "out.jsonl").read_text().splitlines()]
    assert written == rows
    assert [line["rewards"]["length"] for line in written] == scores(rows, "length")
    assert [line["score"] for line in written][2] is None


def test_a_node_without_a_recorded_output_is_skipped_but_for_a_threshold(cli, trace):
    bare = {key: value for key, value in LINES[2].items() if key != "error"}
    ended = cli(
        *("nodes", "evaluate", trace(bare), "--json"),
        *("--length", "10:", "--threshold", "confidence=0.5"),
    )
    (row,) = ended.rows
    assert row["results"]["length"] == {"failure": "skipped", "reason": "no output was recorded"}
    assert scores([row], "confidence") == [0.0]


def test_a_judge_is_asked_once_for_each_node_of_the_type_and_never_twice(judged, server, cli):
    first = judged("--only", "GENERATE", "--json")
    assert first.code == 0, first.err
    assert scores(first.rows, "probe") == [None, pytest.approx(0.9), None, pytest.approx(0.2)]
    calls = server.calls
    assert calls > 0
    again = judged("--only", "generate", "--json")
    assert (again.out, server.calls) == (first.out, calls)
    assert cli("nodes", "show", "last", "--json").out == first.out
    assert server.calls == calls


def test_a_judge_may_decide_by_typed_questions_and_another_model(cli, server, model, trace):
    judge = f"single+readout=decide+argue=false+decider={model}"
    command = ("nodes", "evaluate", trace(), "--judge", judge, "--only", "GENERATE", "--json")
    ended = cli(*command, "-m", f"{server.url}#never-asked")
    assert ended.code == 0, ended.err
    assert {body["model"] for body in server.requests} == {"scripted"}
    assert {body["max_tokens"] for body in server.requests} == {1}
    calls = server.calls
    assert cli(*command, "-m", f"{server.url}#never-asked").out == ended.out
    assert server.calls == calls


def test_the_judge_sees_the_text_of_a_state_and_other_fields_where_they_are_named(judged, server):
    judged("--only", "GENERATE")
    shown = "\n".join(m["content"] for m in server.requests[-1]["messages"])
    assert "confidence" not in shown
    assert "Explain tides." in shown
    assert judged("--only", "GENERATE", "--output-key", "confidence").code == 0
    assert "0.6" in "\n".join(m["content"] for m in server.requests[-1]["messages"])
    missing = judged("--output-key", "answer", "--only", "GENERATE", "--json")
    assert missing.code == 3
    assert "no field 'answer'" in missing.rows[1]["results"]["probe"]["reason"]


def test_what_came_of_it_is_drawn_with_where_it_comes_from(judged):
    ended = judged("--latency", 1)
    assert ended.code == 0, ended.err
    said = words(ended.out)
    assert "latency 0.833 2 3 1" in said
    assert "probe 0.667 2 3 1" in said
    assert "4 nodes in 2 episodes; 1 failed themselves" in said
    assert "Judges probe" in said
    assert "no score by probe: look: the node failed" in said


def test_a_limit_ends_it_and_the_same_command_goes_on(judged, server, cli):
    stopped = judged("--max-calls", 5)
    assert (stopped.code, server.calls) == (3, 5)
    assert "not finished within the limits (the limit of 5 calls" in stopped.err
    assert "Go on with: textevolve runs resume" in stopped.err
    assert "not asked: not in the journal" in words(cli("nodes", "show").out)
    assert cli("runs", "list", "--json").rows[0]["status"] == "interrupted"
    whole = cli("runs", "resume", "last", "--json")
    assert whole.code == 0
    assert None not in [scores(whole.rows, "probe")[n] for n in (0, 1, 3)]
    assert server.calls == len({json.dumps(r, sort_keys=True) for r in server.requests})


def test_an_answer_that_cannot_be_used_is_no_score_and_is_counted(judged, server):
    server.script = lambda body, _: "Perhaps." if "Wind" in str(body) else opinion(body, 0)
    ended = judged("--json")
    assert ended.code == 3
    failure = ended.rows[3]["results"]["probe"]
    assert failure["failure"] == "failed"
    assert "score" not in failure
    assert "b:1 write lacks a score: probe:" in ended.err


def test_an_endpoint_that_refuses_ends_it(judged, server):
    server.script = lambda *_: Fault.UNAUTHORISED
    ended = judged()
    assert ended.code == 1
    assert ended.err.count("error:") == 1
    assert server.calls < 40


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_answered(spawn, server, model, trace, cli, stalling, calls_of):
    server.script = stalling(2, opinion)
    command = ("nodes", "evaluate", trace(), "--judge", "probe", "-m", model, "--concurrency", "1")
    process = spawn(*command)
    while server.calls < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "every answer so far is kept" in err
    assert "Traceback" not in err
    asked, server.script = calls_of(server), opinion
    assert cli(*command[:-2]).code == 0
    assert server.calls > asked
    different = {json.dumps(request, sort_keys=True) for request in server.requests}
    assert server.calls <= len(different) + 4  # what was in flight is asked again


def test_an_estimate_asks_nothing(judged, server):
    ended = judged("--dry-run", "--json")
    assert (ended.code, server.calls) == (0, 0)
    found = ended.rows[0]
    assert found["cases"] == 4
    assert found["expected"]["calls"]["median"] > 0


def test_lines_that_cannot_be_used_are_said_and_the_rest_is_judged(cli, trace, home):
    path = home / trace()
    path.write_text(path.read_text() + "oops\n" * 7 + '{"node": "n", "step": -1}\n')
    ended = cli("nodes", "evaluate", path.name, "--latency", 1)
    assert ended.code == 3
    assert "4 nodes in 2 episodes" in ended.out
    assert f"{path.name}:5 lacks a score: not valid JSON" in ended.err
    assert "3 more cases lack a score" in ended.err
    assert f"{path.name}:12" in words(cli("runs", "show", "last", "--failed").out)
    for command in (("show", path.name), ("export", path.name)):
        ended = cli("nodes", *command)
        assert ended.code == 3
        assert f"not used: {path.name}:5: not valid JSON" in ended.err
        assert "not used: 3 more lines or spans" in ended.err


def test_a_trace_is_shown_as_a_tree(cli, trace):
    ended = cli("nodes", "show", trace(), "--states")
    assert ended.code == 0, ended.err
    for said in (
        "episode a",
        "superstep 2",
        "write  GENERATE, 2.0 s, 130 tokens",
        "failed: timeout",
        'in: {"text": "Explain tides."}',
    ):
        assert said in ended.out
    short = cli("nodes", "show", trace(), "--limit", 3)
    assert "episode b" not in short.out
    assert "1 more node" in short.out


def test_text_in_a_trace_steers_no_terminal(cli, trace):
    bad = "\x1b[31mred\x1b]0;title\x07 [bold]"
    line = {"node": bad, "input": bad, "output": bad, "error": bad, "episode": bad}
    line["results"] = {bad: {"score": 0.5, "passed": True, "feedback": bad}}
    ended = cli("nodes", "show", trace(line), "--states")
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    assert "[bold]" in ended.out


def test_rewards_are_exported_from_a_run_a_trace_and_standard_input(judged, cli, trace, home):
    judged("--latency", 1, "-o", "out.jsonl", "--name", "mine")
    weights = ("--weight", "probe=3", "--weight", "latency=1")
    ended = cli("nodes", "export", "mine", "-o", "rewards.jsonl", *weights)
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in (home / "rewards.jsonl").read_text().splitlines()]
    assert [row["node"] for row in rows] == ["plan", "write", "look", "write"]
    assert rows[1]["rewards"] == {"latency": 0.5, "probe": pytest.approx(0.9)}
    assert rows[1]["total"] == pytest.approx((3 * 0.9 + 0.5) / 4)
    assert rows[2]["rewards"]["probe"] is None
    assert rows[2]["total"] is None
    assert cli("nodes", "export", "out.jsonl", *weights).rows == rows
    piped = cli("nodes", "export", "-", *weights, stdin=(home / "out.jsonl").read_bytes())
    assert piped.rows == rows


def test_a_run_can_be_judged_further(judged, cli, model, server):
    judged("--latency", 1, "--name", "first")
    ended = cli("nodes", "evaluate", "first", "--tokens", 100, "--json")
    assert ended.code == 0, ended.err
    assert list(ended.rows[0]["results"]) == ["latency", "probe", "tokens"]
    refused = cli("nodes", "evaluate", "first", "--tokens", 100, "--instruction", "plan=REFLECT")
    assert (refused.code, "a run keeps the types" in refused.err) == (2, True)


def test_a_page_is_written_of_a_run_and_of_an_evaluation(judged, cli, home):
    judged("-o", "page.html")
    assert cli("runs", "export", "last", "again.html").code == 0
    page = (home / "page.html").read_text()
    assert "The moon pulls on the sea." in page
    assert "the node failed" in page
    assert (home / "again.html").read_text() == page


def test_spans_are_judged_and_their_types_can_be_named(cli, home):
    spans = [
        {
            "traceId": "t1",
            "spanId": str(n),
            "name": name,
            "startTimeUnixNano": str(n * 10**9),
            "endTimeUnixNano": str((n + 1) * 10**9),
            "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in more.items()],
        }
        for n, (name, more) in enumerate(
            [
                ("plan it", {}),
                ("POST /", {}),
                ("chat", {"gen_ai.operation.name": "chat", "gen_ai.completion": "Hello!"}),
            ]
        )
    ]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    (home / "spans.json").write_text(json.dumps(document, indent=1))
    ended = cli(
        *("nodes", "evaluate", "spans.json", "--length", ":3", "--json"),
        *("--instruction", "plan it=decompose", "--instruction", "chat=RESPOND"),
    )
    assert ended.code == 0, ended.err
    assert [(r["node"], r["instruction"]) for r in ended.rows] == [
        ("plan it", "DECOMPOSE"),
        ("chat", "RESPOND"),
    ]
    assert scores(ended.rows, "length") == [None, 0.5]
    said = cli("nodes", "show", "spans.json").err
    assert "left out: no steps of an agent" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "nothing to judge by"),
        (("--judge", "prob"), "did you mean 'probe'"),
        (("--judge", "pairwise"), "'pairwise' compares candidates"),
        (("--judge", "probe", "--judge", "probe"), "two evaluators have the name 'probe'"),
        (("--rules", "none.yaml"), "cannot be read"),
        (("--length", "5"), "MIN:MAX"),
        (("--length", "9:3"), "do not fit"),
        (("--latency", "-1"), "latency must be more than 0"),
        (("--threshold", "confidence"), "NAME=NUMBER"),
        (("--threshold", "a=1", "--threshold", "a=2"), "two evaluators have the name 'a'"),
        (("--latency", "1", "--only", "GENERATES"), "did you mean 'GENERATE'"),
        (("--latency", "1", "--instruction", "x"), "NAME=TYPE"),
        (("--latency", "1", "-o", "trace.jsonl"), "is read and would be overwritten"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_kept(cli, trace, home, more, said):
    ended = cli("nodes", "evaluate", trace(), "-m", "http://127.0.0.1:9/v1#none", *more)
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert "no runs" in cli("runs", "list").out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("show", "none.jsonl"), "cannot be read"),
        (("show", "nothing"), "is not in this store"),
        (("export", "trace.jsonl", "--weight", "probe=1"), "no such evaluator"),
        (("export", "trace.jsonl", "--weight", "probe=inf"), "NAME=NUMBER"),
        (("export", "trace.jsonl", "--weight", "a=1", "--weight", "a=2"), "'a' is there twice"),
        (("export", "trace.jsonl", "-o", "x.txt"), ".jsonl"),
        (("evaluate", "empty.jsonl", "--latency", "1"), "it is empty"),
        (("evaluate", "words.jsonl", "--latency", "1"), "no node can be used: words.jsonl:1"),
    ],
)
def test_sources_that_cannot_be_used_are_refused(cli, trace, home, command, said):
    trace()
    (home / "empty.jsonl").write_text("")
    (home / "words.jsonl").write_text("words\n")
    ended = cli("nodes", *command)
    assert ended.code in (1, 2)
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_a_run_of_another_kind_is_no_run_of_nodes_and_the_other_way_round(cli, model, trace):
    cli("evaluate", "Say hello.", "Hello!", "-m", model, "--rounds", 1)
    ended = cli("nodes", "show", "last")
    assert (ended.code, "holds no nodes" in ended.err) == (2, True)
    first = cli("runs", "list", "--json").rows[0]["id"]
    ended = cli("nodes", "evaluate", first, "--latency", 1)
    assert (ended.code, ended.err.count("\n")) == (2, 1)


def test_spans_and_their_logs_are_two_files(cli, trace):
    """What the older events of OpenTelemetry's instrumentor for OpenAI look like once exported."""
    recorded = Path(__file__).with_name("fixtures") / "openai-v2-messages.jsonl"
    spans, logs = (json.loads(line) for line in recorded.read_text().splitlines())
    paths = trace(spans, name="spans.jsonl"), trace(logs, name="logs.jsonl")
    judge = ("nodes", "evaluate", paths[0], "--length", "1:", "--json")
    assert [len(row["results"]["length"]) for row in cli(*judge).rows] == [2] * 4  # no output
    judged = cli(*judge, "--logs", paths[1])
    assert judged.code == 0
    assert [row["output"]["text"][:10] for row in judged.rows] == [
        *("The moon p", "The moon p", "tide_table", "High water")
    ]
    shown = cli("nodes", "show", paths[0], "--logs", paths[1], "--states")
    assert "spans.jsonl, logs.jsonl" in shown.out
    refused = cli("nodes", "show", "last", "--logs", paths[1])
    assert (refused.code, refused.err.count("logs: a run keeps the messages")) == (2, 1)


def test_a_number_that_was_recorded_as_an_attribute_can_be_a_threshold(cli, trace):
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "confidence", "value": {"doubleValue": 0.75}},
    ]
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    span = {"traceId": "t", "spanId": "s", "name": "n", "attributes": attributes, **times}
    name = trace({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    judged = cli("nodes", "evaluate", name, "--threshold", "confidence=0.7", "--json")
    (row,) = judged.rows
    assert (row["results"]["confidence"]["score"], row["output"]) == (0.75, None)
    assert row["attributes"] == {"confidence": 0.75}
