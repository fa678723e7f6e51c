"""Servers that are killed, or told to end, in the midst of studies: the next one goes on."""

import json
import re
import signal
import threading
import time

import pytest
from plain_http import Watcher

from textevolve.llm.testing import Answer, ScriptedServer

STUDIES, CASES, CALLS = 6, 6, 36
MOST = 2  # calls of a study at once: of one case at a time, a candidate each
CASE = {"candidates": ["one", "two"]}
pytestmark = [pytest.mark.guard, pytest.mark.slow]


def study(n):
    rows = [{"id": f"{i}", "input": f"Question {n}.{i}?", **CASE} for i in range(CASES)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    run = {"files": {"cases.jsonl": text}, "concurrency": 1}
    return {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "probe", "run": run}


@pytest.fixture
def serve_in_process(spawn, location):
    """Starts `textevolve serve` as a process; its URL once it listens."""

    def start(model, port="0"):
        process = spawn("serve", "--model", model, "--port", port, "--studies", STUDIES)
        for line in process.stderr:
            if match := re.search(r"listening on (\S+),", line):
                # What it says later must not fill the pipe.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return process, match[1]
        raise AssertionError("the server did not start")

    return start


class Follower(threading.Thread):
    """Follows a run over all restarts of its server, and keeps what it was told of each record."""

    def __init__(self, url, run_id):
        super().__init__(daemon=True)
        self.url, self.run_id = url, run_id
        self.found, self.last, self.status, self.turns = {}, None, "", 0
        self.start()

    def run(self):
        while self.status != "finished":
            try:
                with Watcher(self.url, self.run_id, self.last) as watcher:
                    self.turns += 1
                    for id, name, data in watcher:
                        if name == "record":
                            self.found[data["key"]], self.last = data["score"], id
                        elif name == "status":
                            self.status = data["status"]
            except OSError:
                time.sleep(0.1)


def test_a_killed_server_goes_on_with_all_its_studies(serve_in_process, ask):
    requests = []

    def script(body, number):
        requests.append(json.dumps(body, sort_keys=True))
        return Answer(delay=0.05)

    with ScriptedServer(script) as upstream:
        model = f"{upstream.url}#any"
        process, url = serve_in_process(model)
        port = url.rpartition(":")[2]
        runs = [ask(f"{url}/v1/studies", study(n))[1]["id"] for n in range(STUDIES)]
        followers = [Follower(url, run) for run in runs]
        while upstream.calls < STUDIES * CALLS / 3:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        while upstream.in_flight:
            time.sleep(0.02)
        process, again = serve_in_process(model, port)
        assert again == url
        for follower in followers:
            follower.join(120)
            assert follower.status == "finished", (follower.run_id, follower.status)
        for run, follower in zip(runs, followers, strict=True):
            page = ask(f"{url}/v1/studies/{run}/records")[1]["data"]
            assert follower.found == {one["key"]: one["score"] for one in page}
            assert len(page) == CASES
            assert ask(f"{url}/v1/studies/{run}")[1]["spent"]["calls"] == CALLS
        assert max(follower.turns for follower in followers) > 1
        twice = len(requests) - len(set(requests))
        assert len(set(requests)) == STUDIES * CALLS
        # What had been answered and was not yet kept counts as in flight.
        assert upstream.most_in_flight <= STUDIES * MOST
        assert twice <= STUDIES * MOST
