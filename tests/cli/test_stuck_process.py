"""A process whose store does not close is ended by a second signal."""

import signal

import pytest
from test_process import CASE, LIMIT, wait_for

from textevolve.llm.testing import ScriptedServer

STUCK = """
import sys, time
from textevolve.cli import main, say
from textevolve.store.repository import Store

def close(store):
    say("closing")
    time.sleep(3600)

Store.close = close
sys.argv[0] = "textevolve"
main()
"""


@pytest.mark.slow
def test_a_second_signal_ends_a_process_that_does_not_come_to_its_end(home, spawn, stalling):
    with ScriptedServer(stalling(0)) as server:
        process = spawn("evaluate", *CASE, "-m", f"{server.url}#m", "--json", script=STUCK)
        wait_for(lambda: server.calls, process)
        process.send_signal(signal.SIGTERM)
        assert any("closing" in line for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == -signal.SIGTERM
