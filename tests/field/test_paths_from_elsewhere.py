"""Rows and study files were written on another system: with backslashes in paths, or with letters
that macOS decomposes in the names of files."""

import json
import unicodedata
from base64 import b64decode

import pytest

from textevolve.llm.testing import seen_images
from textevolve.reach import Reach, allowed_path, confine, is_file, note_files
from textevolve.rows import read_rows

PIXEL = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
COMPOSED = unicodedata.normalize("NFC", "café.gif")
DECOMPOSED = unicodedata.normalize("NFD", "café.gif")


@pytest.mark.parametrize(
    ("file", "cell"),
    [
        (f"img/{DECOMPOSED}", f"img/{COMPOSED}"),
        (f"img/{COMPOSED}", f"img/{DECOMPOSED}"),
        ("img/cat.gif", "img\\cat.gif"),
    ],
)
def test_pictures_are_found(cli, home, server, model, file, cell):
    (home / "img").mkdir()
    (home / file).write_bytes(PIXEL)
    row = {"input": "What is it?", "output": "A pixel.", "images": cell}
    (home / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 0, outcome.err
    assert [list(seen_images(body)) for body in server.requests] == [[PIXEL]] * 3


def test_the_exact_name_wins(home):
    (home / "logs").mkdir()
    (home / "logs" / "a.jsonl").write_text('{"input": "folder"}\n')
    (home / "logs\\a.jsonl").write_text('{"input": "name"}\n')
    rows = read_rows("logs\\a.jsonl", "case", lambda _column: True)
    assert [row["input"] for _, row in rows] == ["name"]


def test_sent_files_keep_names(home, tmp_path_factory):
    (home / DECOMPOSED).write_bytes(PIXEL)
    with note_files() as noted, open(allowed_path(COMPOSED), "rb") as file:
        assert file.read() == PIXEL
    assert list(noted) == [DECOMPOSED]

    folder = tmp_path_factory.mktemp("sent")
    (folder / DECOMPOSED).write_bytes(PIXEL)
    with confine(Reach(folder)):
        assert is_file(COMPOSED)
        assert not is_file("..\\secret.txt")


def test_patterns_tell_of_slashes(cli, home, model):
    (home / "logs").mkdir()
    (home / "logs" / "a.jsonl").write_text('{"input": "Hello?", "output": "Hello."}\n')
    outcome = cli("evaluate", "logs\\*.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 2
    assert "no file matches this pattern (folders are separated by / here)" in outcome.err
