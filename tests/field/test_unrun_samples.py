"""An interrupted run is written as a log of Inspect; 22 rows that nobody had judged were among its
completed samples.

Inspect's own meaning holds: a sample is completed if it ran to its end.
"""

import json

from textevolve.llm.testing import Answer, Fault


def test_rows_that_were_not_run_are_not_completed(cli, home, server):
    rows = [{"input": f"Why {number}?", "output": "So."} for number in range(6)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    server.script = lambda body, _number: (
        Fault.TOO_LONG_OPENAI if "Why 0?" in str(body) else Answer()
    )
    model = f"{server.url}#scripted"
    options = ("--judge", "single", "-m", model, "--max-calls", "3", "--concurrency", "1")
    assert cli("evaluate", "rows.jsonl", *options).code == 3
    cli("runs", "export", "last", "--to", "inspect:logs")
    (path,) = (home / "logs").glob("*.json")
    log = json.loads(path.read_text())
    scored = [sample for sample in log["samples"] if sample["scores"]]
    assert 0 < len(scored) < len(rows)
    assert (log["status"], log["results"]["completed_samples"]) == ("cancelled", len(scored))
