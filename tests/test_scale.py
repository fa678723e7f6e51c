"""The model of long runs: its arithmetic, the recorded points, and how a point is measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import scale_model as model
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


def test_recorded_points_but_one_are_predicted_within_a_fifth_from_those_of_their_way():
    checked = [one for one in model.validate(read_points(model.RECORDED)) if one.alike]
    assert len(checked) >= 4 * 6
    (short,) = [one for one in checked if abs(one.off) > 0.2]  # which docs/scale.md names
    assert (short.asked.cases, short.name) == (500, "CPU, s")
    assert abs(short.off) < 0.21


def test_the_page_holds_what_the_model_prints_of_the_recorded_points():
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    for table in model.draw_page(read_points(model.RECORDED), model.World()):
        assert table in page, "run benchmarks/scale_model.py and put its tables into docs/scale.md"


def test_recorded_points_are_whole():
    for point in read_points(model.RECORDED):
        assert point.scored == point.asked.cases
        assert point.calls == 6 * point.asked.cases
        assert point.cpu["server"] < point.seconds / 2, "the scripted server was the limit"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite"])
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
