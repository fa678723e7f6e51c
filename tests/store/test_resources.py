"""Namespaces, agents, collections and users as they are kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.errors import ConflictError, InputError
from textevolve.store import kinds, tables
from textevolve.store.repository import Store


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Store]:
    opened = Store(str(tmp_path / "store.db"))
    for name in ("acme", "other"):
        opened.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=name))
    yield opened
    opened.close()


def make_collection(resources: Store, name: str = "notes", namespace: str = "acme"):
    spec = CollectionSpec(name=name, embedder="test/embedder", dimension=4)
    return resources.write(kinds.create, kinds.COLLECTIONS, namespace, spec)


def change(resources, kind, name, fields, *more):
    return resources.write(kinds.update, kind, "acme", name, fields, *more)


def test_an_agent_is_stored_with_every_version(resources):
    make_collection(resources)
    spec = AgentSpec(name="bot", persona="First.", memory={"collections": "notes", "budget": 99})
    made = resources.write(kinds.create, kinds.AGENTS, "acme", spec, "a test")
    assert (made.spec, made.spec_version, made.full_name) == (spec, 1, "acme/bot")
    fields = {"persona": "Second.", "memory": {"limit": 3}}
    changed = change(resources, kinds.AGENTS, "bot", fields)
    assert (changed.spec.persona, changed.spec_version) == ("Second.", 2)
    assert (changed.spec.memory.limit, changed.spec.memory.budget) == (3, 99)
    assert change(resources, kinds.AGENTS, "bot", fields) == changed
    records = [{"memory": "me_1", "reason": "said so"}]
    third = change(resources, kinds.AGENTS, "bot", {"persona": "Third."}, "run 1", records, 2)
    assert third.spec_version == 3
    back = resources.write(kinds.revert, kinds.AGENTS, "acme", "bot", 1)
    assert (back.spec, back.spec_version) == (spec, 4)
    versions = resources.read(kinds.list_versions, kinds.AGENTS, "acme", "bot")
    assert [version.spec["persona"] for version in versions] == [
        "First.",
        "Second.",
        "Third.",
        "First.",
    ]
    assert [version.source for version in versions] == ["a test", "", "run 1", "back to version 1"]
    assert versions[2].changes == records


def test_agents_of_earlier_versions_load(resources):
    """They may recall by association, which is gone."""
    make_collection(resources)
    spec = AgentSpec(name="bot", persona="First.", memory={"collections": "notes", "limit": 7})
    made = resources.write(kinds.create, kinds.AGENTS, "acme", spec)
    for table in (tables.agents, tables.resource_versions):
        old = func.replace(table.c.spec, '"limit"', '"associate":true,"limit"')
        statement = update(table).values(spec=old)
        resources.write(lambda connection, statement=statement: connection.execute(statement))
    assert resources.read(kinds.get, kinds.AGENTS, "acme", "bot").spec == made.spec
    change(resources, kinds.AGENTS, "bot", {"persona": "Second."})
    back = resources.write(kinds.revert, kinds.AGENTS, "acme", "bot", 1)
    assert back.spec == made.spec


def test_a_change_is_not_made_over_somebody_elses(resources):
    resources.write(kinds.create, kinds.AGENTS, "acme", AgentSpec(name="bot", persona="First."))
    change(resources, kinds.AGENTS, "bot", {"persona": "Second."})
    with pytest.raises(ConflictError, match="changed meanwhile"):
        change(resources, kinds.AGENTS, "bot", {"persona": "Third."}, "", (), 1)
    with pytest.raises(InputError, match="no version 9; there are: 1, 2"):
        resources.write(kinds.revert, kinds.AGENTS, "acme", "bot", 9)
    with pytest.raises(InputError, match="the persona is blank"):
        change(resources, kinds.AGENTS, "bot", {"persona": " "})


@pytest.mark.parametrize("command", ["namespaces", "collections", "users"])
def test_every_kind_has_versions_and_keeps_what_is_fixed(resources, command):
    kind = kinds.KINDS[command]
    name = "acme" if kind is kinds.NAMESPACES else "notes"
    if kind is kinds.COLLECTIONS:
        collection = make_collection(resources)
    elif kind is kinds.USERS:
        resources.write(kinds.create, kind, "acme", UserSpec(name="notes"))
    change(resources, kind, name, {"description": "Later."})
    if kind is kinds.COLLECTIONS:
        moved = update(tables.collections).values(embedder="other/model")
        resources.write(lambda connection: connection.execute(moved))
    back = resources.write(kinds.revert, kind, "acme", name, 1)
    versions = resources.read(kinds.list_versions, kind, "acme", name)
    assert [version.spec["description"] for version in versions] == ["", "Later.", ""]
    assert getattr(back, "spec", back).description == ""
    if kind is kinds.COLLECTIONS:
        assert (back.id, back.embedder) == (collection.id, "other/model")
    resources.write(kinds.delete, kind, "acme", name)
    remaining_select = select(tables.resource_versions.c.resource_id)
    text = resources.read(lambda connection: connection.execute(remaining_select).all())
    assert len(text) == (1 if kind is kinds.NAMESPACES else 2)


PERSONAS = """
ALTER TABLE memories DROP COLUMN user;
CREATE TABLE personas (agent_id TEXT, version INTEGER, created FLOAT, source TEXT, text TEXT,
    changes TEXT, PRIMARY KEY (agent_id, version));
ALTER TABLE agents ADD COLUMN persona_version INTEGER NOT NULL DEFAULT 1;
INSERT INTO personas SELECT resource_id, version, created, source,
    json_extract(spec, '$.persona'), changes FROM resource_versions
    WHERE json_extract(spec, '$.persona') IS NOT NULL;
DROP TABLE resource_versions;
CREATE VIRTUAL TABLE memory_vectors_4 USING fts5(words);
INSERT INTO memory_vectors_4 VALUES ('secret');
UPDATE alembic_version SET version_num = '0007';
"""


WITHOUT_CLUSTERS = """
DROP INDEX records_in_order;
ALTER TABLE records DROP COLUMN cluster;
CREATE INDEX records_in_order ON records (run_id, position);
"""


def test_personas_of_an_older_store_are_versions_and_vectors_of_an_extension_go(
    resources, tmp_path
):
    resources.write(kinds.create, kinds.AGENTS, "acme", AgentSpec(name="bot", persona="First."))
    change(resources, kinds.AGENTS, "bot", {"persona": "Second.", "model": "local/x"})
    resources.close()
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(PERSONAS)
        raw.executescript(WITHOUT_CLUSTERS)
    with closing(Store(str(path))) as store:
        agent = store.read(kinds.get, kinds.AGENTS, "acme", "bot")
        assert (agent.spec.persona, agent.spec.model) == ("Second.", "local/x")
        assert agent.spec_version == 2
        assert store.write(kinds.revert, kinds.AGENTS, "acme", "bot", 1).spec.persona == "First."
        changed = store.write(kinds.update, kinds.NAMESPACES, "", "acme", {"description": "New."})
        assert changed.spec_version == 2
        versions = store.read(kinds.list_versions, kinds.NAMESPACES, "", "acme")
        assert [version.spec["description"] for version in versions] == ["", "New."]
    with closing(sqlite3.connect(path)) as raw:
        names = "SELECT name FROM sqlite_master WHERE name LIKE 'memory_vectors%'"
        assert raw.execute(names).fetchall() == []
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_what_is_not_there_is_named_with_what_is(resources):
    make_collection(resources)
    with pytest.raises(InputError, match=r"no collection 'nots' .*did you mean 'notes'.* create"):
        resources.read(kinds.get, kinds.COLLECTIONS, "acme", "nots")
    with pytest.raises(InputError, match="no collection 'notes' in the namespace 'other'"):
        resources.read(kinds.get, kinds.COLLECTIONS, "other", "notes")
    with pytest.raises(InputError, match="there is no namespace 'nobody'"):
        resources.read(kinds.list_all, kinds.AGENTS, "nobody")
    with pytest.raises(InputError, match="there is no collection 'none'"):
        resources.write(
            kinds.create, kinds.AGENTS, "acme", AgentSpec(name="b", persona="B", insights="none")
        )
    with pytest.raises(InputError, match="in its own namespace"):
        resources.write(
            kinds.create,
            kinds.AGENTS,
            "other",
            AgentSpec(name="b", persona="B", memories="acme/notes"),
        )
    assert resources.read(kinds.list_all, kinds.AGENTS, "other") == []


def test_names_are_taken_once_in_each_namespace(resources):
    make_collection(resources)
    make_collection(resources, namespace="other")
    with pytest.raises(InputError, match="the collection 'notes' exists already"):
        make_collection(resources)
    with pytest.raises(InputError, match="already"):
        resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
    ids = {
        resources.read(kinds.get, kinds.COLLECTIONS, one, "notes").id for one in ("acme", "other")
    }
    assert len(ids) == 2
    assert all(len(id) == 35 and id.startswith("co_") for id in ids)


def test_a_collection_that_agents_name_is_kept(resources):
    make_collection(resources)
    resources.write(
        kinds.create,
        kinds.AGENTS,
        "acme",
        AgentSpec(name="bot", persona="A bot.", memories="notes"),
    )
    with pytest.raises(InputError, match="is used by bot"):
        resources.write(kinds.delete, kinds.COLLECTIONS, "acme", "notes")
    resources.write(kinds.delete, kinds.COLLECTIONS, "acme", "notes", force=True)
    assert resources.read(kinds.list_all, kinds.COLLECTIONS, "acme") == []


def test_a_namespace_goes_with_all_that_is_in_it(resources):
    for name in ("acme", "other"):
        make_collection(resources, namespace=name)
        resources.write(kinds.create, kinds.AGENTS, name, AgentSpec(name="bot", persona="A bot."))
        resources.write(
            kinds.create, kinds.USERS, name, UserSpec(name="ann", description="A person.")
        )
    resources.write(kinds.delete, kinds.NAMESPACES, "", "acme")
    assert resources.namespace_names() == ["other"]
    resources.ensure_namespace("acme")
    assert (
        resources.read(kinds.list_all, kinds.USERS, "acme")
        == resources.read(kinds.list_all, kinds.AGENTS, "acme")
        == []
    )
    assert resources.read(kinds.get, kinds.USERS, "other", "ann").spec.description == "A person."
    assert len(resources.read(kinds.list_versions, kinds.AGENTS, "other", "bot")) == 1


def test_changes_at_once_are_all_made(memory_location):
    """Of eighty changes of one agent by eight threads each is a version. PostgreSQL undoes changes
    that meet, and refuses one that met others again and again: none is lost without a word."""
    with closing(Store(memory_location)) as store:
        store.ensure_namespace("acme")
        spec = AgentSpec(name="bot", persona="First.")
        store.write(kinds.create, kinds.AGENTS, "acme", spec)

        def change(number: int) -> None:
            changes = {"persona": f"Text {number}.", "description": f"{number}"}
            while True:
                try:
                    store.write(kinds.update, kinds.AGENTS, "acme", "bot", changes)
                    return
                except ConflictError:
                    assert "postgresql" in memory_location

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(change, range(80)))
        versions = store.read(kinds.list_versions, kinds.AGENTS, "acme", "bot")
        personas = [version.spec["persona"] for version in versions]
        assert [version.version for version in versions] == list(range(1, 82))
        assert set(personas[1:]) == {f"Text {n}." for n in range(80)}
        stored = store.read(kinds.get, kinds.AGENTS, "acme", "bot")
        assert stored.spec_version == 81
        assert stored.spec.persona == f"Text {stored.spec.description}." == personas[-1]
