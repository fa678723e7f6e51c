"""A user gives an unchanged run a second name, and rows ids that look like numbered ones."""

import json

import pytest

from textevolve.studies.rows import RowNames

CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Why {n}?", "output": "so", "reference": "so"}) + "\n"
    for n in range(2)
)
EVALUATE = ("evaluate", "cases.jsonl", "--judge", "metric:exact")


def test_all_names_name_the_run(home, cli):
    (home / "cases.jsonl").write_text(CASES)
    for name in ("main", "pr 7", "main"):
        assert cli(*EVALUATE, "--name", name).code == 0
    (run,) = cli("runs", "list", "--json").rows
    assert (run["name"], run["aliases"]) == ("main", ["pr 7"])
    for name in ("main", "pr 7"):
        assert cli("runs", "show", name).code == 0
    assert cli("runs", "show", "pr").code == 1
    assert "main, pr 7" in cli("runs", "list").out


def test_studies_have_own_baselines(home, cli):
    (home / "cases.jsonl").write_text(CASES)
    (home / "others.jsonl").write_text(CASES.replace('"c', '"d').replace("Why", "How"))
    assert cli(*EVALUATE, "--name", "main").code == 0
    others = ("evaluate", "others.jsonl", "--judge", "metric:exact")
    assert cli(*others, "--name", "main").code == 0

    (home / "cases.jsonl").write_text(CASES.replace('"output": "so"', '"output": "no"'))
    for name in ("main", "last"):
        outcome = cli(*EVALUATE, "--no-worse-than", name, "--max-regressions", "0")
        assert outcome.code == 4
        assert f"2 of 2 cases that passed in {name} fail now" in outcome.err


def test_second_names_keep_baselines(home, cli):
    (home / "cases.jsonl").write_text(CASES)
    assert cli(*EVALUATE, "--name", "main").code == 0
    gate = ("--no-worse-than", "main", "--max-regressions", "0")
    assert cli(*EVALUATE, "--name", "pr", *gate).code == 0
    assert cli(*EVALUATE, "--name", "pr", *gate).code == 0


@pytest.mark.parametrize(
    "ids",
    [
        ("1", "1 (2)", "1"),
        ("1", "1", "1 (2)"),
        ("1 (2)", "1", "1"),
        ("1", "1", "1"),
        (1, "1", None),
    ],
)
def test_no_row_takes_another_place(ids):
    names = RowNames()
    texts = [names.name({"id": id}, number) for number, id in enumerate(ids, 1)]
    assert len(set(texts)) == 3
    assert texts[0] == str(ids[0])


def test_every_row_is_stored(home, cli):
    ids = ("1", "1 (2)", "1")
    rows = [{"id": id, "q": f"Q{n}", "out": "a", "want": "ab"[n == 2]} for n, id in enumerate(ids)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("-d", "rows.jsonl", "--outputs", "out", "--label", "want", "--metric", "exact")
    outcome = cli("compare", *options, "--min-pass-rate", "1", "-o", "out.jsonl")
    assert outcome.code == 4
    assert "pass rate 0.667" in outcome.err
    assert len((home / "out.jsonl").read_text().splitlines()) == 3


def test_repeats_stay_one_case(home, cli):
    lines = [
        {"id": "a", "input": "Why?", "output": output, "reference": "so"} for output in ("so", "no")
    ]
    lines.append({"id": "a", "input": "How?", "output": "so", "reference": "so"})
    (home / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cli(*EVALUATE, "-o", "out.jsonl").code == 0
    texts = (home / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in texts] == ["a", "a", "a (2)"]


def test_the_end_of_an_id_names_it(home, cli):
    """What people remember of `20260114-dt6d` is `dt6d`."""
    ends = []
    for output in ("so", "no"):
        (home / "cases.jsonl").write_text(CASES.replace('"output": "so"', f'"output": "{output}"'))
        assert cli(*EVALUATE).code == 0
        ends.append(cli("runs", "list", "--json").rows[0]["id"].rpartition("-")[2])
    first, second = ends
    for command in (
        ("runs", "show", first),
        ("runs", "resume", first),
        ("runs", "compare", first, second),
        ("runs", "export", first, "rows.csv"),
        ("runs", "tag", first, "nightly"),
        ("labels", "create", "task", "--run", first),
        (*EVALUATE, "--no-worse-than", second),
        ("runs", "delete", first, "--yes"),
    ):
        outcome = cli(*command)
        assert outcome.code == 0, (command, outcome.err)
    assert cli("runs", "show", first).code == 1
