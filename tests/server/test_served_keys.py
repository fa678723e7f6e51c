"""Keys of clients over HTTP: who is let in, what each may do, and that a revoked key is refused."""

import json
import re
import time

import pytest
from plain_http import QUESTION, fetch
from plain_http import ask_question as ask

from textevolve import SettingsError

pytestmark = pytest.mark.guard


FREE = (
    "/",
    "/health",
    "/login",
    "/logout",
    "/openapi.json",
    "/v1/models",
    "/v1/models/{name:path}",
)
"""What every key may ask for."""
LABELLING = "/labelling"


@pytest.fixture
def make_key(cli):
    def make(name="ann", *options):
        added = cli("config", "keys", "add", name, *options)
        assert added.code == 0, added.err
        return added.out.strip()

    return make


def test_every_path_asks_who_it_is(serve, make_key, paths):
    """Somebody who may only label comes to nothing else."""
    assert {"/runs", "/v1/systemone", "/v1/models"} <= paths.keys()
    key = make_key("labeller", "--scope", "label")
    url = serve(judge="probe", keys=True)
    for path, methods in paths.items():
        if path in FREE or path.startswith(LABELLING):
            continue
        for method in methods:
            target, bearer = re.sub(r"{[^}]*}", "1", path), {"Authorization": f"Bearer {key}"}
            body = None if method == "GET" else {}
            reply = fetch(f"{url}{target}", method, body, **bearer)
            assert (method, path, reply.status) == (method, path, 403)
            anybody = fetch(f"{url}{target}", method, body)
            assert (method, path, anybody.status) == (method, path, 401)


def test_a_key_is_asked_for_where_the_operator_says_so(serve, make_key, server):
    key = make_key()
    url = serve(judge="probe", keys=True)
    for reply in (
        ask(url),
        ask(url, ""),
        ask(url, key[:-1]),
        ask(url, f"{key}x"),
        ask(url, "none"),
    ):
        assert (reply.status, reply.code) == (401, "authentication_error")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert (
        fetch(f"{url}/v1/systemone", "POST", QUESTION, Authorization=f"Basic {key}").status == 401
    )
    assert fetch(f"{url}/v1/models?key={key}&api_key={key}").status == 401
    assert server.calls == 0
    assert ask(url, key).status == 200
    assert (
        fetch(f"{url}/v1/systemone", "POST", QUESTION, Authorization=f"bearer {key}").status == 200
    )


def test_on_this_machine_only_what_looks_like_our_key_is_looked_at(serve, make_key):
    key = make_key("ann", "--scope", "read")
    url = serve(judge="probe")
    assert ask(url, "sk-of-somebody-else").status == 200
    assert ask(url, "te-but-not-ours").status == 401
    assert ask(url, key).status == 403


def test_a_revoked_key_is_refused_within_a_second(serve, make_key, cli):
    key, other = make_key(), make_key("bob")
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200
    assert cli("config", "keys", "revoke", "ann").code == 0
    time.sleep(0.06)  # as long as a key is remembered
    assert ask(url, key).status == 401
    assert ask(url, other).status == 200


def test_scopes_are_asked_for(serve, make_key):
    keys = {scope: make_key(scope, "--scope", scope) for scope in ("read", "run", "label", "admin")}
    url = serve(judge="probe", keys=True)
    for scope, key in keys.items():
        runs = ask(url, key)
        reads = fetch(f"{url}/runs", Authorization=f"Bearer {key}")
        assert runs.status == (200 if scope in ("run", "admin") else 403)
        assert reads.status == (200 if scope in ("read", "admin") else 403)
        if runs.status == 403:
            assert runs.code == "permission_denied"


def test_agents_name_only_models_that_the_operator_allows(serve, make_key):
    """Else a client's agent would be answered at the cost of whoever owns the server's keys."""
    key = make_key("ann", "--scope", "admin")
    url = serve(judge="probe", keys=True, allow_model=["openai/*"])
    agents, bearer = f"{url}/v1/namespaces/mine/agents", {"Authorization": f"Bearer {key}"}
    assert fetch(f"{url}/v1/namespaces", "POST", {"name": "mine"}, **bearer).status == 201
    models = (
        ("openai/gpt-5", 201),
        ("groq/x", 400),
        ("http://10.0.0.1/v1#x", 400),
        ("local/~x", 400),
    )
    for name, status in models:
        spec = {"name": "guide", "persona": "You are Guide.", "model": name}
        assert fetch(agents, "POST", spec, **bearer).status == status


def test_a_server_that_needs_keys_and_has_none_does_not_start(serve):
    with pytest.raises(SettingsError, match="no key yet"):
        serve(judge="probe", keys=True)


def test_tokens_a_minute_are_counted_where_models_are_asked(serve, make_key):
    key = make_key("ann", "--tokens-per-minute", 5)
    url = serve(judge="probe", keys=True)
    assert ask(url, key).status == 200  # takes more than five, which nobody knew
    refused = ask(url, key)
    assert refused.status == 429
    assert "5 tokens a minute" in refused.text


def test_the_command_shows_a_key_once(cli):
    outcome = cli(
        "config", "keys", "add", "ann", "--scope", "read", "--scope", "label", "--expires", "30d"
    )
    assert (outcome.code, outcome.err.count("cannot be shown again")) == (0, 1)
    key = outcome.out.strip()
    assert key.startswith("te-")
    listed = cli("config", "keys", "list")
    assert "ann" in listed.out
    assert "read label; all namespaces" in listed.out
    assert "valid until" in listed.out
    (row,) = cli("config", "keys", "list", "--json").rows
    assert row["spec"]["scopes"] == ["read", "label"]
    assert 29 * 86_400 < row["expires"] - row["created"] < 31 * 86_400
    assert key not in listed.out + json.dumps(row)
    assert "hash" not in row
    assert "is revoked" in cli("config", "keys", "revoke", "ann").out
    assert "revoked" in cli("config", "keys", "list").out
    assert cli("config", "keys", "revoke", "ann").code == 2
