"""Namespaces, agents, collections and users as they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.errors import ConflictError, InputError
from textevolve.store.resources import ResourceStore


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[ResourceStore]:
    opened = ResourceStore(str(tmp_path / "store.db"))
    for name in ("acme", "other"):
        opened.create_namespace(NamespaceSpec(name=name))
    yield opened
    opened.close()


def make_collection(resources: ResourceStore, name: str = "notes", namespace: str = "acme"):
    spec = CollectionSpec(name=name, embedder="test/embedder", dimension=4)
    return resources.create_collection(namespace, spec)


def test_an_agent_is_kept_with_every_persona(resources):
    make_collection(resources)
    spec = AgentSpec(name="bot", persona="First.", memory={"collections": "notes", "budget": 99})
    made = resources.create_agent("acme", spec, "a test")
    assert made.spec == spec and made.persona_version == 1 and made.full_name == "acme/bot"
    changed = resources.update_agent("bot", "acme", {"persona": "Second.", "memory": {"limit": 3}})
    assert (changed.spec.persona, changed.persona_version) == ("Second.", 2)
    assert changed.spec.memory.limit == 3 and changed.spec.memory.budget == 99
    why = [{"memory": "me_1", "reason": "said so"}]
    assert resources.add_persona(changed, "Third.", "run 1", why) == 3
    assert resources.revert_persona(resources.get_agent("bot", "acme"), 1) == 4
    kept = resources.list_personas(made)
    assert [one.text for one in kept] == ["First.", "Second.", "Third.", "First."]
    assert kept[0].source == "a test" and kept[2].changes == why
    assert kept[3].source == "back to version 1"
    assert resources.get_agent("bot", "acme").spec.persona == "First."


def test_a_persona_is_not_made_twice_nor_over_somebody_elses(resources):
    old = resources.create_agent("acme", AgentSpec(name="bot", persona="First."))
    assert resources.add_persona(old, "Second.") == 2
    assert resources.add_persona(old, "Second.") == 2
    with pytest.raises(ConflictError, match="changed meanwhile"):
        resources.add_persona(old, "Third.")
    with pytest.raises(InputError, match="no persona 9; there are: 1, 2"):
        resources.revert_persona(old, 9)
    with pytest.raises(InputError, match="the persona is blank"):
        resources.add_persona(old, " ")


def test_what_is_not_there_is_named_with_what_is(resources):
    make_collection(resources)
    with pytest.raises(InputError, match=r"no collection 'nots' .*did you mean 'notes'.* create"):
        resources.get_collection("nots", "acme")
    with pytest.raises(InputError, match="no collection 'notes' in the namespace 'other'"):
        resources.get_collection("notes", "other")
    with pytest.raises(InputError, match="there is no namespace 'nobody'"):
        resources.list_agents("nobody")
    with pytest.raises(InputError, match="there is no collection 'none'"):
        resources.create_agent("acme", AgentSpec(name="b", persona="B", insights="none"))
    with pytest.raises(InputError, match="in its own namespace"):
        resources.create_agent("other", AgentSpec(name="b", persona="B", memories="acme/notes"))
    assert resources.list_agents("other") == []


def test_names_are_taken_once_in_each_namespace(resources):
    make_collection(resources)
    make_collection(resources, namespace="other")
    with pytest.raises(InputError, match="there is a collection 'notes' .*already"):
        make_collection(resources)
    with pytest.raises(InputError, match="already"):
        resources.create_namespace(NamespaceSpec(name="acme"))
    ids = {resources.get_collection("notes", one).id for one in ("acme", "other")}
    assert len(ids) == 2 and all(len(id) == 35 and id.startswith("co_") for id in ids)


def test_a_collection_that_agents_name_is_kept(resources):
    make_collection(resources)
    resources.create_agent("acme", AgentSpec(name="bot", persona="A bot.", memories="notes"))
    with pytest.raises(InputError, match="is named by bot"):
        resources.delete_collection("notes", "acme")
    resources.delete_collection("notes", "acme", force=True)
    assert resources.list_collections("acme") == []


def test_only_a_collections_description_changes(resources):
    made = make_collection(resources)
    changed = resources.update_collection("notes", "acme", {"description": "What is new."})
    assert changed.description == "What is new." and changed.id == made.id
    with pytest.raises(InputError, match="memories re-embed"):
        resources.update_collection("notes", "acme", {"embedder": "other/model"})


def test_a_namespace_goes_with_all_that_is_in_it(resources):
    for name in ("acme", "other"):
        make_collection(resources, namespace=name)
        resources.create_agent(name, AgentSpec(name="bot", persona="A bot."))
        resources.create_user(name, UserSpec(name="ann", description="A person."))
    resources.delete_namespace("acme")
    assert [one.spec.name for one in resources.list_namespaces()] == ["other"]
    resources.ensure_namespace("acme")
    assert resources.list_users("acme") == resources.list_agents("acme") == []
    assert resources.get_user("ann", "other").spec.description == "A person."
    assert len(resources.list_personas(resources.get_agent("bot", "other"))) == 1


def test_texts_that_cannot_be_kept_are_refused(resources):
    with pytest.raises(InputError, match="description has a NUL character at position 1"):
        resources.create_user("acme", UserSpec(name="ann", description="a\0b"))
    with pytest.raises(InputError, match="half a surrogate pair"):
        resources.create_agent("acme", AgentSpec(name="bot", persona="\ud800"))
