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


JUDGES = """
def truth(output):
    return int(output.split()[-1]) % 4 == 0


def half(output):
    return int(output.split()[-1]) % 2 == 0
"""
TWO = ("-j", "metric:mine.py:truth", "-j", "metric:mine.py:half")


@pytest.fixture
def judged(cli, home):
    """A run of two judges on 80 texts: both pass each fourth text, one passes each second."""
    (home / "mine.py").write_text(JUDGES)
    lines = [json.dumps({"input": f"q{n}", "output": f"answer {n}"}) for n in range(80)]
    (home / "answers.jsonl").write_text("\n".join(lines))
    outcome = cli("evaluate", "answers.jsonl", *TWO, "--name", "judged")
    assert outcome.code == 0, outcome.err


def test_each_text_of_a_run_of_two_judges_is_labelled_once(cli, judged):
    assert "80 texts to label" in cli("labels", "create", "all", "--run", "judged").out


def test_items_are_drawn_by_verdicts_and_agreement_is_that_of_all(cli, judged, resources, home):
    draw = ("--run", "judged", "--draw", "judges", "--sample")
    assert "20 texts to label" in cli("labels", "create", "first", *draw, 20).out

    # People fail each third text that only one judge passes, and say what the other says elsewhere.
    def answer(item):
        number = int(item.texts[0].split()[-1])
        return str(int(number % 4 == 0 or (number % 4 == 2 and number % 3 > 0)))

    items = label_all(resources, "first", answer)
    assert sorted({item.stratum for item in items}) == [("ff", 40), ("fp", 20), ("pp", 20)]
    assert [item.stratum[0] for item in items].count("ff") == 10

    outcome = cli("labels", "create", "more", *draw, 30, "--after", "first")
    assert "30 texts to label" in outcome.out, outcome.err
    further = label_all(resources, "more", answer)
    names = {item.texts for item in items}
    assert not any(item.texts in names for item in further)
    doubtful = [item for item in [*items, *further] if item.stratum[0] == "fp"]
    assert len(doubtful) in (12, 13)  # a quarter of 50

    both = ("labelling:first", "labelling:more")
    outcome = cli("bench", "agreement", *both, *TWO, "--json")
    assert outcome.code == 0, outcome.err
    (data,) = outcome.rows
    by_name = {judge["name"]: judge for judge in data["summary"]["judges"]}
    # The doubtful texts are a quarter of all, and all others are as both judges say.
    passed = sum(answer(item) == "1" for item in doubtful) / len(doubtful)
    accuracy = by_name["metric:mine.py:truth"]["accuracy"]["value"]
    assert accuracy == pytest.approx(1 - passed / 4)
    assert by_name["metric:mine.py:half"]["accuracy"]["value"] == pytest.approx(0.75 + passed / 4)
    assert data["summary"]["people"]["passed"] == pytest.approx(0.25 + passed / 4)
    text = cli("bench", "agreement", *both, *TWO).out
    assert "in 3 strata of 80 items" in " ".join(text.split())

    cli("labels", "export", "more", "-o", "more.csv")
    lines = [json.dumps({"input": "q", "output": "answer 3", "human": 1, "id": "x"})]
    (home / "plain.jsonl").write_text("\n".join(lines))
    mixed = cli("bench", "agreement", "more.csv", "plain.jsonl", *TWO)
    assert "were not drawn from the same strata" in mixed.err
