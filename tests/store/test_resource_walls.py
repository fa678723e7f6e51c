"""Random changes in two namespaces: each always holds what was put into it, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.errors import InputError
from textevolve.store.resources import ResourceStore

SPACES = ("acme", "other")
NAMES = ("a", "b", "c")
KINDS = ("agent", "collection", "user")
STEPS = st.tuples(
    st.sampled_from(["create", "update", "delete", "persona"]),
    st.sampled_from(KINDS),
    st.sampled_from(SPACES),
    st.sampled_from(NAMES),
    st.text("xyz", min_size=1, max_size=3),
)


def create(store: ResourceStore, kind: str, space: str, name: str, text: str):
    if kind == "agent":
        return store.create_agent(space, AgentSpec(name=name, persona=text, description=text))
    if kind == "user":
        return store.create_user(space, UserSpec(name=name, description=text))
    spec = CollectionSpec(name=name, embedder="test/e", dimension=4, description=text)
    return store.create_collection(space, spec)


def description(stored) -> str:
    return stored.description if hasattr(stored, "description") else stored.spec.description


def do(store: ResourceStore, step, space: str, name: str, text: str):
    """What a step does, and what it leaves of the thing: None where it is gone."""
    what, kind, *_ = step
    if what == "create":
        return create(store, kind, space, name, text)
    if what == "delete":
        getattr(store, f"delete_{kind}")(name, space)
        return None
    if what == "persona" and kind == "agent":
        agent = store.get_agent(name, space)
        store.add_persona(agent, text)
        return store.get_agent(name, space)
    return getattr(store, f"update_{kind}")(name, space, {"description": text})


def look(store: ResourceStore, kind: str, space: str) -> dict[str, tuple[str, str]]:
    found = getattr(store, f"list_{kind}s")(space)
    names = [one.name if kind == "collection" else one.spec.name for one in found]
    return {n: (one.id, description(one)) for n, one in zip(names, found, strict=True)}


@given(st.lists(STEPS, max_size=30))
def test_nothing_crosses(steps):
    with tempfile.TemporaryDirectory() as folder:
        store = ResourceStore(str(Path(folder) / "store.db"))
        for space in SPACES:
            store.create_namespace(NamespaceSpec(name=space))
        wanted: dict[tuple[str, str], dict[str, tuple[str, str]]] = {
            (kind, space): {} for kind in KINDS for space in SPACES
        }
        for step in steps:
            what, kind, space, name, text = step
            held = wanted[kind, space]
            possible = (name in held) != (what == "create")
            try:
                left = do(store, step, space, name, text)
            except InputError:
                assert not possible
                continue
            assert possible
            if left is None:
                del held[name]
            else:
                assert name not in held or held[name][0] == left.id
                held[name] = (left.id, description(left))
        for (kind, space), held in wanted.items():
            assert look(store, kind, space) == held
        store.delete_namespace("acme")
        assert look(store, "agent", "other") == wanted["agent", "other"]
        assert look(store, "user", "other") == wanted["user", "other"]
        assert look(store, "collection", "other") == wanted["collection", "other"]
        for agent in store.list_agents("other"):
            assert len(store.list_personas(agent)) == agent.persona_version
        store.close()
