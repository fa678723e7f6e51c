"""What a file of another tool lacks, and what its format cannot hold, is named.

The right names are those of the samples that the log's own header lists. (METR/vivaria#1076)
"""

import json
import zipfile

import pytest
from asked import write_rows


def inspect_log(status, ids, present):
    samples = [
        {"id": id, "epoch": 1, "input": f"Q{id}?", "target": "A", "output": {"completion": "A"}}
        for id in present
    ]
    dataset = {"name": "d", "samples": len(ids), "sample_ids": ids}
    return {"status": status, "eval": {"task": "t", "dataset": dataset}, "samples": samples}


@pytest.mark.parametrize("form", ["json", "eval"])
@pytest.mark.parametrize("ids", [[1, 2, 3, 4], ["one", "two", "a/b", "four"]])
def test_lost_samples_are_named(cli, home, form, ids):
    log = inspect_log("error", ids, ids[:2])
    if form == "json":
        (home / "log.json").write_text(json.dumps(log))
    else:
        about = {name: log[name] for name in ("status", "eval")}
        with zipfile.ZipFile(home / "log.eval", "w") as archive:
            archive.writestr("header.json", json.dumps(about))
            for sample in log["samples"]:
                name = f"samples/{sample['id']}_epoch_1.json"
                archive.writestr(name, json.dumps(sample))

    name = "log.json" if form == "json" else "log.eval"
    outcome = cli("evaluate", name, "--judge", "metric:exact")
    assert outcome.code == 0, outcome.err
    lost = ", ".join(sorted(map(str, ids[2:])))
    assert f"left out: 2 samples: {lost}: the log of Inspect ends before" in outcome.err
    assert "2 of 2 done" in outcome.err


@pytest.mark.parametrize(("status", "present"), [("success", [1, 2]), ("error", [1, 2, 3])])
def test_whole_logs_are_silent(cli, home, status, present):
    (home / "log.json").write_text(json.dumps(inspect_log(status, [1, 2, 3], present)))
    assert "left out" not in cli("evaluate", "log.json", "--judge", "metric:exact").err


def test_outputs_without_a_score_are_named(cli, home, server, model):
    server.script = lambda body, _number: "" if "word 3" in str(body) else "yes"
    (home / "say.txt").write_text("Say {word}")
    write_rows(home / "rows.jsonl", [{"word": f"word {n}", "label": "yes"} for n in range(5)])
    command = ["compare", "-p", "say.txt", "-d", "rows.jsonl", "--label", "label"]
    assert cli(*command, "--metric", "exact", "-m", model).code == 3
    outcome = cli("runs", "export", "last", "--to", "every-eval-ever:eee")
    assert outcome.code == 0
    assert "and outputs without a score" in outcome.err
    (samples,) = (home / "eee").rglob("*_samples.jsonl")
    assert len(samples.read_text().splitlines()) == 4
