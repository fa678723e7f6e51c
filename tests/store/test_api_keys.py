"""Keys, browser sessions and budgets as they are kept, in SQLite and PostgreSQL alike."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from textevolve.agents.resources import NamespaceSpec
from textevolve.store import keys as stored_keys
from textevolve.store import kinds
from textevolve.store.keys import KeyLimits, KeySpec, TokenBudget
from textevolve.store.repository import Store


@pytest.fixture
def resources(memory_location):
    with closing(Store(memory_location)) as opened:
        opened.write(
            kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme", tokens_per_day=10)
        )
        yield opened


def test_a_key_is_found_by_its_text_while_it_is_live(resources):
    spec = KeySpec(scopes=("label",), namespaces=("acme",), limits=KeyLimits(streams=3))
    made, text = resources.write(stored_keys.add_key, "ann", spec, time.time() + 1000)
    assert resources.read(stored_keys.find_key, text) == made
    assert resources.read(stored_keys.find_key_by_id, made.id) == made
    assert (made.spec, made.live, made.used) == (spec, True, None)
    for other in ("", "te-", text[:-1], f"{text} ", text.upper(), "te-\udce9\x00"):
        assert resources.read(stored_keys.find_key, other) is None
    resources.note_usage({}, {made.id: 5.0})
    assert resources.read(stored_keys.list_keys)[0].used == 5.0
    resources.write(stored_keys.revoke_key, made.id)
    assert resources.read(stored_keys.find_key, text) is None
    assert resources.read(stored_keys.find_key_by_id, made.id) is None
    _, late = resources.write(stored_keys.add_key, "bob", KeySpec(), time.time() - 1)
    assert resources.read(stored_keys.find_key, late) is None
    assert [one.live for one in resources.read(stored_keys.list_keys)] == [False, False]


def test_a_session_lasts_until_it_is_over(resources):
    made, _ = resources.write(stored_keys.add_key, "ann", KeySpec(), None)
    for token, expires in (("one", 1000), ("two", 1000), ("late", -1)):
        resources.write(stored_keys.add_session, token, made.id, time.time() + expires)
    assert resources.read(stored_keys.find_session, "one") == made.id
    assert resources.read(stored_keys.find_session, "late") is None
    assert resources.read(stored_keys.find_session, "on") is None
    resources.write(stored_keys.end_session, "one")
    assert resources.read(stored_keys.find_session, "one") is None
    resources.write(stored_keys.revoke_key, "ann")
    assert resources.read(stored_keys.find_session, "two") is None


def test_tokens_of_a_day_are_added_up(resources):
    assert resources.read(stored_keys.read_budget, "acme") == TokenBudget(10, 0)
    resources.note_usage({"acme": 4, "gone": 1}, {})
    resources.note_usage({"acme": 5}, {})
    assert resources.read(stored_keys.read_budget, "acme") == TokenBudget(10, 9)
    assert resources.read(stored_keys.read_budget, "gone") == TokenBudget()
    resources.write(kinds.update, kinds.NAMESPACES, "", "acme", {"tokens_per_day": None})
    assert resources.read(stored_keys.read_budget, "acme") == TokenBudget(None, 9)
    resources.write(kinds.delete, kinds.NAMESPACES, "", "acme")
    resources.write(
        kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme", tokens_per_day=10)
    )
    assert resources.read(stored_keys.read_budget, "acme") == TokenBudget(10, 0)
