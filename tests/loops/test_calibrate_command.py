"""`textevolve calibrate` and its Python form as they are used, on the scripted server."""

import json
import re
import signal

import pytest

from flat_verbs import acalibrate
from textevolve.errors import InputError
from textevolve.llm.testing import Answer
from textevolve.loops.calibration.plan import CalibrationResult
from textevolve.studies.calibrate import (
    CalibrateSpec,
    compare_scores,
    judges_asked,
    material_of,
    read_cases,
)

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


def test_where_nothing_helps_the_original_is_written(cli, files, scripted, model):
    scripted.script = Scripted([IDLE])
    ended = cli(*command(model, *EXACT, "-o", "best.txt", "-o", "page.html"))
    assert ended.code == 0
    assert "the original is kept" in ended.out
    assert (files / "best.txt").read_text() == TEMPLATE


def test_the_same_command_again_asks_nothing(cli, files, scripted, model):
    first = cli(*command(model, *EXACT, "--json"))
    asked = scripted.calls
    second = cli(*command(model, *EXACT, "--json"))
    assert scripted.calls == asked
    one, other = json.loads(first.out), json.loads(second.out)
    assert one.pop("seconds") != other.pop("seconds")
    assert one == other


@pytest.mark.parametrize("calls", [5, 30])
def test_a_budget_stops_it_and_the_same_command_goes_on(cli, files, scripted, model, calls):
    whole = json.loads(cli(*command(model, *EXACT, "--json", "--store", "other.db")).out)
    before = scripted.calls
    short = cli(*command(model, *EXACT, "--json", "--max-calls", calls))
    assert short.code == 3
    found = json.loads(short.out)
    assert (found["stopped"], found["accepted"]) == ("budget", False)
    assert scripted.calls - before == calls
    assert "Go on with: textevolve runs resume" in short.err
    rest = json.loads(cli(*command(model, *EXACT, "--json")).out)
    assert rest["nodes"] == whole["nodes"]
    assert rest["gain"] == whole["gain"]
    assert scripted.calls == 2 * before


def test_a_judge_by_its_spec_and_a_second_one(cli, files, scripted, model):
    ended = cli(*command(model, "-j", "probe", "--second-judge", "probe+seed=1", "--json"))
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found["accepted"]
    assert found["gain"]["difference"] == pytest.approx(0.7, abs=0.01)
    assert found["second"]["difference"] == pytest.approx(0.7, abs=0.01)
    assert found["parameters"]["second_judge"] == "probe+seed=1"


@pytest.mark.slow
def test_a_dry_run_asks_nothing(cli, files, scripted, model):
    ended = cli(*command(model, *EXACT, "--dry-run"))
    assert ended.code == 0
    assert scripted.calls == 0
    assert "13 for training, 27 for validation" in ended.out
    assert "true gain of 0.41 or more is found 8 times in 10. A smaller one" in " ".join(
        ended.out.split()
    )
    rows = json.loads(cli(*command(model, *EXACT, "--dry-run", "--json")).out)
    assert rows["expected"]["calls"]["median"] > 13


@pytest.mark.slow
def test_a_dry_run_of_any_strategy_says_what_can_be_shown(cli, files, scripted, model):
    for strategy in ("auto", "reflect", "demos", "protegi"):
        more = ("--strategy", strategy, "--budget", 60, "--dry-run")
        ended = cli("calibrate", "template.txt", "-d", "values.jsonl", "-m", model, *EXACT, *more)
        said = " ".join(ended.out.split())
        assert "60 calls, of which up to 55% are set aside" in said
        assert "true gain of 0.55 or more is found 8 times in 10" in said
        assert "that takes more budget" in said
    small = cli(*command(model, *EXACT, "--budget", 20, "--dry-run"))
    assert (small.code, small.err.count("\n")) == (2, 1)
    assert "a decision take 24" in small.err
    assert scripted.calls == 0


def test_a_run_warns_where_only_a_large_gain_can_be_shown(cli, files, scripted, model):
    ended = cli(*command(model, *EXACT))
    assert ended.err.count("a true gain of 0.41 or more") == 1
    (files / "values.jsonl").write_text(
        "".join(json.dumps({"n": n, "sum": 2 * n}) + "\n" for n in range(80))
    )
    assert "a true gain of" not in cli(*command(model, *EXACT)).err


class Careless(Scripted):
    """Answers everything twice as badly as it may: each list and each template is asked for again,
    and every new template differs and does better than those before, so that all rounds are run."""

    def __init__(self):
        super().__init__([HELPS, IDLE, "Third."])
        self.made = 0

    def __call__(self, body, number):
        said = body["messages"][-1]["content"]
        rewriting = "You rewrite a prompt" in body["messages"][0]["content"]
        if "Write at most" in body["messages"][0]["content"]:
            return (
                super().__call__({"messages": body["messages"][:1]}, number)
                if (len(body["messages"]) > 1)
                else "no JSON"
            )
        if rewriting and len(body["messages"]) == 3:
            return json.dumps({"template": "without a placeholder"})
        if rewriting:
            self.made += 1
            text = f"What is {{n}} and {{n}} more, in version {self.made}?"
            return json.dumps({"template": text})
        if said.startswith("What is") and "version" in said:
            return "1" * int(re.search(r"version (\d+)", said)[1])
        return super().__call__(body, number)


def longer_is_better(output, label):
    return min(1.0, len(output) / 200)


async def test_python_takes_rows_and_functions(home, scripted, model):
    rows = [{"n": n, "sum": 2 * n} for n in range(40)]
    asked = {"model": model, "label": "sum", "store": home / "python.db", "successors": 2}
    asked["strategy"] = "protegi"
    found = await acalibrate(TEMPLATE, rows, metric=lambda out, y: out == str(y), **asked)
    assert isinstance(found, CalibrationResult)
    assert found.accepted
    calls = scripted.calls
    again = await acalibrate(TEMPLATE, rows[::-1], metric=lambda out, y: out == str(y), **asked)
    assert again.template == found.template
    assert scripted.calls == calls  # whatever the order of the rows


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--metric", "exact"), "name the column of the label"),
        (("--metric", "exact", "--label", "answer"), "no row has the label 'answer'"),
        (("--metric", "exactly"), "no metric 'exactly'"),
        (("-j", "pairwise"), "cannot be compared"),
        (("-j", "nobody"), "no judge 'nobody'"),
        (("-j", "probe", "--second-judge", "probe"), "the second judge is the first"),
        (("--selection", "best"), "selection must be fast or ucb"),
        (("--beam", "0"), "beam must be 1 or more"),
        (("--temperature", "-1"), "temperature must be from 0 to 2"),
        (("--time-limit", "nan"), "time limit must be 0 or more"),
        (("--validation", "1"), "validation must be between 0 and 1"),
        (("-o", "best.docx"), "best.docx"),
        (("--data", "none.jsonl"), "none.jsonl: cannot be read"),
    ],
)
def test_bad_input_is_one_line(cli, files, server, model, more, said):
    ended = cli(*command(model, *more))
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert server.calls == 0


def test_a_template_without_placeholders_is_refused(cli, files, server, model):
    (files / "template.txt").write_text('{"json": {"n": 1}}')
    ended = cli(*command(model, *EXACT))
    assert ended.code == 2
    assert "there can be: {n}, {sum}" in ended.err


@pytest.mark.slow
def test_an_interrupt_shows_what_there_is(files, server, scripted, model, spawn):
    proposals = []

    def stall(body, number):
        """No answer to those who ask for instructions in the second round."""
        proposals.append("Write at most" in body["messages"][-1]["content"])
        return Answer(delay=3600) if sum(proposals) > 1 else answer(body, number)

    answer, scripted.script = scripted.script, stall
    process = spawn(*command(model, *EXACT, "--concurrency", 2))
    for line in process.stderr:
        if line.startswith("round 1: "):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The search was stopped" in out
    assert "Go on with: textevolve runs resume" in err


def test_comparisons_leave_out_what_is_missing():
    nan = float("nan")
    gain = compare_scores([1.0] * 12 + [nan, 1.0], [0.0] * 12 + [1.0, nan])
    assert (gain.items, gain.rows, gain.difference) == (12, 14, 1.0)
    assert (gain.first_scored, gain.second_scored) == (13, 13)
    assert compare_scores([nan], [nan]).items == 0


def test_the_model_of_judges_goes_to_those_that_name_none():
    def judges(**given):
        return judges_asked(CalibrateSpec(template="{n}", **given))

    with pytest.raises(InputError, match="second judge is the first"):
        judges(judge="jury", second_judge="jury", judge_model="local/x")
    assert judges() == ("single", None)
    assert judges(judge="jury", judge_model="a/b") == ("jury@a/b", None)
    assert judges(judge="jury@c/d", judge_model="a/b") == ("jury@c/d", None)


def test_rules_from_a_file_judge_too_and_cost_nothing(cli, files, scripted, model):
    (files / "rules.yaml").write_text("rules:\n  - {kind: must, pattern: '^[0-9]+$'}\n")
    ended = cli(*command(model, "-j", "rules:rules.yaml", "--json"))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["accepted"]
    assert not any(body.get("max_tokens") == 1 for body in scripted.requests)


def test_a_metric_may_be_a_function_in_a_file(cli, files, scripted, model):
    (files / "mine.py").write_text("def right(output, label):\n    return output == str(label)\n")
    ended = cli(*command(model, "--metric", "mine.py:right", "--label", "sum", "--json"))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["accepted"]


def test_values_from_csv_are_filled_in_as_they_stand(home):
    (home / "v.csv").write_text("price,sum\n1.50,a\nnull,b\n1e5,c\n")
    spec = CalibrateSpec(template="What is {price}?", data="v.csv", label="sum")
    material = material_of(spec, read_cases(spec))
    assert {e.values["price"] for e in material.examples} == {"1.50", "null", "1e5"}
