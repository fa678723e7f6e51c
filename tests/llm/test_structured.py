"""What is read out of an answer's text, and what is asked again because it would be a guess."""

import json
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from textevolve.errors import AnswerError
from textevolve.evaluation import Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.structured import (
    SHOWN_AGAIN,
    UnusableAnswer,
    answer_schema,
    ask_structured,
    read_answer,
)
from textevolve.llm.testing import Answer, ScriptedServer


class Marks(BaseModel):
    model_config = ConfigDict(extra="forbid")

    score: int
    sure: bool


class Judged(BaseModel):
    model_config = ConfigDict(extra="forbid")

    argument: str = ""
    first: Marks = Field(alias="Response 1")
    kind: Literal["a", "b"] = "a"


def said(score=8, sure="true", argument="ok"):
    return f'{{"argument": "{argument}", "Response 1": {{"score": {score}, "sure": {sure}}}}}'


def read(text):
    value, parse_mode = read_answer(Response(text, "stop", Usage(1)), Judged)
    return value.first.score, parse_mode


WHOLE = said()
CLEAR = {
    "plain": (WHOLE, "strict"),
    "fence": (f"```json\n{WHOLE}\n```", "tolerant"),
    "prose": (f"Here it is: {WHOLE} Anything else?", "tolerant"),
    "braces in prose": (f"Of {{x}} and {{}} I say {WHOLE}, and {{x}} again", "tolerant"),
    "the same object twice": (f"Draft: {WHOLE}\nFinal: {WHOLE}", "tolerant"),
    "thoughts": (f'<think>a draft: {said(3)} and {{"x": 1,}}</think>\n{WHOLE}', "tolerant"),
    "JSON in a text": (said(argument=r"{\"score\": 3}"), "strict"),
}


@pytest.mark.parametrize("around", ["{}", "Here it is: {}", "{},"])
def test_half_a_surrogate_pair_is_a_replacement_character(around):
    text = around.format(said(argument=r"nice \ud83d, \ud83d\ude00"))
    value, _ = read_answer(Response(text, "stop", Usage(1)), Judged)
    assert value.argument == "nice \ufffd, 😀"


@pytest.mark.parametrize("name", CLEAR)
def test_what_is_clear_is_read(name):
    text, parse_mode = CLEAR[name]
    assert read(text) == (8, parse_mode)


TWO_SCORES = said('8, "score": 0')
TWICE = '"Response 1": {"score": 0, "sure": true}'
UNCLEAR = {
    "a key twice": (f"{WHOLE[:-1]}, {TWICE}}}", "'Response 1' is there more than once"),
    "a key twice inside": (TWO_SCORES, "'score' is there more than once"),
    "twice in prose": (f"So: {TWO_SCORES}.", "'score' is there more than once"),
    "draft and final": (f"Draft: {said(3)} Final: {WHOLE}", "more than one JSON object"),
    "draft after": (f"{WHOLE} or rather {said(3)}", "more than one JSON object"),
    "broken final": (f"{WHOLE} Final: {said(3)[:-1]},}}", "more than one JSON object"),
    "two after thoughts": (f"<think>hm</think>{said(3)}{WHOLE}", "more than one JSON object"),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_there_twice_is_not_chosen_from(name):
    text, reason = UNCLEAR[name]
    with pytest.raises(AnswerError, match=reason):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("}}", ",},}"),
        "{argument: 'ok', 'Response 1': {score: 8, sure: True}}",
        said("8 9"),
        said("~8"),
        said(argument='he said "no"'),
    ],
)
def test_broken_json_is_never_guessed(text):
    with pytest.raises(AnswerError, match="the answer is not valid JSON"):
        read(text)


def test_what_is_cut_or_empty_or_nothing_is_told():
    for text, reason in (
        (WHOLE[:-1], "the JSON object is not closed"),
        (WHOLE[:20], "no closed JSON object"),
        ("no JSON", "no closed JSON object"),
        ("{}", "Response 1 is missing"),
        ("[" * 100_000, "no closed JSON object"),
        ('{"a":' * 100_000 + "}" * 100_000, "JSON"),
        (said("1" * 5000), "JSON|score"),
    ):
        with pytest.raises(AnswerError, match=reason):
            read(text)


async def ask(*answers):
    async with (
        ScriptedServer(lambda _body, number: answers[number - 1]) as server,
        OpenAIClient(server.url, "scripted") as client,
    ):
        structured = await ask_structured(
            client,
            Request(messages=(Message("user", ("Judge.",)),), temperature=0, max_tokens=99),
            Judged,
        )
        return structured, list(server.requests)


async def test_what_is_ambiguous_is_asked_again_once_with_the_reason():
    answer, requests = await ask(f"{said(3)} {WHOLE}", WHOLE)
    assert (answer.value.first.score, answer.parse_mode) == (8, "asked-again")
    assert "more than one JSON object" in requests[1]["messages"][-1]["content"]
    with pytest.raises(UnusableAnswer, match=r"more than once.*asked again.*not valid JSON"):
        await ask(TWO_SCORES, said("8 9"))


def test_the_schema_is_followed_whatever_the_order_of_keys():
    data = {"Response 1": {"sure": False, "score": 2}, "kind": "b"}
    assert read(json.dumps(data)) == (2, "strict")


def test_a_schema_has_no_titles_but_fields_of_that_name():
    class Book(BaseModel):
        title: str
        properties: Marks

    schema = json.loads(answer_schema(Book))
    assert "title" not in schema
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Marks"]["properties"]["score"] == {"type": "integer"}
    assert "Response 1" in json.loads(answer_schema(Judged))["properties"]


async def test_a_usable_answer_is_given_with_its_response_and_its_mode():
    answer, (request,) = await ask(said())
    assert (answer.value.first.score, answer.parse_mode) == (8, "strict")
    assert [response.text for response in answer.responses] == [said()]
    schema = request["response_format"]["json_schema"]["schema"]
    assert schema == json.loads(answer_schema(Judged))


@pytest.mark.parametrize(
    ("first", "shown", "reason"),
    [
        ("x" * 3000, "x" * SHOWN_AGAIN, "holds no closed JSON object"),
        ("", "(nothing)", "empty"),
        (Answer(text=said(), finish_reason="length"), said(), "cut at the token limit"),
    ],
)
async def test_the_second_question_shows_the_first_answer_and_its_fault(first, shown, reason):
    answer, requests = await ask(first, said())
    assert (answer.parse_mode, len(answer.responses)) == ("asked-again", 2)
    _, before, again = requests[1]["messages"]
    assert (before["role"], before["content"]) == ("assistant", shown)
    assert reason in again["content"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"Response 1": {"score": 8, "sure": true, "more": 1}}',
            "Response 1 > more was not asked",
        ),
        ('{"Response 1": {"score": 8}}', "Response 1 > sure is missing"),
        ('{"Response 1": {"score": "nine", "sure": true}}', "score: .*integer.* .got 'nine'"),
        ('{"Response 1": {"score": [1], "sure": true}}', "score: .*valid integer$"),
        ("} {", "no closed JSON object"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, reason):
    with pytest.raises(AnswerError, match=reason):
        read(text)


def test_reasoning_that_was_cut_is_told_apart_from_an_answer_that_was():
    with pytest.raises(AnswerError) as exception_info:
        read_answer(Response("", "length", Usage(1), reasoning="I think"), Judged)
    assert "the answer was cut" not in str(exception_info.value)


def test_objects_side_by_side_are_refused():
    """Neither is chosen, even if nothing stands between them."""
    text = '{"score": 1, "sure": true}{"score": 2, "sure": true}'
    with pytest.raises(AnswerError, match="more than one JSON object"):
        read_answer(Response(text, "stop", Usage(1)), Marks)


def test_later_braces_close_nothing():
    with pytest.raises(AnswerError, match="not valid JSON"):
        read_answer(Response('{"score": x}{', "stop", Usage(1)), Marks)


def test_fields_may_be_called_properties():
    class Plot(BaseModel):
        properties: int
        title: int

    assert json.loads(answer_schema(Plot))["properties"] == {
        "properties": {"type": "integer"},
        "title": {"type": "integer"},
    }
