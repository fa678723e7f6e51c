"""A user names one column in two roles, such as the label as the input of the judges."""

import json

import pytest

ROW = {"id": "a", "question": "Why?", "label": "x", "out": "x"}


@pytest.mark.parametrize("column", ["label", "out"])
def test_an_input_is_no_label_and_no_output(cli, home, column):
    (home / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    options = ("--outputs", "out", "--data", "rows.jsonl", "--label", "label", "--input", column)
    outcome = cli("compare", *options, "--judge", "look:length")
    assert outcome.code == 2
    assert f"the column '{column}' is the label or an output" in outcome.err
