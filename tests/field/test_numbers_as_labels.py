"""A judge's scale has numbers, and the model writes one of them in another form.

3.0 is 3 and .5 is 0.50, by arithmetic; a number between two labels is none of them, and weights
whose sum is no number are refused.
"""

import json
import re

import pytest
from asked import write_rows

QUESTION = ("Why are there tides?", "The moon pulls.")
QUARTERS = "labels=0=0,0.25=.25,0.5=.5,0.75=.75,1=1"
ANSWERS = {
    "numbers=0-5": [(3.0, 0.6)],
    "numbers=1-5": [("4.0", 0.75), (3.5, None)],
    "numbers=1-10": [(0.9, None)],
    "numbers=0-100": [(".75", None)],
    "numbers=-2-2": [(-2, 0.0), ("0", 0.5), (2.0, 1.0), (-3, None)],
    "numbers=-10--6": [("-7.0", 0.75)],
    QUARTERS: [("0.50", 0.5), (".75", 0.75), (1.0, 1.0), ("0.25.", 0.25)],
    "labels=good=1,bad=0": [("'Good'.", 1.0)],
}
"""What the model answers on each scale, and its score."""


@pytest.mark.parametrize("scale", ANSWERS)
def test_a_label_is_its_number(cli, home, server, model, scale):
    (home / "grade.md").write_text("How good is {output}?")
    rows = [{"input": "Why?", "output": f"({n})"} for n in range(len(ANSWERS[scale]))]
    write_rows(home / "rows.jsonl", rows)

    def answer(body, _number):
        place = int(re.search(r"\((\d)\)", str(body))[1])
        return json.dumps({"reason": "So it is.", "label": ANSWERS[scale][place][0]})

    server.script = answer
    judge = f"prompt:grade.md+{scale}"
    outcome = cli("evaluate", "rows.jsonl", "--judge", judge, "-m", model, "--json")
    scores = [row["candidates"][0]["score"] for row in outcome.rows]
    assert scores == [score for _, score in ANSWERS[scale]]
    assert outcome.code == (3 if None in scores else 0)


@pytest.mark.parametrize("scale", ["2--2", "-2-", "-2--2"])
def test_ranges_from_high_to_low_are_refused(cli, home, model, scale):
    (home / "grade.md").write_text("How good is {output}?")
    outcome = cli("evaluate", *QUESTION, "-m", model, "--judge", f"prompt:grade.md+numbers={scale}")
    assert outcome.code == 2
    assert "write a range of whole numbers" in outcome.err


def test_one_number_is_one_label(cli, home, model):
    (home / "grade.md").write_text("How good is {output}?")
    command = ("evaluate", *QUESTION, "-m", model, "--judge")
    outcome = cli(*command, "prompt:grade.md+labels=1=1,1.0=0")
    assert outcome.code == 2
    assert "different labels" in outcome.err


def test_weights_beyond_all_measure_are_refused(cli, home):
    checks = [{"contains": "moon", "weight": 1e308}, {"contains": "sun", "weight": 1e308}]
    row = {"input": QUESTION[0], "output": QUESTION[1], "checks": checks}
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "checks")
    assert outcome.code == 2
    assert "rows.jsonl:1: checks: rules.0.check.weight must be less than or equal to" in outcome.err
