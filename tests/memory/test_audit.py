"""The memories that an audit finds, and those that it leaves alone."""

import pytest

from textevolve import Client
from textevolve.memory.audit import UNUSED_DAYS, audit_memory
from textevolve.memory.record import MemoryMatch, MemoryRecord, Origin

NOW = 2e9


def memory(text, id="b", created=NOW, trust=1.0, user="", times_used=1):
    return MemoryRecord(
        id=id,
        collection="notes",
        kind="semantic",
        text=text,
        importance=0.5,
        created=created,
        origin=Origin(trust=trust),
        user=user,
        times_used=times_used,
    )


def findings_of(record, *near, similarity=0.95, recalls=True):
    matches = [MemoryMatch(other, similarity=similarity) for other in near]
    return list(audit_memory(record, matches, recalls=recalls, now=NOW))


@pytest.mark.parametrize(
    ("text", "other", "reason", "forget"),
    [
        ("Mia lives in Oslo now.", "Mia lives in Oslo.", "duplicate", True),
        ("Oslo is the home of Mia.", "Mia lives in Oslo.", "similar", False),
        ("Mia lives in Bergen.", "Mia lives in Oslo.", "other value", False),
        ("Mia has 3 cats.", "Mia has 2 cats.", "other value", False),
    ],
)
def test_pairs_are_found_once(text, other, reason, forget):
    later = memory(text)
    earlier = memory(other, "a")
    (finding,) = findings_of(later, earlier)
    assert (finding.reason, finding.other, finding.forget) == (reason, earlier, forget)
    assert not findings_of(earlier, later)


def test_less_trusted_duplicate_goes():
    doubtful = memory("Mia lives in Oslo.", "a", trust=0.6)
    (finding,) = findings_of(doubtful, memory("Mia lives in Oslo.", "b"))
    assert finding.forget


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("She lives in Oslo.", "not self-contained"),
        ("Ann's sister visited me.", "not self-contained"),
        ("Ann moved last month.", "not self-contained"),
        ("Er wohnt in Graz.", "not self-contained"),
    ],
)
def test_texts_that_need_a_context(text, reason):
    assert [finding.reason for finding in findings_of(memory(text))] == [reason]


def test_trust_and_use():
    old = NOW - (UNUSED_DAYS + 1) * 86_400
    doubtful = memory("Mia lives in Oslo.", created=old, trust=0.4, times_used=0)
    assert [f.reason for f in findings_of(doubtful)] == ["low trust", "never recalled"]
    assert [f.reason for f in findings_of(doubtful, recalls=False)] == ["low trust"]


@pytest.mark.parametrize(
    ("text", "other"),
    [("Mia lives in Oslo.", "Ben lives in Rome."), ("Mia eats meat.", "Mia teaches C++.")],
)
def test_other_memories_stay_unmentioned(text, other):
    assert not findings_of(memory(text), memory(other, "a"), similarity=0.6)
    mine = memory("Mia lives in Oslo.", user="ann")
    assert not findings_of(mine, memory("Mia lives in Oslo.", "a", user="ben"))


def test_audit_from_python_and_commands(tmp_path, cli, server):
    path = tmp_path / "store.db"
    with Client(store=path) as client, client.namespace("default") as space:
        space.collections.create("notes", embedder=f"{server.url}#embeds")
        notes = space.memories("notes")
        first = notes.add("Mia lives in Oslo.")
        second = notes.add("Mia lives in Oslo now.")
        findings = notes.audit()
    assert [(f.memory.id, f.reason) for f in findings] == [(second.id, "duplicate")]

    shown = cli("memories", "audit", "notes", "--store", str(path))
    assert f"memories forget {second.id}" in shown.out
    listed = cli("memories", "audit", "notes", "--store", str(path), "--json")
    expected = {"id": second.id, "other": first.id, "reason": "duplicate", "forget": True}
    assert listed.rows == [expected]
