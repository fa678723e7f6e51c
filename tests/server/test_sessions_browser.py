"""Browsers: logging in with a key, cookies, tokens of forms, and pages of other sites."""

import sqlite3
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from plain_http import QUESTION as ASKED
from plain_http import Visitor, fetch

from textevolve.server import identity
from textevolve.server.guard import csrf_token, make_cookie
from textevolve.server.options import ServerOptions
from textevolve.store import keys as stored_keys
from textevolve.store.keys import KeySpec


@pytest.fixture
def key(resources, monkeypatch):
    monkeypatch.setattr(identity, "KEY_SECONDS", 0.0)
    return resources.write(stored_keys.add_key, "ann", KeySpec(scopes=("read",)), None)[1]


@pytest.fixture
def visitor(serve, key):
    return Visitor(serve(judge="probe", keys=True))


def test_a_browser_is_led_to_the_page_that_takes_a_key_and_back(visitor, key):
    led = visitor.open("/runs?page=2")
    assert (led.status, led.headers["location"]) == (303, "/login?next=%2Fruns%3Fpage%3D2")
    handle = visitor.open(led.headers["location"])
    assert handle.status == 200
    assert 'value="/runs?page=2"' in handle.text
    done = visitor.log_in(key, "/runs?page=2")
    assert (done.status, done.headers["location"]) == (303, "/runs?page=2")
    assert visitor.open("/runs").status == 200
    assert visitor.open("/v1/models").status == 200
    part = Visitor(visitor.url).open("/runs", HX_Request="true")
    assert (part.status, part.headers["hx-redirect"]) == (401, "/login?next=%2Fruns")


def test_a_wrong_key_logs_nobody_in_and_is_not_shown_again(visitor, key):
    refused = visitor.log_in(f"{key}x")
    assert refused.status == 401
    assert "not valid" in refused.text
    assert key not in refused.text
    assert visitor.open("/runs").status == 303


def test_the_cookie_is_read_by_no_script_and_sent_by_no_other_site(visitor, key, home):
    cookie = visitor.log_in(key).cookies[-1]
    assert cookie.startswith("te_session_")
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=86400"):
        assert part in cookie
    assert key not in cookie
    (token,) = (value for name, value in visitor.cookies.items() if "session" in name)
    assert len(token) > 40
    with closing(sqlite3.connect(home / "store.db")) as store:
        assert token.partition(".")[2] not in "\n".join(store.iterdump())
    scope = {"scheme": "https", "server": ("judge.example", 443)}
    secure = make_cookie(scope, "session", "x", 60)
    assert secure.startswith("__Host-te_session=x; Path=/;")
    assert "; Secure" in secure


def test_a_login_leads_nowhere_else(visitor, key):
    for where in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "",
    ):
        assert Visitor(visitor.url).log_in(key, where).headers["location"] == "/runs"


def test_a_session_ends_when_its_key_is_revoked(visitor, key, resources):
    visitor.log_in(key)
    assert visitor.open("/runs").status == 200
    resources.write(stored_keys.revoke_key, "ann")
    assert visitor.open("/runs").status == 303


def test_a_session_ends_when_its_key_expires_and_after_a_day(visitor, resources, monkeypatch):
    monkeypatch.setattr("textevolve.store.keys.time.time", lambda: 1e9)
    monkeypatch.setattr("textevolve.server.identity.time.time", lambda: 1e9)
    for expires, last in ((1e9 + 100, 99), (None, 86_399)):
        text = resources.write(
            stored_keys.add_key, f"bob {last}", KeySpec(scopes=("read",)), expires
        )[1]
        assert visitor.log_in(text).status == 303
        for later, status in ((last, 200), (last + 2, 303)):
            monkeypatch.setattr("textevolve.store.keys.time.time", lambda n=later: 1e9 + n)
            assert visitor.open("/runs").status == status
        monkeypatch.setattr("textevolve.store.keys.time.time", lambda: 1e9)
        visitor.cookies.clear()


def test_logging_out_ends_the_session_for_whoever_has_the_cookie(visitor, key):
    visitor.log_in(key)
    visitor.open("/runs")
    stolen = Visitor(visitor.url)
    stolen.cookies = dict(visitor.cookies)
    assert "Log out" in visitor.said.text
    assert visitor.send("/logout").status == 303
    assert visitor.open("/runs").status == 303
    assert stolen.open("/runs").status == 303


def test_the_operators_session_ends_with_another_key_of_theirs(serve, home):
    visitor = Visitor(serve("the-first-key-of-the-operator"))
    visitor.log_in("the-first-key-of-the-operator")
    assert visitor.open("/runs").status == 200
    before = urlsplit(visitor.url).port
    for key, status in (("the-first-key-of-the-operator", 200), ("another-key", 303)):
        other = Visitor(serve(key))  # a session outlives the server
        after = urlsplit(other.url).port
        cookies = visitor.cookies.items()
        other.cookies = {n.replace(str(before), str(after)): value for n, value in cookies}
        assert other.open("/runs").status == status


def test_a_session_made_up_is_none(visitor, key):
    visitor.open("/login")
    (name,) = (n.replace("csrf", "session") for n in visitor.cookies)
    for token in ("", "k.", "e.", "k.x", "e.x", key, "k." + "A" * 43, "é", "x" * 5000):
        visitor.cookies[name] = token.encode("utf-8").decode("latin-1")
        assert visitor.open("/runs").status == 303


# Requests that change something.


def test_a_form_without_its_token_is_refused(visitor, key):
    visitor.log_in(key)
    visitor.open("/runs")
    right = visitor.token
    for token in ("", "x", right[:-1], right.upper(), csrf_token("guessed"), "é"):
        refused = visitor.send("/logout", token=token)
        assert refused.status == 403, token
        assert "reload it" in refused.text
    assert visitor.open("/logout", "POST", Origin=visitor.url).status == 403
    assert visitor.open("/runs").status == 200
    handle = visitor.open("/logout", "POST", b"", Origin=visitor.url, X_CSRF_Token=right)
    assert handle.status == 303


def test_the_token_of_one_session_is_nothing_to_another(visitor, key, resources):
    visitor.log_in(key)
    visitor.open("/runs")
    other = Visitor(visitor.url)
    other.log_in(resources.write(stored_keys.add_key, "bob", KeySpec(scopes=("read",)), None)[1])
    other.open("/runs")
    assert other.token != visitor.token
    assert other.send("/logout", token=visitor.token).status == 403


def test_a_form_of_another_site_is_refused(visitor, key):
    visitor.log_in(key)
    visitor.open("/runs")
    fields = [("csrf", visitor.token)]
    for origin in ("", "null", "http://evil.example", "http://127.0.0.1:1"):
        headers = {"Origin": origin} if origin else {}
        assert visitor.open("/logout", "POST", fields, **headers).status == 403
    crossed = {"Origin": visitor.url, "Sec_Fetch_Site": "cross-site"}
    assert visitor.open("/logout", "POST", fields, **crossed).status == 403
    assert visitor.open("/runs").status == 200


def test_nobody_is_logged_in_by_another_site(visitor, key):
    """Else somebody would work, unknowingly, with the key of another."""
    fields = [("key", key), ("csrf", csrf_token("x"))]
    assert visitor.open("/login", "POST", fields, Origin="http://evil.example").status == 403
    assert visitor.open("/login", "POST", fields, Origin=visitor.url).status == 403


def test_on_this_machine_forms_need_their_token_too(serve):
    visitor = Visitor(serve(judge="probe"))
    assert visitor.open("/logout", "POST", [("csrf", "")], Origin=visitor.url).status == 403
    visitor.open("/runs")
    assert visitor.said.cookies[0].startswith("te_csrf_")
    assert visitor.send("/logout", token="").status == 403
    visitor.open("/runs")
    assert visitor.said.cookies == []
    assert visitor.send("/logout", origin="http://evil.example").status == 403
    visitor.open("/runs")
    assert visitor.send("/logout").status == 303


def test_a_key_in_the_request_needs_no_token(visitor, key):
    bearer = {"Authorization": f"Bearer {key}"}
    assert fetch(f"{visitor.url}/logout", "POST", b"", **bearer).status == 303


def test_pages_use_the_api_with_the_token_in_a_header(visitor, resources, server):
    visitor.log_in(
        resources.write(stored_keys.add_key, "runner", KeySpec(scopes=("run", "read")), None)[1]
    )
    visitor.open("/runs")
    path, token = "/v1/systemone", visitor.token
    assert visitor.open(path, "POST", ASKED, Origin=visitor.url).status == 403
    assert visitor.open(path, "POST", ASKED, X_CSRF_Token="x").status == 403
    far = {"X_CSRF_Token": token, "Origin": "http://evil.example"}
    assert visitor.open(path, "POST", ASKED, **far).status == 403
    assert server.calls == 0
    assert visitor.open(path, "POST", ASKED, X_CSRF_Token=token, Origin=visitor.url).status == 200
    assert visitor.open("/v1/models").status == 200
    assert visitor.open("/v1/models", Origin="http://evil.example").status == 403


def test_browsers_are_answered_under_names_that_the_operator_has_given(serve, key):
    url = serve(judge="probe", keys=True, allow_host="Judge.example")
    port = urlsplit(url).port
    for name in ("judge.example", f"judge.example:{port}", "127.0.0.1", "localhost", "[::1]:80"):
        assert fetch(f"{url}/login", Host=name).status == 200
    for name in ("evil.example", "judge.example.evil", "127.0.0.1.evil.example", "", "judge"):
        refused = fetch(f"{url}/login", Host=name)
        assert refused.status in (400, 403)
        assert "evil" not in refused.text
    assert fetch(f"{url}/v1/models", Host="x", Authorization=f"Bearer {key}").status == 200
    assert ServerOptions(allow_host="a").allow_host == ("a",)


def test_behind_a_proxy_with_tls_the_cookie_is_secure(serve, key):
    url = serve(judge="probe", keys=True, allow_host="judge.example")
    proxied = {
        "Host": "judge.example",
        "X_Forwarded_Proto": "https",
        "X_Forwarded_For": "192.0.2.1",
    }
    reply = fetch(f"{url}/login", **proxied)
    assert reply.cookies[0].startswith("__Host-te_csrf=")
    assert "Secure" in reply.cookies[0]
    assert "max-age" in reply.headers["strict-transport-security"]
