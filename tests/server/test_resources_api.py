"""Namespaces, agents, collections and users over HTTP, and the document that tells of them."""

import pytest

from textevolve.server import guard
from textevolve.server.identity import Caller


@pytest.fixture
def url(serve, home, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_EMBEDDER", model)
    return serve()


@pytest.fixture
def as_caller(monkeypatch):
    """All requests come from somebody who sees less."""

    def become(scopes, namespaces=None):
        caller = Caller("k1", "somebody", frozenset(scopes), namespaces)
        monkeypatch.setattr(guard, "THIS_MACHINE", caller)

    return become


@pytest.fixture
def acme(url, ask):
    assert ask(f"{url}/v1/namespaces", {"name": "acme", "description": "Support."})[0] == 201
    return f"{url}/v1/namespaces/acme"


def test_the_four_are_made_changed_and_deleted(acme, ask, model):
    bodies = {
        "collections": {"name": "notes", "embedder": model, "kind": "semantic"},
        "agents": {"name": "ada", "persona": "Brief.", "memory": {"collections": ["notes"]}},
        "users": {"name": "ann"},
    }
    for kind, body in bodies.items():
        status, made = ask(f"{acme}/{kind}", body)
        assert status == 201
        assert made["name"] == body["name"]
        assert made["namespace"] == "acme"
        assert ask(f"{acme}/{kind}", body)[0] == 409
        text = f"{acme}/{kind}/{body['name']}"
        status, changed = ask(text, {"description": "Other."}, "PATCH")
        assert (status, changed["description"]) == (200, "Other.")
        assert ask(text) == (200, changed)
        assert ask(f"{acme}/{kind}") == (200, {"data": [changed], "next": None})
        assert ask(f"{acme}/{kind}/nobody")[0] == 404
    assert ask(f"{acme}/collections/notes")[1]["dimension"] == 32
    assert ask(f"{acme}/agents/ada")[1]["memory"]["collections"] == ["notes"]
    status, refused = ask(f"{acme}/collections/notes", method="DELETE")
    assert (status, "force=true" in refused["error"]["message"]) == (409, True)
    for kind in ("collections/notes?force=true", "agents/ada", "users/ann"):
        assert ask(f"{acme}/{kind}", method="DELETE") == (204, None)
    assert ask(acme)[1]["description"] == "Support."
    assert ask(acme, method="DELETE")[0] == 204
    assert ask(f"{acme}/agents")[0] == 404


def test_what_cannot_be_used_is_said(acme, ask):
    ada = {"name": "ada", "persona": "x"}
    for path, body, spoken_answer in (
        ("users", {"name": "Ann!"}, "name must match pattern"),
        ("users", {"name": "ann", "nmae": "x"}, "unknown field 'nmae'"),
        ("users", {}, "name is missing"),
        ("agents", {**ada, "memories": "none"}, "no collection 'none'"),
        ("agents", {**ada, "model": "http://10.0.0.1/v1#m"}, "this server has no model"),
        ("agents", {**ada, "model": "local//etc/passwd"}, "this server has no model"),
        (
            "collections",
            {"name": "c", "embedder": "http://169.254.169.254#m"},
            "this server has no model",
        ),
    ):
        status, answer = ask(f"{acme}/{path}", body)
        assert status in (400, 404)
        assert spoken_answer in answer["error"]["message"]


def test_what_a_caller_does_not_see_is_not_there(url, acme, ask, as_caller):
    ask(f"{url}/v1/namespaces", {"name": "other"})
    ask(f"{acme}/users", {"name": "ann"})
    missing = ask(f"{url}/v1/namespaces/acmf")
    as_caller({"admin"}, frozenset({"acme", "acmf"}))
    assert [one["name"] for one in ask(f"{url}/v1/namespaces")[1]["data"]] == ["acme"]
    assert ask(f"{acme}/users/ann")[0] == 200
    assert ask(f"{url}/v1/namespaces/acmf") == missing
    assert "acme" not in str(missing).replace("acmf", "")
    for path in ("", "/users", "/users/ann", "/collections/x/memories"):
        status, answer = ask(f"{url}/v1/namespaces/other{path}")
        assert (status, answer["error"]["message"]) == (404, "no namespace 'other'")
    assert ask(f"{url}/v1/namespaces/other", method="DELETE")[0] == 404
    assert ask(f"{url}/v1/namespaces", {"name": "third"})[0] == 403


def test_every_body_has_an_example_that_fits(url, ask):
    jsonschema = pytest.importorskip("jsonschema_rs")
    _, document = ask(f"{url}/openapi.json")
    checked = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "requestBody" not in operation:
                continue
            for media in operation["requestBody"]["content"].values():
                schema = {**media["schema"], "components": document["components"]}
                response = media.get("examples", {})
                values = [value["value"] for value in response.values()]
                values += [media["example"]] if "example" in media else []
                assert values, f"{method} {path}: its body has no example"
                for example in values:
                    jsonschema.validate(schema, example)
                    checked += 1
    assert checked >= 18
