"""Proxies and exemptions stand in variables as curl, Go and requests read them: networks, ports,
ALL_PROXY, passwords with signs; and a proxy may refuse to connect, or to forward."""

import asyncio

import pytest

from textevolve.errors import AccessError, RejectedError, SettingsError, UnavailableError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.connections import Http
from textevolve.llm.model import text_request
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.proxies import find_proxy
from textevolve.settings import Timeouts

BOX = "http://10.9.8.7:8000/v1"
HOST = "http://gpu.corp.test:8000/v1"
PROXY = "http://proxy.test:3128"


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


EXEMPTIONS = {
    "10.0.0.0/8": (BOX, True),
    "11.0.0.0/8": (BOX, False),
    "10.9.8.7": (BOX, True),
    ".corp.test": (HOST, True),
    "*.corp.test": (HOST, True),
    "corp.test": (HOST, True),
    "orp.test": (HOST, False),
    "gpu.corp.test:8000": (HOST, True),
    "gpu.corp.test:8001": (HOST, False),
    "a.test, GPU.corp.test.": (HOST, True),
    "*": (HOST, True),
    "fd00::/8": ("http://[fd00::1]:8000/v1", True),
    "[fd00::1]:8000": ("http://[fd00::1]:8000/v1", True),
    "[fd00::1]:8001": ("http://[fd00::1]:8000/v1", False),
}


@pytest.mark.parametrize("entry", EXEMPTIONS)
def test_exemptions_are_read(variables, entry):
    address, is_exempt = EXEMPTIONS[entry]
    variables.setenv("HTTP_PROXY", PROXY)
    variables.setenv("NO_PROXY", entry)
    assert (find_proxy(address) is None) == is_exempt


def test_unreadable_exemptions_are_named(variables, caplog):
    variables.setenv("HTTP_PROXY", PROXY)
    variables.setenv("NO_PROXY", "10.0.0.0/99")
    assert find_proxy(BOX) is not None
    assert "10.0.0.0/99" in caplog.text


def test_all_proxy_counts_last(variables):
    variables.setenv("ALL_PROXY", "all.test:1")
    assert find_proxy(HOST).url == "http://all.test:1"
    variables.setenv("HTTP_PROXY", PROXY)
    assert find_proxy(HOST).url == PROXY


LOOPBACK = ("127.0.0.1", "127.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "localhost")


@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine_needs_none(variables, host):
    variables.setenv("HTTP_PROXY", PROXY)
    assert find_proxy(f"http://{host}:8000/v1") is None


UNREADABLE = ("http://ann:pa#s3cret@p.test:1", "http://ann:pa/s3cret@p.test:1", "http://:0", "x:y")


@pytest.mark.parametrize("value", [*UNREADABLE, "socks5://ann:s3cret@p.test:1080"])
def test_unusable_proxies_are_refused(variables, value):
    variables.setenv("HTTP_PROXY", value)
    with pytest.raises(SettingsError, match="HTTP_PROXY") as raised:
        find_proxy(HOST)
    assert "s3cret" not in str(raised.value)


async def call(address):
    http = Http("m", address, None, Timeouts(), 1)
    try:
        return await http.exchange("GET", http._base)
    finally:
        await http.aclose()


@pytest.fixture
def proxy():
    """A scripted server that gets the requests of clients as their proxy."""
    with ScriptedServer() as server:
        yield server


def place_of(server):
    return server.url.removeprefix("http://").removesuffix("/v1")


@pytest.mark.parametrize("status", [403, 407, 502])
def test_refusing_proxies_are_named(variables, proxy, status):
    proxy.answer = lambda *_parts: Answer(status=status, body=b"<html>no</html>")
    variables.setenv("HTTPS_PROXY", f"http://ann:s3cretpw@{place_of(proxy)}")
    kind = UnavailableError if status == 502 else AccessError
    with pytest.raises(kind, match="HTTPS_PROXY") as raised:
        asyncio.run(call("https://api.corp.test/v1"))
    assert place_of(proxy) in str(raised.value)
    assert "s3cretpw" not in str(raised.value)
    assert status != 502 or raised.value.address


PAGE = b"\xef\xbb\xbf\r\n<!DOCTYPE html><html><head><title>Access denied</title></head></html>"
WORDS = b"RBAC: access denied"
OBJECT = b'{"error": {"message": "Access denied"}}'


async def ask(address, **options):
    async with OpenAIClient(address, "scripted", **options) as client:
        return await client(text_request("Why?", 8, 0))


@pytest.mark.parametrize("body", [PAGE, WORDS, OBJECT])
@pytest.mark.parametrize("status", [403, 407, 502, 503, 504])
def test_proxies_refuse_to_forward(variables, proxy, status, body):
    proxy.answer = lambda *_parts: Answer(status=status, body=body)
    variables.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
    kind = UnavailableError if status >= 500 else AccessError
    with pytest.raises(kind, match=rf"proxy {place_of(proxy)} \(from HTTP_PROXY\)") as raised:
        asyncio.run(ask(HOST))
    assert status == 407 or "denied" in str(raised.value)
    assert status < 500 or raised.value.address == "gpu.corp.test:8000"


def test_refusals_after_answers_are_rows(variables, proxy):
    """A proxy that has forwarded an answer lets others through: the page is about this text."""
    plain = proxy.answer

    def answer(method, path, *rest):
        if proxy.calls:
            return Answer(status=403, body=PAGE)
        return plain(method, path.removeprefix("http://gpu.corp.test:8000"), *rest)

    async def ask_twice():
        async with OpenAIClient(HOST, "scripted") as client:
            await client(text_request("Why?", 8, 0))
            with pytest.raises(RejectedError, match="the provider refuses this text"):
                await client(text_request("Why not?", 8, 0))

    proxy.answer = lambda method, path, *rest: answer(
        method, f"/v1{path.partition('/v1')[2]}", *rest
    )
    variables.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
    asyncio.run(ask_twice())


LOGINS = {
    "redirect": Answer(status=302, body=b"", headers={"Location": "http://login.test/portal"}),
    "moved": Answer(status=308, body=b"", headers={"Location": "https://api.corp.test/v2"}),
    "page": Answer(body=PAGE),
    "status": Answer(status=511, body=PAGE),
}


@pytest.mark.parametrize("name", LOGINS)
def test_logins_are_no_answers(proxy, name):
    proxy.answer = lambda *_parts: LOGINS[name]
    kind = UnavailableError if name == "page" else AccessError
    with pytest.raises(kind, match="log in") as raised:
        asyncio.run(ask(proxy.url))
    assert LOGINS[name].headers.get("Location", "") in str(raised.value)
    assert name != "page" or (raised.value.address and "Access denied" in str(raised.value))


ABSENT = {"proxy": Answer(status=502, body=OBJECT), "page": Answer(body=PAGE)}


@pytest.mark.parametrize("name", ABSENT)
def test_absent_servers_stop_runs(cli, home, variables, proxy, name):
    """Of 40 rows only eight at a time are tried again, and eight failed ones end the run."""
    requests = []
    proxy.answer = lambda *_parts: requests.append(1) or ABSENT[name]
    variables.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
    settings = "[retries]\nattempts = 6\nfirst = 0.001\nlongest = 0.001\n"
    (home / "textevolve.toml").write_text(settings, encoding="utf-8")
    rows = "".join(f'{{"input": "Q{number}", "candidates": ["a"]}}\n' for number in range(40))
    (home / "rows.jsonl").write_text(rows, encoding="utf-8")
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", f"{HOST}#m")
    assert outcome.code == 1
    assert f"proxy {place_of(proxy)} (from HTTP_PROXY)" in outcome.err
    assert len(requests) <= 40 + 5 * (8 + 7)


def test_collectors_have_the_same_proxies(variables):
    span_export = pytest.importorskip("textevolve.tracing.span_export")
    session = span_export._CollectorSession()

    def find(address):
        return session.merge_environment_settings(address, {}, None, None, None)["proxies"]

    variables.setenv("HTTP_PROXY", PROXY)
    variables.setenv("NO_PROXY", "10.0.0.0/8,*.corp.test")
    assert find("http://127.0.0.1:4318/v1/traces") == {}
    assert find("http://traces.corp.test:4318/v1/traces") == {}
    assert find(BOX) == {}
    assert find("http://other.test/v1/traces") == {"all": PROXY}
