"""An operator deletes a tenant, and a later tenant gets the same name."""

import asyncio

import pytest

pytest.importorskip("fastapi")

from textevolve.agents.resources import NamespaceSpec
from textevolve.server.errors import ApiError
from textevolve.server.identity import Caller, UsageLimits
from textevolve.server.studies.reading import sees_run
from textevolve.store import keys, kinds
from textevolve.store.keys import KeySpec
from textevolve.store.served import ServedRun, read_marks

TENANT = Caller("k", "tenant", frozenset({"run"}), frozenset({"acme"}))


@pytest.fixture
def tenants(resources):
    resources.ensure_namespace("acme")
    resources.ensure_namespace("beta")
    return resources


def renew(resources, name="acme"):
    resources.write(kinds.delete, kinds.NAMESPACES, "", name)
    resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=name))


def run_of(resources, **fields):
    mark = resources.read(read_marks)["acme"]
    return ServedRun("r", "acme", "k", mark.created + 1, "running", {}, **fields)


def test_keys_end_with_namespace(tenants):
    _, alone = tenants.write(keys.add_key, "alone", KeySpec(namespaces=("acme",)))
    _, both = tenants.write(keys.add_key, "both", KeySpec(namespaces=("acme", "beta")))
    _, everywhere = tenants.write(keys.add_key, "everywhere", KeySpec())
    renew(tenants)

    assert tenants.read(keys.find_key, alone) is None
    assert tenants.read(keys.find_key, both).spec.namespaces == ("beta",)
    assert tenants.read(keys.find_key, everywhere).spec.namespaces == ()
    renew(tenants, "beta")
    assert tenants.read(keys.find_key, both) is None


def test_runs_stay_with_namespace(tenants):
    mark = tenants.read(read_marks)["acme"]
    bound = run_of(tenants, namespace_id=mark.id)
    unbound = run_of(tenants)  # of an earlier version
    assert all(sees_run(TENANT, run, tenants.read(read_marks)) for run in (bound, unbound))

    renew(tenants)
    marks = tenants.read(read_marks)
    assert not sees_run(TENANT, bound, marks)
    assert not bound.is_of(marks["acme"])
    early = run_of(tenants)
    assert sees_run(TENANT, early, marks)  # begun in the second namespace


def test_old_runs_by_time(tenants):
    early = ServedRun("r", "acme", "k", 0.0, "running", {})
    assert not sees_run(TENANT, early, tenants.read(read_marks))


def test_gone_namespace_has_no_tokens(tenants):
    limits = UsageLimits(tenants)
    mark = tenants.read(read_marks)["acme"]
    asyncio.run(limits.check_tokens(TENANT))
    renew(tenants)

    limits = UsageLimits(tenants)
    anybody = Caller("", "all", frozenset({"run"}))
    with pytest.raises(ApiError, match="was deleted"):
        asyncio.run(limits.check_tokens(anybody, "acme", mark.id))
    tenants.write(kinds.delete, kinds.NAMESPACES, "", "acme")
    with pytest.raises(ApiError, match="was deleted") as refusal:
        asyncio.run(UsageLimits(tenants).check_tokens(TENANT))
    assert refusal.value.status == 404


def test_each_namespace_is_charged(tenants):
    limits = UsageLimits(tenants)
    both = Caller("k", "both", frozenset({"run"}), frozenset({"acme", "beta"}))
    limits.note_tokens(both, 7)
    asyncio.run(limits.flush())
    assert [tenants.read(keys.read_budget, name).used for name in ("acme", "beta")] == [7, 7]
