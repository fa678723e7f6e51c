"""The model of long runs: its arithmetic, the recorded points, and how a point is measured."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import scale_model as model
from scale import read_points, tell

ROOT = Path(__file__).parents[1]


def test_recorded_points_but_one_are_predicted_within_a_fifth_from_those_of_their_way():
    checked = [
        single_checked
        for single_checked in model.validate(read_points(model.RECORDED))
        if single_checked.alike
    ]
    assert len(checked) >= 4 * 6
    (short,) = [
        single_checked for single_checked in checked if abs(single_checked.off) > 0.2
    ]  # which docs/batches.md names
    assert (short.asked.cases, short.name) == (500, "CPU, s")
    assert abs(short.off) < 0.21


def test_the_page_holds_what_the_model_prints_of_the_recorded_points():
    page = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")
    for table in model.draw_page(read_points(model.RECORDED), model.World()):
        assert table in page, "put the tables of benchmarks/scale_model.py into docs/batches.md"


def test_recorded_points_are_whole():
    for point in read_points(model.RECORDED):
        assert point.scored == point.asked.cases
        assert point.calls == 6 * point.asked.cases
        assert point.cpu["server"] < point.seconds / 2, "the scripted server was the limit"


@pytest.mark.slow
def test_a_point_of_twenty_cases_is_measured(tmp_path):
    lines = tmp_path / "points.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--cases", "20"]
    command += ["--latency", "0.01", "--store-kind", "sqlite", "--json", str(lines)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "20 scored, 120 calls" in process.stdout
    (point,) = read_points(lines)
    assert (point.scored, point.calls) == (20, 120)
    assert point.bytes > 20 * 1_000
    assert point.cpu["driver"] > 0
    assert any("store: " in line for line in tell(point))
