"""A value of a row is a list, and a check of the study takes it: `contains-any: {words}`."""

import csv
import io
import json

import pytest

ROWS = (
    ("Green tea, please.", ["coffee", "tea"], True),
    ("Water.", ["coffee", "tea"], False),
    ("It costs 1,000.", ["1,000", "two, three"], True),
    ('She said "no".', ['"no"'], True),
    ("Nothing at all.", ["[tea"], False),
)


def write_rows(home, ending):
    rows = [
        {"id": str(n), "input": "Say it.", "output": output, "words": words}
        for n, (output, words, _) in enumerate(ROWS)
    ]
    path = home / f"rows.{ending}"
    if ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path.name

    text = io.StringIO()
    table = csv.DictWriter(text, rows[0])
    table.writeheader()
    write = json.dumps if ending == "csv" else repr
    table.writerows({**row, "words": write(row["words"])} for row in rows)
    path = home / "rows.csv"
    path.write_text(text.getvalue())
    return path.name


@pytest.mark.parametrize("ending", ["jsonl", "csv", "python"])
@pytest.mark.parametrize("check", ["contains-any: {words}", "contains-any: {{ words }}"])
def test_lists_of_columns_are_lists(cli, home, ending, check):
    data = write_rows(home, ending)
    outcome = cli("evaluate", data, "--judge", "checks", "--check", check, "-o", "judged.csv")
    assert outcome.code == 0, outcome.err
    assert "nothing reads" not in outcome.err
    with (home / "judged.csv").open() as file:
        passed = [row["passed"] == "true" for row in csv.DictReader(file)]
    assert passed == [holds for _, _, holds in ROWS]


def test_all_texts_of_a_list_are_needed(cli, home):
    row = {"input": "Name two.", "output": "Tea and milk.", "words": ["Tea", "milk"]}
    other = {"input": "Name three.", "output": "Tea and milk.", "words": ["Tea", "salt"]}
    (home / "rows.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n")
    command = ("evaluate", "rows.jsonl", "--judge", "checks", "--check", "contains-all: {words}")
    assert cli(*command, "-o", "judged.jsonl").code == 0
    lines = (home / "judged.jsonl").read_text().splitlines()
    assert [json.loads(line)["candidates"][0]["passed"] for line in lines] == [True, False]


def test_columns_of_row_checks_are_read(cli, home):
    row = {"input": "Where?", "output": "In Oslo.", "city": "Oslo", "note": "x"}
    row["checks"] = ["contains: {city}"]
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "checks")
    assert outcome.code == 0
    assert "nothing reads note" in outcome.err
