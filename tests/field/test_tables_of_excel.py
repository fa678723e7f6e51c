"""Excel saves a table as "Unicode text": UTF-16 with a byte order mark and tabs, in a `.txt` file.
PowerShell pipes texts with a mark, too.

The rows of the same table in UTF-8 without a mark are the right value.
"""

import codecs
import io
import json
import sys

import pytest

from textevolve.rows import read_text

TABLE = "Номер\tВопрос\tОтвет\tЭталон\r\n7\tСтолица?\tПариж\tПариж\r\n8\t2,5 + 1?\t«3,5»\t3,5\r\n"
COMMAND = ("--judge", "metric:exact", "--map", "id=Номер", "--map", "input=Вопрос", "--json")
COLUMNS = ("--map", "output=Ответ", "--map", "reference=Эталон")
MARKED = {
    "utf-8": codecs.BOM_UTF8 + TABLE.encode(),
    "utf-16-le": codecs.BOM_UTF16_LE + TABLE.encode("utf-16-le"),
    "utf-16-be": codecs.BOM_UTF16_BE + TABLE.encode("utf-16-be"),
}


@pytest.fixture
def judge_rows(cli):
    def judge(argument, **stdin):
        outcome = cli("evaluate", argument, *COMMAND, *COLUMNS, **stdin)
        assert outcome.code == 0, outcome.err
        cases = map(json.loads, outcome.out.splitlines())
        return [(case["id"], case["input"], case["candidates"][0]["text"]) for case in cases]

    return judge


@pytest.mark.parametrize("encoding", MARKED)
def test_tables_with_marks(judge_rows, home, encoding):
    (home / "plain.tsv").write_bytes(TABLE.encode())
    (home / "saved.txt").write_bytes(MARKED[encoding])
    rows = judge_rows("plain.tsv")
    assert [row[:2] for row in rows] == [("7", "Столица?"), ("8", "2,5 + 1?")]
    assert judge_rows("saved.txt") == rows
    assert judge_rows("-", stdin=MARKED[encoding]) == rows


def test_files_beside_a_target_stay_texts(cli, home):
    (home / "saved.txt").write_bytes(MARKED["utf-8"])
    outcome = cli("evaluate", "saved.txt", "--target", "cmd:cat", "--judge", "metric:exact")
    assert outcome.code == 2
    assert "write '@saved.txt'" in outcome.err


def test_stand_ins_for_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Ответ"))
    assert read_text("-") == "Ответ"
