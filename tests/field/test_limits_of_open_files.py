"""A process may have few open files, as on macOS (256) and in containers: calls in flight keep to
what is left, since a store that cannot open its files ends the run."""

import pytest
from asked import write_rows

from textevolve import system

resource = pytest.importorskip("resource")
SCRIPT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (110, 110))
os.environ["TEXTEVOLVE_CONCURRENCY"] = "300"
sys.argv = ["textevolve", *{arguments!r}]
from textevolve.cli import main
main()
"""


class Limit:
    """The limit of open files, as the module `resource` has it."""

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = -1

    def __init__(self, soft, hard):
        self.now = soft, hard

    def getrlimit(self, _kind):
        return self.now

    def setrlimit(self, _kind, now):
        self.now = now


@pytest.mark.parametrize(
    ("soft", "hard", "room", "raised"),
    [
        (256, -1, 512, 64 + 30 + 1024),  # macOS
        (1024, 524_288, 512, 64 + 30 + 1024),  # Linux
        (256, 256, 81, 256),
        (-1, -1, 512, -1),
        (5000, 5000, 512, 5000),
        (80, 80, 1, 80),
    ],
)
def test_the_limit_is_raised_or_kept(monkeypatch, soft, hard, room, raised):
    limit = Limit(soft, hard)
    monkeypatch.setattr(system, "resource", limit)
    monkeypatch.setattr(system, "open_descriptors", lambda: list(range(30)))
    assert system.make_room_for_files(512) == room
    assert limit.now == (raised, hard)


@pytest.mark.slow
def test_a_run_keeps_to_the_limit(spawn, home, server, model):
    server.latency = 0.3
    write_rows(home / "rows.jsonl", [{"id": str(n), "n": n, "sum": "1"} for n in range(200)])
    (home / "double.txt").write_text("Double {n}.")
    command = ["compare", "-p", "double.txt", "-d", "rows.jsonl", "--label", "sum"]
    arguments = [*command, "--metric", "exact", "-m", model]
    process = spawn(script=SCRIPT.format(arguments=arguments))
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert server.calls == 200
    assert server.most_in_flight < 60
