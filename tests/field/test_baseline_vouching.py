"""A user gates a run against a baseline that was scored otherwise, or has rows without a score."""

import json

import pytest

from textevolve.runs.gates import Gates, check_gates
from textevolve.runs.study import Row

GATE = ("--no-worse-than", "main", "--max-regressions", "0")


@pytest.fixture
def compare(home, cli):
    def run(*options, outputs=("yes a", "yes b"), **columns):
        rows = [
            {"id": f"r{n}", "q": f"Is it {n}?", "out": output, "want": "yes", **columns}
            for n, output in enumerate(outputs)
        ]
        (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = ("-d", "rows.jsonl", "--outputs", "out", "--label", "want", "--input", "q")
        return cli("compare", *data, *options)

    return run


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (("--metric", "contains"), 'scored by was ["exact"] and is now ["contains"]'),
        (("--metric", "exact", "--threshold", "0.3"), "threshold was null and is now 0.3"),
        (("--metric", "exact", "--judge", "look:length", "--score-by", "look:length"), "scored by"),
    ],
)
def test_two_rulers_are_refused(compare, cli, options, difference):
    assert compare("--metric", "exact", "--name", "main").code == 0
    outcome = compare(*options, *GATE)
    assert outcome.code == 2
    assert difference in outcome.err
    assert compare(*options, "--name", "other").code == 0
    compared = cli("runs", "compare", "main", "other")
    assert compared.code == 2
    assert difference in compared.err


def test_further_metrics_change_no_ruler(compare):
    assert compare("--metric", "contains", "--name", "main").code == 0
    assert compare("--metric", "contains", "--metric", "exact", *GATE).code == 0


def test_other_answers_are_refused(compare):
    assert compare("--metric", "contains", "--name", "main").code == 0
    outcome = compare("--metric", "contains", *GATE, want="a")
    assert outcome.code == 2
    assert "another right answer" in outcome.err


def test_unread_columns_break_nothing(compare):
    assert compare("--metric", "contains", "--name", "main", tag="spring").code == 0
    outcome = compare("--metric", "contains", *GATE, outputs=("yes c", "yes d"), tag="autumn")
    assert (outcome.code, "gate holds" in outcome.err) == (0, True), outcome.err


def test_read_columns_are_named(compare):
    assert compare("--metric", "contains", "--name", "main").code == 0
    outcome = compare("--metric", "contains", *GATE, q="Is it so?")
    assert outcome.code == 2
    assert "another value in the column 'q'" in outcome.err


def rows_of(*scores):
    return [
        Row(
            f"{n}",
            n,
            f"c{n}",
            score,
            "scored" if score is not None else "failed",
            passed=score == 1,
        )
        for n, score in enumerate(scores)
    ]


@pytest.mark.parametrize(("allowed", "holds"), [(None, False), (1, False), (2, True), (0.5, True)])
def test_unscored_baselines_vouch_for_nothing(allowed, holds):
    gates = Gates(no_worse_than="main", max_regressions=0, max_failed=allowed)
    outcomes = check_gates(rows_of(1, 1, 0, 0), gates, rows_of(1, 1, None, None))
    (outcome,) = [each for each in outcomes if each.gate == "max regressions"]
    assert outcome.holds is holds
    assert "2 of 4 records of main have no score" in outcome.found


@pytest.mark.parametrize(
    ("score", "limit", "passes"),
    [
        (0.7999999999999999, 0.8, True),
        (0.1 + 0.2, 0.3, True),
        (0.7999, 0.8, False),
    ],
)
def test_rounding_fails_no_gate(score, limit, passes):
    gates = Gates(min_mean=limit, min_pass_rate=1, pass_threshold=limit)
    mean, rate = sorted(check_gates(rows_of(score), gates), key=lambda outcome: outcome.gate)
    assert (mean.holds, rate.holds) == (passes, passes)


def test_digits_show_the_side():
    (outcome,) = check_gates(rows_of(0.79996), Gates(min_mean=0.8))
    assert "mean 0.79996 " in outcome.found
