"""A user brings a backup of memories to a new store: one of ours with closed memories, or one of
another tool with other fields."""

import json

import pytest

OPEN = {"text": "The gate opens at seven.", "closed": None}
CLOSED = {"text": "The gate opens at six.", "closed": 2, "superseded_by": "me_1"}


@pytest.fixture
def bring(cli, home, server):
    cli("memories", "collections", "create", "notes", "--embedder", f"{server.url}#any")

    def run(name, content):
        (home / name).write_text(content)
        return cli("memories", "import", "notes", name)

    return run


def test_closed_memories_are_counted(cli, bring):
    rows = [OPEN, CLOSED, {**CLOSED, "text": "The gate is shut."}]
    outcome = bring("m.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert outcome.code == 0
    assert (
        "1 kept, 0 exist already (the same text, source, turn, author, times and user)"
        in outcome.out
    )
    assert "m.jsonl: 2 memories left out" in outcome.err
    assert "six" not in cli("memories", "search", "notes", "The gate opens at six.").out


def test_the_same_text_again(bring):
    """A memory is the same by where its text is from, not by what it is worth."""
    assert "1 kept, 0 exist already" in bring("m.jsonl", json.dumps(OPEN)).out
    for change, counts in (
        ({"importance": 0.1}, "0 kept, 1 exist already"),
        ({"source": "another"}, "1 kept, 0 exist already"),
        ({"author": "Bo"}, "1 kept, 0 exist already"),
        ({"author": "Bo"}, "0 kept, 1 exist already"),
    ):
        assert counts in bring("m.jsonl", json.dumps(OPEN | change)).out


def test_lists_of_memories_are_read(bring):
    outcome = bring("m.json", json.dumps({"version": 1, "memories": [OPEN]}))
    assert outcome.code == 0, outcome.err
    assert "1 kept" in outcome.out


def test_other_fields_are_named(bring):
    row = {"content": "Ann lives in Oslo.", "tags": [], "timestamp": 1726000000.0}
    outcome = bring("m.json", json.dumps({"total": 1, "memories": [row]}))
    assert outcome.code == 2
    assert "m.json: memory 1: a memory needs its words in a field 'text'" in outcome.err
    assert "content, tags, timestamp" in outcome.err


def test_documents_without_a_list(bring):
    outcome = bring("m.json", json.dumps({"version": "1.0", "total": 2}))
    assert outcome.code == 2
    assert "must be a list of memories" in outcome.err
