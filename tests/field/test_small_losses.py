"""Small things that were lost without a word: the file of an earlier test report stayed, a limit
ended with its command, a rare class was never shown to a search, and a column's name had its marks
apart from its letters.
"""

import json
import unicodedata

import pytest

from textevolve.loops.calibration.trial_runner import Example, hash_group, split_examples

ROWS = [{"id": f"r{n}", "input": f"Why {n}?", "output": "so", "reference": "so"} for n in range(6)]
EVALUATE = ("evaluate", "rows.jsonl", "--junit", "tests.xml", "--judge")


@pytest.fixture
def rows(home):
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return home


@pytest.mark.parametrize(
    "arguments",
    [
        (*EVALUATE, "metric:exact", "--no-worse-than", "nothing"),
        (*EVALUATE, "metric:none"),
        ("run", "missing.yaml", "--junit", "tests.xml"),
    ],
)
def test_old_reports_are_removed(rows, cli, arguments):
    assert cli(*EVALUATE, "metric:exact").code == 0
    assert (rows / "tests.xml").exists()
    assert cli(*arguments).code == 2
    assert not (rows / "tests.xml").exists()


def test_other_files_are_kept(rows, cli):
    outcome = cli("evaluate", "rows.jsonl", "--judge", "metric:none", "--junit", "rows.jsonl")
    assert outcome.code == 2
    assert len((rows / "rows.jsonl").read_text().splitlines()) == len(ROWS)


def test_dropped_limits_are_named(rows, server, model, cli):
    server.script = lambda _body, _number: "so"
    (rows / "t.txt").write_text("Say it: {input}")
    prompt = ("-p", "t.txt", "-d", "rows.jsonl", "--label", "reference", "--metric", "exact")
    assert cli("compare", *prompt, "-m", model, "--max-calls", "2").code == 3
    outcome = cli("runs", "resume", "last", "--max-calls", "3")
    assert outcome.code == 3
    assert "without a limit" not in outcome.err
    outcome = cli("runs", "resume", "last")
    assert "without a limit of the start before: --max-calls 3; give it again" in outcome.err
    assert outcome.code == 0


def test_rare_classes_are_trained():
    labels = ["common"] * 40 + ["other"] * 17 + ["rare"] * 3
    for seed in range(20):
        texts = [f"{seed} {number}" for number in range(60)]
        pairs = zip(texts, labels, strict=True)
        examples = [Example(text, {"text": text}, label) for text, label in pairs]
        training, held_out = split_examples(examples, None)
        assert {example.label for example in training} == {"common", "other", "rare"}
        assert (len(training), len(held_out)) == (20, 40)
        assert not {*map(hash_group, training)} & {*map(hash_group, held_out)}
        assert split_examples(examples[::-1], None) == (training, held_out)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_of_columns_in_both_forms(home, server, model, cli, form):
    server.script = lambda body, _number: body["messages"][-1]["content"][-1]
    rows = [{"größe": str(n), "maß": str(n)} for n in range(3)]
    written = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (home / "rows.jsonl").write_text(unicodedata.normalize(form, written))
    other = "NFD" if form == "NFC" else "NFC"
    (home / "t.txt").write_text(unicodedata.normalize(other, "Size: {größe}"))
    label = unicodedata.normalize(other, "maß")
    options = ("-p", "t.txt", "-d", "rows.jsonl", "--label", label, "--metric", "exact")
    outcome = cli("compare", *options, "-m", model)
    assert outcome.code == 0
    assert "3 of 3" in outcome.out
