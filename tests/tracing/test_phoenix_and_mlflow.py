"""A real Phoenix and a real MLflow take our spans, with kinds, texts, tokens and judgements, and
the scores of spans that come from them.

Each is installed into an environment of its own, which later runs use again; the tests are skipped
where that fails, as without a network.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from textevolve.tracing import opening
from textevolve.tracing.recording import CONTENT_SWITCH

pytestmark = pytest.mark.slow
FOLDER = Path(tempfile.gettempdir()) / "textevolve-tools"
INSTALL, START = 300, 600
"""Seconds that installing a tool, and starting it on an empty database, may take."""


def install(name, package):
    """The `bin` of an environment with this package, or a skipped test."""
    folder = FOLDER / name
    if not (folder / "installed").exists():
        uv = Path(sys.executable).with_name("uv")
        try:
            for command in (
                [uv, "venv", "-q", "--clear", "-p", sys.executable, folder],
                [uv, "pip", "install", "-q", "-p", folder / "bin/python", package],
            ):
                subprocess.run(command, check=True, capture_output=True, timeout=INSTALL)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"{package} cannot be installed here: {error}")
        (folder / "installed").touch()
    return folder / "bin"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def serve(home):
    """Starts a server's command, and waits for its address to answer."""
    processes = []

    def start(command, url, **environment):
        with (home / "server.log").open("wb") as log:
            process = subprocess.Popen(
                list(map(str, command)),
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        processes.append(process)
        until = time.monotonic() + START
        while time.monotonic() < until and process.poll() is None:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                return
            except OSError:
                time.sleep(1)
        pytest.skip(f"{command[0]} did not start: {(home / 'server.log').read_text()[-500:]}")

    yield start
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)  # MLflow has workers
        process.wait(60)


@pytest.fixture
def send(cli, model, home, monkeypatch):
    """Runs studies whose spans go to an address, and waits until all are sent."""

    def run(address, question="Why tides?"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        monkeypatch.setenv(CONTENT_SWITCH, "true")
        opening._open_tracer.cache_clear()
        row = {"input": question, "output": "The moon."}
        (home / "rows.jsonl").write_text(json.dumps(row) + "\n")
        (home / "asked.jsonl").write_text(json.dumps({"input": question}) + "\n")
        (home / "a.txt").write_text("Answer: {input}")
        node = {"node": "plan", "input": {"text": "Why?"}, "output": {"text": "So."}}
        (home / "nodes.jsonl").write_text(json.dumps({**node, "instruction": "GENERATE"}) + "\n")
        judge = ("-m", model, "--judge", "probe")
        for arguments in (
            ("evaluate", "rows.jsonl", *judge, "--name", "tides"),
            ("compare", "-p", "a.txt", "-d", "asked.jsonl", *judge),
            ("optimize", "Say hello.", *judge, "--max-iterations", 1),
            ("nodes", "evaluate", "nodes.jsonl", *judge),
        ):
            assert cli(*arguments).code == 0
        cli("agents", "create", "guide", "--persona", "You are kind.")
        assert cli("chat", "guide", "--user", "ann", "-m", model, stdin=b"Hello.\n").code == 0
        opening._open_tracer("", "OTEL_EXPORTER_OTLP_ENDPOINT").span_processor.force_flush()

    return run


def check(traces):
    """`traces`: by the name of the root, the spans as (path, kind, input, output, tokens)."""
    runs = {name.partition(" ")[0]: spans for name, spans in traces.items()}
    assert runs.keys() == {"evaluate", "compare", "optimize", "nodes", "invoke_agent"}
    assert "evaluate tides" in traces
    found = {span[0][1:]: span[1:] for span in runs["evaluate"]}
    kind, requests, answered, _ = found["case 1",]
    assert (kind, requests, answered) == ("CHAIN", "Why tides?", "The moon.")
    assert found["case 1", "probe"][0] == "EVALUATOR"
    kind, requests, answered, tokens = found["case 1", "probe", "chat scripted"]
    assert (kind, answered in ("Yes", "No")) == ("LLM", True)
    assert "Why tides?" in str(requests)
    assert tokens > 0
    paths = {name: {span[0][1:] for span in spans} for name, spans in runs.items()}
    assert ("case 1: a", "chat scripted") in paths["compare"]
    assert ("case 1", "eval_opt.run", "eval_opt.evaluate.1", "probe") in paths["optimize"]
    assert ("node plan", "probe") in paths["nodes"]
    assert ("chat scripted",) in paths["invoke_agent"]


def path_of(span, spans):
    around = spans.get(span["parent"])
    return (*(path_of(around, spans) if around else ()), span["name"])


QUERY = """{projects {edges {node {spans(first: 500) {edges {node {name spanId parentId spanKind
tokenCountTotal input {value} output {value} events {name}}}}}}}}"""


@pytest.fixture
def annotate(cli, home):
    """Judges exported spans and sends the scores, twice; what is expected, by span."""

    def judge(document, target):
        (home / "export.json").write_text(json.dumps(document))
        outcome = cli("nodes", "evaluate", "export.json", "--latency", 0.001, "--annotate", target)
        again = cli("runs", "annotate", "last", target)
        rows = [row for row in cli("runs", "show", "last", "--json").rows if row.get("rewards")]
        assert outcome.err.endswith(again.err)
        assert again.err == f"{len(rows)} scores sent to {target.partition(':')[0]}\n"
        results = {row["span_id"]: row["results"]["latency"] for row in rows}
        return {id: (each["score"], each["passed"]) for id, each in results.items()}

    return judge


def test_phoenix_shows_the_spans_and_takes_scores(serve, send, home, annotate):
    port = free_port()
    command = [install("phoenix", "arize-phoenix") / "python", "-m", "phoenix.server.main", "serve"]
    address = f"http://127.0.0.1:{port}"
    serve(
        command,
        f"{address}/healthz",
        PHOENIX_WORKING_DIR=str(home / "phoenix"),
        PHOENIX_PORT=str(port),
        PHOENIX_GRPC_PORT=str(free_port()),
    )
    send(address)
    until, traces = time.monotonic() + 120, {}
    while len(traces) < 5 and time.monotonic() < until:
        time.sleep(2)
        (project,) = ask(f"{address}/graphql", {"query": QUERY})["data"]["projects"]["edges"]
        nodes = [edge["node"] for edge in project["node"]["spans"]["edges"]]
        spans = {n["spanId"]: {**n, "parent": n["parentId"]} for n in nodes}
        traces = {}
        for span in spans.values():
            path = path_of(span, spans)
            texts = [(span[side] or {}).get("value") for side in ("input", "output")]
            row = (path, span["spanKind"].upper(), *texts, span["tokenCountTotal"])
            traces.setdefault(path[0], []).append(row)
    check(traces)
    events = {span["name"]: span["events"] for span in spans.values() if span["events"]}
    assert events["probe"] == [{"name": "gen_ai.evaluation.result"}]
    place = f"{address}/v1/projects/default"
    results = annotate(ask(f"{place}/spans?limit=1000"), f"phoenix:{address}")
    ids = "&".join(f"span_ids={id}" for id in results)
    annotations = ask(f"{place}/span_annotations?limit=1000&{ids}")["data"]
    assert len(annotations) == len(results) > 5
    for each in annotations:
        score, passed = each["result"]["score"], each["result"]["label"] == "passed"
        assert (score, passed) == results[each["span_id"]]


def test_mlflow_shows_the_spans_takes_scores_and_runs_and_a_refusal_is_reported_once(
    serve, send, home, monkeypatch, caplog, annotate, cli
):
    port, folder = free_port(), install("mlflow", "mlflow")
    address = f"http://127.0.0.1:{port}"
    store = f"sqlite:///{home / 'mlflow.db'}"
    options = ["--host", "127.0.0.1", "--port", port, "--workers", 1, "--backend-store-uri", store]
    jobless = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    serve([folder / "mlflow", "server", *options], f"{address}/health", **jobless)
    send(address, "Why rain?")
    # An exporter of an earlier test may still report its own collector.
    (lost,) = [text for text in caplog.messages if "spans are lost" in text and str(port) in text]
    assert "422" in lost
    assert "x-mlflow-experiment-id" in lost
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-mlflow-experiment-id=0")
    send(address)

    def run(script):
        head = f"import json, mlflow\nmlflow.set_tracking_uri('{address}')\n"
        command = [str(folder / "python"), "-c", head + script]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    outcome = run("""
for trace in mlflow.search_traces(locations=["0"], return_type="list"):
    for s in trace.data.spans:
        usage = s.get_attribute("mlflow.chat.tokenUsage") or {}
        print(json.dumps({"id": s.span_id, "parent": s.parent_id, "name": s.name,
            "kind": s.span_type, "input": s.inputs, "output": s.outputs,
            "tokens": usage.get("total_tokens"), "events": [event.name for event in s.events]}))
""")
    spans, traces = {span["id"]: span for span in outcome}, {}
    for span in outcome:
        path = path_of(span, spans)
        row = (path, span["kind"], span["input"], span["output"], span["tokens"])
        traces.setdefault(path[0], []).append(row)
    check(traces)
    assert any(span["events"] == ["gen_ai.evaluation.result"] for span in outcome)
    search = "for t in mlflow.search_traces(locations=['0'], return_type='list'):\n    "
    results = annotate(run(f"{search}print(t.to_json())"), f"mlflow:{address}")
    rows = run(f"{search}for a in t.info.assessments: print(json.dumps(a.to_dictionary()))")
    scores = {
        each["span_id"]: (each["feedback"]["value"], each["metadata"]["label"] == "passed")
        for each in rows
    }
    assert (scores, len(rows)) == (results, len(results))
    for _ in range(2):
        assert cli("runs", "export", "last", "--to", f"mlflow:{address}").code == 0
    (stored,) = run("""
for each in mlflow.search_runs(experiment_names=["textevolve"]).to_dict("records"):
    files = mlflow.artifacts.list_artifacts(run_id=each["run_id"])
    print(json.dumps({**each, "files": [file.path for file in files]}, default=str))
""")
    assert stored["params.latency"] == "0.001"
    # Latencies may give all nodes one score, of which there is no interval.
    mean = stored["metrics.mean"]
    assert stored.get("metrics.mean_low", mean) <= mean <= stored.get("metrics.mean_high", mean)
    assert stored["files"] == ["records.csv", "report.html"]
