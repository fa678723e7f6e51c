"""An insight rests on a memory that is superseded or forgotten: the audit names both. Insights
whose memories all hold are left alone."""

from textevolve import Client


def test_insights_without_their_memories_are_named(tmp_path, server, cli):
    path = tmp_path / "store.db"
    with Client(store=path) as client, client.namespace("default") as space:
        embedder = f"{server.url}#embeds"
        space.collections.create("notes", embedder=embedder)
        space.collections.create("insights", kind="insight", embedder=embedder)
        notes = space.memories("notes")
        kept = notes.add("Ann likes the library.")
        lost = notes.add("Ann asked for a quiet room.")
        insights = space.memories("insights")
        insights.add("Ann reads a lot.", cites=[kept.id])
        shaken = insights.add("Ann prefers quiet places.", cites=[kept.id, lost.id])
        assert not insights.audit()
        notes.forget(lost.id)
        (finding,) = insights.audit()
    assert (finding.memory.id, finding.other.id) == (shaken.id, lost.id)
    assert not finding.forget

    shown = cli("memories", "audit", "insights", "--store", str(path))
    assert "rests on a closed one" in shown.out
    assert "memories forget" not in shown.out
