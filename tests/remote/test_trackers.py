"""Scores reach the right spans in Phoenix and MLflow, and runs reach MLflow, whatever is sent twice
or refused. Real servers take them in `tests/tracing/test_phoenix_and_mlflow.py`."""

import json
import posixpath
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from textevolve.remote.trackers import metric_name

pytestmark = pytest.mark.slow

EXPORTS = Path(__file__).parent.parent / "node_eval" / "fixtures" / "exports"
KEY = "key-of-the-tool-0123456789"
CHECK = ("--latency", "0.3")


class Tool:
    """Answers like Phoenix and like MLflow, and keeps what it is sent."""

    def __init__(self):
        self.annotations, self.assessments, self.runs, self.files = {}, {}, [], {}
        self.experiments, self.logged, self.keys, self.refusal = [], [], set(), None
        self.unknown = ()

    def refuse(self, text):
        is_unknown = any(id in text for id in self.unknown)
        return self.refusal or (is_unknown and (404, {"message": "It does not exist."}))

    def answer(self, method, path, body):
        if path == "/v1/span_annotations?sync=true":
            for each in body["data"]:
                place = each["span_id"], each["name"], each["identifier"]
                self.annotations[place] = each["annotator_kind"], each["result"]
        elif match := re.fullmatch(r"/api/3.0/mlflow/traces/(tr-\w+)(/assessments)?/?(\w+)?", path):
            known = self.assessments.setdefault(match[1], {})
            if method == "GET":
                return {"trace": {"trace_info": {"assessments": list(known.values())}}}
            id = match[3] or f"a{len(known)}"
            assert (method == "PATCH") == (id in known)
            known[id] = {**body["assessment"], "assessment_id": id}
        elif method == "PUT":
            self.files[path] = body
        elif path.endswith("/search"):
            kind = path.split("/")[-2]
            rows = {"experiments": self.experiments, "runs": self.runs}[kind]
            return {kind: rows} if rows else {}
        elif path.endswith("experiments/create"):
            self.experiments.append({"experiment_id": "7", **body})
            return self.experiments[0]
        elif path.endswith("runs/create"):
            info = {"run_id": "r1", "artifact_uri": "mlflow-artifacts:/7/r1/artifacts"}
            self.runs.append({"info": info, "data": {"tags": body["tags"]}})
            return {"run": self.runs[0]}
        else:
            self.logged.append(body)
            if body.get("params"):
                assert "params" not in self.runs[0]["data"], "MLflow refuses other values"
                self.runs[0]["data"]["params"] = body["params"]
        return {}


@pytest.fixture
def tool():
    tool = Tool()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self):
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            tool.keys.add(self.headers.get("Authorization"))
            body = raw if self.command == "PUT" else json.loads(raw or "null")
            refusal = tool.refuse(self.path + raw)
            status, answer = refusal or (200, tool.answer(self.command, self.path, body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = do_PATCH = do_PUT = handle_any

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # a client that was refused ends its other requests
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    tool.url = f"http://127.0.0.1:{server.server_port}"
    yield tool
    server.shutdown()
    thread.join()
    server.server_close()


def test_phoenix_has_each_score_of_a_trace_once(tool, cli, model, monkeypatch):
    monkeypatch.setenv("PHOENIX_API_KEY", KEY)
    trace, target = EXPORTS / "phoenix-rest.json", f"phoenix:{tool.url}"
    judge = ("--judge", "probe", "-m", model)
    outcome = cli("nodes", "evaluate", trace, *CHECK, *judge, "--annotate", target)
    again = cli("runs", "annotate", "last", target)
    assert again.err == f"{len(tool.annotations)} scores sent to phoenix\n"
    assert outcome.err.endswith(again.err)
    for row in cli("runs", "show", "last", "--json").rows:
        for name, result in row["results"].items():
            if "score" in result:
                kind, annotation = tool.annotations.pop((row["span_id"], name, "textevolve"))
                assert kind == ("LLM" if name == "probe" else "CODE")
                label = "passed" if result["passed"] else "failed"
                expected = {"score": result["score"], "label": label}
                assert annotation == {**expected, "explanation": result["feedback"]}
    assert not tool.annotations
    assert tool.keys == {f"Bearer {KEY}"}


def test_mlflow_has_each_score_of_a_trace_once(tool, cli, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass")
    target = f"mlflow:{tool.url}"
    cli("nodes", "evaluate", EXPORTS / "mlflow-traces.json", *CHECK, "--annotate", target)
    first_payload = json.loads(json.dumps(tool.assessments))
    assert cli("runs", "annotate", "last", target).code == 0
    assert tool.assessments == first_payload
    assert len(first_payload) == 2
    for each in (each for assessments in first_payload.values() for each in assessments.values()):
        label = "passed" if each["feedback"]["value"] == 1 else "failed"
        assert each["metadata"]["label"] == label
        assert each["source"]["source_type"] == "CODE"
        assert "of 0.3 seconds" in each["rationale"]
    assert tool.keys == {"Basic YW5uOnBhc3M="}


def test_rows_with_span_ids_are_annotated_and_the_others_are_counted(tool, cli, model, home):
    span, head = "1234567812345678", "input,output,span_id,trace_id\nWhy?,So.,"
    (home / "rows.csv").write_text(f"{head}{span},ab\nWhen?,Now.,,\nWho?,I.,{span[::-1]},\n")
    run = ("evaluate", "rows.csv", "-m", model, "--annotate", f"phoenix:{tool.url}")
    for judge, chosen in (("probe+rules", ("--judge", "probe+rules")), ("debate", ())):
        outcome = cli(*run, *chosen)
        assert outcome.err.endswith("\n2 scores sent to phoenix, 1 without the ids of a span\n")
        _, annotation = tool.annotations.pop((span, judge, "textevolve"))
        assert annotation["label"] in ("passed", "failed")
    outcome = cli("runs", "annotate", "last", f"mlflow:{tool.url}")
    assert outcome.code == 0
    assert "1 score sent to mlflow, 2 without the ids of a span" in outcome.err + outcome.out
    assert [each["span_id"] for each in tool.assessments["tr-ab"].values()] == [span]


@pytest.mark.parametrize(("name", "place"), [("phoenix", "span"), ("mlflow", "trace")])
def test_what_a_tool_does_not_know_is_named_and_all_else_gets_its_scores(
    tool, cli, home, name, place
):
    ids = [f"n{number:03}" for number in range(210)]
    tool.unknown = ["n000", "n101", "n104", "n209"]
    nodes = [{"node": "n", "episode": id, "span_id": id, "seconds": 0.1} for id in ids]
    (home / "nodes.jsonl").write_text("".join(f"{json.dumps(node)}\n" for node in nodes))
    target = f"{name}:{tool.url}"
    outcome = cli("nodes", "evaluate", "nodes.jsonl", *CHECK, "--annotate", target)
    first_text = ", ".join(f"{'tr-' * (name == 'mlflow')}{id}" for id in tool.unknown[:3])
    refusal = f"{name} refuses the scores of 4 of 210 {place}s (first ids: {first_text}): {name}/"
    assert (outcome.code, f"\nscores are not sent: {refusal}" in outcome.err) == (0, True)
    assert "(404): It does not exist. Send them again with: textevolve runs annotate" in outcome.err
    known_ids = {id for id, _, _ in tool.annotations} | {id[3:] for id in tool.assessments}
    assert known_ids == {*ids} - {*tool.unknown}
    again = cli("runs", "annotate", "last", target)
    assert (again.code, refusal in again.err) == (1, True)
    tool.unknown = ()
    assert cli("runs", "annotate", "last", target).err == f"210 scores sent to {name}\n"


def test_a_refusal_keeps_the_run_and_says_how_to_send_again(tool, cli, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", KEY)
    run = ("nodes", "evaluate", EXPORTS / "mlflow-traces.json", *CHECK, "--annotate")
    for status, message, cause in (
        (404, "Trace not found.", "refused (404): Trace not found."),
        (401, f"Bad key {KEY}", "refuses the key (401)"),
        (500, "Later.", "500: "),
    ):
        tool.refusal = status, {"message": message}
        outcome = cli(*run, f"mlflow:{tool.url}")
        again = re.search(r"Send them again with: textevolve (runs annotate \S+ \S+)$", outcome.err)
        refused = cli(*again[1].split())
        assert (outcome.code, refused.code) == (0, 1)
        assert cause in outcome.err
        assert cause in refused.err
        assert KEY not in outcome.err + refused.err
    tool.refusal = None
    assert cli(*again[1].split()).code == 0
    for target in ("mlflow:sqlite:///m.db", "mlflow:http://a:b@c", "phoenix:", tool.url):
        for outcome in (cli("runs", "annotate", "last", target), cli(*run, target)):
            assert (outcome.code, "start mlflow server" in outcome.err) == (2, True), target
    assert cli("runs", "export", "last", "--to", f"phoenix:{tool.url}").code == 2


def test_a_run_is_one_run_of_mlflow_however_often_it_is_exported(tool, cli):
    cli("nodes", "evaluate", EXPORTS / "mlflow-traces.json", *CHECK, "--name", "pilots")
    for _ in range(2):
        assert cli("runs", "export", "last", "--to", f"mlflow:{tool.url}").code == 0
    ((run,), (experiment,)) = tool.runs, tool.experiments
    assert experiment["name"] == "textevolve"
    assert {"key": "latency", "value": "0.3"} in run["data"]["params"]
    metrics = {each["key"]: each["value"] for each in tool.logged[0]["metrics"]}
    assert metrics["mean"] == pytest.approx(6.872797656586982 / 8)  # the total of the judged
    assert "mean_low" not in metrics  # two episodes are too few for an interval
    assert tool.logged[-1]["run_name"] == "pilots"
    page, table = (tool.files[name] for name in sorted(tool.files, reverse=True))
    assert "<html" in page
    assert "span_id" in table.splitlines()[0]


@pytest.mark.parametrize(
    "name", ["variants.http://127.0.0.1:80/v1#m.mean", "/a//b/../c", "a/./b", "mean", "100 %: ok?"]
)
def test_names_of_metrics_are_shortest_paths(name):
    """MLflow refuses a name that is no path in its shortest form, or leads out of its folder."""
    written = metric_name(name)
    assert posixpath.normpath(written) == written
    assert not written.startswith(("/", ".."))
    assert re.fullmatch(r"[\w\-./: ]+", written)
