"""A user compares prompts on one model and judges with another, and asks beforehand for the calls
of each."""

import json
from collections import Counter


def test_dry_runs_name_models(cli, home, server):
    rows = "".join(json.dumps({"question": f"Question {n}?"}) + "\n" for n in range(4))
    (home / "rows.jsonl").write_text(rows)
    (home / "ask.txt").write_text("Answer: {question}")
    candidate = f"{server.url}#candidate"
    judge = f"{server.url}#judge"
    command = ["compare", "-d", "rows.jsonl", "-p", "ask.txt", "-m", candidate]
    command += ["--judge", f"probe@{judge}"]

    estimate = json.loads(cli(*command, "--dry-run", "--json").out)
    assert estimate["models"] == {candidate: 4, judge: 12}
    assert server.calls == 0
    text = cli(*command, "--dry-run").out
    assert "calls by model" in text
    assert f"{candidate} 4" in " ".join(text.split())

    assert cli(*command).code == 0
    asked = Counter(body["model"] for body in server.requests)
    assert asked == Counter(candidate=4, judge=12)


def test_single_models_have_no_table(cli, home, model):
    estimate = json.loads(
        cli(
            "evaluate", "Hello?", "Hello.", "--judge", "probe", "-m", model, "--dry-run", "--json"
        ).out
    )
    assert "models" not in estimate
