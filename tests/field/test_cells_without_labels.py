"""Cells of people's labels say that there is none: empty, `None`, `n/a` and `nan`.

Two people labelled 20 texts alike; of the third six cells say so, and two of the others differ. The
right alpha, 0.849, was computed by the package krippendorff with missing values; with the six as
failures, as they count where a user only names the good labels, it is 0.539.
"""

import csv
import json

import pytest

MISSING = ["", "None", "n/a", "nan", "NULL", "N/A"]
FAILED = {1, 4, 7, 9, 14, 18, 19}
DIFFERENT = {3, 15}
ALPHA = 0.8494


def label(is_good):
    return "pass" if is_good else "fail"


@pytest.fixture
def labelled(home):
    with (home / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["input", "output", "label_ann", "label_bob", "label_cy"])
        for n in range(20):
            good = n not in FAILED
            third = MISSING[n // 3] if n % 3 == 2 else label(good != (n in DIFFERENT))
            writer.writerow([f"Say {n}.", f"Text {n}.", label(good), label(good), third])
    return home


@pytest.mark.parametrize("options", [(), ("--good", "pass")])
def test_such_cells_are_no_labels(cli, labelled, options):
    command = ("bench", "agreement", "labels.csv", "--judge", "look:length", *options)
    outcome = cli(*command, "-o", "figures.json")
    assert outcome.code == 0, outcome.err
    assert f"of {3 * 20 - len(MISSING)}" in outcome.err
    people = json.loads((labelled / "figures.json").read_text())["summary"]["people"]
    assert people["alpha"]["value"] == pytest.approx(ALPHA, abs=1e-3)


def write_labels(home, texts):
    """Write a label of one person for each text."""
    with (home / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "input", "output", "label"])
        for n, text in enumerate(texts):
            writer.writerow([f"r{n}", f"Say {n}.", f"Text {n}.", text])


def test_rows_of_one_person(cli, home):
    write_labels(home, ["pass", "fail", *MISSING])
    outcome = cli("bench", "agreement", "rows.csv", "--judge", "look:length")
    assert outcome.code == 0, outcome.err
    assert f"1 of 2; {len(MISSING)} rows without a label left out" in outcome.err


def test_a_label_that_means_none(cli, home):
    write_labels(home, ["none", "some", "none", "N/A"])
    refused = cli("bench", "agreement", "rows.csv", "--judge", "look:length")
    assert refused.code == 2
    assert "not 'none'; name other labels of good responses with --good" in refused.err
    command = ("bench", "agreement", "rows.csv", "--judge", "look:length")
    told = cli(*command, "--good", "none").err
    assert "none counts as pass, some as fail: 2 of 3; 1 row without" in told
    assert "some counts as pass, none as fail: 1 of 3" in cli(*command, "--good", "some").err


def test_rates(cli, home):
    write_labels(home, ["pass", "fail", "pass", *MISSING])
    rows = (home / "rows.csv").read_text().replace("label", "human")
    (home / "rows.csv").write_text(rows)
    judged = "".join(f"r{n},{n % 2}\n" for n in range(9))
    (home / "judged.csv").write_text(f"id,passed\n{judged}")
    outcome = cli("bench", "rate", "judged.csv", "rows.csv", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["labelled"] == 3
