"""An operator puts a proxy or a health check in front of a server."""

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from textevolve.server.app import create_app
from textevolve.server.browser import PROXIED, check_host
from textevolve.server.errors import ApiError
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-Host", "X-Real-IP", "Via"])
def test_proxies_need_keys(name):
    headers = {"host": b"localhost:8000", name.lower(): b"1.1 front"}
    assert name.lower() in PROXIED
    with pytest.raises(ApiError, match="through a proxy"):
        check_host(ServerOptions(), headers, needs_key=False)
    check_host(ServerOptions(), headers, needs_key=True)


@pytest.mark.slow
def test_health_answers_head(tmp_path):
    app = create_app(ServerOptions(), Settings(store=tmp_path / "store.db"))
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.head("/health")
    assert answer.status_code == 200
    assert answer.content == b""
