"""Namespaces, agents, collections and users as they are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.errors import ConflictError, InputError
from textevolve.store import kinds, tables
from textevolve.store.resources import ResourceStore


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[ResourceStore]:
    opened = ResourceStore(str(tmp_path / "store.db"))
    for name in ("acme", "other"):
        opened.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=name))
    yield opened
    opened.close()


def make_collection(resources: ResourceStore, name: str = "notes", namespace: str = "acme"):
    spec = CollectionSpec(name=name, embedder="test/embedder", dimension=4)
    return resources.write(kinds.create, kinds.COLLECTIONS, namespace, spec)


def test_an_agent_is_kept_with_every_persona(resources):
    make_collection(resources)
    spec = AgentSpec(name="bot", persona="First.", memory={"collections": "notes", "budget": 99})
    made = resources.write(kinds.create, kinds.AGENTS, "acme", spec, "a test")
    assert made.spec == spec
    assert made.persona_version == 1
    assert made.full_name == "acme/bot"
    changed = resources.write(
        kinds.update, kinds.AGENTS, "acme", "bot", {"persona": "Second.", "memory": {"limit": 3}}
    )
    assert (changed.spec.persona, changed.persona_version) == ("Second.", 2)
    assert changed.spec.memory.limit == 3
    assert changed.spec.memory.budget == 99
    why = [{"memory": "me_1", "reason": "said so"}]
    assert resources.write(kinds.add_persona, changed, "Third.", "run 1", why) == 3
    assert resources.write(kinds.revert, "acme", "bot", 1).persona_version == 4
    kept = resources.read(kinds.list_personas, made.id)
    assert [one.text for one in kept] == ["First.", "Second.", "Third.", "First."]
    assert kept[0].source == "a test"
    assert kept[2].changes == why
    assert kept[3].source == "back to version 1"
    assert resources.read(kinds.get, kinds.AGENTS, "acme", "bot").spec.persona == "First."


def test_a_persona_is_not_made_twice_nor_over_somebody_elses(resources):
    old = resources.write(
        kinds.create, kinds.AGENTS, "acme", AgentSpec(name="bot", persona="First.")
    )
    assert resources.write(kinds.add_persona, old, "Second.") == 2
    assert resources.write(kinds.add_persona, old, "Second.") == 2
    with pytest.raises(ConflictError, match="changed meanwhile"):
        resources.write(kinds.add_persona, old, "Third.")
    with pytest.raises(InputError, match="no persona 9; there are: 1, 2"):
        resources.write(kinds.revert, "acme", "bot", 9)
    with pytest.raises(InputError, match="the persona is blank"):
        resources.write(kinds.add_persona, old, " ")


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
    with pytest.raises(InputError, match="the collection 'notes' is there already"):
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
    with pytest.raises(InputError, match="is named by bot"):
        resources.write(kinds.delete, kinds.COLLECTIONS, "acme", "notes")
    resources.write(kinds.delete, kinds.COLLECTIONS, "acme", "notes", force=True)
    assert resources.read(kinds.list_all, kinds.COLLECTIONS, "acme") == []


def test_only_a_collections_description_changes(resources):
    made = make_collection(resources)
    changed = resources.write(
        kinds.update, kinds.COLLECTIONS, "acme", "notes", {"description": "What is new."}
    )
    assert changed.description == "What is new."
    assert changed.id == made.id
    with pytest.raises(InputError, match="memories re-embed"):
        resources.write(
            kinds.update, kinds.COLLECTIONS, "acme", "notes", {"embedder": "other/model"}
        )


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
    assert (
        len(
            resources.read(
                kinds.list_personas, resources.read(kinds.get, kinds.AGENTS, "other", "bot").id
            )
        )
        == 1
    )


def test_changes_at_once_are_all_made(memory_location):
    """Of eighty changes of one agent by eight threads each is a version. PostgreSQL undoes changes
    that meet, and refuses one that met others again and again: none is lost without a word."""
    with closing(ResourceStore(memory_location)) as store:
        store.ensure_namespace("acme")
        spec = AgentSpec(name="bot", persona="First.")
        agent = store.write(kinds.create, kinds.AGENTS, "acme", spec)

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
        personas = store.read(kinds.list_personas, agent.id)
        assert [one.version for one in personas] == list(range(1, 82))
        assert {one.text for one in personas[1:]} == {f"Text {n}." for n in range(80)}
        stored = store.read(kinds.get, kinds.AGENTS, "acme", "bot")
        assert stored.persona_version == 81
        assert stored.spec.persona == f"Text {stored.spec.description}." == personas[-1].text


def test_rows_of_another_version_of_the_program_are_read(resources):
    """Fields that an agent had, and that it has by now, where the row lacks them."""
    agent = resources.write(kinds.create, kinds.AGENTS, "acme", AgentSpec(name="bot", persona="A."))
    older = json.dumps({"name": "bot", "mood": "calm", "description": "Helps."})
    row = update(tables.agents).where(tables.agents.c.id == agent.id).values(spec=older)
    resources.write(lambda connection: connection.execute(row))
    stored = resources.read(kinds.get, kinds.AGENTS, "acme", "bot")
    assert stored.spec == AgentSpec(name="bot", persona="A.", description="Helps.")
    changed = resources.write(kinds.update, kinds.AGENTS, "acme", "bot", {"model": "local/x"})
    assert (changed.spec.model, changed.spec.description) == ("local/x", "Helps.")


def test_texts_that_cannot_be_kept_are_refused(resources):
    with pytest.raises(InputError, match="description has a NUL character at position 1"):
        resources.write(kinds.create, kinds.USERS, "acme", UserSpec(name="ann", description="a\0b"))
    with pytest.raises(InputError, match="half a surrogate pair"):
        resources.write(kinds.create, kinds.AGENTS, "acme", AgentSpec(name="bot", persona="\ud800"))
