"""A user measures a judge on labels whose meaning depends on the question that people answered: a
column `hallucination` with yes and no, or with 1 and 0, some of its cells empty.

The command says how it read the labels before it says how good a judge is; it asks where a name
does not say what yes means.
"""

import json

import pytest

COMMAND = ("bench", "agreement", "rows.jsonl", "--judge", "look:length")


@pytest.fixture
def measure(cli, home):
    """Measure a judge on rows with these labels in this column."""

    def measure(column, labels, *options):
        rows = [
            {"input": f"Question {number}?", "output": "word " * (number + 1), column: label}
            for number, label in enumerate(labels)
        ]
        (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        renaming = () if column == "label" else ("--map", f"label={column}")
        return cli(*COMMAND, *renaming, *options)

    return measure


DOUBTFUL = {
    "hallucination": ["yes", "no", "no"],
    "is_toxic": [True, False, False],
    "Contradiction": ["true", "false", "false"],
    "toxicity_score": [1, 0, 0],
    "notHelpful": [0.9, 0.1, 0.0],
}


@pytest.mark.parametrize("column", DOUBTFUL)
def test_doubtful_labels_are_asked_about(measure, column):
    outcome = measure(column, DOUBTFUL[column])
    assert outcome.code == 2
    assert f"'{column}'" in outcome.err
    assert "--good" in outcome.err


CLEAR = {
    "label": (["yes", "no", "no"], "yes counts as pass, no as fail: 1 of 3"),
    "is_correct": ([True, False, True], "true counts as pass, false as fail: 2 of 3"),
    "human_rating": ([1, 0, 0], "1 counts as pass, 0 as fail: 1 of 3"),
    "hallucination": (["pass", "fail", "fail"], "pass counts as pass, fail as fail: 1 of 3"),
    "coherence": ([1, 5, 4], "4 and 5 count as pass, 1 as fail: 2 of 3"),
}


@pytest.mark.parametrize("column", CLEAR)
def test_reading_of_labels_is_said(measure, column):
    labels, line = CLEAR[column]
    outcome = measure(column, labels)
    assert outcome.code == 0, outcome.err
    assert line in outcome.err


def test_rows_without_a_label_are_counted(measure):
    outcome = measure("hallucination", ["yes", "no", "", None, "no"], "--good", "no")
    assert outcome.code == 0, outcome.err
    assert "no counts as pass, yes as fail: 2 of 3; 2 rows without a label left out" in outcome.err


def test_the_good_grade_may_be_the_lowest(measure):
    outcome = measure("hallucination", [1, 0, 0], "--good", "0")
    assert outcome.code == 0, outcome.err
    assert "0 counts as pass, 1 as fail: 2 of 3" in outcome.err


def test_winners_of_pairs_are_counted(cli, home):
    rows = [
        {"input": f"Question {number}?", "a": "One.", "b": "Two words.", "winner": winner}
        for number, winner in enumerate([1, 2, 1, "tie"])
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = cli(*COMMAND)
    assert outcome.code == 0, outcome.err
    assert "ties in 1, candidate 1 wins 2, candidate 2 wins 1 of 4 items" in outcome.err


def test_columns_are_reported(cli, home):
    row = {"input": "Why?", "output": "So.", "label": "pass", "note": "x"}
    chat = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "Thanks."},
    ]
    (home / "rows.jsonl").write_text(json.dumps(row) + "\n")
    outcome = cli(*COMMAND)
    assert "nothing reads note" in outcome.err
    (home / "rows.jsonl").write_text(json.dumps({"messages": chat, "label": "pass"}) + "\n")
    outcome = cli(*COMMAND)
    assert "turns after the assistant's last reply are left out in 1 of the chats" in outcome.err
