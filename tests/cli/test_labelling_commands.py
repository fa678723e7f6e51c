"""`textevolve labels`, and labels in the place of a file of rows."""

import json
import random

import pytest

from textevolve.labelling.tasks import PersonLabel
from textevolve.store import labelling as stored_labels

ROWS = [
    {"frage": f"What is {n} + {n}?", "gut": f"It is {2 * n}.", "schlecht": f"{2 * n + 1}", "nr": n}
    for n in range(12)
]
MAPPED = ("--map", "input=frage", "--map", "output_1=gut", "--map", "output_2=schlecht")


@pytest.fixture
def rows(home):
    path = home / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    return path


def label_all(resources, name, answers, who="ann"):
    """What a person says of each item; `answers` takes the item."""
    task = resources.read(stored_labels.find_task, "default", name)
    items, _ = resources.read(stored_labels.read_task, task.id)
    for position, item in enumerate(items):
        resources.write(stored_labels.keep_label, task, PersonLabel(position, who, answers(item)))
    return items


def test_a_task_of_rows_is_made_listed_shown_exported_and_deleted(cli, rows, resources, home):
    assert "no labelling tasks" in cli("labels", "list").out
    outcome = cli("labels", "create", "mine", rows, *MAPPED)
    assert "made default/mine: 12 pairs to label" in outcome.out
    assert "left out: 1 column: nothing reads nr" in outcome.err
    assert "Nobody has labelled anything yet" in cli("labels", "show", "mine").out
    label_all(resources, "mine", lambda item: "first")
    label_all(resources, "mine", lambda item: "tie" if item.place == 0 else "first", "bob")
    assert "mine: pairs, 12 to label; ann 12, bob 12" in cli("labels", "list").out
    output = cli("labels", "show", "mine").out
    assert "people differ on 1 of 12 items" in output
    assert "Disputed: 1" in output
    (message,) = cli("labels", "show", "mine", "--json").rows
    assert (message["shared"], message["disputed"]) == (12, [0])
    cli("labels", "export", "mine", "-o", "labels.csv")
    assert "It is 0." in (home / "labels.csv").read_text()
    found_rows = cli("labels", "export", "mine").rows
    assert [one["scores"] for one in found_rows[:2]] == [[0.75, 0.25], [1.0, 0.0]]
    assert cli("labels", "delete", "mine", stdin=b"n\n").code == 1
    assert "deleted" in cli("labels", "delete", "mine", "--yes").out
    assert "no labelling task 'mine'" in cli("labels", "show", "mine").err


def test_labels_are_what_a_judge_is_measured_on(cli, rows, resources, server, model):
    cli("labels", "create", "mine", rows, *MAPPED)
    rng = random.Random(1)
    label_all(resources, "mine", lambda item: rng.choice(["first", "second", "tie"]))
    outcome = cli("bench", "agreement", "labelling:mine", "--judge", "probe", "-m", model, "--json")
    assert outcome.code == 0, outcome.err
    (found,) = outcome.rows
    assert found["summary"]["labelled"] == 12
    assert found["summary"]["judges"][0]["covered"] == 12
