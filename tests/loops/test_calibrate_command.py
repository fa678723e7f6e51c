"""`textevolve calibrate` and its Python form as they are used, on the scripted server."""

import pytest

from textevolve.studies.calibrate import CalibrateSpec, compare_scores, material_of, read_cases

TEMPLATE = 'What is {n} and {n} more? As JSON: {"sum": 0}\n'


@pytest.fixture
def files(home):
    (home / "template.txt").write_text(TEMPLATE)
    (home / "values.jsonl").write_text('{"n": 1, "sum": 2}\n' * 40)


def command(model, *more):
    return ("calibrate", "template.txt", "--data", "values.jsonl", "-m", model, *more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--metric", "exact"), "name its column with --label"),
        (("-j", "pairwise"), "cannot be compared"),
    ],
)
def test_bad_input_is_one_line(cli, files, server, model, more, said):
    ended = cli(*command(model, *more))
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert server.calls == 0


def test_comparisons_leave_out_what_is_missing():
    nan = float("nan")
    gain = compare_scores([1.0] * 12 + [nan, 1.0], [0.0] * 12 + [1.0, nan])
    assert (gain.items, gain.rows, gain.difference) == (12, 14, 1.0)
    assert (gain.first_scored, gain.second_scored) == (13, 13)
    assert compare_scores([nan], [nan]).items == 0


def test_values_from_csv_are_filled_in_as_they_stand(home):
    (home / "v.csv").write_text("price,sum\n1.50,a\nnull,b\n1e5,c\n")
    spec = CalibrateSpec(template="What is {price}?", data="v.csv", label="sum")
    material = material_of(spec, read_cases(spec))
    assert {e.values["price"] for e in material.examples} == {"1.50", "null", "1e5"}
