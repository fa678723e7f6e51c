"""The memories of a collection over HTTP: kept, found, looked at, forgotten."""

import json

import pytest

from textevolve.server import guard
from textevolve.server.identity import Caller


@pytest.fixture
def notes(serve, model, ask):
    url = serve()
    ask(f"{url}/v1/namespaces", {"name": "acme"})
    space = f"{url}/v1/namespaces/acme/collections"
    assert ask(space, {"name": "notes", "embedder": model})[0] == 201
    return f"{space}/notes/memories"


NDJSON = {"Content_Type": "application/x-ndjson"}


def test_a_memory_is_kept_and_found_with_the_parts_of_its_score(notes, ask):
    body = {"text": "Ann drinks green tea.", "importance": 0.9, "valid_from": "2025-01-31"}
    status, stored = ask(notes, body)
    assert (status, stored["text"], stored["importance"]) == (201, body["text"], 0.9)
    assert stored["valid_from"] == "2025-01-31T00:00:00Z"
    ask(notes, {"text": "Bob lives in Oslo."})
    status, found = ask(f"{notes}/search", {"query": "What does Ann drink?", "limit": 1})
    assert (status, found["considered"], found["over_limit"]) == (200, 2, 1)
    (one,) = found["data"]
    assert one["id"] == stored["id"]
    assert set(one["parts"]) == {"relevance", "importance", "recency"}
    assert 0 <= one["score"] <= 1
    assert one["similarity"] is not None
    assert ask(f"{notes}/{stored['id']}") == (200, stored)
    then = ask(f"{notes}/search", {"query": "Ann", "as_of": "2024-01-01"})[1]
    assert [one["text"] for one in then["data"]] == ["Bob lives in Oslo."]


def test_lists_are_paged_by_cursor(notes, ask):
    for n in range(5):
        ask(notes, {"text": f"Fact {n}."})
    matches, cursor = [], ""
    while cursor is not None:
        page = ask(f"{notes}?limit=2{cursor and f'&cursor={cursor}'}")[1]
        matches += [one["text"] for one in page["data"]]
        cursor = page["next"]
    assert matches == [f"Fact {n}." for n in range(5)]
    assert len(ask(f"{notes}?version=2")[1]["data"]) == 2
    assert ask(f"{notes}?cursor=me_none")[0] == 404
    assert ask(f"{notes}?version=99")[0] == 400


def test_files_of_memories(notes, ask):
    rows = [{"text": f"Fact {n}.", "importance": 0.5} for n in range(3)]
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert ask(f"{notes}/import", body, **NDJSON) == (200, {"added": 3, "known": 0, "closed": 0})
    assert ask(f"{notes}/import", body, **NDJSON) == (200, {"added": 0, "known": 3, "closed": 0})
    status, refused = ask(f"{notes}/import", body + b'{"text": ""}\n', **NDJSON)
    assert (status, "body:4" in refused["error"]["message"]) == (400, True)
    listed = ask(notes)[1]["data"]
    assert [row["text"] for row in listed] == [row["text"] for row in rows]


def test_audits_name_what_to_look_at(notes, ask):
    first = ask(notes, {"text": "Ann drinks green tea."})[1]
    again = ask(notes, {"text": "Ann drinks green tea!"})[1]
    ask(notes, {"text": "Bob lives in Oslo.", "trust": 0.2})
    status, audited = ask(f"{notes}/audit")
    assert status == 200
    findings = [(each["memory"]["text"], each["reason"]) for each in audited["data"]]
    assert findings == [(again["text"], "duplicate"), ("Bob lives in Oslo.", "low trust")]
    duplicate = audited["data"][0]
    assert (duplicate["other"]["id"], duplicate["forget"]) == (first["id"], True)
    assert ask(f"{notes.replace('/notes/', '/none/')}/audit")[0] == 404


def test_memories_of_other_collections_are_not_found(notes, ask, model):
    kept = ask(notes, {"text": "A fact."})[1]["id"]
    other = notes.replace("/notes/", "/other/")
    assert ask(other)[0] == 404
    ask(notes.removesuffix("/notes/memories"), {"name": "other", "embedder": model})
    assert ask(f"{other}/{kept}")[0] == 404
    assert ask(f"{other}/{kept}", method="DELETE")[0] == 404
    assert ask(f"{other}/{kept}/history")[0] == 404


def test_who_may_write_and_who_may_erase(notes, ask, monkeypatch):
    kept = ask(notes, {"text": "A fact."})[1]["id"]

    def become(*scopes):
        caller = Caller("k", "somebody", frozenset(scopes))
        monkeypatch.setattr(guard, "THIS_MACHINE", caller)

    become("read")
    assert ask(notes, {"text": "Another."})[0] == 403
    assert ask(f"{notes}/search", {"query": "fact"})[0] == 403  # it pays for an embedding
    become("read", "run")
    assert ask(f"{notes}/search", {"query": "fact"})[0] == 200
    become("run")
    assert ask(notes)[0] == 403
    assert ask(notes, {"text": "Another."})[0] == 201
    assert ask(f"{notes}/{kept}?erase=true", method="DELETE")[0] == 403
    assert ask(f"{notes}/{kept}", method="DELETE")[0] == 204


def test_repeatable_requests_are_imports(notes, ask):
    status, answer, *_ = ask(notes, {"text": "A fact."}, **{"Idempotency-Key": "1"})
    assert status == 400
    assert "/import" in str(answer)
    assert ask(notes)[1]["data"] == []
