"""What benchmarks/chaos.py does to a large run, done to a small one."""

import sys
from pathlib import Path

import pytest

from relay import Relay
from textevolve.llm.testing import ScriptedServer

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import chaos

pytestmark = [pytest.mark.slow, pytest.mark.guard]


def test_nothing_is_lost_or_invented_where_a_run_is_killed_and_cut_off(
    tmp_path, postgres, postgres_name, capsys
):
    socket = postgres.folder / "data" / ".s.PGSQL.5432"
    with ScriptedServer(latency=0.05) as model, Relay(socket) as relay:
        place = chaos.Place(tmp_path, model, postgres, relay, postgres_name, 8)
        assert chaos.measure(place, cases=40, times=4, seed=1), capsys.readouterr().out
    happened = {name: place.happened[name] for name in chaos.EVENTS}
    assert sum(happened.values()) == 4
    assert all(happened.values())
    assert place.happened["driver ended"] == 0
