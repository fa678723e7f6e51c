"""One row of five has no passages, in the forms in which tables leave a cell empty.

It has a reason and no score, the four others are scored, and nothing says of the column of the
others that nobody reads it; by the results.
"""

import json

import pytest


@pytest.mark.parametrize("empty", [None, "", []])
def test_the_others_are_scored(cli, home, model, empty):
    contexts = [["A."], ["B."], empty, ["C."], ["D."]]
    rows = [
        {"input": f"Question {n}?", "output": f"Answer {n}.", "context": context}
        for n, context in enumerate(contexts)
    ]
    (home / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "faithfulness", "-m", model, "--json")
    assert outcome.code == 3
    statuses = [json.loads(line)["status"] for line in outcome.out.splitlines()]
    assert statuses == ["scored", "scored", "failed", "scored", "scored"]
    assert "case 3 lacks a score: this judge needs a field 'context'" in outcome.err
    assert "left out" not in outcome.err
