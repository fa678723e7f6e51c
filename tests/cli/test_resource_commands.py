"""The commands of namespaces, agents, collections and users, as a stranger would use them."""

import pytest


@pytest.fixture
def embedded(home, model, monkeypatch):
    """New collections are embedded by the scripted server."""
    monkeypatch.setenv("TEXTEVOLVE_EMBEDDER", model)
    return model


def test_an_update_leaves_the_rest(cli, home):
    cli("agents", "create", "ann", "--persona", "A.", "--limit", "3", "--model", "openai/gpt-5")
    changed = cli("agents", "update", "ann", "--budget", "99", "--unset", "model", "--json").rows[0]
    assert (changed["memory"]["limit"], changed["memory"]["budget"]) == (3, 99)
    assert changed["model"] is None
    changed = cli("agents", "update", "ann", "--unset", "budget", "--json").rows[0]
    assert changed["memory"]["budget"] is None
    assert changed["spec_version"] == 3
    assert "--unset: no field 'modle'" in cli("agents", "update", "ann", "--unset", "modle").err
    assert "nothing to change" in cli("agents", "update", "ann").err


def test_deleting_asks_and_says_who_needs_it(cli, embedded):
    cli("memories", "collections", "create", "notes", "--dimension", "32")
    cli("agents", "create", "ann", "--persona", "A.", "--memories", "notes")
    refused = cli("memories", "collections", "delete", "notes", stdin=b"n\n")
    assert refused.code == 1
    assert "all its memories" in refused.out + refused.err
    assert "is used by ann" in cli("memories", "collections", "delete", "notes", "--yes").err
    assert cli("memories", "collections", "delete", "notes", "--yes", "--force").code == 0
    cli("agents", "namespaces", "create", "acme")
    assert (
        cli("agents", "namespaces", "delete", "acme", "--yes").out == "deleted the namespace acme\n"
    )
    assert [row["name"] for row in cli("agents", "namespaces", "list", "--json").rows] == [
        "default"
    ]


def test_a_namespace_goes_to_another_store_and_back(cli, embedded, home, monkeypatch):
    cli("memories", "collections", "create", "notes")
    cli("memories", "add", "notes", "Ann drinks green tea.", "--entity", "Ann")
    cli("agents", "create", "ann", "--persona", "First.", "--memories", "notes")
    cli("agents", "update", "ann", "--persona", "Second.")
    cli("agents", "users", "create", "eve")
    assert cli("agents", "namespaces", "export", "default", "-o", "all.jsonl").code == 0
    assert "--name gives it another name" in cli("agents", "namespaces", "import", "all.jsonl").err
    monkeypatch.setenv("TEXTEVOLVE_STORE", str(home / "other.db"))
    monkeypatch.setenv("TEXTEVOLVE_NAMESPACE", "mine")
    assert cli("agents", "namespaces", "import", "all.jsonl").code == 0
    rows = cli("memories", "search", "default/notes", "green tea", "--json").rows
    assert [one["text"] for one in rows] == ["Ann drinks green tea."]
