"""What is to be expected of a run: rehearsals give a middle figure and a range."""

import json
import re

import pytest

from parameter_sets import slow_but_first
from textevolve.evaluation import Usage
from textevolve.llm.testing import ScriptedServer
from textevolve.runs.estimate import summarise_draws


def test_rehearsals_give_their_middle_and_their_ends():
    draws = [Usage(1, n, 0, 0, None) for n in (7, 3, 5)]
    found = summarise_draws(draws)
    assert found["tokens"] == {"median": 5, "low": 3, "high": 7}
    assert "cost" not in found


@pytest.mark.parametrize("judge", slow_but_first([("--judge", "probe"), ("--judge", "checklist")]))
def test_an_estimate_is_the_same_each_time_and_scaled_to_all_cases(home, cli, server, judge):
    rows = [{"input": f"Why {n}?", "candidates": ["a", "b"]} for n in range(12)]
    (home / "c.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    command = ("evaluate", "c.jsonl", "-m", f"{server.url}#m", *judge, "--dry-run", "--json")
    (found,) = cli(*command).rows
    assert cli(*command).rows == [found]
    assert server.calls == 0
    for name in ("calls", "tokens", "prompt_tokens", "completion_tokens"):
        spread = found["expected"][name]
        assert 12 <= spread["low"] <= spread["median"] <= spread["high"]


@pytest.mark.parametrize(
    ("known", "metric"), [("", "exact"), ("Add well.", "exact"), ("", "contains")]
)
@pytest.mark.parametrize("budget", [24, 60])
def test_a_dry_run_names_what_a_search_takes(home, cli, budget, known, metric):
    """An editor that never helps, and one that helps at once."""
    rows = [{"n": n, "sum": 2 * n} for n in range(30)]
    (home / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (home / "t.txt").write_text("Twice {n}?")

    def script(body, number):
        text = body["messages"][-1]["content"]
        if body.get("response_format"):
            return json.dumps({"changes": ["x"], "template": f"Add well. {number} Twice {{n}}?"})
        n = int(re.findall(r"Twice (\d+)", text)[-1])
        return str(2 * n) if known and known in text else "no"

    with ScriptedServer(script) as server:
        command = ["calibrate", "t.txt", "-d", "rows.jsonl", "--label", "sum", "--metric", metric]
        command += ["--budget", str(budget), "-m", f"{server.url}#m", "--strategy", "reflect"]
        (planned,) = cli(*command, "--dry-run", "--json").rows
        assert server.calls == 0
        cli(*command)
        assert planned["most_calls"] == budget
        calls = planned["expected"]["calls"]
        assert calls["low"] <= server.calls <= calls["high"] == budget
        shown = cli(*command, "--dry-run").out
        assert f"at most {budget}; typically" in shown


def test_a_dry_run_needs_no_key(cli, home):
    """What something may cost is asked before there is an account."""
    (home / "outputs.csv").write_text("prompt,response\nWhy tides?,The moon.\n")
    requests = ("evaluate", "outputs.csv", "--judge", "probe", "-m", "openai/gpt-6-luna")
    planned = cli(*requests, "--dry-run")
    assert (planned.code, "\ncost " in planned.out) == (0, True)
    assert "needs a key" in cli(*requests).err


def test_lengths_are_learned_from_first_rows(home, cli, server):
    """Of a prompt that asks for one word, the answers to a few rows say how long all will be."""
    rows = [{"id": str(n), "message": f"Message {n}", "team": "payroll"} for n in range(40)]
    (home / "first.jsonl").write_text("\n".join(json.dumps(row) for row in rows[:5]))
    (home / "all.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (home / "team.txt").write_text("Which team? One word.\n\n{message}")
    model = f"{server.url}#m"
    server.script = lambda body, number: "payroll"
    command = ("compare", "-p", "team.txt", "--label", "team", "--metric", "exact", "-m", model)
    (guess,) = cli(*command, "-d", "all.jsonl", "--dry-run", "--json").rows
    assert guess["answers_learned"] == 0
    assert guess["expected"]["completion_tokens"]["median"] > 40 * 100
    assert "a guess" in cli(*command, "-d", "all.jsonl", "--dry-run").out

    assert cli(*command, "-d", "first.jsonl").code == 0
    (learned,) = cli(*command, "-d", "all.jsonl", "--dry-run", "--json").rows
    assert learned["answers_learned"] == 3  # of 40 rows each second is rehearsed
    # "payroll" has 7 characters: 1 token, of 3.6 to 4.8 characters.
    # 17 of the 20 rehearsed rows are new.
    assert learned["expected"]["completion_tokens"]["median"] == 34
    assert learned["expected"]["calls"]["median"] == 34
    assert server.calls == 5
