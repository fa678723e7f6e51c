"""Applications under test: how they are called, what is read of their answers, what is kept."""

import asyncio
import http.server
import json
import signal
import threading
import time
from contextlib import AsyncExitStack

import pytest

import textevolve
from applications import serve
from textevolve.errors import AccessError, AnswerError, InputError, UnavailableError
from textevolve.events import silence
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.target_calls import TargetModel, open_target_model
from textevolve.llm.targets import EVENTS, Target
from textevolve.llm.testing import Answer
from textevolve.reach import Reach, confine
from textevolve.runs import driver
from textevolve.runs.study import read_study
from textevolve.settings import Settings
from textevolve.studies.rows import ask_target, read_target_answer, write_request
from textevolve.trajectory import ToolUse, Trajectory, read_trajectory
from textevolve.user_code import FirstResults


class App(http.server.BaseHTTPRequestHandler):
    """An application of a user: doubles a number, with what it looked up."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        app = self.server
        with app.lock:
            app.requests.append((self.path, dict(self.headers), sent))
        status, kind, body = app.answer(sent)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def double(sent):
    n = int(sent["question"])
    body = {
        "answer": str(2 * n),
        "contexts": [f"{n} and {n}", "makes a sum"],
        "tool_calls": [{"name": "add", "arguments": {"a": n, "b": n}, "result": 2 * n}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1},
    }
    return 200, "application/json", json.dumps(body).encode()


@pytest.fixture
def app():
    with serve(App) as serving:
        serving.requests, serving.lock, serving.answer = [], threading.Lock(), double
        serving.url += "/ask"
        yield serving


@pytest.fixture
def rows(home):
    path = home / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({"question": n, "sum": str(2 * n)}) + "\n" for n in range(6))
    )
    return path


def compare(*targets, more=()):
    parts = [part for target in targets for part in ("--target", target)]
    return ("compare", *parts, "-d", "rows.jsonl", "--label", "sum", "--metric", "exact", *more)


def cells(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_targets_stand_side_by_side_and_nothing_is_asked_twice(cli, home, rows, app):
    (home / "apps.py").write_text("def wrong(question):\n    return 'no'\n")
    command = compare(app.url, "python:apps.wrong", more=("-o", "cells.jsonl", "-o", "page.html"))
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    assert len(app.requests) == 6
    assert app.requests[0][2].keys() == {"question"}  # the label is not sent
    assert {type(sent["question"]) for _, _, sent in app.requests} == {int}
    found = cells(home / "cells.jsonl")
    mine = [cell for cell in found if cell["variant"] == app.url]
    assert [cell["score"] for cell in mine] == [1.0] * 6
    assert mine[1]["contexts"] == ["1 and 1", "makes a sum"]
    call = {"name": "add", "arguments": {"a": 1, "b": 1}, "result": "2"}
    assert mine[1]["tool_calls"] == [call]
    assert mine[1]["usage"]["prompt_tokens"] == 7
    assert {cell["score"] for cell in found if cell["variant"] == "apps.wrong"} == {0.0}
    assert "add({&#34;a&#34;: 1" in (home / "page.html").read_text()
    again = cli(*command)
    assert (again.code, len(app.requests)) == (0, 6)
    assert cli(*compare(app.url, more=("--target-version", "2"))).code == 0
    assert len(app.requests) == 12


def test_a_stopped_run_goes_on_and_a_failed_call_is_a_failed_cell(cli, home, rows, app):
    assert cli(*compare(app.url, more=("--max-calls", "2"))).code == 3
    assert len(app.requests) == 2

    def refuse_four(sent):
        return double(sent) if sent["question"] != 4 else (422, "text/plain", b"too hard")

    app.answer = refuse_four
    outcome = cli(*compare(app.url, more=("-o", "cells.jsonl")))
    assert (outcome.code, len(app.requests)) == (3, 6)
    failed = [cell for cell in cells(home / "cells.jsonl") if cell["score"] is None]
    assert [cell["row"] for cell in failed] == ["5"]
    assert "too hard" in failed[0]["reason"]
    app.answer = double
    assert cli(*compare(app.url)).code == 0
    assert len(app.requests) == 7


@pytest.mark.slow
def test_an_interrupted_run_asks_only_what_has_no_answer(cli, spawn, home, rows, app):
    release = threading.Event()

    def stall(sent):
        if sent["question"] >= 3:
            release.wait(60)
        return double(sent)

    app.answer = stall
    process = spawn(*compare(app.url, more=("--concurrency", "1")))
    until = time.monotonic() + 60
    while len(app.requests) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    release.set()
    assert cli(*compare(app.url)).code == 0
    questions = [sent["question"] for _, _, sent in app.requests]
    assert sorted(questions) == [0, 1, 2, 3, 3, 4, 5]  # the one without an answer again


def test_a_file_of_a_target_says_what_is_sent_and_read(cli, home, rows, app, monkeypatch):
    monkeypatch.setenv("APP_TENANT", "acme-secret-tenant")
    monkeypatch.setenv("TEXTEVOLVE_TARGET_KEY", "a-long-secret-key")

    def nested(sent):
        text = f"{2 * sent['input']['n']} acme-secret-tenant"
        kind = "application/json"
        return (
            200,
            kind,
            json.dumps({"data": [{"text": text, "docs": [{"content": "d"}]}]}).encode(),
        )

    app.answer = nested
    (home / "mine.yaml").write_text(
        f"target: {app.url}?v=1\nname: my app\nheaders: {{X-Tenant: env:APP_TENANT}}\n"
        "body: {input: {n: '{question}', text: 'What is {question}?'}, stream: false}\n"
        "answer: data.0.text\ncontexts: data.0.docs\n"
    )
    assert cli(*compare("mine.yaml", more=("-o", "cells.jsonl"))).code == 0
    path, headers, sent = min(app.requests, key=lambda one: one[2]["input"]["n"])
    assert path == "/ask?v=1"
    assert headers["X-Tenant"] == "acme-secret-tenant"
    assert headers["Authorization"] == "Bearer a-long-secret-key"
    assert sent == {"input": {"n": 0, "text": "What is 0?"}, "stream": False}
    first = cells(home / "cells.jsonl")[0]
    assert (first["variant"], first["contexts"]) == ("my app", ["d"])
    assert first["text"] == "0 [key]"  # what repeats a secret does not bring it into the store
    for bad, answer in (
        ("headers: {Authorization: Bearer x}", "env:NAME"),
        ("body: {q: '{qestion}'}", "is not a column"),
        ("body: {q: hello}", "has no placeholder"),
        ("body: 'hello {question}'", "targets.0.body"),
        ("nane: x", "unknown field"),
    ):
        (home / "bad.yaml").write_text(f"target: {app.url}\n{bad}\n")
        outcome = cli(*compare("bad.yaml"))
        assert (outcome.code, answer in outcome.err) == (2, True), outcome.err
    assert len(app.requests) == 6


def test_judges_of_retrieval_read_what_came_back(cli, home, rows, app, server, model):
    server.script = lambda body, _: (
        Answer(yes=0.9) if body.get("max_tokens") == 1 else '{"statements": ["It is so."]}'
    )
    judges = ("faithfulness", "answer-relevance", "context-recall", "context-precision")
    names = [part for judge in judges for part in ("-j", judge)]
    outcome = cli(
        *("compare", "--target", app.url, "-d", "rows.jsonl", "--label", "sum", *names),
        *("--judge-model", model, "--input", "question", "-o", "cells.jsonl"),
    )
    assert outcome.code == 0, outcome.err
    found = cells(home / "cells.jsonl")
    assert all(set(cell["scores"]) == set(judges) for cell in found)
    assert all(score > 0.5 for cell in found for score in cell["scores"].values())
    prompts = [str(body) for body in server.requests]
    assert any("3 and 3" in prompt for prompt in prompts)
    outcome = cli(*compare(app.url, more=("--dry-run", "--json", "--target-version", "never")))
    assert json.loads(outcome.out)["expected"]["calls"]["median"] == 6
    assert len(app.requests) == 6


def test_evaluate_judges_the_answers_of_a_target(cli, home, app, server, model):
    (home / "app.yaml").write_text(f"target: {app.url}\nbody: {{question: '{{input}}'}}\n")
    (home / "cases.csv").write_text("input,reference\n3,6\n4,9\n")
    command = ("evaluate", "cases.csv", "--target", "app.yaml", "-j", "metric:exact")
    outcome = cli(*command, "-o", "out.jsonl")
    assert outcome.code == 0, outcome.err
    lines = cells(home / "out.jsonl")
    assert [line["candidates"][0]["score"] for line in lines] == [1.0, 0.0]
    assert lines[0]["contexts"] == ["3 and 3", "makes a sum"]
    assert cli(*command).code == 0
    assert len(app.requests) == 2
    (home / "cases.csv").write_text("input,output\n3,6\n")
    outcome = cli(*command)
    assert (outcome.code, "--map reference=COLUMN" in outcome.err) == (3, True), outcome.err
    server.script = lambda body, _: Answer(yes=0.9)
    outcome = cli("evaluate", "5", "--target", "app.yaml", "-j", "probe", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    assert any("10" in str(body) for body in server.requests)


def test_functions_of_a_program_are_targets(home):
    async def shout(row):
        await asyncio.sleep(0)
        return {"answer": row["word"].upper(), "tool_calls": []}

    seen = []

    def metric(output, label, row):
        seen.append(row["tool_calls"])
        return output == label

    data = [{"word": "a", "loud": "A"}, {"word": "b", "loud": "B"}]
    comparison = textevolve.compare(data, targets=[shout], metric=metric, label="loud")
    assert comparison.variants[0].mean.value == 1
    assert seen == [[], []]
    results = list(
        textevolve.evaluate_batch(
            [{"input": "x", "reference": "X?"}],
            target=lambda row: row["input"].upper() + "?",
            judge="metric:exact",
        )
    )
    assert results[0].scores == (1.0,)


def test_new_version_repeats_calls(home):
    """What an application reads is no part of its code: a version says that it has changed."""
    words = home / "words.txt"

    def ask_place(row):
        return words.read_text()

    def measure(version):
        options = {"label": "place", "metric": "exact", "target_version": version}
        return textevolve.compare([{"place": "Oslo"}], targets=[ask_place], **options)

    words.write_text("Oslo")
    assert measure("1").variants[0].mean.value == 1
    words.write_text("Bergen")
    assert measure("1").variants[0].mean.value == 1
    assert measure("2").variants[0].mean.value == 0


def ask(target, body="{}", objects=None, settings=None):
    """The answer of a target to one body, without retries."""

    async def main():
        async with AsyncExitStack() as stack:
            opened = open_target_model(
                target, objects or {}, settings or Settings(), silence, stack
            )
            request = Request(messages=(Message("user", (body,)),))
            return [(await opened(request)).text for _ in range(2)]

    return asyncio.run(main())


def test_errors_of_functions_say_what_to_do(home):
    def broken(row):
        raise ValueError("no such customer")

    for function, answer in (
        (broken, "broken raised ValueError: no such customer"),
        (lambda row: object(), "Unable to serialize unknown type"),
    ):
        with pytest.raises(AnswerError, match=answer):
            ask(Target(target="python:x.f"), objects={"python:x.f": function})
    with pytest.raises(InputError, match="cannot be loaded"):
        ask(Target(target="python:nowhere.f"))


PROGRAM = """
import json, sys
print("starting", file=sys.stderr)
for number, line in enumerate(sys.stdin):
    row = json.loads(line)
    {body}
"""


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("print(json.dumps({'answer': number}))", ['{"answer": 0}'] * 2),  # started anew
        ("print('hello'); print(2)", ['"hello\\n2"'] * 2),
        ("raise SystemExit(row['none'])", "KeyError: 'none'"),
    ],
)
def test_a_program_answers_a_line(home, body, outcome):
    (home / "app.py").write_text(PROGRAM.format(body=body))
    target = Target(target="cmd:python3 app.py")
    if isinstance(outcome, list):
        assert ask(target) == outcome
        return
    with pytest.raises(AnswerError, match=outcome):
        ask(target)


def test_programs_that_are_not_there_or_stay_silent_end_in_a_sentence(home):
    with pytest.raises(AccessError, match="cannot be started"):
        ask(Target(target="cmd:no-such-program --x"))
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=r"no answer in 0\.3 s"):
        ask(Target(target="cmd:sleep 600", timeout=0.3))
    assert time.monotonic() - began < 20


def test_clients_of_a_server_call_no_targets(home, app):
    for kind, field in (("compare", {"targets": [app.url]}), ("evaluate", {"target": "cmd:true"})):
        study, spec = read_study({"kind": kind, **field})
        with confine(Reach()), pytest.raises(InputError, match="calls no targets for its clients"):
            asyncio.run(driver.specify(study, spec, Settings()))
    with confine(Reach()), pytest.raises(InputError, match="calls no targets"):
        ask(Target(target=app.url))
    assert app.requests == []


@pytest.mark.parametrize(
    "target", ["ftp://x/y", "http://u:p@host/x", "python:", "nothing", "cmd: ", "cmd:a '"]
)
def test_other_targets_are_refused(target):
    with pytest.raises(InputError):
        Target(target=target)


async def silent(_request):
    return Response("null", "stop", textevolve.Usage())


def read(value, reason="stop", **fields):
    target = Target(target="http://app/ask", **fields)
    return read_target_answer(target, Response(json.dumps(value), reason, textevolve.Usage()))


def test_answers_are_read_by_paths_and_events_are_joined():
    assert read("plain").text == "plain"
    assert read({"output": {"sql": 1}}).text == '{"sql": 1}'
    assert read({"answer": "a"}).trajectory is None
    messages = {"messages": [{"content": "q"}, {"content": "last"}]}
    assert read(messages, answer="messages.-1.content").text == "last"
    with pytest.raises(AnswerError, match="reports an error: quota"):
        read({"error": "quota"})
    with pytest.raises(AnswerError, match="no field 'answer or output' in its answer: null"):
        asyncio.run(ask_target(silent, Target(target="cmd:x"), Request(messages=())))
    with pytest.raises(AnswerError, match="tool calls must be a list"):
        read({"answer": "a", "tool_calls": 3})
    events = [
        {"choices": [{"delta": {"content": "Hel"}}]},
        {"choices": [{"delta": {"content": "lo"}}], "docs": ["d"]},
        {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.5}},
    ]
    target_answer = read(events, EVENTS, answer="choices.0.delta.content", contexts="docs")
    assert (target_answer.text, target_answer.context) == ("Hello", "d")
    assert target_answer.usage is not None
    assert (target_answer.usage.tokens, target_answer.usage.cost) == (5, 0.5)
    assert read({"answer": "a", "usage": {"prompt_tokens": "many"}}).usage == textevolve.Usage(
        1, cost=None
    )


def test_server_sent_events_are_an_answer(cli, home, rows, app):
    def stream(sent):
        n = str(2 * sent["question"])
        events = [f"data: {part}\n\n" for part in (*n, "[DONE]")]
        return 200, "text/event-stream; charset=utf-8", f": hi\n\n{''.join(events)}".encode()

    app.answer = stream
    assert cli(*compare(app.url, more=("-o", "cells.jsonl"))).code == 0
    assert [cell["score"] for cell in cells(home / "cells.jsonl")] == [1.0] * 6


@pytest.mark.parametrize(
    "call",
    [
        {"name": "f", "arguments": {"x": 1}},
        {"name": "f", "args": {"x": 1}},
        {"type": "tool_use", "name": "f", "input": {"x": 1}},
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    ],
)
def test_tool_calls_of_each_framework_are_read(call):
    trajectory = read_trajectory({"tool_calls": json.dumps([call]), "steps": 2}, "row 1")
    assert trajectory == Trajectory((), (ToolUse("f", {"x": 1}),), 2)
    assert read_trajectory(trajectory.as_row(), "row 1") == trajectory
    assert read_trajectory({"steps": None}, "row 1") is None


def test_a_request_differs_by_row_version_and_headers_alone():
    plain = Target(target="http://app/ask")
    first_request = write_request(plain, {"q": "x"}, "")
    assert first_request == write_request(
        plain.model_copy(update={"answer": "text"}), {"q": "x"}, ""
    )
    for other in (
        write_request(plain, {"q": "y"}, ""),
        write_request(plain, {"q": "x"}, "2"),
        write_request(plain.model_copy(update={"headers": {"X-Mode": "b"}}), {"q": "x"}, ""),
        write_request(plain, {"q": "x"}, "", sample=1),
    ):
        assert first_request != other


def test_the_target_model_keeps_no_time_of_others():
    async def never(_body, _cookies):
        await asyncio.sleep(60)

    model = TargetModel(Target(target="python:a.b"), never, 0.01, "", FirstResults("target"))
    with pytest.raises(UnavailableError, match=r"no answer in 0\.01 s"):
        asyncio.run(model(Request(messages=(Message("user", ("{}",)),))))
