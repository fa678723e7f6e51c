"""A user has results in which each item was run several times: epochs of Inspect, attempts or
trials in a table, samples of a comparison. Repeats are no new observations.

Six items of 20 repeats, three always right and three never: clustered by item, the share that
passes has the interval [14.0, 86.0] (Wilson's interval of 3 of 6 with Student's t of five degrees
of freedom is [13.8, 86.2]); as 120 independent rows it would be [41.2, 58.8].
"""

import csv
import json

import pytest

from textevolve.bench.items import load_items

ITEMS = range(6)
REPEATS = range(1, 21)
INTERVAL = "50.0 % [14.0, 86.0]"


def answer(item):
    return "right" if item % 2 else "wrong"


def judge(cli, path):
    outcome = cli("evaluate", path, "--judge", "metric:exact")
    assert outcome.code == 0, outcome.err
    return outcome


@pytest.mark.parametrize("form", ["completion", "choices"])
def test_epochs_of_inspect(cli, home, form):
    outputs = {
        "completion": lambda text: {"completion": text},
        "choices": lambda text: {
            "choices": [{"message": {"role": "assistant", "content": text}}],
        },
    }
    samples = [
        {
            "id": item,
            "epoch": epoch,
            "input": f"Question {item}?",
            "target": "right",
            "output": outputs[form](answer(item)),
        }
        for epoch in REPEATS
        for item in ITEMS
    ]
    (home / "log.json").write_text(json.dumps({"eval": {}, "samples": samples}))
    outcome = judge(cli, "log.json")
    assert INTERVAL in outcome.out
    assert "more than one case" not in outcome.err


@pytest.mark.parametrize("column", ["epoch", "attempt", "Trial", "repetition", "sample"])
@pytest.mark.parametrize("with_ids", [True, False])
def test_repeats_in_a_table(cli, home, column, with_ids):
    rows = [
        {
            **({"id": f"q{item}"} if with_ids else {}),
            column: repeat,
            "input": f"Question {item}?",
            "output": answer(item),
            "reference": "right",
        }
        for repeat in REPEATS
        for item in ITEMS
    ]
    with (home / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    outcome = judge(cli, "rows.csv")
    assert INTERVAL in outcome.out
    assert "more than one case" not in outcome.err


def test_trials_with_the_id_of_a_task(cli, home):
    """Trials of an agent differ in their chats, and are one task."""
    rows = [
        {
            "task_id": item,
            "trial": trial,
            "messages": [
                {"role": "user", "content": f"Question {item}, as user {trial} asks it?"},
                {"role": "assistant", "content": answer(item)},
            ],
            "reference": "right",
            "label": item % 2,
        }
        for trial in REPEATS
        for item in ITEMS
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert INTERVAL in judge(cli, "rows.jsonl").out
    items = load_items(home / "rows.jsonl")
    assert len({item.id for item in items}) == len(rows)
    assert len({item.group for item in items}) == len(ITEMS)


def test_a_text_is_no_repeat(cli, home):
    """A column `sample` may be a text, which numbers nothing."""
    rows = [
        {"sample": f"text {item}", "input": "Same?", "output": answer(item), "reference": "right"}
        for item in ITEMS
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "50.0 % [18.8, 81.2]" in judge(cli, "rows.jsonl").out


def test_answers_without_a_completion(cli, home):
    """Logs of Inspect from 2024 have the answer in `choices` alone, with thoughts as parts."""
    parts = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Seven."}]
    message = {"role": "assistant", "content": parts}
    sample = {"id": 1, "input": "Name a prime.", "output": {"choices": [{"message": message}]}}
    (home / "log.json").write_text(json.dumps({"eval": {}, "samples": [sample]}))
    outcome = cli("evaluate", "log.json", "--judge", "look:length", "--json")
    assert [text["text"] for text in outcome.rows[0]["candidates"]] == ["Seven."]
