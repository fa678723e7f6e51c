"""A log of Inspect, or an archive with rows, to which a program has added a file once more under
its name: a sample that was scored again counted as two, and an archive of one table was refused.

The right value is the later one, once, as unzip and the header of such a log have it.
"""

import json
import warnings
import zipfile

import pytest

from textevolve.studies.rows import read_cases


def write_twice(path, members):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, text in members:
            archive.writestr(name, text)


def sample(id, answer):
    output = {"completion": answer}
    return json.dumps({"id": id, "epoch": 1, "input": "When?", "target": "six", "output": output})


def header(status):
    dataset = {"name": "d", "samples": 3, "sample_ids": ["a", "b", "c"]}
    return json.dumps({"status": status, "eval": {"dataset": dataset}})


@pytest.mark.parametrize("statuses", [("started", "success"), ("success", "error")])
def test_a_sample_that_was_written_again_is_one(cli, home, statuses):
    members = [
        ("samples/a_epoch_1.json", sample("a", "five")),
        ("samples/b_epoch_1.json", sample("b", "six")),
        ("header.json", header(statuses[0])),
        ("samples/a_epoch_1.json", sample("a", "six")),
        ("header.json", header(statuses[1])),
    ]
    write_twice(home / "log.eval", members)
    outcome = cli("evaluate", "log.eval", "--judge", "metric:exact")
    assert "2 of 2 done" in outcome.err
    assert "mean score 1.000" in outcome.out
    assert ("1 sample: c: the log" in outcome.err) == (statuses[1] == "error")


def test_a_table_that_was_written_again_is_one(tmp_path):
    members = [("rows.csv", f"id,input,output\na,When?,{answer}\n") for answer in ("five", "six")]
    write_twice(tmp_path / "rows.zip", members)
    (case,) = read_cases(str(tmp_path / "rows.zip"))
    assert case.candidates == ("six",)
