"""The commands of namespaces, agents, collections and users, as a stranger would use them."""

import pytest


@pytest.fixture
def embedded(home, model, monkeypatch):
    """New collections are embedded by the scripted server."""
    monkeypatch.setenv("TEXTEVOLVE_EMBEDDER", model)
    return model


def test_the_first_minute(cli, embedded):
    assert (
        cli("memories", "collections", "create", "notes").out
        == "made the collection default/notes\n"
    )
    made = cli("memories", "collections", "show", "notes", "--json").rows[0]
    assert made["dimension"] == 32
    assert made["embedder"] == embedded
    created = cli(
        *("agents", "create", "ann", "--persona", "You are Ann."),
        *("--collection", "notes", "--budget", "400", "--memories", "notes"),
    )
    assert created.out == "made the agent default/ann\n"
    (ann,) = cli("agents", "list", "--json").rows
    assert ann["memory"]["collections"] == ["notes"]
    assert ann["memory"]["budget"] == 400
    assert (ann["memories"], ann["spec_version"]) == ("notes", 1)
    assert "You are Ann." in cli("agents", "list").out
    assert cli("agents", "users", "create", "eve", "--description", "Likes tea.").code == 0
    assert "Likes tea." in cli("agents", "users", "show", "eve").out


def test_changes_are_versions(cli, home):
    (home / "new.md").write_text("You are Ann.\nYou like coffee.")
    cli("agents", "create", "ann", "--persona", "You are Ann.")
    assert cli("agents", "update", "ann", "--persona", "@new.md").code == 0
    reverted = cli("agents", "revert", "ann", "1")
    assert reverted.out == "the agent ann is as in version 1 again\n"
    shown = cli("agents", "show", "ann", "--versions", "--json").rows[0]["versions"]
    assert [one["spec"]["persona"] for one in shown] == [
        "You are Ann.",
        "You are Ann.\nYou like coffee.",
        "You are Ann.",
    ]
    assert "back to version 1" in cli("agents", "show", "ann", "--versions").out
    assert "coffee" not in cli("agents", "show", "ann").out
    cli("agents", "namespaces", "update", "default", "--description", "First.")
    cli("agents", "namespaces", "update", "default", "--description", "Second.")
    assert cli("agents", "namespaces", "revert", "default", "2").code == 0
    assert (
        cli("agents", "namespaces", "show", "default", "--json").rows[0]["description"] == "First."
    )


def test_an_update_leaves_the_rest(cli, home):
    cli("agents", "create", "ann", "--persona", "A.", "--limit", "3", "--model", "openai/gpt-5")
    changed = cli("agents", "update", "ann", "--budget", "99", "--unset", "model", "--json").rows[0]
    assert (changed["memory"]["limit"], changed["memory"]["budget"]) == (3, 99)
    assert changed["model"] is None
    changed = cli("agents", "update", "ann", "--unset", "budget", "--json").rows[0]
    assert changed["memory"]["budget"] is None
    assert changed["spec_version"] == 3
    assert "--unset: no field 'modle'" in cli("agents", "update", "ann", "--unset", "modle").err
    assert "nothing is changed" in cli("agents", "update", "ann").err


def test_deleting_asks_and_says_who_needs_it(cli, embedded):
    cli("memories", "collections", "create", "notes", "--dimension", "32")
    cli("agents", "create", "ann", "--persona", "A.", "--memories", "notes")
    refused = cli("memories", "collections", "delete", "notes", stdin=b"n\n")
    assert refused.code == 1
    assert "all its memories" in refused.out + refused.err
    assert "is named by ann" in cli("memories", "collections", "delete", "notes", "--yes").err
    assert cli("memories", "collections", "delete", "notes", "--yes", "--force").code == 0
    cli("agents", "namespaces", "create", "acme")
    assert (
        cli("agents", "namespaces", "delete", "acme", "--yes").out == "deleted the namespace acme\n"
    )
    assert [one["name"] for one in cli("agents", "namespaces", "list", "--json").rows] == [
        "default"
    ]


BAD = {
    "taken": (("agents", "create", "ann", "--persona", "A"), "the agent 'ann' is there already"),
    "a blank persona": (("agents", "create", "b", "--persona", " "), "the persona is blank"),
    "no such provider": (
        ("memories", "collections", "create", "c", "--embedder", "nobody/model"),
        "there is no provider 'nobody'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_one_line(cli, home, case):
    cli("agents", "create", "ann", "--persona", "You are Ann.")
    words, said = BAD[case]
    outcome = cli(*words)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


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
    found = cli("memories", "search", "default/notes", "green tea", "--json").rows
    assert [one["text"] for one in found] == ["Ann drinks green tea."]
