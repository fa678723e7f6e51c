"""The rubrics that are shipped, and metrics in the place of judges."""

import json

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.evaluators import Judges, open_evaluator
from textevolve.judge_specs import (
    check_absolute,
    describe_judge,
    judge_models,
    parse_evaluator,
    read_rubric,
    with_model,
)
from textevolve.judges.criteria import read_criteria
from textevolve.judges.shipped_rubrics import expand_rubric, load_rubric, shipped_rubrics
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer
from textevolve.studies.evaluate import EvaluateSpec

CASE = Case("Name a prime.", ("Seven.", "Nine."), "1", reference="Seven.")


@pytest.mark.parametrize("name", shipped_rubrics())
async def test_every_shipped_rubric_says_its_source_and_can_be_judged_by(name):
    rubric = load_rubric(name)
    said = "\n".join(rubric.about)
    assert "Needs: " in said
    assert "Source: " in said
    assert "<!--" not in rubric.text
    criteria = read_criteria(rubric.text)
    assert 2 <= len(criteria) <= 5
    assert "\n".join(criteria) == rubric.text
    for judge, calls in (("probe", 2), ("checklist", 2 * len(criteria)), ("pairwise", 2)):
        async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
            opened = open_evaluator(
                parse_evaluator(judge), "scripted", lambda _: client, rubric=name
            )
            made = await opened(CASE)
        assert made.coverage == 1
        assert server.calls == calls
        assert criteria[0] in str(server.requests[0])
        assert "Source:" not in str(server.requests)


def test_a_rubric_is_a_name_or_a_text_and_loses_its_comment(tmp_path):
    copied = tmp_path / "mine.md"
    copied.write_text(load_rubric("tone").source.replace("polite, and", "polite, brief, and"))
    text = read_rubric(parse_evaluator(f"checklist+rubric={copied}"))
    assert text == load_rubric("tone").text.replace("polite, and", "polite, brief, and")
    assert read_rubric(parse_evaluator("probe+rubric=tone")) == load_rubric("tone").text
    assert describe_judge("probe+rubric=tone") == {"rubric": load_rubric("tone").text}
    with pytest.raises(InputError, match="did you mean 'tone'"):
        read_rubric(parse_evaluator("probe+rubric=tonne"))
    assert expand_rubric("  It is short. ") == "It is short."
    assert expand_rubric("Is it short? <!-- or not -->") == "Is it short? <!-- or not -->"
    for wrong, said in (
        ("<!-- all -->", "is empty"),
        ("tonne", "did you mean 'tone'"),
        ("x", "there are: compliance"),
    ):
        with pytest.raises(InputError, match=said):
            expand_rubric(wrong)


def test_a_run_keeps_the_text_of_a_rubric_that_it_names():
    spec = EvaluateSpec(judge="probe", rubric="tone", cases=("a", "b"))
    assert spec.rubric == load_rubric("tone").text
    assert EvaluateSpec.model_validate_json(spec.model_dump_json()) == spec
    with pytest.raises(InputError, match="no rubric 'tonne'"):
        EvaluateSpec(judge="probe", rubric="tonne")


# Metrics as judges


def refuse(name):
    raise AssertionError(f"asked for the model {name}")


async def test_a_metric_judges_without_a_model():
    judge = Judges("m", refuse).open("metric:exact")
    made = await judge(CASE)
    assert [(one.score, one.passed) for one in made.result] == [(1, True), (0, False)]
    assert (made.usage.calls, made.coverage) == (0, 1)
    assert judge_models("metric:exact", "m") == ()
    assert with_model("metric:regex:a@b+c", "m") == "metric:regex:a@b+c"
    check_absolute("metric:rouge-l")


async def test_a_threshold_of_the_case_decides_what_passes():
    judge = Judges("m", refuse).open("metric:edit-distance")
    for threshold, passed in ((0.4, True), (0.6, False)):
        case = Case("x", ("abcd",), parameters={"threshold": threshold}, reference="abxy")
        (found,) = (await judge(case)).result
        assert (found.score, found.passed) == (0.5, passed)


async def test_a_metric_of_a_case_without_reference_has_no_score():
    case = Case("x", ("abcd",))
    (found,) = (await Judges("m", refuse).open("metric:exact")(case)).result
    assert isinstance(found, Failure)
    assert "needs the case's reference" in found.reason
    (found,) = (await Judges("m", refuse).open("metric:regex:^[a-d@+]+$")(case)).result
    assert found.score == 1


async def test_rules_may_stand_before_a_metric(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {kind: length, unit: characters, max: 5}\nshare: 0")
    made = await Judges("m", refuse).open(f"hybrid:{rules}:metric:exact")(
        Case("x", ("Seven", "Seventeen"), reference="Seven")
    )
    assert made.result[0].score == 1
    assert not made.result[1].passed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metric", "write metric:NAME"),
        ("metric:", "write metric:NAME"),
        ("metric:exactly", "did you mean 'exact'"),
        ("metric:numeric:x", "tolerance"),
        ("metrics:exact", "did you mean 'metric'"),
    ],
)
def test_a_metric_that_is_not_there_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_evaluator(text)


def test_a_metric_takes_no_rubric():
    with pytest.raises(InputError, match="takes no rubric"):
        Judges("m", refuse).open("metric:exact", "Be kind to all.")


def test_the_file_of_a_metric_makes_a_run_what_it_is(tmp_path):
    schema = tmp_path / "a.json"
    schema.write_text('{"type": "object"}')
    assert describe_judge(f"metric:json-schema:{schema}") == {"metric": '{"type": "object"}'}
    own = tmp_path / "own.py"
    own.write_text("def grade(output, label):\n    return output == label\n")
    assert "def grade" in describe_judge(f"metric:{own}:grade")["metric"]
    assert describe_judge("metric:bleu:char") == {"metric": ""}


def test_outputs_of_a_file_are_scored_on_the_command_line(cli, home):
    rows = [
        {"input": "2 + 2?", "candidates": ["It is 4."], "reference": "4"},
        {"input": "3 + 3?", "candidates": ["It is 7."], "reference": "6"},
        {"input": "4 + 4?", "candidates": ["It is 8."]},
    ]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = cli("evaluate", "rows.jsonl", "--judge", "metric:numeric", "-o", "scores.csv")
    assert ended.code == 3, ended.err
    assert "needs the case's reference" in ended.err
    written = (home / "scores.csv").read_text()
    assert "The last number is 7; 6 was wanted." in written
    assert "needs the case's reference" in written
    assert "only judges with a reference" not in ended.err


def test_rubrics_are_listed_and_copied_on_the_command_line(cli, home):
    listed = cli("judges", "rubrics", "list")
    assert listed.code == 0
    assert all(name in listed.out for name in shipped_rubrics())
    shown = cli("judges", "rubrics", "show", "toxicity")
    assert shown.out == load_rubric("toxicity").source
    refused = cli("evaluate", "a", "b", "--judge", "metric:regex:b", "--rubric", "tone")
    assert refused.code == 2
    assert refused.err == "error: judge metric takes no rubric: it asks no question to replace\n"
    wrong = cli("judges", "rubrics", "show", "toxicty")
    assert wrong.code == 2
    assert "did you mean 'toxicity'" in wrong.err
