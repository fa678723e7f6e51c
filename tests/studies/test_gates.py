"""Aggregates and gates of rows: figures beside numpy and scipy, and what no gate lets through."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from textevolve import Client, Settings, load_profile
from textevolve.errors import InputError
from textevolve.report.blocks import Estimate, Table
from textevolve.runs.aggregates import Aggregates, aggregate
from textevolve.runs.gates import (
    Gated,
    GateOutcome,
    Gates,
    GateWatch,
    check_agreement,
    check_flips,
    check_gates,
    check_judges,
    draw_gates,
    find_baseline,
    junit_suites,
)
from textevolve.runs.stored import StudyRun
from textevolve.runs.study import RecordStatus, Row
from textevolve.statistics.intervals import betting_interval, wilson_interval
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord
from textevolve.studies import evaluate
from textevolve.studies.labels.agreement import AgreementSpec

scores = st.floats(0, 1, allow_subnormal=False)
statuses: st.SearchStrategy[RecordStatus] = st.sampled_from(["scored", "failed", "skipped"])


@st.composite
def many_rows(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []
    for n in range(draw(st.integers(0, 12))):
        status = draw(statuses)
        score = draw(st.none() | scores) if status == "scored" else None
        case = f"c{draw(st.integers(0, 5))}"
        passed = draw(st.none() | st.booleans())
        variant = draw(st.sampled_from(["", "", "other"]))
        rows.append(Row(str(n), n, case, score, status, variant=variant, passed=passed))
    return rows


def of(*found: float, variant: str = "") -> list[Row]:
    """A row for each score, each of a case of its own; one passes from 0.5 on."""
    return [
        Row(f"{variant}{n}", n, f"c{n}", score, variant=variant, passed=score >= 0.5)
        for n, score in enumerate(found)
    ]


def check(rows: Sequence[Row], earlier: Sequence[Row] | None = None, **gates: Any) -> GateOutcome:
    (outcome,) = check_gates(rows, Gates(**gates), earlier)
    return outcome


@given(many_rows())
def test_counts_and_means_are_those_of_the_rows(rows: list[Row]) -> None:
    found = aggregate(rows)
    for variant in {row.variant for row in rows}:
        own_rows = [row for row in rows if row.variant == variant]
        known_rows = [row for row in own_rows if row.score is not None]
        aggregates = found.get(variant, Aggregates())
        unscored = [row for row in own_rows if row.status != "scored"]
        assert (aggregates.scored, aggregates.unscored) == (len(known_rows), len(unscored))
        values = [row.score for row in known_rows if row.score is not None]
        if not values:
            assert aggregates.mean == aggregates.pass_rate == Estimate(None)
            continue
        assert aggregates.mean.value == pytest.approx(float(np.mean(values)))
        judged = [row.passed for row in known_rows if row.passed is not None]
        assert aggregates.verdicts == len(judged)
        if judged:
            assert aggregates.pass_rate.value == pytest.approx(float(np.mean(judged)))
        cases = {row.case for row in known_rows}
        means = aggregates.case_means()
        assert set(means) == cases
        assert aggregates.clustered == (len(cases) < len(known_rows))


def test_the_intervals_are_students_and_wilsons_over_cases() -> None:
    values = [0.1, 0.4, 0.6, 0.9, 0.7, 0.8]
    (aggregates,) = aggregate(of(*values)).values()
    student = stats.t.interval(0.95, 5, np.mean(values), stats.sem(values))
    share = wilson_interval(4, 6)
    assert (aggregates.mean.low, aggregates.mean.high) == pytest.approx(student)
    assert (aggregates.pass_rate.low, aggregates.pass_rate.high) == pytest.approx(
        (share.low, share.high)
    )
    rows = [replace(row, key=f"{row.key}/{n}") for row in of(*values) for n in range(4)]
    (four,) = aggregate(rows).values()
    # Asked four times, with the same answers, nothing more is known than after the first.
    assert (four.mean.low, four.mean.high) == pytest.approx(student)
    assert four.pass_rate.low is not None
    assert four.pass_rate.high is not None
    assert four.pass_rate.low <= share.low < share.high <= four.pass_rate.high


@given(many_rows(), scores, scores)
def test_no_gate_holds_with_records_left_out(
    rows: list[Row], least: float, threshold: float
) -> None:
    gates = Gates(min_mean=least, min_pass_rate=0, pass_threshold=threshold)
    outcomes = check_gates(rows, gates)
    if all(outcome.holds for outcome in outcomes):
        assert not [row for row in rows if row.status != "scored"]
        for variant in {row.variant for row in rows if row.score is not None}:
            values = [r.score for r in rows if r.variant == variant and r.score is not None]
            assert float(np.mean(values)) >= least - 1e-6
    assert check_gates(rows, Gates()) == []


@given(many_rows(), st.integers(0, 12))
def test_so_many_may_fail_as_is_said(rows: list[Row], most: int) -> None:
    for variant, aggregates in aggregate(rows).items():
        own_rows = [row for row in rows if row.variant == variant]
        outcome = check(own_rows, max_failed=most)
        assert outcome.holds == (aggregates.unscored <= most and aggregates.scored > 0)
        share = check(own_rows, max_failed=most / 13)
        assert share.holds == (
            aggregates.unscored / aggregates.records <= most / 13 + 1e-6 and aggregates.scored > 0
        )


@pytest.mark.parametrize("name", ["min_pass_rate", "min_mean", "min_agreement", "margin"])
def test_bounds_are_shares(name: str) -> None:
    known_fields: dict[str, Any] = {
        "no_worse_than": "main",
        "measured_on": "labels",
        "min_agreement": 0,
    }
    for share in (-0.1, 1.1):
        with pytest.raises(InputError, match=r"0|1"):
            Gates(**known_fields | {name: share})
    assert Gates(**known_fields | {name: 1}).any
    with pytest.raises(InputError, match="belong together"):
        Gates(min_agreement=0)


def test_an_agreement_must_have_an_interval_and_surpass_a_blind_answer() -> None:
    gates = Gates(min_agreement=0.5, measured_on="labels")

    def holds(figure: Estimate, blind: float = 0.6) -> bool:
        return check_agreement("probe", figure, ("always pass", blind), gates).holds

    assert holds(Estimate(0.7, 0.5, 0.9))
    assert not holds(Estimate(0.7, 0.49, 0.9))
    assert not holds(Estimate(0.7))
    assert not holds(Estimate(0.7, 0.5, 0.9), 0.7)
    unknown = check_agreement("probe", Estimate(None), ("always pass", 0.6), gates)
    assert (unknown.holds, unknown.value) == (False, None)
    assert unknown.found.startswith("probe was not measured on labels")


def test_flips_are_known_only_with_an_interval_and_several_samples() -> None:
    gates = Gates(max_flips=0.1, measured_on="labels")
    assert check_flips("probe", Estimate(0.02, 0.0, 0.1), gates).holds
    assert not check_flips("probe", Estimate(0.02, 0.0, 0.11), gates).holds
    assert not check_flips("probe", Estimate(0.0), gates).holds
    unknown = check_flips("probe", None, gates)
    assert (unknown.holds, unknown.value) == (False, None)
    assert "--samples of 2 or more" in unknown.found
    outcome, *_ = check_gates([], gates)
    assert (outcome.gate, outcome.holds) == ("max flips", False)


def test_nothing_at_all_passes_no_gate() -> None:
    assert not check([], max_failed=5).holds
    assert not any(gate.holds for gate in check_gates([], Gates(min_mean=0, min_pass_rate=0)))


def test_no_worse_than_needs_the_whole_interval() -> None:
    generator = np.random.default_rng(1)
    before = generator.random(300) * 0.8
    noise = generator.normal(0, 0.01, 300)
    earlier = of(*before)
    outcome = check(of(*(before + noise).clip(0, 1)), earlier, no_worse_than="main")
    assert outcome.holds
    ends = betting_interval((before + noise).clip(0, 1) - before, (-1, 1))
    assert f"(95 % {ends.low:+.3f} to {ends.high:+.3f}, 300 cases), above -0.02" in outcome.found
    worse = (before - 0.03 + noise).clip(0, 1)
    outcome = check(of(*worse), earlier, no_worse_than="main")
    assert not outcome.holds
    assert outcome.found.endswith("not above -0.02")  # more rows would not help
    assert check(of(*worse), earlier, no_worse_than="main", margin=0.06).holds


@pytest.mark.parametrize("number", [1, 30])
def test_the_same_scores_show_nothing_where_they_are_few(number: int) -> None:
    rows = of(*[1.0] * number)
    outcome = check(rows, rows, no_worse_than="main")
    assert not outcome.holds
    assert "too few rows" in outcome.found
    assert outcome.found.endswith("--max-regressions judges these rows alone")
    assert check(rows, rows, no_worse_than="main", max_regressions=0).holds
    (outcome,) = check_gates(rows, Gates(no_worse_than="main"), rows, itself=True)
    assert outcome.holds


def test_regressions_are_rows_that_passed_and_fail_now() -> None:
    before, now = of(1.0, 1.0, 1.0, 0.0, 0.6), of(1.0, 0.0, 0.4, 1.0, 0.7)
    outcome = check(now, before, no_worse_than="main", max_regressions=1)
    assert (outcome.gate, outcome.holds, outcome.value) == ("max regressions", False, 2.0)
    assert outcome.found == "2 of 4 cases that passed in main fail now (c1, c2), more than 1"
    assert check(now, before, no_worse_than="main", max_regressions=2).holds
    five = check(of(*[0.0] * 5), of(*[1.0] * 5), no_worse_than="main", max_regressions=5)
    assert five.found.endswith("(c0, c1, c2, c3, c4), at most 5")
    outcome = check(now, before, no_worse_than="main", max_regressions=2, pass_threshold=0.65)
    assert outcome.found.startswith("2 of 3 cases")
    both = check_gates(now, Gates(no_worse_than="main", max_regressions=2, margin=0.1), before)
    assert [(single_outcome.gate, single_outcome.holds) for single_outcome in both] == [
        ("max regressions", True),
        ("no worse than", False),
    ]
    silent = [replace(row, passed=None) for row in now]
    outcome = check(silent, before, no_worse_than="main", max_regressions=5)
    assert not outcome.holds
    assert "5 cases without a verdict; give --pass-threshold" in outcome.found
    with pytest.raises(InputError, match="needs --no-worse-than"):
        Gates(max_regressions=1)


def test_rows_of_the_baseline_that_are_missing_count_as_failed() -> None:
    before = of(*[1.0] * 30)
    gates = {"no_worse_than": "main", "max_regressions": 0}
    outcomes = check_gates(of(*[1.0] * 4), Gates(**gates), before)
    assert [(outcome.gate, outcome.holds) for outcome in outcomes] == [
        ("max failed", False),
        ("max regressions", True),
    ]
    message = "26 of 30 records without a score (26 of the baseline are missing), more than 0"
    assert outcomes[0].found == message
    message = check_gates(before[1:], Gates(**gates, max_failed=0.05), before)[0].found
    assert message.endswith("(1 of the baseline is missing), at most 5.0 %")
    allowed = check_gates(of(*[1.0] * 4), Gates(**gates, max_failed=26), before)
    assert all(outcome.holds for outcome in allowed)
    failed = [replace(row, score=None, status="failed") for row in before[4:]]
    (lack, _) = check_gates([*before[:4], *failed], Gates(**gates), before)
    assert "26 of 30 records without a score, more than 0" in lack.found  # each counts once
    assert not check([], before, no_worse_than="main", max_failed=0.99).holds


def test_each_variant_is_held_to_the_gates_but_for_the_baseline() -> None:
    rows = [*of(*[0.2] * 12, variant="old"), *of(*[0.9] * 12, variant="new")]
    rows += of(*[0.1] * 12, variant="worse")
    outcomes = check_gates(rows, Gates(min_mean=0.5, no_worse_than="old"))
    assert [(outcome.variant, outcome.gate, outcome.holds) for outcome in outcomes] == [
        ("new", "min mean", True),
        ("new", "no worse than", True),
        ("worse", "min mean", False),
        ("worse", "no worse than", False),
    ]
    assert str(outcomes[0]).startswith("gate holds for new: mean 0.900")
    assert len(check_gates(rows, Gates(min_mean=0.5))) == 3
    earlier = [replace(row, variant=name) for row in rows[:12] for name in ("old", "new", "worse")]
    against = check_gates(rows, Gates(no_worse_than="main"), earlier)
    assert [(outcome.variant, outcome.holds) for outcome in against] == [
        ("old", False),
        ("new", True),
        ("worse", False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [30])
def test_a_loss_as_large_as_the_margin_rarely_passes(rows: int) -> None:
    """With pass and fail, where a bootstrap passed four builds of five at 5 rows; within three
    standard errors of 2.5 %. docs/measurements.md has more shapes and rows."""
    generator, count, trials = np.random.default_rng(20), 0, 300
    for _ in range(trials):
        lost, gained = generator.random((2, rows)) < [[0.2], [0.1]]
        after = np.where(lost, 0.0, np.where(gained, 1.0, 0.5))
        count += check(of(*after), of(*[0.5] * rows), no_worse_than="main", margin=0.05).holds
    assert count / trials < 0.025 + 3 * math.sqrt(0.025 * 0.975 / trials)


def test_agreement_is_never_taken_for_granted_where_it_was_not_looked_up():
    gates = Gates(min_agreement=0, measured_on="labels.jsonl")
    first_outcome, *_ = check_gates([], gates)
    assert (first_outcome.gate, first_outcome.holds) == ("min agreement", False)


@pytest.mark.parametrize(("least", "outcomes"), [(0.5, {"skipped"}), (0.9, {"failure"})])
def test_junit_has_failures_exactly_where_a_gate_fails(least: float, outcomes: set[str]) -> None:
    """Of two variants the baseline has no gate, whatever becomes of its rows."""
    rows = [
        Row(f"{n} {variant}", n, f"c{n}", 0.9 if n < 3 else 0.1, variant=variant, passed=n < 3)
        for n in range(4)
        for variant in ("old", "new")
    ]
    gates = Gates(min_pass_rate=least, no_worse_than="old", margin=1)
    gated = Gated(gates, check_gates(rows, gates))
    study = replace(evaluate.STUDY, row=lambda row: row, flat=lambda _row: ())
    records, _ = junit_suites(study, lambda: rows, gated)
    matches = {(case.classname, case.outcome) for case in records.cases()} - {
        ("old", "passed"),
        ("new", "passed"),
    }
    assert matches == {("old", "skipped"), *(("new", outcome) for outcome in outcomes)}
    assert gated.holds == (outcomes == {"skipped"})


def test_a_difference_is_the_mean_over_cases_and_needs_scores_from_0_to_1() -> None:
    before, now = of(0.2, 0.4, 0.6), of(0.5, 0.4, 0.6)
    outcome = check(now, before, no_worse_than="main", margin=1)
    assert outcome.value == pytest.approx(0.1)
    for beyond in (1.5, -0.5):
        outcome = check(of(0.5, beyond), of(0.5, 0.5), no_worse_than="main")
        assert (outcome.holds, outcome.value) == (False, None)
        assert "scores lie outside 0 to 1" in outcome.found
    lost = check(of(*[0.5] * 9), of(*[0.75] * 9), no_worse_than="main", margin=0.25)
    assert lost.found.endswith("not above -0.25")
    apart = [replace(row, case=f"new {row.case}") for row in now]
    (_, outcome) = check_gates(apart, Gates(no_worse_than="main", max_failed=3), before)
    assert (outcome.holds, outcome.found) == (
        False,
        "not compared with main: no case is scored in both",
    )


def test_figures_are_told_with_the_interval_that_they_have() -> None:
    assert check(of(0.5), min_mean=0.5).found == "mean 0.500 (no interval), at least 0.5"
    several = check(of(0.4, 0.5, 0.6), min_mean=0.5).found
    assert several == "mean 0.500 (95 % 0.252 to 0.748), at least 0.5"


def test_last_holds_without_an_earlier_run_unless_a_variant_has_that_name() -> None:
    (first_outcome,) = check_gates(of(0.5, 0.5), Gates(no_worse_than="last"))
    assert (first_outcome.holds, first_outcome.found) == (
        True,
        "no earlier run of the kind to compare with",
    )
    rows = [*of(*[0.9] * 9, variant="last"), *of(*[0.1] * 9, variant="new")]
    (new,) = check_gates(rows, Gates(no_worse_than="last"))
    assert (new.variant, new.holds) == ("new", False)


def test_the_table_of_gates_has_variants_only_where_there_are_some() -> None:
    (plain,) = draw_gates(check_gates(of(0.5), Gates(min_mean=0.5)))
    assert isinstance(plain, Table)
    assert len(plain.columns) == 3
    rows = [*of(0.5, variant="one"), *of(0.4, variant="two")]
    for printed_rows in (rows, rows[:1]):
        (table,) = draw_gates(check_gates(printed_rows, Gates(min_mean=0.5)))
        assert isinstance(table, Table)
        assert [row[1:3] for row in table.rows] == [("one", "holds"), ("two", "fails")][
            : len(printed_rows)
        ]
    assert draw_gates([]) == []


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with open_store(home / "store.db") as opened:
        yield opened


def compare_columns(home: Path, store: Store, good: int, name: str = "", **columns: Any) -> str:
    """A run over two columns of outputs, of which `new` is right in so many of ten rows."""
    rows = [
        {"id": f"c{n}", "input": f"q{n}", "label": "a", "old": "a", "new": "a" if n < good else "b"}
        for n in range(10)
    ]
    with Client(store=home / "store.db") as client:
        outputs = ["old", "new"]
        client.compare(
            [row | columns for row in rows],
            outputs=outputs,
            name=name,
            metric="exact",
            label="label",
        )
    return store.get_run("last").id


def test_the_run_to_compare_with_is_found_by_its_name_or_as_the_last(home: Path, store: Store):
    first_text = compare_columns(home, store, 10, "main")

    def find(run: str, name: str | None) -> str | None:
        record = StudyRun(store.get_run(run))
        gates = Gates(no_worse_than=name)
        found_run = find_baseline(store, record, gates, Settings(store=home / "store.db"))
        return found_run and found_run.id

    assert find(first_text, "last") is find(first_text, None) is find(first_text, "old") is None
    second_text, third = compare_columns(home, store, 9, "main"), compare_columns(home, store, 8)
    assert (find(third, "main"), find(third, first_text), find(third, "last")) == (
        second_text,
        first_text,
        second_text,
    )
    assert find(second_text, "last") == third
    store.finish_run(third, "interrupted")
    assert find(second_text, "last") == first_text
    with pytest.raises(InputError, match=r"run nobody: is not .*; variants: old, new$"):
        find(first_text, "nobody")
    with Client(store=home / "store.db") as client:
        client.evaluate("q0", "a longer text", judge="look:length", name="other")
    judged = store.get_run("other").id
    assert find(judged, "last") is None  # none of its kind
    with pytest.raises(InputError, match=r"is of the kind compare, not evaluate"):
        find(judged, first_text)
    with pytest.raises(InputError, match=r"run nobody: is not [^;]*; see [^;]*$"):
        find(judged, "nobody")
    # In a first build the gate for builds finds nothing to compare with, which is no mistake.
    first_build = Gates(no_worse_than="nobody", fail_if_worse=True)
    settings = Settings(store=home / "store.db")
    assert find_baseline(store, StudyRun(store.get_run(judged)), first_build, settings) is None
    with Client(store=home / "store.db") as client:
        client.evaluate("q1", "a longer text", judge="look:length", name="another")
    with pytest.raises(InputError, match="run nobody: is not"):
        find_baseline(store, StudyRun(store.get_run(judged)), first_build, settings)
    changed = compare_columns(home, store, 10, input="another")
    with pytest.raises(InputError, match="case 'c0' has another value in the column 'input'"):
        find(changed, first_text)


def test_a_run_is_held_to_the_records_of_another(home: Path, store: Store):
    good = StudyRun(store.get_run(compare_columns(home, store, 10, "main")))
    bad = StudyRun(store.get_run(compare_columns(home, store, 4)))
    settings = Settings(store=home / "store.db")

    def watch(run: StudyRun, **limits: Any) -> GateWatch:
        watch = GateWatch(store, run, Gates(**limits), settings)
        for row in rows[::-1]:
            watch.add(row)
        return watch

    rows = of(*[1.0] * 10, variant="old") + of(*[1.0] * 4, *[0.0] * 6, variant="new")
    against = watch(bad, no_worse_than="main", max_regressions=0).check()
    assert [(outcome.variant, outcome.holds) for outcome in against.outcomes] == [
        ("new", False),
        ("old", True),
    ]
    assert "(c4, c5, c6, c7, c8, ...)" in str(against.outcomes[0])
    itself = watch(good, no_worse_than="main", max_regressions=0).check()
    assert [outcome.found for outcome in itself.outcomes] == ["this is the run main itself"] * 2
    judges = [GateOutcome("min agreement", False, "no")]
    alone_watch = watch(bad, min_mean=0)
    alone_watch.judges = Gated(Gates(min_mean=0), judges)
    alone = alone_watch.check()
    assert (alone.outcomes[0], alone.holds) == (judges[0], False)


def measure(home: Path, right: int, name: str = "", **fields: Any) -> None:
    """Measures the judge of length, which is right about so many of ten texts."""
    rows = [
        {"input": f"q{n}", "output": "w " * (300 if n % 2 else 10), "label": n % 2 == (n < right)}
        for n in range(10)
    ]
    (home / f"{right}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"items": (f"{right}.jsonl",), "judge": ("look:length",), "threshold": 0.5}
    with Client(store=home / "store.db") as client:
        client.run(AgreementSpec(**spec | fields), name=name)


def judged_by(run: RunRecord, model: str = "", **spec: Any) -> StudyRun:
    """A run whose judges are those of a measurement."""
    kind = "compare" if "outputs" in spec else "evaluate"
    return StudyRun(replace(run, spec={**run.spec, "kind": kind, "model": model, "spec": spec}))


def test_judges_are_held_to_the_newest_measurement(home: Path, store: Store):
    for right, name in ((10, "a"), (7, "b")):
        measure(home, right, name)
    single_run, other = store.get_run("a"), store.get_run("b")
    run = judged_by(other, judge="look:length", threshold=0.5)

    def look(on: str, run: StudyRun = run, least: float = 0.3) -> tuple[bool, str, float | None]:
        (outcome,) = check_judges(store, run, Gates(min_agreement=least, measured_on=on))
        assert outcome.gate == "min agreement"
        return outcome.holds, outcome.found, outcome.value

    assert check_judges(store, run, Gates()) == []
    text = "agreement of look:length 0.700 (95 % 0.397 to 0.892) on {}; its lower end must reach {}"
    text += ", and its value must exceed always fail (0.600)"
    for on in ("b", other.id, "7.jsonl"):
        assert look(on) == (True, text.format(on, 0.3), 0.7)
    assert look("b", least=0.5) == (False, text.format("b", 0.5), 0.7)
    assert look("a")[2] == look("10.jsonl")[2] == 1
    missing = "look:length was not measured on {}; see textevolve bench agreement"
    assert look("c") == (False, missing.format("c"), None)
    for spec in ({}, {"threshold": 0.6}, {"threshold": 0.5, "rubric": "tone"}):
        assert look("b", judged_by(other, judge="look:length", **spec))[2] is None
    measure(home, 7, "a", limit=9)
    assert look("a")[2] == pytest.approx(7 / 9)
    store.finish_run(store.get_run("last").id, "interrupted")
    assert look("a")[2] == 1
    store.finish_run(single_run.id, "failed")
    assert look("a")[2] is None


def test_a_debate_is_a_judge_with_its_profile_and_its_models(home: Path, store: Store, model: str):
    debates = ("single", "debate:general")
    measure(home, 5, "m", judge=debates, threshold=None, model=model, limit=2)
    run, gates = store.get_run("m"), Gates(min_agreement=0, measured_on="m")
    general = load_profile("general").model_dump(mode="json")

    def values(model: str = model, **spec: Any) -> list[float | None]:
        spec |= {} if "profile" in spec else {"data": "a.csv", "outputs": ["a"]}
        return [judge.value for judge in check_judges(store, judged_by(run, model, **spec), gates)]

    assert None not in values(judge=debates) + values(profile=general)
    assert values(judge=("single",), threshold=0.9) == values("x/y", judge=("single",)) == [None]
    assert values("x/y", profile=general) == [None]


def test_fail_if_worse_needs_proof() -> None:
    """One row better and one worse is no loss, though it is too little for a margin."""
    before = of(*[1.0] * 30, *[0.0] * 10)
    now = of(0.0, *[1.0] * 29, 1.0, *[0.0] * 9)
    gates = {"no_worse_than": "main", "fail_if_worse": True}
    outcome = check(now, before, **gates)
    assert outcome.holds
    assert "no significant loss" in outcome.found
    # A fall that rows without a change show in 80 % of builds: 6 losses of 40 where each has .19.
    assert "can see a fall of 19 points" in outcome.found
    assert not check(now, before, no_worse_than="main", margin=0.1).holds

    lost = of(*[0.0] * 12, *[1.0] * 18, *[0.0] * 10)
    outcome = check(lost, before, **gates)
    assert not outcome.holds
    assert "-0.300 (p < 0.001, 40 cases), a significant loss" in outcome.found


def test_two_rows_see_nothing() -> None:
    outcome = check(of(1.0, 0.0), of(1.0, 1.0), no_worse_than="main", fail_if_worse=True)
    assert outcome.holds
    assert "so few rows cannot see any fall" in outcome.found


def test_repeated_rows_are_no_proof() -> None:
    """Eight rows of one group are one: their loss proves nothing."""
    before = [replace(row, cluster="one") for row in of(*[1.0] * 8)]
    now = [replace(row, cluster="one") for row in of(*[0.0] * 8)]
    gates = {"no_worse_than": "main", "fail_if_worse": True}
    assert check(now, before, **gates).holds
    assert not check(of(*[0.0] * 8), of(*[1.0] * 8), **gates).holds


@pytest.mark.parametrize("gates", [{}, {"no_worse_than": "main", "margin": 0.1}])
def test_fail_if_worse_has_its_options(gates: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--fail-if-worse"):
        Gates(fail_if_worse=True, **gates)
