"""A German price list has 2,75 and 1,250 in one column, or an export of an English sheet does.

`2,75` can only have a decimal comma, and `1,250` beside it is 1.25 or 1250: nobody knows, so the
file is refused until the mark is said. Numbers without a doubt are read by what they look like.
"""

import json

import pytest

from textevolve.metrics.label_metrics import open_metric

MIXED = [("1", "2,75", "2,75"), ("2", "1,250", "1,250")]


@pytest.fixture
def judge_rows(cli, home):
    def run(rows, metric="numeric", verb="evaluate"):
        lines = [
            json.dumps({"id": id, "input": "Price?", "output": output, "expected": label})
            for id, output, label in rows
        ]
        (home / "rows.jsonl").write_text("\n".join(lines))
        if verb == "evaluate":
            return cli("evaluate", "rows.jsonl", "--judge", f"metric:{metric}")
        options = ("--data", "rows.jsonl", "--outputs", "output", "--label", "expected")
        return cli("compare", *options, "--metric", metric)

    return run


@pytest.mark.parametrize("verb", ["evaluate", "compare"])
def test_doubtful_marks_are_refused(judge_rows, verb):
    outcome = judge_rows(MIXED, verb=verb)
    assert outcome.code == 2
    assert "2,75 (row 1) has a decimal comma, and 1,250 (row 2)" in outcome.err
    assert "numeric:decimal-comma" in outcome.err


@pytest.mark.parametrize("metric", ["numeric:decimal-comma", "numeric:0.5:decimal-comma"])
def test_named_mark_is_enough(judge_rows, metric):
    outcome = judge_rows(MIXED, metric)
    assert outcome.code == 0, outcome.err
    assert "2 of 2 cases passed" in outcome.out


@pytest.mark.parametrize(
    "rows",
    [
        [("1", "2,75", "2,75"), ("2", "1.250,00", "1250")],
        [("1", "1,250", "1250"), ("2", "3.5", "3.5")],
        [("1", "2,75 EUR", "2.75"), ("2", "about 0,5", "0.5")],
    ],
)
def test_clear_numbers_need_no_mark(judge_rows, rows):
    outcome = judge_rows(rows)
    assert f"{len(rows)} of {len(rows)} case" in outcome.out, outcome.err


@pytest.mark.parametrize(
    ("mark", "output", "label", "is_right"),
    [
        ("comma", "1,250", "1250", False),
        ("comma", "1,250", "1,25", True),
        ("comma", "1.250", "1250", True),
        ("comma", "1.250,5 EUR", "1250,5", True),
        ("point", "1,250", "1250", True),
        ("point", "1,250.5", "1250.5", True),
        ("point", "2,75", "75", True),
    ],
)
def test_marks_by_hand(mark, output, label, is_right):
    assert open_metric(f"numeric:decimal-{mark}")(output, label).passed == is_right


def test_unknown_mark(judge_rows):
    outcome = judge_rows(MIXED, "numeric:decimal-dot")
    assert outcome.code == 2
    assert "decimal-comma or decimal-point" in outcome.err
