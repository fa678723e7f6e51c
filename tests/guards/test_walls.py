"""Random changes in two namespaces: each always holds what was put into it, and nothing else."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textevolve import Client, InputError

pytestmark = pytest.mark.guard

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


NOBODY = "http://127.0.0.1:9/v1#e"
FIELDS = {
    "agent": lambda text: {"persona": text, "description": text},
    "collection": lambda text: {
        "embedder": "http://127.0.0.1:9/v1#e",
        "dimension": 4,
        "description": text,
    },
    "user": lambda text: {"description": text},
}


def do(space, step):
    """What a step does, and what it leaves of the thing: None where it is gone."""
    what, kind, _, name, text = step
    things = getattr(space, f"{kind}s")
    if what == "create":
        return things.create(name, **FIELDS[kind](text))
    if what == "delete":
        return things.delete(name)
    if what == "persona" and kind == "agent":
        return things.update(name, persona=text)
    return things.update(name, description=text)


def describe(stored):
    own = getattr(stored, "spec", stored)
    return own.name, (stored.id, own.description)


def look(space, kind):
    return dict(describe(one) for one in getattr(space, f"{kind}s").list())


@pytest.mark.slow
@settings(max_examples=min(25, settings().max_examples))
@given(st.lists(STEPS, max_size=30))
def test_nothing_crosses(steps):
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "store.db"
        spaces = {
            name: stack.enter_context(Client(store=path).namespace(name, create=True))
            for name in SPACES
        }
        expected = {(kind, name): {} for kind in KINDS for name in SPACES}
        for step in steps:
            what, kind, place, name, _ = step
            held = expected[kind, place]
            possible = (name in held) != (what == "create")
            try:
                left = do(spaces[place], step)
            except InputError:
                assert not possible
                continue
            assert possible
            if left is None:
                del held[name]
            else:
                _, (id, description) = describe(left)
                assert name not in held or held[name][0] == id
                held[name] = (id, description)
        for (kind, place), held in expected.items():
            assert look(spaces[place], kind) == held
        spaces["other"].namespaces.delete("acme")
        for kind in KINDS:
            assert look(spaces["other"], kind) == expected[kind, "other"]
        for agent in spaces["other"].agents.list():
            versions = spaces["other"].agents.versions(agent.spec.name)
            assert len(versions) == agent.spec_version
