"""Kill -9 at any moment: what a program was given is kept, and is never asked again."""

import json
from collections import Counter

import pytest

from postgres_server import BOTH, POSTGRES
from textevolve.llm.testing import ScriptedServer

pytestmark = [pytest.mark.slow, pytest.mark.guard]

PROGRAM = """
import sys
from textevolve import Client

cases = [(f"{sys.argv[2]} {n}?", ("An answer.",)) for n in range(int(sys.argv[3]))]
client = Client(model=sys.argv[1], concurrency=32)
for result in client.evaluate_batch(cases, judge="probe"):
    print(result.index, flush=True)
"""


def inputs_of(requests, name, number):
    """How often each case was asked about."""
    texts = [json.dumps(body["messages"]) for body in requests]
    cases = [f"{name} {n}?" for n in range(number)]
    return {case: sum(case in text for text in texts) for case in cases}


@BOTH
def test_each_result_that_was_given_is_kept_after_a_kill(location, spawn, cli, calls_of):
    with ScriptedServer(latency=0.005, keep=10_000) as server:
        process = spawn(f"{server.url}#m", "case", 150, script=PROGRAM)
        given = [process.stdout.readline() for _ in range(20)]
        process.kill()
        given += [line for line in process.stdout if line.endswith("\n")]
        process.wait()
        calls_of(server)
        (run,) = cli("runs", "list", "--json").rows
        assert run["status"] == "interrupted"
        before = inputs_of(server.requests, "case", 150)
        assert cli("runs", "resume").code == 0
        after = inputs_of(server.requests, "case", 150)
        texts = [f"case {int(line)}?" for line in given]
        assert {case: after[case] for case in texts} == {case: before[case] for case in texts}
        assert len(cli("runs", "show", "--json").rows) == 150
        counter = Counter(json.dumps(body, sort_keys=True) for body in server.requests)
        assert sum(counter.values()) - len(counter) <= 32  # what was in flight, once more


@POSTGRES
def test_two_processes_write_into_one_store(location, spawn, cli):
    """They also open and create it at the same moment."""
    with ScriptedServer() as server:
        names = ("one", "two")
        processes = [spawn(f"{server.url}#m", name, 50, script=PROGRAM) for name in names]
        for process in processes:
            out, answer = process.communicate(timeout=120)
            assert (process.returncode, answer) == (0, "")
            assert sorted(map(int, out.splitlines())) == list(range(50))
        runs = cli("runs", "list", "--json").rows
        assert [(run["status"], run["cases"]) for run in runs] == [("finished", 50)] * 2
        assert sum(run["calls"] for run in runs) == server.calls == len(server.seen)
