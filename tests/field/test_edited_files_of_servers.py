"""A server keeps running while the operator edits a file of a judge: the persona in a profile, a
rubric, a prompt of one's own, rules.

The requests to the model show which text was read.
"""

import json

import pytest
from asked import record

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from textevolve.server.app import create_app
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings

FILES = {
    "debate:views.yaml": "agents:\n  - name: Baker\n    persona: You love {}.\nrounds: 1\n",
    "checklist+rubric=rubric.md": "It names {}.\n",
    "prompt:grade.md+numbers=1-5": "Does it name {}? {{output}}",
    "cascade:1.0:prompt:grade.md+numbers=1-3,probe": "Does it name {}? {{output}}",
}
URL = "http://localhost"
EXCHANGE = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "The moon."}]


def file_of(judge):
    return next(name for name in ("views.yaml", "rubric.md", "grade.md") if name in judge)


@pytest.mark.parametrize("judge", FILES)
def test_the_next_request_has_the_new_text(home, server, model, judge):
    bodies = record(server, None)
    path = home / file_of(judge)
    path.write_text(FILES[judge].format("rye"))
    options = ServerOptions(judge=judge, model=model)
    app = create_app(options, Settings(store=home / "store.db"))
    with TestClient(app, URL) as client:

        def ask():
            bodies.clear()
            body = {"model": f"judge/{judge}", "messages": EXCHANGE}
            answer = client.post("/v1/chat/completions", json=body)
            return answer.status_code, json.dumps(bodies)

        code, asked = ask()
        assert code == 200
        assert "rye" in asked
        assert ask() == (200, "[]")  # from the journal: nothing has changed
        path.write_text(FILES[judge].format("oats"))
        code, asked = ask()
        assert code == 200
        assert "oats" in asked
        assert "rye" not in asked
        path.unlink()
        code, asked = ask()
        assert (code, asked) == (400, "[]")


def test_the_next_request_asks_the_changed_agent(cli, home, server, model):
    bodies = record(server, None)
    (home / "views.yaml").write_text("agents: [acme/ada]\nrounds: 1\n")
    cli("agents", "namespaces", "create", "acme")
    cli("agents", "create", "acme/ada", "--persona", "You love rye.")
    options = ServerOptions(judge="debate:views.yaml", model=model)
    with TestClient(create_app(options, Settings(store=home / "store.db")), URL) as client:
        for grain in ("rye", "oats"):
            cli("agents", "update", "acme/ada", "--persona", f"You love {grain}.")
            bodies.clear()
            body = {"model": "judge/debate:views.yaml", "messages": EXCHANGE}
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert f"You love {grain}." in json.dumps(bodies)
