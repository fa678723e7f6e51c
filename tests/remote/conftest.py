"""Tests of the client ask a real server of ours, as those of the server do."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

_place = Path(__file__).parent.parent / "server" / "conftest.py"
_spec = spec_from_file_location("server_fixtures", _place)
_fixtures = module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

serve, ask = _fixtures.serve, _fixtures.ask
