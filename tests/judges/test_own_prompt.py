"""A judge by a prompt of one's own: what is asked, how answers are read, what is refused."""

import json

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import ROW, Case, EvaluationResult, Failure
from textevolve.judges.judge import parse_judge, read_judge
from textevolve.judges.opening import Judges
from textevolve.judges.own_prompt import read_labels, read_range
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.verdicts import let_decide
from textevolve.settings import Settings

CASE = Case("Name a prime.", ("Seven.",), "1", {ROW: {"level": "easy"}}, reference="7")
LABELS = "+labels=good=1,partly=.5,bad=0"


@pytest.fixture
def grade(tmp_path, monkeypatch):
    """Judge a case by a prompt, and return the result and the server."""
    monkeypatch.chdir(tmp_path)

    async def judge(prompt, *answers, options=LABELS, case=CASE):
        (tmp_path / "grade.md").write_text(prompt)
        script = [
            answer if isinstance(answer, Answer) else Answer(text=answer) for answer in answers
        ]
        async with (
            ScriptedServer(lambda _, call: script[min(call, len(script)) - 1]) as server,
            OpenAIClient(server.url, "scripted") as client,
        ):
            opened = Judges("m", let_decide(lambda _: client, Settings())).open(
                parse_judge(f"prompt:grade.md{options}")
            )
            (result,) = (await opened(case)).result
            return result, server

    return judge


def verdict(label, reason="So it is."):
    return json.dumps({"reason": reason, "label": label})


async def test_a_label_is_a_score(grade):
    prompt = "Grade: {input} / {{ outputs }} / {reference} / {level}"
    result, server = await grade(prompt, verdict("partly"))
    assert (result.score, result.passed, result.feedback) == (0.5, True, "partly: So it is.")
    assert result.metadata["label"] == "partly"
    (request,) = server.requests
    text = request["messages"][0]["content"]
    assert text.startswith("Grade: Name a prime. / Seven. / 7 / easy\n")
    assert '"good", "partly", "bad"' in text
    assert "good" in json.dumps(request["response_format"])


@pytest.mark.parametrize("label", ["Good", " GOOD. ", '"good"'])
async def test_labels_in_other_letters(grade, label):
    result, server = await grade("{output}", verdict(label))
    assert (result.score, server.calls) == (1, 1)


async def test_a_number_has_its_place(grade):
    for answer, score in ((verdict(4), 0.75), (verdict("1"), 0)):
        result, _ = await grade("{output}", answer, options="+numbers=1-5")
        assert result.score == score


@pytest.mark.parametrize(
    "answer",
    [
        verdict("fine"),
        verdict("good or bad"),
        verdict(""),
        "Score: 5",
        json.dumps({"reason": "x"}),
        Answer(text=""),
        Answer(text=verdict("good"), finish_reason="content_filter"),
    ],
    ids=str,
)
async def test_other_answers_are_missing(grade, answer):
    result, _ = await grade("{output}", answer)
    assert isinstance(result, Failure)


async def test_a_wrong_label_is_asked_again(grade):
    result, server = await grade("{output}", verdict("fine"), verdict("bad"))
    assert (result.score, server.calls) == (0, 2)


async def test_probabilities_of_labels(grade):
    result, server = await grade(
        "{output}", Answer(yes=0.8), options="+labels=good=1,bad=0+logprobs"
    )
    assert isinstance(result, EvaluationResult)
    shares = result.metadata["shares"]
    assert result.score == pytest.approx(shares["good"])
    assert sum(shares.values()) == pytest.approx(1)
    assert "logprobs" in server.requests[0]


async def test_gaps_in_prompts_are_missing(grade):
    for prompt, case in (("{output} {mood}", CASE), ("{output} {context}", CASE)):
        with pytest.raises(InputError, match="the row has no such value"):
            await grade(prompt, verdict("good"), case=case)


async def test_braces_of_json_are_text(grade):
    _, server = await grade('{output}: answer as {"label": "x"} { output }', verdict("good"))
    assert 'answer as {"label": "x"} { output }' in server.requests[0]["messages"][0]["content"]


async def test_prompts_must_show_the_output(grade):
    with pytest.raises(InputError, match=r"does not show \{output\}"):
        await grade("Grade {input}", verdict("good"))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (
            {"prompt": "g.md", "labels": {"good": 1, "partly": 0.5}},
            r'prompt:g.md+labels="{\"good\": 1, \"partly\": 0.5}"',
        ),
        # YAML reads yes and no as truth values.
        (
            {"prompt": "g.md", "labels": {True: 1, False: 0}, "model": "a/b"},
            r'prompt:g.md+labels="{\"yes\": 1, \"no\": 0}"@a/b',
        ),
        (
            {"prompt": "g.md", "numbers": "1-5", "logprobs": True},
            "prompt:g.md+numbers=1-5+logprobs",
        ),
    ],
)
def test_a_judge_in_a_study_file(written, text):
    judge = read_judge(written)
    assert judge.text == text
    assert judge == parse_judge(text)
    assert judge.find_scale()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"labels": {"good": 1}}, "write {prompt: FILE"),
        ({"prompt": "g.md", "lables": {}}, "lables"),
        ({"prompt": "g.md"}, "labels or its numbers"),
        ({"prompt": "", "numbers": "1-5"}, "write {prompt: FILE"),
        ({"prompt": "g.md", "labels": {"a": 1, "b": 0}, "numbers": "1-5"}, "labels or its numbers"),
        ({"prompt": "g.md", "labels": {"a": 1}}, "two or more"),
        ({"prompt": "g.md", "labels": {"a": 1, "A ": 0}}, "two or more different"),
        ({"prompt": "g.md", "labels": {"a": 2, "b": 0}}, "from 0 to 1"),
        ({"prompt": "g.md", "labels": "a,b"}, "not of the form"),
        ({"prompt": "g.md", "numbers": "5-1"}, "a range of whole numbers"),
        ({"prompt": "g.md", "numbers": "0-1000"}, "a range of whole numbers"),
    ],
)
def test_wrong_judges_are_refused(fields, reason):
    with pytest.raises(InputError, match=reason):
        read_judge(fields).check()


def test_labels_and_ranges():
    assert read_labels("very good=1, a = b=0") == {"very good": 1, "a = b": 0}
    assert read_range("1-3") == {"1": 0, "2": 0.5, "3": 1}
