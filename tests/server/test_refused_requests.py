"""Requests that the server refuses before anything is asked, and what it answers to whom."""

import json

import pytest
from plain_http import QUESTION as BODY
from plain_http import fetch

from textevolve import InputError

pytestmark = pytest.mark.guard

LARGEST_BODY = 2 * 2**20
"""Bytes, and levels of JSON, that a request may have."""


def test_a_name_of_another_site_is_not_answered(serve, ask, server):
    url = serve(judge="probe")
    status, answer = ask(f"{url}/v1/systemone", BODY, Host="evil.example")
    assert (status, answer["detail"]["error_type"]) == (403, "forbidden_host")
    for name in ("[::1", "127.0.0.1@evil.example", ""):
        assert ask(f"{url}/v1/systemone", BODY, Host=name)[0] in (400, 403)
    for name in ("localhost:8400", "[::1]:8400", "127.0.0.1"):
        assert ask(f"{url}/v1/systemone", BODY, Host=name)[0] == 200


def test_each_api_has_errors_in_its_own_shape(serve, ask):
    url = serve("the-key", judge="probe")
    status, answer = ask(f"{url}/v1/systemone", BODY)
    assert (status, answer["detail"]["error_type"]) == (401, "authentication_error")
    status, answer = ask(f"{url}/v1/chat/completions", BODY, Authorization="Bearer the-kex")
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert ask(f"{url}/v1/models", Authorization="Bearer the-key")[0] == 200
    assert ask(f"{url}/v1/models")[1].keys() == {"detail", "error"}
    assert ask(f"{url}/health")[1]["status"] == "ok"
    assert "the-key" not in str(answer)


def test_a_body_that_is_too_large_is_refused(serve, ask, server):
    url = serve(judge="probe")
    largest = json.dumps(BODY).encode().ljust(LARGEST_BODY)
    assert ask(f"{url}/v1/systemone", largest)[0] == 200
    status, answer = ask(f"{url}/v1/systemone", largest + b" ")
    assert (status, answer["detail"]["error_type"]) == (413, "request_too_large")


def test_a_body_that_cannot_be_used_is_told_so(serve, ask, server):
    url = serve(judge="probe")
    right = BODY["questions"]["right"]
    for body in (
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"model": 1}',
        {**BODY, "state": 4},
        {**BODY, "questions": {"": right}},
        {**BODY, "questions": {"q": {"type": "noul"}}},
        {**BODY, "questions": {"q": {"type": "score", "criteria": ["x"] * 11}}},
        {**BODY, "questions": {"\ud800": right}},
        {**BODY, "assets": {"a": {"type": "image"}}},
    ):
        status, answer = ask(f"{url}/v1/systemone", body)
        assert status == 422
        assert answer["detail"][0]["loc"][0] == "body"
    assert server.calls == 0


def test_json_that_is_nested_too_deeply_is_refused(serve, ask):
    url = serve(judge="probe")
    before, after = json.dumps(BODY).split('"Four."')
    for depth in (100, 100_000):
        deep = f"{before}{'[' * depth}{']' * depth}{after}"
        answer = ask(f"{url}/v1/systemone", deep.encode())
        assert answer[0] == (200 if depth == 100 else 422)


def test_only_what_was_named_is_served(serve, ask, server, home):
    url = serve(judge="probe")
    (home / "rules.yaml").write_text("rules:\n  - kind: length\n    max: 3\n")
    address = f"{server.url}#other"
    names = ("judge/rules:rules.yaml", "judge/checklist", address, f"judge/{address}", "local")
    for name in (*names, "http://169.254.169.254/latest#x", "file:///etc/passwd", "local/../x"):
        status, answer = ask(f"{url}/v1/systemone", {**BODY, "model": name})
        assert (status, answer["detail"]["error_type"]) == (404, "model_not_found")
        assert "probe" not in answer["detail"]["message"]
    texts = {"state": "@rules.yaml", "questions": {"q": {"type": "noul", "instructions": "@/etc"}}}
    assert ask(f"{url}/v1/systemone", {**BODY, **texts})[0] == 200
    assert "@rules.yaml" in json.dumps(
        list(server.requests)
    )  # a text is a text, and no file is read


def test_an_alias_stands_for_what_is_served(serve, ask, model):
    url = serve(judge=("probe", "checklist"), alias={"mine": "judge/checklist"})
    assert ask(f"{url}/v1/systemone", {**BODY, "model": "mine"})[1]["model"] == "judge/checklist"
    assert ask(f"{url}/v1/systemone", BODY)[1]["model"] == "judge/probe"
    with pytest.raises(InputError, match="the server has no such model"):
        serve(judge="probe", alias={"mine": "judge/checklist"})
    with pytest.raises(InputError, match="is not the name of a judge"):
        serve(judge="prope")


ODD = (
    ({"Content_Encoding": "gzip"}, 415, "unsupported_encoding"),
    ({"Content_Encoding": ["identity", "br"]}, 400, "invalid_request"),
    ({"Authorization": ["Bearer a", "Bearer b"]}, 400, "invalid_request"),
    ({"Content_Type": "text/plain"}, 415, "unsupported_media_type"),
    ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    ({"Content_Type": ""}, 415, "unsupported_media_type"),
    ({f"X_{n}": "x" for n in range(120)}, 431, "headers_too_large"),
    ({f"X_{n}": "x" * 4000 for n in range(10)}, 431, "headers_too_large"),
    ({"Origin": "http://evil.example"}, 403, "forbidden_origin"),
    ({"Origin": "null"}, 403, "forbidden_origin"),
    ({"Sec_Fetch_Site": "cross-site"}, 403, "forbidden_origin"),
    ({"Host": "evil.example"}, 403, "forbidden_host"),
    ({"X_Forwarded_For": "203.0.113.9"}, 403, "forbidden_host"),
    ({"Forwarded": "for=203.0.113.9"}, 403, "forbidden_host"),
)


def test_an_odd_request_is_refused(serve):
    url = serve(judge="probe")
    for headers, status, code in ODD:
        # The parser hangs up at too many headers, and a body that came later would reset the line.
        body = None if status == 431 else json.dumps(BODY).encode()
        headers = {"Content_Type": "application/json", **headers}
        reply = fetch(f"{url}/v1/models", "POST", body, **headers)
        assert (reply.status, reply.code) == (status, code), headers
    assert fetch(f"{url}/v1/models?{'x' * 9000}").status == 414
    twice = fetch(f"{url}/v1/studies?limit=1&cursor=&limit=2")
    assert (twice.status, "limit is given twice" in twice.text) == (400, True)
    assert fetch(f"{url}/v1/studies/x/records?status=a&status=b").status == 404
    request = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    reply = fetch(f"{url}/runs", Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==", **request)
    assert reply.status != 101


def test_two_hosts_are_refused(serve):
    # Without a body: the parser hangs up at once, and a body that came later would reset the line.
    url = serve(judge="probe")
    assert fetch(f"{url}/v1/models", Host=["127.0.0.1", "evil.example"]).status == 400


def test_no_other_site_is_given_leave_to_ask(serve):
    """A page may send JSON to us only if we say so when its browser asks before."""
    url = serve(judge="probe")
    request = {"Origin": "http://evil.example", "Access_Control_Request_Method": "POST"}
    reply = fetch(f"{url}/v1/systemone", "OPTIONS", **request)
    assert reply.status in (403, 405)
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_files_of_the_server_are_not_static(serve):
    url = serve(judge="probe")
    for path in ("../templates/layout.html", "..%2f..%2fapp.py", "%2e%2e/templates/login.html"):
        assert fetch(f"{url}/static/{path}").status == 404
    assert fetch(f"{url}/static/").status == 404
