"""Several answers are right, and the reference of a row is a list of them.

Any of the list counts, and the best one gives the score; the right scores are worked out by hand.
"""

import json

import pytest

from textevolve.errors import InputError
from textevolve.metrics.label_metrics import grade, open_metric
from textevolve.rows.columns import list_answers
from textevolve.rows.tables import read_results
from textevolve.studies.rows import read_cases

ANSWERS = ["4", "four"]
FORMS = [ANSWERS, tuple(ANSWERS), json.dumps(ANSWERS), str(ANSWERS), [4, "four"]]


@pytest.mark.parametrize("label", FORMS)
def test_lists_are_answers(label):
    assert list_answers(label) == ("4", "four")


@pytest.mark.parametrize("label", ["[a] or b", "['a'", '{"a": 1}', "[]", '[{"a": 1}]', "4, four"])
def test_other_texts_are_one(label):
    assert list_answers(label) == (label,)


SCORES = {
    "exact": ("four", 1),
    "exact:ignore-case": ("FOUR", 1),
    "contains": ("I say four.", 1),
    "numeric": ("It is 4.", 1),
    "regex:^{label}$": ("four", 1),
    "edit-distance": ("fours", 0.8),
    "rouge-l": ("four", 1),
}


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("label", FORMS)
def test_the_best_answer_counts(metric, label):
    output, score = SCORES[metric]
    assert grade(open_metric(metric), output, label).score == pytest.approx(score)
    assert grade(open_metric(metric), "none", label).score < 0.5


def test_lists_as_outputs_are_compared():
    metric = open_metric("exact")
    assert grade(metric, '["4", "four"]', '["4", "four"]').passed
    assert not grade(metric, "four or 4", ANSWERS).passed


COMPARED = ("compare", "--outputs", "said", "--label", "ideal", "--metric", "exact", "--json")
EVALUATED = ("evaluate", "--judge", "metric:exact", "--map", "output=said", "--json")
CELLS = {
    "lines": ("rows.jsonl", json.dumps({"question": "2+2?", "ideal": ANSWERS, "said": "four"})),
    "JSON cells": ("rows.csv", 'question,ideal,said\n2+2?,"[""4"", ""four""]",four\n'),
    "Python's cells": ("rows.csv", "question,ideal,said\n2+2?,\"['4', 'four']\",four\n"),
}


@pytest.mark.parametrize("form", CELLS)
@pytest.mark.parametrize("command", [COMPARED, EVALUATED])
def test_every_door_takes_lists(cli, home, command, form):
    name, text = CELLS[form]
    (home / name).write_text(text)
    place = ("--data", name) if command is COMPARED else (name,)
    outcome = cli(command[0], *place, *command[1:], "--min-pass-rate", "1")
    assert outcome.code == 0, outcome.err


def test_targets_of_logs_are_lists(cli, home):
    sample = {"id": 1, "epoch": 1, "input": "2+2?", "target": ANSWERS}
    sample |= {"output": {"completion": "four"}}
    document = {"eval": {}, "samples": [sample]}
    assert read_results(document)[0]["reference"] == ANSWERS
    (home / "log.json").write_text(json.dumps(document))
    outcome = cli("evaluate", "log.json", "--judge", "metric:exact", "--min-pass-rate", "1")
    assert outcome.code == 0, outcome.err


OBJECTS = [
    ({"text": ["4"], "answer_start": [0]}, "reference=ideal.text"),
    ([{"text": "4"}], "reference=ideal.0.text"),
]


@pytest.mark.parametrize(("ideal", "path"), OBJECTS)
def test_objects_name_their_path(cli, home, ideal, path):
    row = {"question": "2+2?", "ideal": ideal, "said": "four"}
    (home / "rows.jsonl").write_text(json.dumps(row) + "\n")
    for command in (
        (*EVALUATED, "rows.jsonl"),
        (*COMPARED, "--data", "rows.jsonl"),
    ):
        outcome = cli(*command)
        assert outcome.code == 2
        assert path in outcome.err


def test_the_path_opens_objects(cli, home):
    row = {"question": "2+2?", "answers": {"text": ANSWERS}, "output": "four"}
    (home / "rows.jsonl").write_text(json.dumps(row) + "\n")
    options = ("--map", "reference=answers.text", "--judge", "metric:exact")
    outcome = cli("evaluate", "rows.jsonl", *options, "--min-pass-rate", "1")
    assert outcome.code == 0, outcome.err


def test_exports_keep_the_list(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"input": "2+2?", "output": "4", "reference": ANSWERS}))
    (case,) = read_cases(str(file))
    assert json.loads(case.reference) == ANSWERS


@pytest.mark.parametrize("value", [None, [], ""])
def test_empty_lists_are_missing(tmp_path, value):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"input": "2+2?", "output": "4", "ideal": value}))
    (case,) = read_cases(str(file))
    assert case.reference is None


def test_objects_beside_texts_are_unread(tmp_path):
    file = tmp_path / "rows.jsonl"
    row = {"input": "2+2?", "output": "4", "target": {"a": 1}, "gold": "4"}
    file.write_text(json.dumps(row))
    (case,) = read_cases(str(file))
    assert case.reference == "4"
    file.write_text(json.dumps({"input": "2+2?", "output": "4", "target": {"a": 1}}))
    with pytest.raises(InputError, match=r"reference=target\.a"):
        list(read_cases(str(file)))
