"""Proxies and exemptions stand in variables as curl, Go and requests read them: networks, ports,
ALL_PROXY, passwords with signs; and a proxy may refuse to connect."""

import asyncio

import pytest

from textevolve.errors import AccessError, SettingsError, UnavailableError
from textevolve.llm.connections import Http, find_proxy
from textevolve.llm.testing import Answer, ScriptedServer
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
    assert str(find_proxy(HOST).url) == "http://all.test:1"
    variables.setenv("HTTP_PROXY", PROXY)
    assert str(find_proxy(HOST).url) == PROXY


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


@pytest.mark.parametrize("status", [403, 407, 502])
def test_refusing_proxies_are_named(variables, status):
    with ScriptedServer(lambda _body, _number: Answer(status=status)) as server:
        server.answer = lambda *_parts: Answer(status=status, body=b"<html>no</html>")
        place = server.url.removeprefix("http://").removesuffix("/v1")
        variables.setenv("HTTPS_PROXY", f"http://ann:s3cretpw@{place}")
        kind = UnavailableError if status == 502 else AccessError
        with pytest.raises(kind, match="HTTPS_PROXY") as raised:
            asyncio.run(call("https://api.corp.test/v1"))
    assert place in str(raised.value)
    assert "s3cretpw" not in str(raised.value)
    assert status != 502 or raised.value.address
