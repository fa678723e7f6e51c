"""What is to be expected of a run: rehearsals give a range, which stays within the bounds."""

import json
from dataclasses import replace

import pytest

from parameter_sets import slow_but_first
from textevolve.evaluation import Usage
from textevolve.studies.rehearsal import summarise_draws


def test_rehearsals_give_their_middle_and_their_ends_within_the_bounds():
    draws = [Usage(1, n, 0, 0, None) for n in range(101)]
    least, most = Usage(1, 0, 0, 0, None), Usage(1, 100, 0, 0, None)
    found = summarise_draws(draws, least, most)
    assert tuple(found["tokens"].values()) == pytest.approx((50, 5, 95))
    assert "cost" not in found
    narrow = summarise_draws(draws, Usage(1, 20, 0, 0, None), Usage(1, 40, 0, 0, None))
    assert tuple(narrow["tokens"].values()) == (50, 20, 50)
    priced = [replace(usage, cost=0.1) for usage in draws]
    ends = replace(least, cost=0.0), replace(most, cost=1.0)
    assert summarise_draws(priced, *ends)["cost"]["high"] == 0.1


def write_cases(path, name, number=3):
    rows = [{"input": f"{name} {n}?", "candidates": ["a", "b"]} for n in range(number)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


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
