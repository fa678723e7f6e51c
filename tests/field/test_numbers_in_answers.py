"""Answers and references write one number in many ways: grouped by spaces or as in India, with a
currency behind the sign, in brackets, as a fraction, a power or percent, in digits of a script.

The right values are read by hand.
"""

import json

import pytest

from textevolve.evaluation import Failure
from textevolve.metrics.label_metrics import grade, open_metric
from textevolve.texts.quantities import read_last_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        # Groups of digits.
        ("9\u00a0234 habitants", 9234),
        ("1\u202f234,5 €", 1234.5),
        ("9 234", 9234),
        ("seats 8 9", 9),
        ("rooms 12 345 and 3", 3),
        ("₹1,00,000", 100_000),
        ("₹12,34,567.50", 1_234_567.5),
        ("1’234.50", 1234.5),
        ("\\$1{,}250", 1250),
        ("1_000", 1000),
        ("1.234.567", 1_234_567),
        ("1,2,3", 3),
        # Signs, currencies, brackets.
        ("-$40", -40),
        ("$-40", -40),
        ("−€ 40", -40),
        ("-USD 40", -40),
        ("US$40", 40),
        ("10-$4", 4),
        ("between 3-5", 5),
        ("(40)", -40),
        ("($1,234.50)", -1234.5),
        ("$(40)", -40),
        ("We get a sum (42).", 42),
        # Fractions and powers.
        ("1/2", 0.5),
        ("3½", 3.5),
        ("3 1/2", 3.5),
        ("\\frac{3}{4}", 0.75),
        ("10³", 1000),
        ("1.5 × 10^3", 1500),
        ("1.5·10⁻³", 0.0015),
        ("1.5 \\times 10^{3}", 1500),
        ("12m²", 12),
        # Digits of scripts.
        ("答えは４２です", 42),
        ("الجواب ٤٢", 42),
        ("٣٫٥", 3.5),
        ("-५", -5),
        ("３万円", 30_000),
        # Words and letters that multiply.
        ("3 million", 3e6),
        ("3k", 3000),
        ("2 lakh", 200_000),
        ("5m", 5),
        # Nothing to read.
        ("14:30", None),
        ("2024-03-07", None),
        ("version 1.2.3", None),
        ("5/0", None),
        ("1e999", None),
        ("x2", None),
    ],
)
def test_numbers_are_read(text, number):
    quantity = read_last_quantity(text)
    assert (quantity and quantity.value) == (number if number is None else pytest.approx(number))


@pytest.mark.parametrize(
    ("output", "label", "right"),
    [
        ("20%", "20", 1),
        ("0.2", "20 %", 1),
        ("20 percent", "20٪", 1),
        ("0.2%", "20%", 0),
        ("$40", "-$40", 0),
        ("3 thousand", "3 million", 0),
        ("9\u00a0234", "1\u00a0234", 0),
        ("it is 4x6", "6", 1),
    ],
)
def test_answers_are_compared(output, label, right):
    result = grade(open_metric("numeric"), output, label)
    assert result.score == right


@pytest.mark.parametrize("label", ["14:30", "2024-03-07", "1.2.3", "none", "1e999"])
def test_unreadable_references_score_nothing(label):
    result = grade(open_metric("numeric"), "30", label)
    assert isinstance(result, Failure)
    assert "no number that can be read" in result.reason


def test_answers_without_numbers_are_counted(cli, home):
    rows = [
        {"input": "How many?", "output": output, "reference": "30"}
        for output in ("30", "I do not know.", "None", "31")
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = cli("evaluate", "rows.jsonl", "--judge", "metric:numeric", "-o", "report.md")
    assert judged.code == 0
    assert "2 candidates" in (home / "report.md").read_text()
    options = ("--outputs", "output", "--label", "reference", "--metric", "numeric")
    compared = cli("compare", "--data", "rows.jsonl", *options, "-o", "compared.md")
    assert compared.code == 0
    assert "2 outputs" in (home / "compared.md").read_text()
