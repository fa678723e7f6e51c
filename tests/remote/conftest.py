"""Tests of the client ask a real server of ours, as those of the server do."""

from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

_place = Path(__file__).parent.parent / "server" / "conftest.py"
_spec = spec_from_file_location("server_fixtures", _place)
_fixtures = module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

serve, started, ask = _fixtures.serve, _fixtures.started, _fixtures.ask


@pytest.fixture
def served_at(home, monkeypatch):
    """Starts a server at a port that stays the same, so that it can come back."""
    with closing(_fixtures.bind("127.0.0.1", 0)) as listener:
        url, port = _fixtures.url_of(listener), listener.getsockname()[1]
    bind = _fixtures.bind
    monkeypatch.setattr(_fixtures, "bind", lambda host, _port: bind(host, port))
    settings = _fixtures.Settings(store=home / "store.db")

    def start(**options):
        return _fixtures.started(_fixtures.ServerOptions(**options), settings)

    return url, start
