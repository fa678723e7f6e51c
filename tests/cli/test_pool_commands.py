"""Pools from the command line: a run, its members' health, what is wrong with one."""

import json

from textevolve.llm.testing import ScriptedServer
from textevolve.store.repository import open_store


def settings_of(home, *members):
    listed = ", ".join(f'{{model = "{url}#scripted", weight = {w}}}' for url, w in members)
    (home / "textevolve.toml").write_text(f"[pools.duo]\nmembers = [{listed}]\n")


def test_a_pool_judges_and_its_members_are_kept_with_the_calls(cli, home, server):
    with ScriptedServer() as other:
        settings_of(home, (server.url, 1), (other.url, 1))
        requests = ("evaluate", "Why?", "So.", "--model", "pool/duo", "--json")
        first_outcome = cli(*requests)
        before = server.calls + other.calls
        assert (first_outcome.code, before > 0) == (0, True)
        again = cli(*requests)
        assert again.code == 0
        assert server.calls + other.calls == before  # whoever answered, the journal knows it
    with open_store(home / "store.db") as store:
        calls = list(store.calls(store.list_runs(2)[-1].id))
    members = {f"{one.url}#scripted" for one in (server, other)}
    assert {call.response.member for call in calls} <= members
    assert {call.model for call in calls} == {"pool/duo"}


def test_the_health_of_members(cli, home, server):
    settings_of(home, (server.url, 2), ("http://127.0.0.1:9/v1", 1))
    done = cli("doctor", "pool/duo", "--json")
    report = json.loads(done.out)
    assert [(row["why"], row["answers"]) for row in report["models"]] == [
        ("member of pool/duo", True),
        ("member of pool/duo", False),
    ]
    assert "cannot connect" in report["models"][1]["note"]
    assert done.code == 1  # one of them does not answer
