"""Documents read from the command line: once, and again when they changed."""

import pytest
from memory_world import make_world, read_world, texts_of

from recorded.memory_answers import answers
from textevolve.llm.testing import Fault

DOCUMENT = """# Handbook

## Night

Turn the lamp on at ten. Never leave a patient alone.

## Day

Breakfast is at eight.
"""


@pytest.fixture
def store(home, server):
    make_world(home / "store.db", server.url)
    server.script = answers()
    (home / "book.md").write_text(DOCUMENT)
    return home / "store.db"


def read(cli, *more):
    return cli("memories", "read", "book.md", "--collection", "docs", *more)


def test_what_changed_is_superseded_and_what_is_gone_closed(cli, home, store):
    read(cli)
    (home / "book.md").write_text(DOCUMENT.replace("eight", "nine"))
    assert "1 replaced, 0 closed, 1 unchanged" in " ".join(read(cli).out.split())
    night, old, new = read_world(store, "docs")
    assert old.superseded_by == new.id
    assert "nine" in new.text
    assert night.closed is None
    (home / "book.md").write_text(DOCUMENT.split("## Day")[0])
    assert "0 replaced, 1 closed, 1 unchanged" in " ".join(read(cli).out.split())
    (home / "book.md").write_text(DOCUMENT)
    assert "1 chunk added" in read(cli).out
    assert len(texts_of(store, "docs")) == 2


def test_what_is_not_retold_keeps_its_words_and_is_counted(cli, server, model, store):
    server.script = lambda body, n: Fault.EMPTY
    outcome = read(cli, "--as", "a nurse", "-m", model)
    message = " ".join(outcome.out.split())
    assert "2 left in the document's own words" in message
    memories = read_world(store, "docs")
    assert all(not memory.origin.author for memory in memories)
    assert "Turn the lamp on" in memories[0].text
    server.script = answers()
    again = read(cli, "--as", "a nurse", "-m", model, "--seed", "1")
    assert "2 replaced" in " ".join(again.out.split())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ((".", "-c", "docs"), "is a folder"),
        (("book.md", "./book.md", "-c", "docs"), "book.md: is named twice"),
        (("binary.md", "-c", "docs"), "binary.md: is not a text file: it has a NUL character at 3"),
    ],
)
def test_what_cannot_be_read_is_one_line(cli, home, model, store, more, reason):
    (home / "binary.md").write_bytes(b"abc\0def")
    outcome = cli("memories", "read", *more, "-m", model)
    assert outcome.code == 2
    assert reason in outcome.err
    assert "Traceback" not in outcome.err
