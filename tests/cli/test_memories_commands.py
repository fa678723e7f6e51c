"""`textevolve memories`, against the scripted server's embeddings."""

import pytest


@pytest.fixture
def notes(cli, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_EMBEDDER", model)
    assert cli("memories", "collections", "create", "notes").code == 0
    return "notes"


def add(cli, text, *options):
    outcome = cli("memories", "add", "notes", text, "--json", *options)
    assert outcome.code == 0, outcome.err
    return outcome.rows[0]


def test_a_memory_is_kept_found_and_forgotten(cli, notes):
    ann = add(
        *(cli, "Ann drinks green tea.", "--importance", "0.9", "--source", "chat 3"),
        *("--author", "Ann", "--valid-from", "2025-01-31", "--trust", "0.8", "--entity", "Ann"),
    )
    assert (ann["valid_from"], ann["source"]) == ("2025-01-31T00:00:00Z", "chat 3")
    bob = add(cli, "Bob drives a lorry.")
    assert cli("memories", "collections", "list", "--json").rows[0]["memories"] == 2
    first, second = cli("memories", "search", "notes", "Ann drinks green tea.", "--json").rows
    assert first["text"] == "Ann drinks green tea."
    assert first["source"] == "default/notes: chat 3, by Ann"
    assert set(first["parts"]) == {"relevance", "importance", "recency"}
    assert first["score"] > second["score"]
    output = cli("memories", "search", "notes", "Who drinks tea?", "--limit", "1").out
    assert "relevance" in output
    assert "1 of 2 found; 1 beyond the limit" in output
    assert "Ann drinks green tea." in cli("memories", "show", ann["id"]).out
    assert cli("memories", "forget", ann["id"]).out == f"forgot {ann['id']}\n"
    assert [row["id"] for row in cli("memories", "list", notes, "--json").rows] == [bob["id"]]
    everything = cli("memories", "list", notes, "--closed", "--json").rows
    assert [row["forgotten"] for row in everything] == [True, False]
    assert "forgotten" in cli("memories", "show", ann["id"]).out
    assert cli("memories", "forget", bob["id"], "--erase", stdin=b"n\n").code == 1
    assert cli("memories", "forget", bob["id"], "--erase", "--yes").code == 0
    assert cli("memories", "show", bob["id"], "--json").rows[0]["text"] == ""


@pytest.mark.slow
def test_where_no_embedder_is_named_its_weights_are_fetched(cli):
    assert cli("memories", "collections", "create", "notes").code == 0
    add(cli, "Ann drinks green tea.")
    add(cli, "Bob drives a lorry.")
    found = cli("memories", "search", "notes", "What does Ann drink?", "--json").rows
    assert found[0]["text"] == "Ann drinks green tea."


def test_a_foreign_id_is_not_found(cli, notes):
    id = add(cli, "Ann drinks green tea.")["id"]
    cli("agents", "namespaces", "create", "acme")
    for verb in ("show", "forget"):
        outcome = cli("memories", verb, id, "--namespace", "acme")
        assert f"no memory '{id}' in the namespace 'acme'" in outcome.err
    assert cli("memories", "list", notes, "--json").rows[0]["closed"] is None


FILES = {
    "chat.jsonl": (
        '{"messages": []}',
        "chat.jsonl:1: is a chat, not a memory; create memories from it with:",
    ),
    "bad.jsonl": ('{"text": "a"}\n{"text": "b", "trust": 7}', "bad.jsonl:2: trust must be"),
}


@pytest.mark.parametrize("name", FILES)
def test_other_files_are_refused(cli, notes, home, name):
    text, answer = FILES[name]
    (home / name).write_text(text)
    outcome = cli("memories", "import", notes, name)
    assert outcome.code == 2
    assert answer in outcome.err


def test_erasing_names_what_runs_lose_and_leaves_nothing_in_the_files(cli, notes, home, model):
    fact = "Cid is allergic to hazelnuts."
    memory = add(cli, fact)
    requests = (
        "evaluate",
        "What should Cid eat?",
        fact,
        "Bread.",
        "--rounds",
        "1",
        "--model",
        model,
    )
    assert cli(*requests).code == 0
    run = cli("runs", "list", "--json").rows[0]["id"]
    stopped = cli("memories", "forget", memory["id"], "--erase", stdin=b"n\n")
    assert stopped.code == 1
    assert "backups of the store" in stopped.err
    before = cli("runs", "show", run, "--json").rows[0]
    assert any(b"hazelnuts" in file.read_bytes() for file in home.glob("*.db*"))
    assert cli("memories", "collections", "delete", notes, "--yes").code == 0
    assert not any(b"hazelnuts" in file.read_bytes() for file in home.glob("*.db*"))
    after = cli("runs", "show", run, "--json").rows[0]
    assert after["metrics"] == before["metrics"]
    assert after["case"]["candidates"] == ["[erased]", "Bread."]
    checked = cli("config", "store", "check")
    assert checked.code == 0
    assert "erased calls" in checked.out
