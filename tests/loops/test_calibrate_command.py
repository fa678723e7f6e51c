"""`textevolve calibrate` and its Python form as they are used, on the scripted server."""

import json
import re

import pytest

from textevolve.llm.testing import Answer
from textevolve.studies.calibrate import CalibrateSpec, compare_scores, material_of, read_cases

TEMPLATE = 'What is {n} and {n} more? As JSON: {"sum": 0}\n'
HELPS, IDLE = "Add carefully.", "Be friendly <b>always</b>."
SMALL = ("--strategy", "protegi", "--beam", 2, "--depth", 2, "--successors", 3, "--minibatch", 3)


def part(text, name):
    return re.search(rf"\[\[\w+ {name}\]\]\n(.*?)\n\[\[/", text, re.DOTALL)[1]


class Scripted:
    """Sums are right only where the prompt says what helps; half of the rewrites lose {n} first."""

    def __init__(self, instructions=(IDLE, HELPS)):
        self.instructions = list(instructions)

    def __call__(self, body, number):
        said = body["messages"][-1]["content"]
        if "Write at most" in said:
            return json.dumps({"instructions": self.instructions})
        if said.startswith("That cannot be used") or "You rewrite a prompt" in said:
            first = body["messages"][2]["content"]  # after the example and its answer
            lines = [line.split(". ", 1)[1] for line in part(first, "instructions").splitlines()]
            return json.dumps({"template": "\n".join([part(first, "template"), *lines])})
        if said.startswith("What is"):
            n = int(re.search(r"What is (\d+)", said)[1])
            return str(2 * n) if HELPS in said else f"about {n}"
        if body.get("max_tokens") == 1:
            judged = re.search(r"\nResponse:\n> (.*)\n", said)[1]
            return Answer(yes=0.9 if judged.isdigit() else 0.2)
        return None


@pytest.fixture
def files(home):
    (home / "template.txt").write_text(TEMPLATE)
    rows = [{"n": n, "sum": 2 * n} for n in range(40)]
    (home / "values.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


@pytest.fixture
def scripted(server):
    server.script = Scripted()
    return server


def command(model, *more):
    return ("calibrate", "template.txt", "--data", "values.jsonl", "-m", model, *SMALL, *more)


EXACT = ("--metric", "exact", "--label", "sum")


def test_the_better_template_is_found_shown_and_written(cli, files, scripted, model):
    outputs = ("-o", "best.txt", "-o", "all.json", "-o", "page.html")
    ended = cli(*command(model, *EXACT, *outputs))
    assert ended.code == 0
    assert "The gain is significant" in ended.out
    assert "original" in ended.out
    assert HELPS in ended.out
    assert "round 1: " in ended.err
    best = (files / "best.txt").read_text()
    assert best.startswith(TEMPLATE.strip())
    assert HELPS in best
    found = json.loads((files / "all.json").read_text())
    assert found["accepted"]
    assert found["template"].strip() == best.strip()
    assert found["nodes"][0]["parent"] is None
    assert all(node["parent"] < node["number"] for node in found["nodes"][1:])
    page = (files / "page.html").read_text()
    assert "template 1" in page
    assert "&lt;b&gt;always" in page
    assert "<b>always" not in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--metric", "exact"), "name the column of the label"),
        (("-j", "pairwise"), "cannot be compared"),
    ],
)
def test_bad_input_is_one_line(cli, files, server, model, more, said):
    ended = cli(*command(model, *more))
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert server.calls == 0


def test_comparisons_leave_out_what_is_missing():
    nan = float("nan")
    gain = compare_scores([1.0] * 12 + [nan, 1.0], [0.0] * 12 + [1.0, nan])
    assert (gain.items, gain.rows, gain.difference) == (12, 14, 1.0)
    assert (gain.first_scored, gain.second_scored) == (13, 13)
    assert compare_scores([nan], [nan]).items == 0


def test_values_from_csv_are_filled_in_as_they_stand(home):
    (home / "v.csv").write_text("price,sum\n1.50,a\nnull,b\n1e5,c\n")
    spec = CalibrateSpec(template="What is {price}?", data="v.csv", label="sum")
    material = material_of(spec, read_cases(spec))
    assert {e.values["price"] for e in material.examples} == {"1.50", "null", "1e5"}
