"""Who is answered, and what is refused before anything is asked."""

import asyncio
import json
import logging
import socket
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_http import fetch
from starlette.responses import StreamingResponse

from textevolve.errors import InputError, SettingsError
from textevolve.server import bodies, guard, listening
from textevolve.server.bodies import DEEPEST, LARGEST_BODY, Bodies, json_depth
from textevolve.server.errors import ApiError
from textevolve.server.options import ServerOptions, find_client_key
from textevolve.server.pages import runs

BODY = {
    "model": "jev-latest",
    "state": "Four.",
    "questions": {"right": {"type": "noul", "instructions": "Is it right?"}},
}


LONG_KEY = "a-secret-of-thirty-two-characters"


def test_the_operators_key_is_read_from_the_environment(monkeypatch):
    assert find_client_key(ServerOptions()) is None
    monkeypatch.setenv("OUR_KEY", LONG_KEY)
    assert find_client_key(ServerOptions(host="0.0.0.0", key_env="OUR_KEY")) == LONG_KEY
    monkeypatch.setenv("OUR_KEY", "secret")
    assert find_client_key(ServerOptions(key_env="OUR_KEY")) == "secret"
    monkeypatch.setenv("OUR_KEY", " ")
    with pytest.raises(SettingsError, match="OUR_KEY"):
        find_client_key(ServerOptions(key_env="OUR_KEY"))


def test_a_name_of_another_site_is_not_answered(serve, ask, server):
    url = serve(judge="probe")
    status, said = ask(f"{url}/v1/systemone", BODY, Host="evil.example")
    assert (status, said["detail"]["error_type"]) == (403, "forbidden_host")
    for name in ("[::1", "127.0.0.1@evil.example", ""):
        assert ask(f"{url}/v1/systemone", BODY, Host=name)[0] in (400, 403)
    for name in ("localhost:8400", "[::1]:8400", "127.0.0.1"):
        assert ask(f"{url}/v1/systemone", BODY, Host=name)[0] == 200


def test_what_a_page_may_send_without_leave_is_refused(serve, ask, server):
    url = serve(judge="probe")
    status, said = ask(f"{url}/v1/decisions", BODY, Content_Type="text/plain")
    assert (status, said["error"]["code"]) == (415, "unsupported_media_type")
    assert server.calls == 0


def test_each_api_has_errors_in_its_own_shape(serve, ask):
    url = serve("the-key", judge="probe")
    status, said = ask(f"{url}/v1/systemone", BODY)
    assert (status, said["detail"]["error_type"]) == (401, "authentication_error")
    status, said = ask(f"{url}/v1/decisions", BODY, Authorization="Bearer the-kex")
    assert (status, said["error"]["code"]) == (401, "invalid_api_key")
    assert ask(f"{url}/v1/models", Authorization="Bearer the-key")[0] == 200
    assert ask(f"{url}/v1/models")[1].keys() == {"detail", "error"}
    assert ask(f"{url}/health")[1]["status"] == "ok"
    assert "the-key" not in str(said)


def test_a_body_that_is_too_large_is_refused(serve, ask, server):
    url = serve(judge="probe")
    largest = json.dumps(BODY).encode().ljust(LARGEST_BODY)
    assert ask(f"{url}/v1/systemone", largest)[0] == 200
    status, said = ask(f"{url}/v1/systemone", largest + b" ")
    assert (status, said["detail"]["error_type"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"model": 1}',
        {**BODY, "state": 4},
        {**BODY, "questions": {"": BODY["questions"]["right"]}},
        {**BODY, "questions": {"q": {"type": "noul"}}},
        {**BODY, "questions": {"q": {"type": "noul", "instructions": "?", "criteria": {"yes": 1}}}},
        {**BODY, "questions": {"q": {"type": "choice", "criteria": {"one": None}}}},
        {**BODY, "questions": {"q": {"type": "score", "criteria": ["x"] * 11}}},
        {**BODY, "assets": {"a": {"type": "image"}}},
        {**BODY, "state": " "},
    ],
    ids=range(11),
)
def test_a_body_that_cannot_be_used_is_told_so(serve, ask, server, body):
    status, said = ask(f"{serve(judge='probe')}/v1/systemone", body)
    assert status == 422
    assert said["detail"][0]["loc"][0] == "body"
    assert server.calls == 0


@pytest.mark.parametrize("served", [{"judge": "probe"}, {}], ids=["judge", "model"])
def test_json_is_nested_as_deeply_as_is_taken(serve, ask, served):
    url = serve(**served)
    before, after = json.dumps(BODY).split('"Four."')
    for depth in (DEEPEST - 1, DEEPEST, 950, 5000):
        deep = f"{before}{'[' * depth}{']' * depth}{after}"
        told = ask(f"{url}/v1/systemone", deep.encode())
        assert told[0] == (200 if depth < DEEPEST else 422)
    flat = {**BODY, "state": [{"a": "[" * 500, "b": '\\"{'}] * 300}
    assert ask(f"{url}/v1/systemone", flat)[0] == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input",
        ),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": []}, "input"),
        (
            {
                "questions": [
                    {"type": "choice", "instructions": "?", "choices": [{"value": True}] * 2}
                ]
            },
            "questions",
        ),
    ],
)
def test_an_input_that_cannot_be_used_is_told_so(serve, ask, server, body, param):
    asked = {"type": "predicate", "instructions": "Is it right?"}
    whole = {"model": "gpt-6-luna", "input": "Four.", "questions": [asked], **body}
    status, said = ask(f"{serve(judge='probe')}/v1/decisions", whole)
    assert status == 400
    assert said["error"]["param"].startswith(param)
    assert server.calls == 0


def test_half_a_surrogate_pair_is_refused(serve, ask):
    url = f"{serve(judge='probe')}/v1/systemone"
    odd = {"type": "choice", "instructions": "Which?", "criteria": {"\ud800": None, "é": None}}
    for questions in ({"q": odd}, {"\ud800": BODY["questions"]["right"]}):
        status, said = ask(url, {**BODY, "questions": questions})
        assert status == 422
        assert "surrogate" in str(said) or "unicode" in str(said)


def test_only_what_was_named_is_served(serve, ask, server, home):
    url = serve(judge="probe")
    (home / "rules.yaml").write_text("rules:\n  - kind: length\n    max: 3\n")
    address = f"{server.url}#other"
    named = ("judge/rules:rules.yaml", "judge/checklist", address, f"judge/{address}", "local")
    for name in (*named, "http://169.254.169.254/latest#x", "file:///etc/passwd", "local/../x"):
        status, said = ask(f"{url}/v1/systemone", {**BODY, "model": name})
        assert (status, said["detail"]["error_type"]) == (404, "model_not_found")
        assert "probe" not in said["detail"]["message"]
    texts = {"state": "@rules.yaml", "questions": {"q": {"type": "noul", "instructions": "@/etc"}}}
    assert ask(f"{url}/v1/systemone", {**BODY, **texts})[0] == 200
    assert "@rules.yaml" in json.dumps(
        list(server.requests)
    )  # a text is a text, and no file is read


def test_anything_is_served_where_the_operator_says_so(serve, ask, server):
    url = serve(judge="probe", any=True)
    status, said = ask(f"{url}/v1/systemone", {**BODY, "model": "judge/checklist"})
    assert (status, said["model"]) == (200, "judge/checklist")
    status, said = ask(f"{url}/v1/systemone", {**BODY, "model": "judge/nix"})
    assert (status, said["detail"]["error_type"]) == (404, "model_not_found")


def test_an_alias_stands_for_what_is_served(serve, ask, model):
    url = serve(judge=("probe", "checklist"), alias={"mine": "judge/checklist"})
    assert ask(f"{url}/v1/systemone", {**BODY, "model": "mine"})[1]["model"] == "judge/checklist"
    assert ask(f"{url}/v1/systemone", BODY)[1]["model"] == "judge/probe"
    with pytest.raises(InputError, match="not served"):
        serve(judge="probe", alias={"mine": "judge/checklist"})
    with pytest.raises(InputError, match="no judge"):
        serve(judge="prope")


# What no path sees: each of these is refused before it is looked at what is asked.


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content_Encoding": "gzip"}, 415, "unsupported_encoding"),
        ({"Content_Encoding": "deflate, gzip"}, 415, "unsupported_encoding"),
        ({"Content_Encoding": ["identity", "br"]}, 400, "invalid_request"),
        ({"Authorization": ["Bearer a", "Bearer b"]}, 400, "invalid_request"),
        ({"Content_Type": "text/plain"}, 415, "unsupported_media_type"),
        ({"Content_Type": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"Content_Type": ""}, 415, "unsupported_media_type"),
        ({f"X_{n}": "x" for n in range(120)}, 431, "headers_too_large"),
        ({f"X_{n}": "x" * 4000 for n in range(10)}, 431, "headers_too_large"),
        ({"Origin": "http://evil.example"}, 403, "forbidden_origin"),
        ({"Origin": "null"}, 403, "forbidden_origin"),
        ({"Origin": "http://127.0.0.1:1"}, 403, "forbidden_origin"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "forbidden_origin"),
        ({"Sec_Fetch_Site": "same-site"}, 403, "forbidden_origin"),
        ({"Host": "evil.example"}, 403, "forbidden_host"),
        ({"X_Forwarded_For": "203.0.113.9"}, 403, "forbidden_host"),
        ({"Forwarded": "for=203.0.113.9"}, 403, "forbidden_host"),
    ],
    ids=range(18),
)
def test_an_odd_request_is_refused(serve, headers, status, code):
    url = serve(judge="probe")
    # The parser hangs up at too many headers, and a body that came later would reset the line.
    body = None if status == 431 else json.dumps(BODY).encode()
    headers = {"Content_Type": "application/json", **headers}
    reply = fetch(f"{url}/v1/models", "POST", body, **headers)
    assert (reply.status, reply.code) == (status, code)


def test_two_hosts_are_refused(serve):
    # Without a body: the parser hangs up at once, and a body that came later would reset the line.
    url = serve(judge="probe")
    assert fetch(f"{url}/v1/models", Host=["127.0.0.1", "evil.example"]).status == 400


def test_a_long_address_is_refused(serve):
    url = serve(judge="probe")
    assert fetch(f"{url}/v1/models?{'x' * 9000}").status == 414


def test_every_answer_tells_browsers_what_not_to_do(serve, monkeypatch):
    url = serve(judge="probe")

    def fail(*_given, **_named):
        raise RuntimeError("on purpose")

    replies = {
        path: fetch(f"{url}{path}")
        for path in ("/health", "/v1/models", "/runs", "/", "/nowhere", "/static/page.js")
    }
    replies["refused"] = fetch(f"{url}/runs", Host="evil.example")
    replies["invalid"] = fetch(f"{url}/v1/systemone", "POST", {"model": 1})
    monkeypatch.setattr("textevolve.server.pages.runs.draw", fail)
    replies["failed"] = fetch(f"{url}/runs")
    assert replies["failed"].status == 500
    for path, reply in replies.items():
        found = reply.headers
        policy = found["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert found["x-frame-options"] == "DENY"
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "same-origin"
        assert found["cross-origin-opener-policy"] == "same-origin"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert found["cache-control"] == ("no-cache" if "static" in path else "no-store")
        assert "access-control-allow-origin" not in found
        assert "server" not in found


def test_no_other_site_is_given_leave_to_ask(serve):
    """A page may send JSON to us only if we say so when its browser asks before."""
    url = serve(judge="probe")
    asked = {"Origin": "http://evil.example", "Access_Control_Request_Method": "POST"}
    reply = fetch(f"{url}/v1/systemone", "OPTIONS", **asked)
    assert reply.status in (403, 405)
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_files_of_the_server_are_not_static(serve):
    url = serve(judge="probe")
    for path in ("../templates/layout.html", "..%2f..%2fapp.py", "%2e%2e/templates/login.html"):
        assert fetch(f"{url}/static/{path}").status == 404
    assert fetch(f"{url}/static/").status == 404


def test_a_body_that_does_not_come_is_waited_for_a_while_only(serve, server, monkeypatch):
    monkeypatch.setattr(bodies, "PART_SECONDS", 0.05)
    url = serve(judge="probe")
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.putrequest("POST", "/v1/systemone")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b'{"model": ')
        answer = connection.getresponse()
        assert answer.status == 408
        assert b"request_timeout" in answer.read()
    assert server.calls == 0


async def test_a_body_that_comes_byte_by_byte_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)

    async def receive():
        await asyncio.sleep(0.005)
        return {"type": "http.request", "body": b" ", "more_body": True}

    with pytest.raises(ApiError) as refused:
        await bodies.read_body(receive, LARGEST_BODY)
    assert refused.value.status == 408


async def test_more_than_is_taken_is_not_kept(monkeypatch):
    given = []

    async def receive():
        given.append(1000)
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    with pytest.raises(ApiError) as refused:
        await bodies.read_body(receive, 5000)
    assert refused.value.status == 413
    assert sum(given) <= 9 * 5000


def test_all_bodies_together_have_bounds(monkeypatch):
    held = Bodies()
    with held.hold(bodies.BODIES_AT_ONCE - 10):
        with held.hold(10):
            pass
        with pytest.raises(ApiError) as refused, held.hold(11):
            pass
        assert refused.value.status == 503
    assert held.held == 0


@pytest.mark.parametrize("start", [b"", b"GET / HT", b"GET /health HTTP/1.1\r\nX-Slow: "])
def test_who_does_not_say_what_they_ask_is_let_go(serve, monkeypatch, start):
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.1)
    url = serve(judge="probe")
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(start)
        assert client.recv(100) == b""


def test_a_client_that_takes_nothing_is_let_go(serve, monkeypatch, caplog):
    """It asks for a stream, never reads, and the stream is ended all the same."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(guard, "SEND_SECONDS", 0.1)

    async def stream():
        while True:
            yield b"x" * 2**16

    monkeypatch.setattr(runs, "draw", lambda *_, **__: StreamingResponse(stream()))
    url = serve(judge="probe")
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until = time.monotonic() + 60
        while "takes nothing" not in caplog.text:
            assert time.monotonic() < until, "the stream goes on"
            time.sleep(0.01)
    serve.end()


def test_web_sockets_are_not_spoken(serve):
    url = serve(judge="probe")
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    reply = fetch(f"{url}/runs", Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==", **asked)
    assert reply.status != 101


_JSON = st.recursive(
    st.none() | st.text('[]{}"\\ a'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\'), inner, max_size=3)
    ),
)


def depth_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 if isinstance(value, list | dict) else 0) + max(map(depth_of, inner), default=0)


@given(_JSON)
def test_brackets_in_texts_make_nothing_deeper(value):
    assert json_depth(json.dumps(value).encode()) == depth_of(value)


@given(st.binary(max_size=60))
def test_the_depth_of_anything_can_be_told(body):
    assert json_depth(body) >= 0 or body


@pytest.mark.parametrize("part", [b'"', b'\\"', b'"\\', b"[", b'["', b'{"\\"'])
def test_the_depth_of_a_large_body_is_soon_told(part):
    """In time that grows with its length; else this would not end."""
    assert json_depth(part * (2**20 // len(part))) >= 0
