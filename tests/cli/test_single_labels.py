"""Labels of single responses wherever labels are read, and the gate on the judge itself."""

import json
import random

import pytest

from textevolve.llm.testing import Answer


@pytest.fixture
def labels(home, server):
    """Forty responses: the judge is right about all but every eighth."""

    def read(body, _number):
        text = " ".join(message["content"] for message in body["messages"][-2:])
        return Answer(yes=0.9 if "moon" in text else 0.2) if body.get("max_tokens") == 1 else None

    server.script = read
    rng, rows = random.Random(4), []
    for n in range(40):
        good = rng.random() < 0.6
        text = ("The moon pulls, " if good else "Cheese is good, ") + "I think. " * (n % 3)
        label = "pass" if good != (n % 8 == 0) else "fail"
        rows.append({"id": f"r{n}", "input": f"Why tides {n}?", "output": text, "label": label})
    (home / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


MEASURE = ("bench", "agreement", "labels.jsonl")


def test_judges_are_measured_side_by_side(cli, model, labels):
    outcome = cli(*MEASURE, "-j", "probe", "-j", "look:length", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    (message,) = outcome.rows
    probe, look = message["summary"]["judges"]
    assert probe["accuracy"]["value"] == 35 / 40
    assert (probe["covered"], probe["position"]) == (40, None)
    assert {"precision", "recall", "kappa", "alpha"} < probe["responses"]["verdicts"].keys()
    assert probe["calibration"]["curve"]
    (gap,) = message["summary"]["comparisons"]
    assert gap["difference"]["value"] == probe["accuracy"]["value"] - look["accuracy"]["value"]
    output = " ".join(cli(*MEASURE, "-j", "probe", "-m", model).out.split())
    assert "probe agrees with people in 87.5 % [75.0, 97.5] of the items" in output
    assert "always pass" in output
    assert "5 items on which a judge disagrees with people" in output
    assert "nan" not in cli(*MEASURE, "-j", "metric:regex:.").out  # equal scores: no threshold


def test_a_judge_that_only_compares_is_refused(cli, server, model, labels):
    outcome = cli(*MEASURE, "-j", "pairwise", "-m", model)
    assert (outcome.code, server.calls) == (2, 0)
    assert "use another judge, such as probe+rules" in outcome.err


def evaluate(model, judge, *more):
    return ("evaluate", "Why?", "The moon.", "-j", judge, "-m", model, *map(str, more))


@pytest.mark.slow
def test_a_run_may_ask_for_a_judge_that_agrees_with_people(cli, server, model, labels):
    gate = ("--measured-on", "labels.jsonl", "--min-agreement")
    unmeasured = cli(*evaluate(model, "probe", *gate, 0.7))
    assert (unmeasured.code, server.calls) == (4, 0)
    assert (
        "probe was not measured on labels.jsonl; see textevolve bench agreement" in unmeasured.err
    )
    cli(*MEASURE, "-j", "probe", "-m", model, "--name", "check")
    for name in ("labels.jsonl", "check"):
        outcome = cli(*evaluate(model, "probe", "--measured-on", name, "--min-agreement", 0.7))
        assert outcome.code == 0, outcome.err
        assert "gate holds: agreement of probe 0.875" in outcome.err
    compared = cli(
        *("compare", "--data", "labels.jsonl", "--outputs", "output", "--judge", "probe"),
        *("--judge-model", model, *gate, 0.7),
    )
    assert compared.code == 0, compared.err
    assert "belong together" in cli(*evaluate(model, "probe", "--min-agreement", 0.7)).err


def test_a_rate_is_corrected_by_them(cli, home, model, labels):
    done = cli("evaluate", "labels.jsonl", "-j", "probe", "-m", model, "-o", "results.csv")
    assert done.code == 0, done.err
    few = [{"id": row["id"], "label": row["label"]} for row in labels[:20]]
    (home / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in few))
    (message,) = cli("bench", "rate", "results.csv", "few.jsonl", "--json").rows
    assert (message["labelled"], message["moved"], message["is_rate"]) == (20, 20, True)
    mixed = [{"id": "r0", "label": "billing", "human": True}, {"id": "r1", "label": "sales"}]
    (home / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mixed))
    (message,) = cli("bench", "rate", "results.csv", "few.jsonl", "--json").rows
    assert message["labelled"] == 1  # by `human` alone
