"""The rubrics that are shipped, and metrics in the place of judges."""

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.judges.judge import parse_judge, require_absolute
from textevolve.judges.opening import Judges
from textevolve.judges.rubric import expand_rubric, load_rubric, read_criteria, shipped_rubrics
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer

CASE = Case("Name a prime.", ("Seven.", "Nine."), "1", reference="Seven.")


@pytest.mark.parametrize("name", shipped_rubrics())
async def test_every_shipped_rubric_says_its_source_and_can_be_judged_by(name):
    rubric = load_rubric(name)
    answer = "\n".join(rubric.about)
    assert "Needs: " in answer
    assert "Source: " in answer
    assert "<!--" not in rubric.text
    criteria = read_criteria(rubric.text)
    assert 2 <= len(criteria) <= 5
    assert "\n".join(criteria) == rubric.text
    for judge, calls in (("probe", 2), ("checklist", 2 * len(criteria)), ("pairwise", 2)):
        async with ScriptedServer() as server, OpenAIClient(server.url, "scripted") as client:
            opened = Judges("scripted", lambda _: client).open(parse_judge(judge), name)
            evaluation = await opened(CASE)
        assert evaluation.coverage == 1
        assert server.calls == calls
        assert criteria[0] in str(server.requests[0])
        assert "Source:" not in str(server.requests)


def test_a_rubric_is_a_name_or_a_text_and_loses_its_comment(tmp_path):
    copied = tmp_path / "mine.md"
    copied.write_text(load_rubric("tone").source.replace("polite, and", "polite, brief, and"))
    text = parse_judge(f"checklist+rubric={copied}").find_rubric()
    assert text == load_rubric("tone").text.replace("polite, and", "polite, brief, and")
    assert parse_judge("probe+rubric=tone").find_rubric() == load_rubric("tone").text
    assert parse_judge("probe+rubric=tone").describe() == {"rubric": load_rubric("tone").text}
    with pytest.raises(InputError, match="did you mean 'tone'"):
        parse_judge("probe+rubric=tonne").find_rubric()
    assert expand_rubric("  It is short. ") == "It is short."
    assert expand_rubric("Is it short? <!-- or not -->") == "Is it short? <!-- or not -->"
    for wrong, answer in (
        ("<!-- all -->", "is empty"),
        ("tonne", "did you mean 'tone'"),
        ("x", "there are: compliance"),
    ):
        with pytest.raises(InputError, match=answer):
            expand_rubric(wrong)


# Metrics as judges


def refuse(name):
    raise AssertionError(f"{name} is asked")


async def test_a_metric_judges_without_a_model():
    judge = Judges("m", refuse).open(parse_judge("metric:exact"))
    evaluation = await judge(CASE)
    assert [(result.score, result.passed) for result in evaluation.result] == [
        (1, True),
        (0, False),
    ]
    assert (evaluation.usage.calls, evaluation.coverage) == (0, 1)
    assert parse_judge("metric:exact").models("m") == ()
    assert parse_judge("metric:regex:a@b+c").with_model("m").text == "metric:regex:a@b+c"
    require_absolute(parse_judge("metric:rouge-l"))


async def test_a_metric_of_a_case_without_reference_has_no_score():
    case = Case("x", ("abcd",))
    (result,) = (await Judges("m", refuse).open(parse_judge("metric:exact"))(case)).result
    assert isinstance(result, Failure)
    assert "needs the case's reference" in result.reason
    (result,) = (
        await Judges("m", refuse).open(parse_judge("metric:regex:^[a-d@+]+$"))(case)
    ).result
    assert result.score == 1
