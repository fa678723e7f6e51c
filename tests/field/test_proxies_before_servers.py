"""An operator puts a proxy or a health check in front of a server."""

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from textevolve.errors import InputError
from textevolve.server.app import create_app
from textevolve.server.errors import ApiError
from textevolve.server.guard import check_host, cookie_name, make_cookie
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings

KEY = "te-a-key-of-the-operator"
SESSION = {"Accept": "text/html", "Authorization": f"Bearer {KEY}"}


@pytest.fixture
def client(tmp_path):
    """Behind a trusted proxy, at this machine."""
    options = ServerOptions(keys=True, allow_host="host.example")
    app = create_app(options, Settings(store=tmp_path / "store.db"), KEY)
    proxy = ("127.0.0.1", 1)
    with TestClient(app, "http://host.example", client=proxy, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    "name",
    [
        "Forwarded",
        "X-Forwarded-Host",
        "X-Forwarded-Prefix",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "Via",
    ],
)
def test_proxies_need_keys(name):
    headers = {"host": b"localhost:8000", name.lower(): b"1.1 front"}
    with pytest.raises(ApiError, match="through a proxy"):
        check_host(ServerOptions(), headers, needs_key=False)
    check_host(ServerOptions(), headers, needs_key=True)


@pytest.mark.slow
def test_health_answers_head(client):
    for path in ("/health", "/runs", "/static/page.js", "/v1/models"):
        answer = client.head(path, headers=SESSION)
        assert (answer.status_code, answer.content) == (200, b""), path
        assert (
            answer.headers["content-length"]
            == client.get(path, headers=SESSION).headers["content-length"]
        )
    assert client.head("/v1/embeddings", headers=SESSION).status_code == 405


@pytest.mark.slow
def test_addresses_stay_below_prefix(client):
    def ask(path, prefix, **headers):
        return client.get(
            path, headers={"X-Forwarded-Prefix": prefix, "Accept": "text/html"} | headers
        )

    assert ask("/runs?page=2", "/te").headers["location"] == "/te/login?next=%2Fruns%3Fpage%3D2"
    part = ask("/runs", "/te/", **{"HX-Request": "true"})
    assert part.headers["hx-redirect"] == "/te/login?next=%2Fruns"
    assert ask("/runs/", "/te", **SESSION).headers["location"] == "/te/runs"
    assert 'action="/outer/te/login"' in ask("/login", "/outer, /te").text
    assert "Path=/te;" in ask("/login", "/te").headers["set-cookie"]
    assert 'href="/static/style.css"' in ask("/login", "/").text
    for wrong in ("https://evil.example", "/a/../b", '/te"', "/te?x="):
        refused = ask("/login", wrong)
        assert refused.status_code == 400
        assert "evil" not in refused.text


@pytest.mark.slow
def test_strangers_set_no_prefix(tmp_path):
    app = create_app(ServerOptions(keys=True), Settings(store=tmp_path / "store.db"), KEY)
    with TestClient(app, "http://localhost", client=("192.0.2.7", 1)) as client:
        answer = client.get("/login", headers={"X-Forwarded-Prefix": "/te"})
    assert 'action="/login"' in answer.text


@pytest.mark.parametrize("path", ["te?x", "/a b", "/ä", "/..", "/runs/x", "v1"])
def test_wrong_paths_are_refused(path):
    with pytest.raises(InputError, match="root_path"):
        ServerOptions(root_path=path)


def test_paths_are_written_in_one_way():
    for path in ("te", "/te", "/te/", " /te "):
        assert ServerOptions(root_path=path).root_path == "/te"
    assert ServerOptions(root_path="/").root_path == ""


def test_cookies_of_servers_differ():
    """A browser sends the cookies of one port and one path to others of the same host."""

    def cookie(host, scheme="https", root="", port=8400):
        headers = [(b"host", host.encode())] if host else []
        scope = {"scheme": scheme, "server": ("10.0.0.1", port), "headers": headers}
        scope["textevolve.root"] = root
        assert make_cookie(scope, "session", "x", 60).startswith(cookie_name(scope, "session"))
        return make_cookie(scope, "session", "x", 60).partition("; Max-Age")[0]

    assert cookie("host.example") == "__Host-te_session=x; Path=/"
    assert cookie("host.example:8443") == "__Host-te_session_8443=x; Path=/"
    assert cookie("host.example", root="/te") == "__Secure-te_session=x; Path=/te"
    for port in (8401, 8402):  # two servers behind one address
        assert cookie("host.example:8080", "http", port=port) == "te_session_8080=x; Path=/"
    assert cookie("", "http") == cookie("[::1]", "http") == "te_session_8400=x; Path=/"
