"""The model of long runs: its arithmetic, the recorded points, and how a point is measured."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import scale_model as model
from processes import Watch
from scale import Asked, Point, read_points, tell

ROOT = Path(__file__).parents[1]
AMOUNTS = st.floats(0.001, 1e6)
SIZES = st.lists(st.integers(1, 10**6), min_size=2, max_size=6, unique=True)


def make_point(cases, on="local", cpu=1e-3, fixed=0.5):
    """A point that lies on the model: a second of waiting takes the whole time."""
    asked = Asked(cases, on=on, in_flight=10, latency=2.0)
    seconds = cases / 10 * 6 * 2.0
    return Point(
        asked=asked,
        scored=cases,
        calls=6 * cases,
        seconds=seconds,
        cpu={"driver": fixed + cpu * cases, "server": 0.1 * cases * cpu},
        cores_free=2.0,
        memory=[10**8] * 20,
        peak=10**8 + 16 * cases,
        actors_peak=0,
        bytes=20_000 * cases,
        prompt_tokens=6_000 * cases,
        completion_tokens=1_000 * cases,
        bare_rate=100.0,
        bare_server=1e-4,
        writes=5_000.0,
        cores=2,
        load=1.0,
        python="3.11",
        when="2026-11-23 02:00",
    )


@given(SIZES, AMOUNTS, AMOUNTS)
def test_a_line_is_found_again_through_points_that_lie_on_it(sizes, fixed, each):
    found = model.fit_line([(cases, fixed + each * cases) for cases in sizes])
    for cases in sizes:
        assert found.at(cases) == pytest.approx(fixed + each * cases, rel=1e-4)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1e6)), min_size=1, max_size=6))
def test_no_part_of_a_line_is_negative(found):
    line = model.fit_line(found)
    assert line.fixed >= 0
    assert line.each >= 0


def test_one_point_has_no_fixed_part_and_none_is_refused():
    assert model.fit_line([(100, 5.0)]) == model.Line(0.0, pytest.approx(0.05))
    with pytest.raises(ValueError, match="points"):
        model.fit_line([])
    with pytest.raises(ValueError, match="no point"):
        model.find_constants([])


@given(st.lists(st.integers(10, 10**5), min_size=3, max_size=5, unique=True))
def test_points_that_lie_on_the_model_are_predicted_from_each_other(sizes):
    assume(max(sizes) > 2 * min(sizes))
    checked = list(model.validate([make_point(cases) for cases in sizes]))
    assert len(checked) == 4 * len(sizes)
    assert all(abs(one.off) < 1e-3 for one in checked), checked


def test_a_point_is_predicted_from_others_of_its_way_else_of_its_place():
    points = [make_point(100), make_point(200, on="ray")]
    assert list(model.validate(points)) == []
    odd = replace(make_point(400), bytes=10**9)
    found = {(one.asked.cases, one.name): one for one in model.validate([*points, odd])}
    assert found[400, "store, MB"].off == pytest.approx(8e6 / 1e9 - 1, abs=1e-6)
    assert found[400, "store, MB"].alike
    apart = replace(make_point(300), asked=Asked(300, in_flight=20))
    found = {one.asked.cases: one.alike for one in model.validate([*points, odd, apart])}
    assert found == {100: True, 400: True, 300: False}


def test_recorded_points_but_one_are_predicted_within_a_fifth_from_those_of_their_way():
    checked = [one for one in model.validate(read_points(model.RECORDED)) if one.alike]
    assert len(checked) >= 4 * 6
    (short,) = [one for one in checked if abs(one.off) > 0.2]  # which docs/scale.md names
    assert (short.asked.cases, short.name) == (500, "CPU, s")
    assert abs(short.off) < 0.21


@given(st.integers(1, 10**9), st.floats(1, 1e4), st.floats(0.05, 1e3))
def test_needs_grow_with_cases_and_parts_suffice(cases, allowed, days):
    constants = model.find_constants([make_point(100), make_point(1_000)])
    world = model.World(allowed=allowed)
    one, ten = (model.find_needs(constants, size, world) for size in (cases, 10 * cases))
    assert ten.calls == pytest.approx(10 * one.calls)
    assert ten.money == pytest.approx(10 * one.money)
    assert ten.money == pytest.approx((60_000 * 0.25 + 10_000 * 2) / 1e6 * cases)
    for name, needed in model.parts_needed(one, days).items():
        assert one.days[name] / needed <= days * (1 + 1e-9)
        assert needed == 1 or one.days[name] / (needed - 1) > days * (1 - 1e-9)
    assert one.days[one.bottleneck] == max(one.days.values())
    assert one.days[one.own_bottleneck] == max(one.days[name] for name in model.OURS)


def test_a_wall_time_is_that_of_waiting_or_of_the_processors():
    constants = model.find_constants([make_point(100), make_point(1_000)])
    asked = Asked(1_000, in_flight=10, latency=2.0)
    assert model.predict_seconds(constants, asked, 2.0) == pytest.approx(1_200)
    cpu = sum(line.at(1_000) for line in constants.cpu.values())
    assert model.predict_seconds(constants, asked, cpu / 5_000) == pytest.approx(5_000)


def test_the_page_holds_what_the_model_prints_of_the_recorded_points():
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    for table in model.draw_page(read_points(model.RECORDED), model.World()):
        assert table in page, "run benchmarks/scale_model.py and put its tables into docs/scale.md"


def test_recorded_points_are_whole():
    for point in read_points(model.RECORDED):
        assert point.scored == point.asked.cases
        assert point.calls == 6 * point.asked.cases
        assert point.cpu["server"] < point.seconds / 2, "the scripted server was the limit"


def test_processes_are_told_apart_by_their_commands_and_counted_when_they_have_ended():
    words = [sys.executable, "-c", "input(); print(sum(range(3_000_000)), flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        watch = Watch([os.getpid()], {"counts": "sum(range", "nobody": "no such word"})
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        watch.look()
        seen = watch.cpu()
        child.communicate(b"\n")
    watch.look()
    assert seen["counts"] > 0
    assert seen["nobody"] == 0
    assert watch.cpu()["counts"] == seen["counts"]
    assert watch.cpu()["driver"] >= seen["driver"]
    assert watch.peak("counts") > 10**6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_point_of_twenty_cases_is_measured_once(tmp_path, kind):
    lines = tmp_path / "points.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--cases", "20"]
    command += ["--latency", "0.01", "--store-kind", kind, "--json", str(lines)]
    for said in ("20 scored, 120 calls", ""):
        ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert said in ended.stdout
    (point,) = read_points(lines)
    assert (point.scored, point.calls) == (20, 120)
    assert point.bytes > 20 * 1_000
    assert point.cpu["driver"] > 0
    assert (point.cpu["database"] > 0) == (kind == "postgresql")
    assert json.loads(lines.read_text())["asked"]["store_kind"] == kind
    assert any("store: " in line for line in tell(point))
