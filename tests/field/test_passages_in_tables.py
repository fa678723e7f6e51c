"""A table of DeepEval's columns has its passages as Python prints a list, with a comma and an
apostrophe inside. Right are the passages of the list, each whole, as `ast.literal_eval` gives them,
in the requests of a judge and in the steps that a measured application states."""

import csv

import pytest

from textevolve.trajectory import read_contexts

PASSAGES = ["Leave is paid, for all.", "It's 4 months.", 'The rule says "all".']


@pytest.mark.parametrize("column", ["retrieval_context", "context"])
@pytest.mark.parametrize("output", ["actual_output", "answer"])
def test_each_passage_of_a_printed_list_is_asked_about(home, cli, server, model, output, column):
    with (home / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["input", output, column])
        rows.writerow(["How long is leave?", "It is 4 months.", str(PASSAGES)])

    outcome = cli("evaluate", "rows.csv", "--judge", "context-precision", "-m", model)
    assert outcome.code == 0, outcome.err
    sent = [body["messages"][-1]["content"] for body in server.requests]
    asked = [text.split("Passage:\n> ")[1].split("\n")[0] for text in sent]
    assert sorted(asked) == sorted(PASSAGES)


def test_passages_of_steps_are_read_alike():
    assert read_contexts(str(PASSAGES), "row 1") == tuple(PASSAGES)
