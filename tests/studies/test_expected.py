"""What is to be expected of a run: ranges from earlier runs hold what is used as often as they say,
and rehearsals stay within the bounds."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from parameter_sets import slow_but_first
from textevolve import evaluate_batch
from textevolve.evaluation import Usage
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.settings import read_settings
from textevolve.store.repository import open_store
from textevolve.studies.expected import (
    Expected,
    Spread,
    Used,
    expect_again,
    expect_of_draws,
    find_earlier,
    keep_within,
)
from textevolve.studies.kinds import find_study
from textevolve.studies.stored import read_stored


def test_a_range_ends_where_the_bounds_do_and_a_median_stays():
    found = Expected({"calls": Spread(18, 6, 40), "tokens": Spread(5, 1, 9)}, runs=1)
    least, most = Usage(9, 100, 0, 0, None), Usage(36, 200, 0, 0, None)
    kept = keep_within(found, least, most)
    assert kept.figures == {"calls": Spread(18, 9, 36), "tokens": Spread(5, 5, 9)}
    assert kept.runs == 1


def simulate(runs, variation, rng):
    """Whether the range holds the use of a further run, cases differing by so much."""
    shape = np.sqrt(np.log(1 + variation**2))

    def run():
        cases = int(rng.integers(3, 12))
        total = int(rng.lognormal(7, shape, cases).sum())
        return Used(cases, Usage(cases, total, 0, 0, None))

    expected = expect_again([run() for _ in range(runs)], (later := run()).cases)
    assert "cost" not in expected.figures
    assert "seconds" not in expected.figures
    spread = expected.figures["tokens"]
    return spread.low <= later.usage.tokens <= spread.high


@pytest.mark.parametrize(("runs", "most"), [(1, 0.99), (2, 0.99), (3, 0.93), (8, 0.93)])
def test_nine_times_in_ten_the_range_holds_what_is_used(runs, most):
    rng = np.random.default_rng(runs)
    held = sum(simulate(runs, 0.35, rng) for _ in range(2000)) / 2000
    assert 0.86 <= held <= most


@pytest.mark.parametrize("runs", [3, 6])
@pytest.mark.parametrize("variation", [0.05, 0.6])
def test_whatever_the_cases_differ_by(runs, variation):
    rng = np.random.default_rng(10 * runs)
    held = sum(simulate(runs, variation, rng) for _ in range(2000)) / 2000
    assert 0.86 <= held <= 0.93


def test_rehearsals_give_their_middle_and_their_ends():
    draws = [Usage(1, n, 0, 0, None) for n in range(101)]
    found = expect_of_draws(draws).figures
    tokens = found["tokens"]
    assert (tokens.median, tokens.low, tokens.high) == pytest.approx((50, 5, 95))
    assert "cost" not in found
    assert expect_of_draws([replace(d, cost=0.1) for d in draws]).figures["cost"].high == 0.1


def wordy(_body, number):
    """Answers of very different lengths, as the server counts them."""
    length = round(Random(number).lognormvariate(5, 0.8))
    return Answer(usage={"prompt_tokens": 200, "completion_tokens": length})


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory):
    """A store with 24 runs over cases of their own."""
    path = tmp_path_factory.mktemp("runs") / "s.db"
    with ScriptedServer(wordy) as server:
        for n in range(24):
            cases = [(f"Question {n}.{i}?", ["one", "two"]) for i in range(2 + n % 3)]
            list(evaluate_batch(cases, model=f"{server.url}#m", store=path, rounds=1))
    return path


@pytest.mark.slow
def test_the_range_from_real_runs_holds_what_the_next_one_used(many_runs):
    settings = read_settings({"store": many_runs})[0]
    with open_store(many_runs) as store:
        stored = read_stored(store.get_run("last"))
    used = find_earlier(find_study("evaluate"), stored, settings)
    assert len(used) == 20
    assert all(one.seconds is not None and one.seconds > 0 for one in used)
    held = 0
    for n, later in enumerate(used):
        earlier = [used[(n + k) % len(used)] for k in range(1, 6)]
        spread = expect_again(earlier, later.cases).figures["tokens"]
        held += spread.low <= later.usage.tokens <= spread.high
    assert 15 <= held <= 20


def test_other_options_and_other_models_are_other_runs(many_runs):
    settings = read_settings({"store": many_runs})[0]
    study = find_study("evaluate")
    with open_store(many_runs) as store:
        stored = read_stored(store.get_run("last"))
    other = stored.model_copy(update={"spec": {**stored.spec, "rounds": 3}})
    assert find_earlier(study, other, settings) == []
    assert find_earlier(study, stored.model_copy(update={"model": "openai/x"}), settings) == []
    nowhere = read_settings({"store": many_runs.with_name("none.db")})[0]
    assert find_earlier(study, stored, nowhere) == []
    assert not nowhere.store.exists()


def write_cases(path, name, number=3):
    rows = [{"input": f"{name} {n}?", "candidates": ["a", "b"]} for n in range(number)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_a_dry_run_expects_what_earlier_runs_used(home, cli, server):
    command = ("evaluate", "-m", f"{server.url}#m", "--rounds", "1")
    fresh = write_cases(home / "fresh.jsonl", "fresh", 6)
    (rehearsed,) = cli(*command, fresh, "--dry-run", "--json").rows
    assert (rehearsed["expected"]["from"], rehearsed["expected"]["runs"]) == ("rehearsals", 0)
    for name in ("one", "two", "three"):
        assert cli(*command, write_cases(home / f"{name}.jsonl", name)).code == 0
    asked = server.calls
    (found,) = cli(*command, fresh, "--dry-run", "--json").rows
    expected = found["expected"]
    assert (expected["from"], expected["runs"]) == ("earlier runs", 3)
    assert expected["calls"] == {"median": 18, "low": 18, "high": 18}
    assert expected["tokens"]["low"] <= expected["tokens"]["median"] <= expected["tokens"]["high"]
    assert expected["seconds"]["median"] > 0
    said = cli(*command, fresh, "--dry-run").out
    assert "from 3 earlier runs of this kind" in said
    assert "at most" in said
    assert server.calls == asked
    used = cli(*command, fresh, "--json").rows
    tokens = sum(row["metrics"]["tokens"] for row in used)
    assert found["least"]["tokens"] <= tokens <= found["most"]["tokens"]


@pytest.mark.parametrize(
    "judge", slow_but_first([(), ("--judge", "probe"), ("--judge", "checklist")])
)
def test_a_rehearsal_expects_something_between_the_bounds(home, cli, server, judge):
    cases = write_cases(home / "c.jsonl", "Why", 12)
    command = ("evaluate", cases, "-m", f"{server.url}#m", *judge, "--dry-run", "--json")
    (found,) = cli(*command).rows
    assert cli(*command).rows == [found]
    for name in ("calls", "tokens", "prompt_tokens", "completion_tokens"):
        spread = found["expected"][name]
        assert found["least"][name] <= spread["low"] <= spread["median"]
        assert spread["median"] <= spread["high"] <= found["most"][name]


def test_a_dry_run_needs_no_key(cli, home):
    """What something may cost is asked before there is an account."""
    (home / "outputs.csv").write_text("prompt,response\nWhy tides?,The moon.\n")
    asked = ("evaluate", "outputs.csv", "--judge", "probe", "-m", "openai/gpt-6-luna")
    planned = cli(*asked, "--dry-run")
    assert (planned.code, "\ncost " in planned.out) == (0, True)
    assert "needs a key" in cli(*asked).err
