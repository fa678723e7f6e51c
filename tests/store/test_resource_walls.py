"""Random changes in two namespaces: each always holds what was put into it, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.errors import InputError
from textevolve.store import kinds
from textevolve.store.resources import ResourceStore

SPACES = ("acme", "other")
NAMES = ("a", "b", "c")
KINDS = ("agents", "collections", "users")
STEPS = st.tuples(
    st.sampled_from(["create", "update", "delete", "persona"]),
    st.sampled_from(KINDS),
    st.sampled_from(SPACES),
    st.sampled_from(NAMES),
    st.text("xyz", min_size=1, max_size=3),
)


SPECS = {
    "agents": lambda name, text: AgentSpec(name=name, persona=text, description=text),
    "users": lambda name, text: UserSpec(name=name, description=text),
    "collections": lambda name, text: CollectionSpec(
        name=name, embedder="test/e", dimension=4, description=text
    ),
}


def description(stored) -> str:
    return stored.description if hasattr(stored, "description") else stored.spec.description


def do(store: ResourceStore, step, space: str, name: str, text: str):
    """What a step does, and what it leaves of the thing: None where it is gone."""
    what, kind = step[0], kinds.KINDS[step[1]]
    if what == "create":
        return store.write(kinds.create, kind, space, SPECS[kind.command](name, text))
    if what == "delete":
        return store.write(kinds.delete, kind, space, name)
    if what == "persona" and kind is kinds.AGENTS:
        agent = store.read(kinds.get, kind, space, name)
        store.write(kinds.add_persona, agent, text)
        return store.read(kinds.get, kind, space, name)
    return store.write(kinds.update, kind, space, name, {"description": text})


def look(store: ResourceStore, kind: str, space: str) -> dict[str, tuple[str, str]]:
    found = store.read(kinds.list_all, kinds.KINDS[kind], space)
    names = [one.name if kind == "collections" else one.spec.name for one in found]
    return {n: (one.id, description(one)) for n, one in zip(names, found, strict=True)}


@given(st.lists(STEPS, max_size=30))
def test_nothing_crosses(steps):
    with tempfile.TemporaryDirectory() as folder:
        store = ResourceStore(str(Path(folder) / "store.db"))
        for space in SPACES:
            store.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=space))
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
        store.write(kinds.delete, kinds.NAMESPACES, "", "acme")
        assert look(store, "agents", "other") == wanted["agents", "other"]
        assert look(store, "users", "other") == wanted["users", "other"]
        assert look(store, "collections", "other") == wanted["collections", "other"]
        for agent in store.read(kinds.list_all, kinds.AGENTS, "other"):
            assert len(store.read(kinds.list_personas, agent.id)) == agent.persona_version
        store.close()
