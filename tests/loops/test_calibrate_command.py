"""`textevolve calibrate` and its Python form as they are used, on the scripted server."""

from textevolve.loops.calibration.optimizing import compare_scores
from textevolve.studies.calibrate import CalibrateSpec, material_of, read_cases


def test_comparisons_leave_out_what_is_missing():
    gain = compare_scores([1.0] * 12 + [None, 1.0], [0.0] * 12 + [1.0, None])
    assert (gain.items, gain.rows, gain.difference) == (12, 14, 1.0)
    assert (gain.first_scored, gain.second_scored) == (13, 13)
    assert compare_scores([None], [None]).items == 0


def test_values_from_csv_are_filled_in_as_they_stand(home):
    (home / "v.csv").write_text("price,sum\n1.50,a\nnull,b\n1e5,c\n")
    spec = CalibrateSpec(template="What is {price}?", data="v.csv", label="sum")
    material = material_of(spec, read_cases(spec))
    assert {e.values["price"] for e in material.examples} == {"1.50", "null", "1e5"}
