"""`textevolve compare`: prompts and models on rows, from the command line to the conclusion."""

import json
import math
import re

import pytest

import flat_verbs
import textevolve
from textevolve.bench.variants import compare_variants
from textevolve.evaluation import Case, EvaluationResult
from textevolve.llm.testing import Answer
from textevolve.report.blocks import Matrix
from textevolve.studies.compare import report, summarise
from textevolve.studies.compare_cells import Output
from textevolve.studies.compare_rows import take_rows
from textevolve.studies.compare_spec import CompareSpec

CAREFUL = "exactly"


def sums(body, number):
    """Right under the careful prompt, and for every third row under the other."""
    content = body["messages"][-1]["content"]
    if body.get("max_tokens") == 1:
        return Answer(yes=0.9)
    if "response_format" in body:
        return None
    n = int(re.search(r"What is (\d+)", content)[1])
    if n == 13:
        return ""
    right = CAREFUL in content or n % 3 == 0
    return str(2 * n) if right else f"about {2 * n}"


@pytest.fixture
def files(home, server):
    server.script = sums
    (home / "short.txt").write_text("What is {n} and {n} more?")
    (home / "careful.txt").write_text("What is {n} and {n} more, exactly?")
    rows = "".join(f"{n},{2 * n},{2 * n + n % 2}\n" for n in range(40))
    (home / "rows.csv").write_text("n,sum,old\n" + rows)
    return home


def command(model, *more):
    prompts = ("-p", "short.txt", "-p", "careful.txt")
    return ("compare", *prompts, "-m", model, "-d", "rows.csv", "--label", "sum", *more)


@pytest.fixture
def few(files):
    """Three rows, of which the short prompt gets the first right."""
    (files / "rows.csv").write_text("n,sum\n0,0\n1,2\n2,4\n")
    return files


EXACT = ("--metric", "exact")


def means(found):
    return {v["variant"]: v["mean"]["value"] for v in found["variants"]}


def test_the_better_prompt_is_found_shown_and_written(cli, files, model):
    outputs = [o for name in ("m.csv", "m.json", "m.html", "m.md") for o in ("-o", name)]
    outcome = cli(*command(model, *EXACT, *outputs))
    assert outcome.code == 3  # two outputs are empty
    assert "14|careful lacks a score: the output was empty" in outcome.err
    answer = " ".join(outcome.out.split())
    assert "careful beats short by 64.1 points (95 % 47.4 to 80.0, 39 rows)." in answer
    payload = json.loads((files / "m.json").read_text())
    assert payload["failed"] == 2
    assert means(payload) == pytest.approx({"short": 14 / 39, "careful": 1})
    assert (files / "m.csv").read_text().count("the output was empty") == 2
    page = (files / "m.html").read_text()
    assert "Compared with short" in page
    assert "What is 39 and 39 more?" in page
    assert "| variant |" in (files / "m.md").read_text()


def test_rows_without_a_value_of_a_prompt_are_counted(caplog):
    prompt = {"name": "p", "text": "{q} {hint}"}
    rows = [{"q": "a", "hint": "b"}, {"q": "c"}, {"q": "d", "hint": None}]
    spec = CompareSpec(prompts=[prompt], models=["http://127.0.0.1:9/v1#m"])
    assert len(list(take_rows(spec, rows, {}))) == 3
    assert "no value for {hint} in 2 of 3 rows, first in row 2" in caplog.text


def test_an_empty_prompt_fails_its_own_column_alone(cli, few, server, model):
    (few / "short.txt").write_text(" \n")  # the baseline, whose prompt judges would see
    outcome = cli(*command(model, "--judge", "probe", "-o", "m.md"))
    assert outcome.code == 3
    assert "the prompt short is empty" in (few / "m.md").read_text()
    assert "**careful** | 100.0 % " in (few / "m.md").read_text()
    assert "passed (score ≥ 0.5)" in (few / "m.md").read_text()
    (few / "careful.txt").write_text("")
    before = server.calls
    refused = cli(*command(model, "--judge", "probe"))
    assert (refused.code, server.calls) == (2, before)
    assert "prompt short: is blank" in refused.err


def test_a_changed_prompt_asks_its_own_column_only(cli, few, server, model):
    both = (*EXACT, "--judge", "probe", "--input", "n")
    cli(*command(model, *both))
    before = server.calls
    (few / "careful.txt").write_text("What is {n} and {n} more, quite exactly?")
    cli(*command(model, *both))
    assert server.calls - before == 3  # the same outputs are known to the judge already


def test_a_judge_sees_the_baselines_prompt(cli, few, server, model):
    outcome = cli(*command(model, "--judge", "probe", "--json"))
    assert means(json.loads(outcome.out))["careful"] == pytest.approx(0.9)
    judged = [b for b in server.requests if b.get("max_tokens") == 1]
    assert judged
    assert not any(f"more, {CAREFUL}" in json.dumps(body) for body in judged)
    cli(*command(model, "--judge", "probe", "--baseline", "careful"))
    assert f"more, {CAREFUL}" in json.dumps(server.requests[-1])


def test_each_judge_and_metric_is_a_column_and_one_decides(cli, few, model):
    several = ("--metric", "exact", "--metric", "regex:{label}", "--judge", "probe", "--json")
    payload = json.loads(cli(*command(model, *several, "-o", "m.csv")).out)
    short = payload["variants"][0]
    scorers = {name: figure["value"] for name, figure in short["scorers"].items()}
    assert scorers == pytest.approx({"exact": 1 / 3, "regex:{label}": 1, "probe": 0.9})
    assert payload["decides"] == "exact"
    header = (few / "m.csv").read_text().splitlines()[0]
    assert "scores.exact,scores.regex:{label},scores.probe" in header
    by_pattern = cli(*command(model, *several, "--score-by", "regex:{label}"))
    assert means(json.loads(by_pattern.out)) == {"short": 1, "careful": 1}


def test_a_finished_run_is_resumed_as_it_is_stored(cli, few):
    count = "open('calls', 'a') as file:\n        file.write('x')\n    return 1.0\n"
    (few / "own.py").write_text(f"def score(text):\n    with {count}")
    outputs = ("--outputs", "sum", "--outputs", "n")
    outcome = cli("compare", "-d", "rows.csv", *outputs, "--metric", "own.py:score")
    resumed = cli("runs", "resume")
    assert (outcome.code, resumed.code, resumed.out) == (0, 0, outcome.out)
    assert (few / "calls").read_text() == "xxxxxx"
    assert "6 of 6 done" in resumed.err


def test_a_difference_of_scores_stays_within_their_scale():
    scores = {"a": {"1": 0.0, "2": 1.0}, "b": {"1": 1.0, "2": 1.0}}
    paired_difference = compare_variants(scores, "a")["b"]
    assert (paired_difference.low, paired_difference.high) == (
        None,
        None,
    )  # no test tells anything of two rows


def test_a_judge_that_fails_leaves_the_score_of_who_decides(cli, few, server, model):
    def script(body, number):
        return "neither" if body.get("max_tokens") == 1 else sums(body, number)

    server.script = script
    payload = json.loads(cli(*command(model, *EXACT, "--judge", "probe", "--json")).out)
    assert means(payload)["careful"] == 1
    assert [v["missing"]["probe"] for v in payload["variants"]] == [3, 3]
    by_judge = cli(*command(model, *EXACT, "--judge", "probe", "--score-by", "probe", "--json"))
    assert by_judge.code == 3
    assert json.loads(by_judge.out)["failed"] == 6


def test_side_by_side_a_row_is_one_comparison(cli, files, server, model):
    def script(body, number):
        if body.get("max_tokens") != 1:
            return sums(body, number)
        first, second = re.findall(r"response\b[^\n]*\n(.*)\n", body["messages"][-1]["content"])[:2]
        return Answer(yes=0.5 + 0.4 * (("about" in second) - ("about" in first)))

    server.script = script
    outcome = cli(*command(model, "--side-by-side", "--judge", "pairwise", "--json"))
    payload = json.loads(outcome.out)
    assert payload["differences"]["careful"]["difference"] > 0
    judged = [body for body in server.requests if body.get("max_tokens") == 1]
    assert len(judged) % 2 == 0  # both orders


def test_side_by_side_a_debate_has_all_outputs_as_candidates(cli, files, server, model):
    (files / "rows.csv").write_text("n,sum\n1,2\n3,6\n13,26\n")
    judges = ("--judge", "single", "--judge", "probe", "--side-by-side", "--json")
    outcome = cli(*command(model, *judges))
    debates = [b["messages"][-1]["content"] for b in server.requests if "response_format" in b]
    assert len(debates) == 2  # of the third row neither variant has an output
    assert all("Response 1" in debate and "Response 2" in debate for debate in debates)
    assert json.loads(outcome.out)["failed"] == 2


def test_from_python_with_metrics_and_judges_of_ones_own(files, model):
    def close(output, label):
        return str(label) in output

    async def brief(case: Case):
        return EvaluationResult(score=1 / len(case.candidates[0]), passed=True, feedback="brief")

    rows = [{"n": n, "sum": 2 * n} for n in range(6)]
    prompts = {"short": "What is {n} and {n} more?", "careful": "What is {n}, exactly?"}
    arguments = {"models": model, "label": "sum", "metric": [close, "exact"], "judge": brief}
    comparison = flat_verbs.compare(rows, prompts, **arguments)
    assert comparison.rows == 6
    assert comparison.variants[0].mean.value == 1
    assert comparison.variants[0].scorers["exact"].value == pytest.approx(2 / 6)
    frame = comparison.to_frame()
    assert len(frame) == 12
    assert all(frame.filter(like="reasons.").eq("brief").any(axis=1))
    assert "careful" in comparison._repr_html_()
    assert flat_verbs.compare(rows, ["short.txt"], **arguments).rows == 6
    frame = frame[["row", "text", "reference", "seconds"]].assign(seconds=math.nan)
    with pytest.raises(textevolve.InputError, match=r"row 1: must be a mapping .*to_dict"):
        flat_verbs.compare(frame, outputs="text", label="reference", metric="exact")
    with pytest.raises(textevolve.InputError, match="row 1: the label column 'seconds' is missing"):
        flat_verbs.compare(
            frame.to_dict("records"), outputs="text", label="seconds", metric="exact"
        )


def test_the_matrix_reads_its_rows_when_it_is_drawn():
    """Ten thousand rows of four variants: nothing of them is kept but figures."""
    read = []

    class Records:
        def __iter__(self):
            for number in range(800):
                read.append(number)
                row, variant = divmod(number, 4)
                yield Output(number, str(row), "abcd"[variant], text="x", score=number % 7 / 7)

    spec = CompareSpec(outputs=tuple("abcd"), metric="regex:x")
    comparison = summarise(spec, Records())
    assert len(read) == 800
    *_, matrix = report(spec, comparison).blocks
    assert isinstance(matrix, Matrix)
    assert len(read) == 800
    first_matrix_row = next(iter(matrix.rows))
    assert len(read) < 810
    assert [entry.output for entry in first_matrix_row.entries] == ["x"] * 4
