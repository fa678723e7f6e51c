"""Spans of runs as any exporter of OpenTelemetry gets them."""

import json
import logging
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from textevolve import Client
from textevolve.llm.testing import Answer
from textevolve.tracing import opening
from textevolve.tracing.recording import CONTENT_SWITCH, name_model

ROWS = (
    '{"input": "Why tides?", "output": "The moon."}\n{"input": "Why wind?", "output": "The sun."}\n'
)


class Spans:
    """The finished spans, by their paths: the names of those around them and their own."""

    def __init__(self, exporter):
        self.exporter = exporter

    def tree(self):
        spans = {span.context.span_id: span for span in self.exporter.get_finished_spans()}
        below = Counter((s.parent.span_id, s.name) for s in spans.values() if s.parent)
        assert set(below.values()) == {1}  # names of siblings differ

        def path(span):
            around = [] if span.parent is None else path(spans[span.parent.span_id])
            return [*around, span.name]

        run = next(s.name for s in spans.values() if s.parent is None)
        return {tuple(path(span))[1:]: span for span in spans.values() if path(span)[0] == run}

    def of_kind(self, kind):
        spans = self.exporter.get_finished_spans()
        return [s for s in spans if s.attributes["openinference.span.kind"] == kind]


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(opening, "_find_tracer", lambda _settings: provider.get_tracer("test"))
    return Spans(exporter)


def test_run_case_judge_and_calls_nest_and_hold_no_text_unless_switched_on(
    cli, model, spans, home, monkeypatch
):
    (home / "rows.jsonl").write_text(ROWS)
    cli("evaluate", "rows.jsonl", "-m", model, "-j", "probe", "--name", "tides")
    tree = spans.tree()
    root, case = tree[()], tree["case 2",]
    judge, call = tree["case 2", "probe"], tree["case 2", "probe", "chat scripted #3"]
    assert root.name == "evaluate tides"
    assert root.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert root.attributes["output.value"] == "2 records"
    kinds = [one.attributes["openinference.span.kind"] for one in (root, case, judge, call)]
    assert kinds == ["CHAIN", "CHAIN", "EVALUATOR", "LLM"]
    (event,) = judge.events
    assert event.name == "gen_ai.evaluation.result"
    assert event.attributes["gen_ai.evaluation.name"] == "probe"
    assert event.attributes["gen_ai.evaluation.score.value"] == judge.attributes["textevolve.score"]
    assert event.attributes["gen_ai.evaluation.score.label"] in ("pass", "fail")
    for name in ("textevolve.score", "textevolve.passed"):
        assert event.attributes[name] == judge.attributes[name]
    attributes = call.attributes
    assert (attributes["gen_ai.operation.name"], attributes["gen_ai.request.model"]) == (
        "chat",
        "scripted",
    )
    assert attributes["gen_ai.provider.name"] == "127.0.0.1"
    assert attributes["gen_ai.usage.input_tokens"] == attributes["llm.token_count.prompt"] > 0
    assert attributes["gen_ai.usage.output_tokens"] == attributes["llm.token_count.completion"] == 1
    assert not {"tides?", "moon"} & set(str([s.to_json() for s in tree.values()]).split())
    assert "gen_ai.evaluation.explanation" not in event.attributes

    spans.exporter.clear()
    monkeypatch.setenv(CONTENT_SWITCH, "true")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (home / "rows.jsonl").write_text(ROWS.replace("tides", "rain"))
    cli("evaluate", "rows.jsonl", "-m", model, "-j", "probe")
    tree = spans.tree()
    case, call = tree["case 1",].attributes, tree["case 1", "probe", "chat scripted"].attributes
    assert (case["input.value"], case["output.value"]) == ("Why rain?", "The moon.")
    messages = json.loads(call["gen_ai.input.messages"])
    assert "Why rain?" in messages[-1]["parts"][0]["content"]
    assert json.loads(call["input.value"])["messages"][-1]["role"] == "user"
    (answer,) = json.loads(call["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == call["output.value"]
    assert tree["case 1", "probe"].events[0].attributes["gen_ai.evaluation.explanation"]
    assert "sk-secret" not in str([span.to_json() for span in tree.values()])


def test_answers_of_the_journal_are_marked_and_count_no_tokens(cli, model, spans):
    for _ in range(2):
        cli("optimize", "Say hello.", "-m", model, "-j", "probe", "--max-iterations", 1)
    calls = [dict(span.attributes) for span in spans.of_kind("LLM")]
    hits = [call for call in calls if call.get("textevolve.journal.hit")]
    assert len(hits) * 2 == len(calls)
    assert not any("token" in name and "max" not in name for hit in hits for name in hit)
    loops = [s for s in spans.exporter.get_finished_spans() if s.name == "eval_opt.run"]
    first, second = (loop.attributes for loop in loops)
    assert first["eval_opt.tokens_in"] > 0 == second["eval_opt.tokens_in"]
    assert second["eval_opt.calls_replayed"] == first["eval_opt.calls"]
    assert first["eval_opt.passed"] == (first["eval_opt.status"] == "accepted")


def test_turns_of_a_debate_cells_and_chains_have_spans(model, spans, home):
    with Client(model=model, store=home / "s.db") as client:
        client.evaluate("Why tides?", ["The moon.", "The sun."], rounds=2)
        tree = spans.tree()
        agents = [path[-1] for path in tree if len(path) == 3]
        assert {"invoke_agent Critic", "invoke_agent Critic #2"} < set(agents)
        critic = tree["case 1", "debate", "invoke_agent Critic"].attributes
        assert (critic["gen_ai.agent.name"], critic["textevolve.round"]) == ("Critic", 1)
        assert len(tree["case 1", "debate"].events) == 2

        spans.exporter.clear()
        rows = [{"thing": "a", "label": "a"}, {"thing": "b", "label": "b"}]
        client.compare(rows, ["Name {thing}.", "Say {thing}."], metric="exact", label="label")
        tree = spans.tree()
        cells = sorted(path[-1] for path in tree if len(path) == 1)
        assert cells == [f"case {n}: prompt {p}" for n in (1, 2) for p in (1, 2)]
        assert tree["case 1: prompt 1",].events[0].attributes["gen_ai.evaluation.name"] == "exact"


def test_a_refused_template_has_the_figures_of_the_decision(model, spans, home, server):
    def script(body, _number):
        return Answer(text="no") if "response_format" not in body else None

    server.script = script
    rows = [{"question": f"q{n}", "label": "yes" if n % 2 else "no"} for n in range(24)]
    with Client(model=model, store=home / "s.db") as client:
        result = client.calibrate("Say: {question}", rows, metric="exact", label="label", budget=90)
    attributes = spans.tree()["eval_opt.run",].attributes
    assert (
        attributes["eval_opt.accepted"] is attributes["eval_opt.passed"] is result.accepted is False
    )
    known_value = None if result.gain is None else result.gain.first
    assert attributes.get("eval_opt.score") == known_value


def test_what_cannot_be_judged_is_an_error_and_a_limit_is_none(cli, server, model, spans, home):
    (home / "rows.jsonl").write_text(ROWS)
    server.script = lambda _body, _number: Answer(text="", status=400)
    cli("evaluate", "rows.jsonl", "-m", model, "-j", "probe")
    errors = {span.attributes["error.type"] for span in spans.of_kind("LLM")}
    assert {"CapabilityError"} <= errors <= {"CapabilityError", "cancelled"}  # the other case
    assert not spans.tree()[()].status.is_ok
    spans.exporter.clear()
    server.script = None
    cli("evaluate", "rows.jsonl", "-m", model, "-j", "probe", "--max-calls", 1)
    judges = spans.of_kind("EVALUATOR")
    assert any("limit of 1 calls" in s.attributes["textevolve.reason"] for s in judges)
    assert not [s for s in judges if s.attributes.get("error.type")]


def test_a_refusal_is_reported_once_and_the_run_ends_as_it_would(
    cli, model, monkeypatch, caplog, home
):
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(422)
            self.end_headers()
            self.wfile.write(b"x-mlflow-experiment-id: field required")

        def log_message(self, *_):
            pass

    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    opening._open_tracer.cache_clear()
    with HTTPServer(("127.0.0.1", 0), Refusing) as collector, caplog.at_level(logging.WARNING):
        Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        (home / "rows.jsonl").write_text(ROWS)
        codes = {cli("evaluate", "rows.jsonl", "-m", model, "-j", "probe").code for _ in range(3)}
        opening._open_tracer("", "OTEL_EXPORTER_OTLP_ENDPOINT").span_processor.force_flush()
        collector.shutdown()
    assert codes == {0}
    lost = [text for text in caplog.messages if "spans are lost" in text]
    assert len(lost) == 1
    assert "422" in lost[0]
    assert "field required" in lost[0]


def test_names_of_models_leave_out_what_may_be_secret():
    assert name_model("target:cmd:agent --key=1") == ("cmd:agent", {"agent": "cmd:agent"})
    assert name_model("target:http://h/p?key=1")[0] == "http://h/p"
    name, about = name_model("mistral/small/latest")
    assert (name, about["gen_ai.provider.name"]) == ("small/latest", "mistral_ai")


def test_each_turn_of_a_chat_is_a_trace_with_its_conversation(cli, model, spans, home):
    cli("agents", "create", "guide", "--persona", "You are kind.")
    cli("chat", "guide", "-m", model, stdin=b"Hello.\nWhere are you?\n")
    turns, calls = spans.of_kind("AGENT"), spans.of_kind("LLM")
    assert [turn.name for turn in turns] == ["invoke_agent default/guide"] * 2
    assert [turn.parent for turn in turns] == [None, None]
    assert [call.parent.span_id for call in calls] == [turn.context.span_id for turn in turns]
    ids = {one.attributes["gen_ai.conversation.id"] for one in (*turns, *calls)}
    assert ids == {turns[0].attributes["session.id"]}
    assert turns[0].attributes["gen_ai.agent.name"] == "default/guide"


def test_nodes_and_chains_have_spans(cli, model, spans, home):
    node = {"instruction": "GENERATE", "input": {"text": "Why?"}, "output": {"text": "So.", "p": 1}}
    lines = [json.dumps({**node, "node": name}) for name in ("plan", "check")]
    (home / "nodes.jsonl").write_text("\n".join(lines) + "\n")
    cli("nodes", "evaluate", "nodes.jsonl", "-m", model, "--judge", "probe", "--threshold", "p=0.5")
    tree = spans.tree()
    plan = tree["node plan",]
    assert plan.attributes["textevolve.instruction"] == "GENERATE"
    names = sorted(event.attributes["gen_ai.evaluation.name"] for event in plan.events)
    assert names == ["p", "probe"]
    assert not tree["node plan", "probe"].events
