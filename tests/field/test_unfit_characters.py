"""Texts with U+0000, which PostgreSQL cannot hold, in rows, in cases of Python and in answers of
models, and rows with half a surrogate pair. Each is judged, and shows U+FFFD where the character
stood.

The right score is that of the same text with U+FFFD, by a rule that looks for it.
"""

import json

import pytest

import textevolve
from postgres_server import BOTH
from textevolve.evaluation import Case
from textevolve.llm.testing import Answer

CHECK = {"type": "contains", "value": "a\ufffdb"}
MENDED = "U+0000, which no database can hold, became U+FFFD in the texts of cases"
TEXTS = {"NUL": "a\0b", "half a pair": "a\ud83db"}


@BOTH
@pytest.mark.parametrize("name", TEXTS)
def test_rows(home, location, cli, name):
    row = {"input": "Say it.", "output": TEXTS[name], "checks": [CHECK]}
    (home / "rows.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"output": "ab"}))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "checks", "--json")
    lines = [json.loads(line)["candidates"][0] for line in outcome.out.splitlines()]
    assert [line["score"] for line in lines] == [1, 0]
    # Half a pair is mended in all JSON; U+0000 may stand in any file.
    assert (MENDED in outcome.err) == (name == "NUL")


def test_cases_of_python(home, caplog):
    case = Case("Say it.", ("a\0b",), reference="a\0b", context="a\0b")
    assert (case.candidates, case.reference, case.context) == (("a\ufffdb",), *["a\ufffdb"] * 2)
    assert MENDED in caplog.text
    (result,) = textevolve.evaluate_batch(
        [case], judge=lambda case: ["\ufffd" in case.candidates[0]]
    )
    assert result.scores == (1,)


def test_answers_of_models(home, cli, server):
    server.script = lambda *_: Answer(text="a\0b")
    (home / "rows.jsonl").write_text('{"input": "Say it.", "label": "a\ufffdb"}')
    (home / "p.txt").write_text("{input}")
    command = ("compare", "-d", "rows.jsonl", "-p", "p.txt", "--label", "label")
    outcome = cli(*command, "--metric", "exact", "-m", f"{server.url}#scripted", "--json")
    assert outcome.code == 0, outcome.err
    assert cli("runs", "export", "last", "out.jsonl").code == 0
    (row,) = map(json.loads, (home / "out.jsonl").read_text().splitlines())
    assert "a\ufffdb" in json.dumps(row, ensure_ascii=False)
    assert row["score"] == 1
