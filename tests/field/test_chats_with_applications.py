"""An application under test keeps sessions, sets cookies, names an id to send on, reports its steps
at each turn, and is called with keys: chats stay apart, nothing is lost when turns are joined, and
keys stand in no file.

What an application gets is written down by hand, turn by turn.
"""

import json
from http.server import BaseHTTPRequestHandler
from itertools import chain

import pytest
from multidict import CIMultiDict

import textevolve
from applications import serve
from textevolve import InputError
from textevolve.llm.target_calls import _read_cookies
from textevolve.llm.targets import Target
from textevolve.studies.conversations import join_trajectories
from textevolve.studies.rows import check_body
from textevolve.trajectory import ToolUse, Trajectory, read_trajectory

EXACT = {"label": "city", "metric": "exact"}
CHATS = [{"id": id, "turns": [f"I am {id}.", "Who am I?", "Bye."]} for id in ("Ada", "Ben", "Cy")]


class Desk(BaseHTTPRequestHandler):
    """An application that knows a chat by its cookie or by the id in the body."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        desk = self.server
        desk.requests.append((dict(self.headers), body, self.path))
        answer = {"answer": f"{self.headers.get('Cookie')}|{body.get('session')}"}
        text = body["message"]
        if text.startswith("I am"):
            answer["meta"] = {"chat": text[5:-1]}
        self.send_response(200)
        if text.startswith("I am"):
            self.send_header("Set-Cookie", f"sid={text[5:-1]}; Path=/; HttpOnly")
            self.send_header("Set-Cookie", "lang=pt")
        if text == "Who am I?":
            self.send_header("Set-Cookie", "lang=; Max-Age=0")
        content = json.dumps(answer).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def desk():
    with serve(Desk) as serving:
        serving.requests = []
        serving.url += "/desk"
        yield serving


def compare(cli, home, target, *options):
    (home / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in CHATS))
    outcome = cli(
        *("compare", "--target", target, "-d", "chats.jsonl", "--metric", "regex:."),
        *("-o", "cells.jsonl", *options),
    )
    assert outcome.code == 0, outcome.err
    lines = (home / "cells.jsonl").read_text().splitlines()
    return {cell["row"]: cell["text"].splitlines()[1::2] for cell in map(json.loads, lines)}


@pytest.mark.parametrize(
    ("attributes", "is_ended"),
    [
        ("; Path=/; HttpOnly", False),
        ("; Max-Age=0", True),
        ("; expires=Wed, 21-Oct-2015 07:28:00 GMT", True),
        ("; Expires=Mon, 01 Jan 0001 00:00:00 GMT", True),
        ("; Expires=Fri, 01 Jan 2100 00:00:00 GMT", False),
        ("; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", False),
        ("; Expires=soon", False),
    ],
)
def test_cookies_end_by_date(attributes, is_ended):
    headers = CIMultiDict([("Set-Cookie", f"sid=new{attributes}")])
    assert _read_cookies(headers, {"sid": "old"}) == ({} if is_ended else {"sid": "new"})


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "application/json"])
def test_mislabelled_streams_are_read(home, kind):
    """Servers and gateways send events under another type, or under none."""

    class Streaming(Desk):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            parts = [": ping", 'data: {"answer": "Os"}', 'event: message\ndata: {"answer": "lo"}']
            content = "".join(f"{part}\n\n" for part in [*parts, "data: [DONE]"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serve(Streaming) as serving:
        rows = [{"q": "x", "city": "Oslo"}]
        results = textevolve.compare(rows, targets=[f"{serving.url}/ask"], **EXACT)
    assert results.variants[0].mean.value == 1


def test_cookies_stay_in_their_chat(cli, home, desk):
    answers = compare(cli, home, desk.url)
    for id, texts in answers.items():
        cookies = [text.removeprefix("Assistant: ").partition("|")[0] for text in texts]
        assert cookies == ["None", f"lang=pt; sid={id}", f"sid={id}"]
    assert compare(cli, home, desk.url) == answers  # from the journal
    assert len(desk.requests) == 9


def test_session_ids_are_sent_on(cli, home, desk):
    (home / "desk.yaml").write_text(
        f"target: {desk.url}\nsession: meta.chat\n"
        "body: {message: '{message}', session: '{session}'}\n"
    )
    for id, texts in compare(cli, home, "desk.yaml").items():
        assert [text.partition("|")[2] for text in texts] == ["None", id, id]


def test_function_gets_its_session(cli, home):
    (home / "desk.py").write_text(
        "def reply(row):\n"
        "    return {'answer': str(row.get('session')), 'id': row['messages'][0]['content'][5:]}\n"
    )
    (home / "desk.yaml").write_text("target: python:desk.reply\nsession: id\n")
    for id, texts in compare(cli, home, "desk.yaml").items():
        assert [text.removeprefix("Assistant: ") for text in texts] == ["None", f"{id}.", f"{id}."]


def test_one_chat_at_a_time(cli, home):
    (home / "state.py").write_text(
        "names = []\n"
        "def reply(message):\n"
        "    if message.startswith('I am'):\n        names[:] = [message[5:-1]]\n"
        "    return names[0]\n"
    )
    (home / "state.yaml").write_text("target: python:state.reply\nconcurrency: 1\n")
    for id, texts in compare(cli, home, "state.yaml").items():
        assert texts == [f"Assistant: {id}"] * 3


def test_turns_join_every_field():
    call = ToolUse("search")
    turns = [
        Trajectory(("p1",), (call,), 7, ("slow",)),
        Trajectory(("p2",), (call,), 7),
        Trajectory(("p1",), (), 7, ("cut",)),
    ]
    expected = Trajectory(("p1", "p2"), (call, call), 21, ("slow", "cut"))
    assert join_trajectories(turns) == expected


FIND = {"name": "find", "arguments": {"q": "tide"}, "result": "1"}
BOOK = {"name": "book", "arguments": {"id": 1}}


@pytest.mark.parametrize(
    ("name", "reports", "is_told"),
    [
        ("all", [[FIND], [FIND, BOOK]], True),
        ("late", [[], [FIND], [FIND, BOOK]], True),
        ("idle", [[FIND], [FIND]], True),
        ("own", [[FIND], [BOOK]], False),
        ("mixed", [[FIND], [FIND, BOOK], [BOOK]], False),
        ("last", [[], [FIND]], False),
    ],
)
def test_calls_reported_again_are_told(cli, home, name, reports, is_told):
    """The calls of an answer are its own, as documented. An application that reports all calls so
    far at each turn is told so, once, since its calls count again."""
    (home / f"calls_{name}.py").write_text(
        f"REPORTS = {reports!r}\n"
        "def reply(messages):\n"
        "    return {'answer': 'Yes.', 'tool_calls': REPORTS[len(messages) // 2]}\n"
    )
    (home / "desk.yaml").write_text(f"target: python:calls_{name}.reply\nname: {name}\n")
    turns = ["Go on."] * len(reports)
    (home / "chats.jsonl").write_text(f"{json.dumps({'turns': turns})}\n" * 3)
    outcome = cli(
        *("compare", "--target", "desk.yaml", "-d", "chats.jsonl", "-o", "cells.jsonl"),
        *("--metric", "tool-sequence:exact:find,book"),
    )
    assert outcome.code == 0, outcome.err
    assert outcome.err.count(f"{name}: each answer of a conversation begins with") == is_told
    cell = json.loads((home / "cells.jsonl").read_text().splitlines()[0])
    own = [call["name"] for call in chain.from_iterable(reports)]
    assert [call["name"] for call in cell["tool_calls"]] == own


@pytest.mark.parametrize(
    ("turns", "steps"),
    [
        ([Trajectory(steps=4), Trajectory(tool_calls=(ToolUse("a"), ToolUse("b")))], 6),
        ([Trajectory(steps=4), None], None),
        ([Trajectory(tool_calls=(ToolUse("a"),)), Trajectory(tool_calls=())], None),
        ([Trajectory(steps=0), Trajectory(steps=2)], 2),
    ],
)
def test_unknown_steps_are_unknown(turns, steps):
    assert join_trajectories(turns).steps == steps


@pytest.mark.parametrize("steps", [3, 3.0, "3", "3.0"])
def test_whole_steps_are_read(steps):
    assert read_trajectory({"steps": steps}, "row 1").steps == 3


@pytest.mark.parametrize("steps", [3.5, -1, True, "many", float("nan")])
def test_other_steps_are_refused(steps):
    with pytest.raises(InputError, match="steps must be"):
        read_trajectory({"steps": steps}, "row 1")


@pytest.mark.parametrize(
    "call",
    [
        {"name": "find", "input_parameters": {"q": 1}, "output": "two"},
        {"tool_name": "find", "kwargs": {"q": 1}, "result": "two"},
        {"tool": "find", "tool_input": {"q": 1}, "tool_output": "two"},
        {"name": "find", "arguments": None, "params": '{"q": 1}', "result": "two"},
    ],
)
def test_calls_of_other_tools_are_read(call):
    trajectory = read_trajectory({"tool_calls": [call]}, "row 1")
    assert trajectory.tool_calls == (ToolUse("find", {"q": 1}, "two"),)


SECRETS = [
    "http://app/ask?api_key=abcdef12",
    "http://app/ask?lang=pt&access_token=a",
    "http://app/ask?subscription-key=abcdefgh",
    "http://app/ask?key=AIzaSyB0123456",
    "http://app/v1/sk-proj-abcdefghijklmnop/ask",
    "cmd:./ask.sh --api-key abcdef12",
    "cmd:./ask.sh --password=river",
    "cmd:env SERVICE_TOKEN=abcdef ./ask.sh",
    "cmd:curl -H 'Authorization: Bearer abcdef12' http://app",
    "cmd:curl -u ada:river http://app",
    "cmd:./ask.sh http://ada:river@app",
]
PLAIN = [
    "http://app/ask?max_tokens=500&api_key=env:APP_KEY",
    "http://app/ask?sort_key=created&q=token",
    "cmd:./ask.sh --max-tokens 500 --tokenizer wordpiece",
    "cmd:./ask.sh --primary-key customer_identifier --auth basic",
    'cmd:sh -c "./ask.sh --api-key $APP_KEY"',
]


@pytest.mark.parametrize("target", SECRETS)
def test_keys_are_refused(target):
    with pytest.raises(InputError, match="would be stored with the run"):
        Target(target=target)


@pytest.mark.parametrize("target", PLAIN)
def test_other_words_are_no_keys(target):
    assert Target(target=target).target == target


def test_keys_in_bodies_are_refused():
    with pytest.raises(InputError, match="would be stored"):
        Target(target="http://app/ask", body={"auth": {"api_key": "abcdef12"}, "q": "{q}"})


def test_query_key_comes_from_environment(cli, home, desk, monkeypatch):
    monkeypatch.setenv("DESK_KEY", "a long+key9")
    compare(cli, home, f"{desk.url}?lang=pt&api_key=env:DESK_KEY", "-o", "page.html")
    assert {path for _, _, path in desk.requests} == {"/desk?lang=pt&api_key=a+long%2Bkey9"}
    for path in home.iterdir():
        assert path.is_dir() or b"long+key" not in path.read_bytes()
    monkeypatch.setenv("DESK_KEY", "another-key-7")
    compare(cli, home, f"{desk.url}?lang=pt&api_key=env:DESK_KEY")
    assert len(desk.requests) == 18


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("http://app/{name}/ask", {}),
        ("cmd:./ask.sh {name}", {}),
        ("http://app/ask", {"X-Name": "{name}"}),
    ],
)
def test_placeholders_elsewhere_are_refused(target, headers):
    with pytest.raises(InputError, match="would be sent as it stands"):
        check_body(Target(target=target, headers=headers), ["name"])
