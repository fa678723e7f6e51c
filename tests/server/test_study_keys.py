"""Studies of clients with keys: what they see, what they may spend, and when a key ends."""

import json
import time

import pytest
from plain_http import wait_for_status

from textevolve.llm.testing import Answer, ScriptedServer

pytestmark = pytest.mark.guard

CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Question {n}?", "candidates": ["one", "two"]}) + "\n"
    for n in range(7)
)


def study(**run):
    part = {"files": {"cases.jsonl": CASES}, "concurrency": 1, **run}
    return {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "probe", "run": part}


@pytest.fixture
def spaces(cli):
    for name in ("mine", "yours"):
        assert cli("agents", "namespaces", "create", name).code == 0
    assert cli("config", "keys", "add", "first").code == 0


@pytest.fixture
def send(ask, cli, spaces):
    """One request with a key of some namespace; of all where it has no name."""
    keys = {}

    def as_key(namespace, url, body=None, method=None):
        if namespace not in keys:
            options = ("--namespace", namespace) if namespace else ()
            keys[namespace] = cli("config", "keys", "add", f"of {namespace}", *options).out.strip()
        return ask(url, body, method, Authorization=f"Bearer {keys[namespace]}")

    return as_key


@pytest.fixture
def wait(send):
    def until(namespace, url, run_id, *states):
        return wait_for_status(lambda: send(namespace, f"{url}/v1/studies/{run_id}"), *states)

    return until


def test_runs_of_others_are_not_found(serve, send, wait):
    url = serve(keys=True)
    run = send("mine", f"{url}/v1/studies", study())[1]
    assert run["namespace"] == "mine"
    wait("mine", url, run["id"], "finished")
    for path in ("", "/records", "/report", "/events"):
        assert send("yours", f"{url}/v1/studies/{run['id']}{path}")[0] == 404
    for path in ("/cancel", "/resume"):
        assert send("yours", f"{url}/v1/studies/{run['id']}{path}", {})[0] == 404
    assert send("yours", f"{url}/v1/studies/{run['id']}", method="DELETE")[0] == 404
    assert send("yours", f"{url}/v1/studies")[1]["data"] == []
    assert send("mine", f"{url}/v1/studies", study(namespace="yours"))[0] == 404
    assert len(send("", f"{url}/v1/studies")[1]["data"]) == 1
    theirs = send("yours", f"{url}/v1/studies", study())[1]
    assert theirs["id"] != run["id"]


def test_what_is_of_others_cannot_be_named(serve, send, cli):
    names = ("notes", "--namespace", "mine", "--embedder", "local/minilm", "--dimension", 4)
    assert cli("memories", "collections", "create", *names).code == 0
    url = serve(keys=True)
    for fields in (
        {"kind": "create-memories", "data": "cases.jsonl", "collection": "mine/notes"},
        {"kind": "integrate-memories", "agent": "mine/ann"},
        {"kind": "read-corpus", "files": ["cases.jsonl"], "collection": "mine/notes"},
        {"kind": "evolve-persona", "agent": "mine/ann"},
    ):
        status, found = send("yours", f"{url}/v1/studies", {**fields, "run": study()["run"]})
        assert status == 400, fields
        message = found["error"]["message"]
        assert "no namespace 'mine'" in message, fields


def test_a_namespaces_budget_ends_its_studies(serve, send, wait, cli):
    assert cli("agents", "namespaces", "update", "mine", "--tokens-per-day", 2000).code == 0
    url = serve(keys=True)
    run = send("mine", f"{url}/v1/studies", study())[1]
    stopped = wait("mine", url, run["id"], "interrupted", "finished")
    assert stopped["status"] == "interrupted"
    assert "tokens of today" in stopped["reason"]
    assert cli("agents", "namespaces", "update", "mine", "--unset", "tokens_per_day").code == 0
    time.sleep(0.1)  # as long as a budget is remembered
    assert send("mine", f"{url}/v1/studies/{run['id']}/resume", {})[0] == 202
    wait("mine", url, run["id"], "finished")


def test_a_revoked_key_ends_its_studies(serve, send, wait, cli):
    with ScriptedServer(lambda _body, _number: Answer(delay=0.2)) as upstream:
        url = serve(keys=True, model=f"{upstream.url}#any")
        run = send("mine", f"{url}/v1/studies", study())[1]
        while not upstream.calls:
            time.sleep(0.05)
        assert cli("config", "keys", "revoke", "of mine").code == 0
        stopped = wait("", url, run["id"], "interrupted", "finished")
    assert stopped["status"] == "interrupted"
    assert "no longer valid" in stopped["reason"]
