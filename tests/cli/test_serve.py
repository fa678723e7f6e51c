"""`textevolve serve`: how it begins, what it refuses, how it ends."""

import json
import re
import signal
from urllib.request import urlopen

import pytest

pytest.importorskip("fastapi")


@pytest.mark.slow
def test_it_says_where_it_listens_and_ends_with_a_signal(spawn, model, cli):
    process = spawn("serve", "--judge", "probe", "--model", model, "--port", 0)
    line = process.stderr.readline()
    assert "serving judge/probe" in line
    url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
    rest = [process.stderr.readline() for _ in range(3)]
    assert rest[0].strip() == "jev-latest is judge/probe"
    assert rest[1].strip() == f"pages: {url}/runs"
    assert "only this machine has access" in rest[2]
    with urlopen(f"{url}/health", timeout=60) as response:
        assert json.load(response)["status"] == "ok"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "stopped\n")
    (run,) = cli("runs", "list", "--all", "--json").rows
    assert (run["kind"], run["status"]) == ("server", "finished")
    outcome = cli("runs", "show", run["id"])
    assert outcome.code == 2
    assert "has the calls of a server" in outcome.err


def test_without_the_packages_it_says_which_extra_brings_them(cli, model, monkeypatch):
    import textevolve.cli.serve

    monkeypatch.setattr(textevolve.cli.serve, "find_spec", lambda _name: None)
    outcome = cli("serve", "--model", model)
    assert outcome.code == 2
    assert "pip install 'textevolve[server]'" in outcome.err
