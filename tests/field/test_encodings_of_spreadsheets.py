"""Spreadsheets write tables in the encoding of a language, and the refusal names a command.

The right texts are those that were encoded, by Python's codecs; `iconv` does what the command says.
"""

import re
import subprocess

import pytest

TEXTS = {
    "gb18030": "输入,输出\n今天天气怎么样？,天气很好，适合散步。\n",
    "big5": "input,output\n退款需要多久,請在三十天內聯繫我們，謝謝\n",
    "cp932": "input,output\n今日の天気は？,とても良いです。\n",
    "cp949": "input,output\n오늘 날씨는?,아주 좋습니다.\n",
    "cp1251": "input,output\nКак погода?,«Хорошо» — сегодня.\n",
    "cp1252": "input,output\nOù est l’été – né où?,It’s “fine” — Größe, coração…\n",
}


@pytest.mark.parametrize(("encoding", "text"), TEXTS.items(), ids=TEXTS)
def test_the_named_command_gives_the_texts_back(cli, home, encoding, text):
    (home / "rows.csv").write_bytes(text.encode(encoding))
    outcome = cli("evaluate", "rows.csv", "--check", "max-words: 50")
    assert outcome.code == 2
    command = re.search(r"iconv .*? > converted\.csv", " ".join(outcome.err.split()))
    assert command is not None, outcome.err
    subprocess.run(command[0], shell=True, cwd=home, check=True)
    assert (home / "converted.csv").read_text(encoding="utf-8") == text


def test_the_encoding_is_said_to_be_a_guess(cli, home):
    (home / "rows.csv").write_bytes("input,output\nJaká,Żółw\n".encode("cp1250"))
    outcome = cli("evaluate", "rows.csv", "--check", "max-words: 50")
    assert "write the encoding of their language" in " ".join(outcome.err.split())
