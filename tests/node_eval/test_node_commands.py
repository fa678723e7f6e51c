"""`textevolve nodes` as it is used on the command line."""

import json

import pytest

from textevolve.llm.testing import Answer

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
        *("nodes", "evaluate", trace(), "--json", "-o", "out.jsonl", "-j", "rules:rules.yaml"),
        *("--latency", 1, "--tokens", 100, "--threshold", "confidence=0.5", "--consistency"),
    )
    assert (ended.code, server.calls) == (0, 0), ended.err
    rows = ended.rows
    assert scores(rows, "rules:rules.yaml") == [1.0, 1.0, None, 0.0]
    assert scores(rows, "latency") == [1.0, 0.5, None, 1.0]
    assert scores(rows, "tokens") == [1.0, pytest.approx(100 / 130), None, None]
    assert scores(rows, "confidence") == [0.8, 0.4, None, 0.6]
    assert rows[2]["results"]["rules:rules.yaml"] == {
        "failure": "skipped",
        "reason": "the node failed",
    }
    assert rows[2]["error"] == "timeout"
    written = [json.loads(line) for line in (home / "out.jsonl").read_text().splitlines()]
    assert written == rows
    assert [line["rewards"]["latency"] for line in written] == scores(rows, "latency")
    assert [line["score"] for line in written][2] is None


def test_a_judge_is_asked_once_for_each_node_of_the_type_and_never_twice(judged, server, cli):
    first = judged("--only", "GENERATE", "--json")
    assert first.code == 0, first.err
    assert scores(first.rows, "probe") == [None, pytest.approx(0.9), None, pytest.approx(0.2)]
    calls = server.calls
    assert calls > 0
    again = judged("--only", "generate", "--json")
    assert (again.out, server.calls) == (first.out, calls)


def test_lines_that_cannot_be_used_are_said_and_the_rest_is_judged(cli, trace, home):
    path = home / trace()
    path.write_text(path.read_text() + "oops\n" * 7 + '{"node": "n", "step": -1}\n')
    ended = cli("nodes", "evaluate", path.name, "--latency", 1)
    assert ended.code == 3
    assert "4 nodes in 2 episodes" in ended.out
    assert f"{path.name}:5 lacks a score: not valid JSON" in ended.err
    assert "3 more cases lack a score" in ended.err
    assert f"{path.name}:12" in words(cli("runs", "show", "last", "--failed").out)
    ended = cli("nodes", "show", path.name)
    assert ended.code == 3
    assert f"{path.name}:12" in words(ended.out)


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


def test_the_nodes_of_a_run_are_exported_and_judged_further(judged, cli, home):
    judged("--latency", 1, "--name", "first")
    assert cli("runs", "export", "first", "nodes.jsonl").code == 0
    ended = cli("nodes", "evaluate", "nodes.jsonl", "--tokens", 100, "--json")
    assert ended.code == 0, ended.err
    assert list(ended.rows[0]["results"]) == ["latency", "probe", "tokens"]
    piped = cli("nodes", "show", "-", "--json", stdin=(home / "nodes.jsonl").read_bytes())
    assert piped.rows[1]["rewards"] == {"latency": 0.5, "probe": pytest.approx(0.9)}


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
        *("nodes", "evaluate", "spans.json", "--latency", 0.5, "--json"),
        *("--instruction", "plan it=decompose", "--instruction", "chat=RESPOND"),
    )
    assert ended.code == 0, ended.err
    assert [(r["node"], r["instruction"]) for r in ended.rows] == [
        ("plan it", "DECOMPOSE"),
        ("chat", "RESPOND"),
    ]
    assert scores(ended.rows, "latency") == [0.5, 0.5]
    said = cli("nodes", "show", "spans.json").err
    assert "left out: no steps of an agent" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "nothing to judge by"),
        (("--judge", "prob"), "did you mean 'probe'"),
        (("--judge", "probe", "--judge", "probe"), "two evaluators have the name 'probe'"),
        (("--threshold", "confidence"), "NAME=NUMBER"),
        (("--latency", "1", "--only", "GENERATES"), "is not a valid Instruction"),
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
