"""`textevolve compare`: prompts and models on rows, from the command line to the conclusion."""

import json
import random
import re

import pytest

from textevolve.bench.variants import compare_variants, say_differences, summarise_variant
from textevolve.llm.testing import Answer

CAREFUL = "exactly"


def sums(body, number):
    """Right under the careful prompt, and for every third row under the other."""
    said = body["messages"][-1]["content"]
    if body.get("max_tokens") == 1:
        return Answer(yes=0.9)
    n = int(re.search(r"What is (\d+)", said)[1])
    if n == 13:
        return ""
    right = CAREFUL in said or n % 3 == 0
    return str(2 * n) if right else f"about {2 * n}"


@pytest.fixture
def files(home, server):
    server.script = sums
    (home / "short.txt").write_text("What is {n} and {n} more?")
    (home / "careful.txt").write_text("What is {n} and {n} more, exactly?")
    (home / "rows.csv").write_text("n,sum\n" + "".join(f"{n},{2 * n}\n" for n in range(40)))
    return home


def command(model, *more):
    prompts = ("-p", "short.txt", "-p", "careful.txt")
    return ("compare", *prompts, "-m", model, "-d", "rows.csv", "--label", "sum", *more)


EXACT = ("--metric", "exact")


def test_the_better_prompt_is_found_shown_and_written(cli, files, model):
    outputs = [o for name in ("m.csv", "m.json", "m.html", "m.md") for o in ("-o", name)]
    ended = cli(*command(model, *EXACT, *outputs))
    assert ended.code == 3  # two outputs are empty
    assert f"careful, {model} beats short, {model}" in " ".join(ended.out.split())
    found = json.loads((files / "m.json").read_text())
    assert found["failed"] == 2
    means = {v["variant"].split(",")[0]: v["mean"] for v in found["variants"]}
    assert means["careful"] == 1
    assert means["short"] == pytest.approx(14 / 39)
    assert (files / "m.csv").read_text().count("the output is empty") == 2
    assert "Beside the baseline" in (files / "m.html").read_text()
    assert "| variant |" in (files / "m.md").read_text()


def test_a_changed_prompt_asks_its_own_column_only(cli, files, server, model):
    cli(*command(model, *EXACT))
    before = server.calls
    (files / "careful.txt").write_text("What is {n} and {n} more, quite exactly?")
    cli(*command(model, *EXACT))
    assert server.calls - before == 40


def test_a_limit_stops_it_and_it_goes_on(cli, files, server, model):
    short = cli(*command(model, *EXACT, "--max-calls", 30))
    assert short.code == 3
    run = re.search(r"runs resume (\S+)", short.err)[1]
    whole = cli("runs", "resume", run, "--json")
    assert server.calls == 80
    assert json.loads(whole.out)["failed"] == 2
    shown = cli("runs", "show", run, "--failed")
    assert "the output is empty" in shown.out
    lowest = cli("runs", "show", run, "--below", "0.5", "--sort", "score", "--json")
    assert {row["score"] for row in lowest.rows} == {0.0}


def test_records_that_are_lost_are_made_again_from_the_journal(cli, files, server, model):
    import sqlite3

    first = json.loads(cli(*command(model, *EXACT, "--json")).out)
    asked = server.calls
    with sqlite3.connect(files / "store.db") as store:
        store.execute("DELETE FROM records")
    again = json.loads(cli("runs", "show", "last", "--json").out)
    assert server.calls == asked
    assert again == first


def test_two_runs_are_compared_case_by_case(cli, files, model):
    cli(*command(model, *EXACT, "--name", "both"))
    cli(*command(model, *EXACT, "--name", "cold", "--temperature", "1"))
    found = json.loads(cli("runs", "compare", "both", "cold", "--json").out)
    assert found["scores"]["items"] == 39
    assert found["scores"]["first"] == found["scores"]["second"]


def test_a_judge_sees_the_baselines_prompt(cli, files, server, model):
    ended = cli(*command(model, "--judge", "probe", "--json"))
    assert json.loads(ended.out)["variants"][1]["mean"] == pytest.approx(0.9)
    judged = [b for b in server.requests if b.get("max_tokens") == 1]
    assert judged
    assert not any(f"more, {CAREFUL}" in json.dumps(body) for body in judged)


def test_a_file_describes_it(cli, files, model):
    (files / "study.yaml").write_text(
        f"kind: compare\nmodels: ['{model}']\ndata: rows.csv\nlabel: sum\nmetric: exact\n"
        "prompts:\n- {name: a, text: 'What is {n} and {n} more?'}\n"
        "- {name: b, text: 'What is {n} and {n} more, exactly?'}\n"
    )
    ended = cli("run", "study.yaml", "--json")
    assert len(json.loads(ended.out)["variants"]) == 2
    dry = cli("run", "study.yaml", "--dry-run", "--json")
    assert json.loads(dry.out)["least"]["calls"] == 80


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--metric", "exactly"), "no metric 'exactly'"),
        (("--judge", "pairwise"), "cannot be compared"),
        (("-p", "short.txt"), "two prompts have the same name"),
        (("--samples", "0"), "samples must be from 1 to 100, not '0'"),
        (("-o", "best.docx"), "best.docx: must end in"),
    ],
)
def test_bad_input_is_one_line(cli, files, server, model, more, said):
    ended = cli(*command(model, *more))
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert server.calls == 0


def test_false_findings_are_as_rare_as_promised():
    """Two variants that do not differ: 'beats' is said in about 5 % of simulations."""
    rng, beats = random.Random(7), 0
    for _ in range(300):
        scores = {v: {str(n): [float(rng.random() < 0.6)] for n in range(40)} for v in ("a", "b")}
        beats += "beats" in say_differences(compare_variants(scores, "a"), "a")
    assert beats <= 300 * 0.05 + 12


def test_intervals_cover_what_they_should():
    rng, covered = random.Random(3), 0
    for _ in range(300):
        scores = {str(n): [rng.gauss(0.5, 0.2)] for n in range(60)}
        found = summarise_variant("a", scores)
        covered += found.low <= 0.5 <= found.high
    assert 0.91 * 300 <= covered <= 0.99 * 300
