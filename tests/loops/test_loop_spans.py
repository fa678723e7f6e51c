"""Spans of loops as a collector gets them: read back from the file, or from what is sent."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from flat_verbs import aoptimize, optimize
from textevolve.llm.testing import Answer

ERROR = 2
"""The code of a status in OTLP."""


class Span:
    """One of a file of spans, with its attributes by name."""

    def __init__(self, told):
        self.name, self.id, self.above = told["name"], told["spanId"], told.get("parentSpanId")
        self.trace = told["traceId"]
        self.seconds = (int(told["endTimeUnixNano"]) - int(told["startTimeUnixNano"])) / 1e9
        values = {a["key"]: next(iter(a["value"].items())) for a in told["attributes"]}
        self.told = {n: int(v) if kind == "intValue" else v for n, (kind, v) in values.items()}
        self.failed = told.get("status", {}).get("code") == ERROR
        self.why = told.get("status", {}).get("message", "")

    def __getitem__(self, name):
        return self.told[f"eval_opt.{name}"]


def load(path):
    """All spans, in the order in which they ended."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Span(span)
        for line in lines
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def read_spans(path):
    """Each `eval_opt.run` with its steps; names of siblings differ, and traces have a root."""
    spans = load(path)
    loops = [span for span in spans if span.name.startswith("eval_opt.run")]
    below = {loop.id: [span for span in spans if span.above == loop.id] for loop in loops}
    assert all(n == 1 for n in Counter((s.trace, s.above, s.name) for s in spans).values())
    roots = {span.trace: span.name for span in spans if span.above is None}
    assert all(roots[loop.trace].startswith("optimize 20") for loop in loops)
    return [(loop, below[loop.id]) for loop in loops]


def _sums(spans):
    return [(s.name.removeprefix("eval_opt."), s["calls"]) for s in spans if "eval_opt" in s.name]


def names(spans):
    return [span.name.removeprefix("eval_opt.") for span in spans]


@pytest.fixture
def traced(home, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_TRACES", "spans.jsonl")
    return home / "spans.jsonl"


def test_each_task_is_a_trace_that_says_what_each_step_took(cli, server, model, traced, home):
    unreadable = Counter()

    def script(body, number):
        content = body["messages"][-1]["content"]
        if "response_format" in body and content.count("copper") and not unreadable["copper"]:
            unreadable["copper"] += 1
            return "no object"
        return None

    server.script = script
    (home / "t.jsonl").write_text('{"task": "Name a use of copper."}\n{"task": "Say hello."}\n')
    outcome = cli("optimize", "t.jsonl", "-m", model, "-j", "single", "--threshold", 1, "--json")
    spans = read_spans(traced)
    assert sorted(run["case"] for run, _ in spans) == ["1", "2"]
    rows = {row["id"]: row for row in outcome.rows}
    for run, steps in spans:
        row = rows[run["case"]]
        assert names(steps) == [f"{w}.{n}" for n in (1, 2, 3) for w in ("generate", "evaluate")]
        assert (run["loop"], run["score"], run["iterations"]) == ("optimize", row["score"], 3)
        assert run["reason"] == row["reason"]
        for name, attempt in zip(("calls", "tokens_in", "tokens_out"), (0, 1, 2), strict=True):
            used = [row["usage"][key] for key in ("calls", "prompt_tokens", "completion_tokens")]
            assert run[name] == sum(step[name] for step in steps) == used[attempt]
        for step, attempt in zip(steps[1::2], row["attempts"], strict=True):
            assert (step["iteration"], step["score"]) == (
                attempt["iteration"],
                attempt["evaluation"]["score"],
            )
            assert step["passed"] is attempt["evaluation"]["passed"]
            assert 0 < step["duration"] <= step.seconds * 1.5 + 0.1
        assert [step["made"] for step in steps[::2]] == [a["made"] for a in row["attempts"]]
        assert run["parse_errors"] == (run["case"] == "1") == steps[1]["parse_errors"]
    assert not {"copper", "hello"} & set(traced.read_text().casefold().split())
    assert cli("runs", "show", "last").code == 0
    assert len(read_spans(traced)) == 2  # what is only shown is not traced


def test_what_fails_is_a_span_that_says_why(cli, server, model, traced):
    def script(body, number):
        if body.get("max_tokens") == 1:
            return Answer(yes=0.4)
        return (
            Answer(text="Cut he", finish_reason="length")
            if "earlier answer" in str(body)
            else "A draft."
        )

    server.script = script
    cli("optimize", "Say hello.", "-m", model, "-j", "probe")
    ((run, steps),) = read_spans(traced)
    assert names(steps) == ["generate.1", "evaluate.1", "generate.2", "generate.3", "evaluate.3"]
    assert [step.failed for step in steps] == [False, False, True, False, False]
    assert "cut at" in steps[2].why
    assert steps[2].told["error.type"] == "failed"
    assert not run.failed
    server.script = lambda _body, _number: Answer(text="")
    cli("optimize", "Say nothing.", "-m", model, "-j", "probe")
    run, steps = read_spans(traced)[1]
    assert run.failed
    assert names(steps) == ["generate.1", "generate.2", "generate.3"]


def test_a_loop_within_a_step_of_another_stands_below_it_and_counts_for_itself(model, traced):
    async def judge(case):
        inner = await aoptimize("Say less.", judge="probe", model=model, max_iterations=1)
        return 0.9 if inner.attempts else 0.0

    optimize("Say hello.", judge=judge, second_judge="probe", model=model)
    spans = load(traced)
    assert _sums(spans) == [
        ("generate.1", 1),
        ("generate.1", 1),
        ("evaluate.1", 3),
        ("run", 4),
        ("evaluate.1", 3),
        ("run", 4),
    ]
    assert {span.trace for span in spans} == {spans[0].trace}


def test_where_spans_cannot_go_is_said_before_anything_is_asked(cli, server, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_TRACES", "nowhere/spans.jsonl")
    outcome = cli("optimize", "Say hello.", "-m", model)
    assert (outcome.code, server.calls) == (2, 0)
    assert "nowhere/spans.jsonl: cannot be written" in outcome.err


SCRIPT = """
import sys
from textevolve import Client

def run():
    return Client(store="s.db").optimize("Say hello.", generator=write, judge=lambda case: 0.9)

def write(task, **asked):
    if "opentelemetry.sdk.trace" not in sys.modules:
        return "Hello."
    from opentelemetry import trace
    with trace.get_tracer("mine").start_as_current_span("mine"):
        return "Hello there."

run()
assert not [name for name in sys.modules if name.startswith("opentelemetry")], "loaded for nothing"

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with trace.get_tracer("mine").start_as_current_span("caller"):
    run()
    with trace.get_tracer("mine").start_as_current_span("later"):
        pass
def short(name):
    return "run" if name.startswith("optimize ") else "judge" if ":" in name else name

names = {span.context.span_id: short(span.name) for span in kept.get_finished_spans()}
print({short(s.name): names[s.parent.span_id] for s in kept.get_finished_spans() if s.parent})
"""


@pytest.mark.slow
def test_without_tracing_nothing_is_loaded_and_a_programs_own_provider_is_used(spawn, home):
    out, err = spawn(script=SCRIPT).communicate()
    assert err == ""
    assert eval(out) == {
        "mine": "eval_opt.generate.1",
        "eval_opt.generate.1": "eval_opt.run",
        "eval_opt.evaluate.1": "eval_opt.run",
        "judge": "eval_opt.evaluate.1",
        "eval_opt.run": "case 1",
        "case 1": "run",
        "run": "caller",
        "later": "caller",
    }


def test_a_collector_gets_them_over_http(cli, server, model, monkeypatch):
    got, there = [], threading.Event()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()
            there.set()

        def log_message(self, *_):
            pass

    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k")
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv("TEXTEVOLVE_TRACES", f"http://127.0.0.1:{collector.server_port}")
        cli("optimize", "Say hello.", "-m", model, "-j", "probe", "--max-iterations", 1)
        found = set()
        while "eval_opt.run" not in found:
            assert there.wait(60)
            for path, key, body in got:
                assert (path, key) == ("/v1/traces", "Bearer k")
                request = ExportTraceServiceRequest.FromString(body)
                scopes = [
                    scope
                    for resource_span in request.resource_spans
                    for scope in resource_span.scope_spans
                ]
                found |= {span.name for scope in scopes for span in scope.spans}
            time.sleep(0.01)
        collector.shutdown()
    assert {"eval_opt.run", "eval_opt.generate.1", "eval_opt.evaluate.1", "probe"} < found
