"""Stored agents over HTTP: made, talked with, evolved, and debating as they were before."""

import json

import pytest
from plain_http import wait_for_status

from recorded.memory_answers import answers

OLD = "You are Ada, a guide in the harbour."
NEW = "You know the ferry to Larkspur."
CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Question {n}?", "candidates": ["one", "two"]}) + "\n"
    for n in range(3)
)
STUDY = {"kind": "evaluate", "cases": ["cases.jsonl"], "agents": "ada,critic", "rounds": 1}
CHANGE = {"because": [1], "reason": "so", "action": "add", "sentence": 0, "text": NEW}


@pytest.fixture
def send(ask, cli):
    keys = {}
    for name in ("acme", "other"):
        assert cli("agents", "namespaces", "create", name).code == 0
        outcome = cli(
            *f"config keys add {name} --namespace {name} --scope run --scope admin".split()
        )
        keys[name] = outcome.out.strip()

    def as_key(namespace, url, body=None):
        return ask(url, body, Authorization=f"Bearer {keys[namespace]}")

    return as_key


@pytest.mark.slow
def test_an_agent_that_evolves_debates_on_in_a_run_as_it_was(serve, send, server, model):
    def wait(run_id, *states):
        wait_for_status(lambda: send("acme", f"{url}/v1/studies/{run_id}"), *states)

    url = serve(keys=True)
    space = f"{url}/v1/namespaces/acme"
    status, answer = send("acme", f"{space}/collections", {"name": "diary", "embedder": model})
    assert status == 201, answer
    ada = {"name": "ada", "persona": OLD, "memories": "diary"}
    assert send("acme", f"{space}/agents", ada)[0] == 201
    critic = {"name": "critic", "persona": "You look for faults."}
    assert send("acme", f"{space}/agents", critic)[0] == 201
    fact = {"text": "The ferry to Larkspur leaves at noon.", "trust": 0.9}
    assert send("acme", f"{space}/collections/diary/memories", fact)[0] == 201
    chat = {"model": "acme/ada", "messages": [{"role": "user", "content": "Hello?"}]}
    status, answer = send("acme", f"{url}/v1/chat/completions", chat)
    assert status == 200, answer

    run_part = {"files": {"cases.jsonl": CASES}, "concurrency": 1}
    few = {**STUDY, "run": {**run_part, "limits": {"calls": 2}}}
    status, begun = send("acme", f"{url}/v1/studies", few)
    assert status == 201, begun
    wait(begun["id"], "interrupted")

    server.script = answers(changes=[CHANGE])
    status, evolving = send("acme", f"{url}/v1/studies", {"kind": "evolve-persona", "agent": "ada"})
    assert status == 201, evolving
    wait(evolving["id"], "finished")
    assert NEW in send("acme", f"{space}/agents/ada")[1]["persona"]

    server.script = None
    server.requests.clear()
    status, answer = send("acme", f"{url}/v1/studies/{begun['id']}/resume", {"limits": {}})
    assert status == 202, answer
    wait(begun["id"], "finished")
    prompts = [str(body["messages"]) for body in server.requests if "messages" in body]
    of_ada = [text for text in prompts if "You are ada" in text]
    assert of_ada
    assert all(OLD in text and NEW not in text and "leaves at noon" in text for text in of_ada)

    theirs = {**STUDY, "agents": "acme/ada", "run": run_part}
    status, refused = send("other", f"{url}/v1/studies", theirs)
    assert status == 400
    assert "no namespace 'acme'" in refused["error"]["message"]
