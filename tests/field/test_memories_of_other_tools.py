"""Situations that users of other memory systems reported, in our own words.

A past chat says "last week"; dates of one column flip between day and month; one fact is told again
with other words; the assistant's advice becomes a fact about the user; an extraction is empty.
"""

import json

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer
from textevolve.memory.extraction import CreationSettings, extract_points
from textevolve.memory.record import DialogueTurn
from textevolve.memory.sameness import adds_details, nearly_same
from textevolve.texts.dates import read_moment


async def points_of(stamp, texts, *facts):
    kept = {"status": "true", "importance": 5, "since": ""}
    answer = json.dumps({"facts": [{"turn": turn, "fact": fact, **kept} for turn, fact in facts]})
    turns = [DialogueTurn(*text.split(": ", 1), stamp) for text in texts]
    async with ScriptedServer(lambda *_: answer) as server, OpenAIClient(server.url, "m") as model:
        return await extract_points(model, turns, CreationSettings(about="Mia"), 0)


@pytest.mark.parametrize(
    ("stamp", "said", "fact", "text"),
    [
        (
            "2023-05-24T10:00:00+00:00",
            "I went to Paris last week.",
            "The user went to Paris last week.",
            "Mia went to Paris last week (the week of 2023-05-17).",
        ),
        (
            "2026-02-19T23:30:00+08:00",
            "我明天去上海。",
            "Mia 明天去上海。",
            "Mia 明天 (2026-02-20)去上海。",
        ),
        (
            "2026-06-06T02:36:00+08:00",
            "I was attacked by a dog yesterday.",
            "A dog attacked the user yesterday.",
            "A dog attacked Mia yesterday (2026-06-05).",
        ),
    ],
)
async def test_past_chats_keep_their_dates(stamp, said, fact, text):
    (point,) = await points_of(stamp, [f"user: {said}"], (1, fact))
    assert point.text == text


def test_days_of_one_column_never_flip():
    """13.07. and 12.07. are days of July; with slashes the second has two meanings."""
    moments = [read_moment(text) for text in ("13.07.2022", "12.07.2022", "24/4/2019")]
    assert [(moment.day, moment.month) for moment in moments] == [(13, 7), (12, 7), (24, 4)]
    with pytest.raises(ValueError, match="may be 2019-05-02 or 2019-02-05"):
        read_moment("2/5/2019")


@pytest.mark.parametrize(
    ("new", "known"),
    [
        ("PocketBase backend at localhost:8090", "PocketBase runs on port 8090"),
        ("Running on port 8090: PocketBase", "PocketBase runs on port 8090"),
        (
            "In the summer vacation the user travels with the whole family.",
            "The user plans to travel with their whole family during the summer vacation.",
        ),
    ],
)
def test_other_words_are_no_news(new, known):
    """The model is asked whether the fact is known, and a rule does not add it."""
    assert adds_details(new, known) == "no"


def test_repeated_likings_are_the_same():
    assert nearly_same("The user now likes cats!", "The user likes cats.")


async def test_missed_statements_are_kept():
    texts = ["user: I planted two plum trees behind the shed.", "assistant: Lovely!"]
    (point,) = await points_of("2026-03-05", texts)
    assert point.text == "Mia said: “I planted two plum trees behind the shed.”"


async def test_advice_is_less_trusted():
    """What only the assistant states may be of use, and changes nothing that the user said."""
    texts = ["user: Which shoes?", "assistant: For flat feet the Pegasus fits.", "user: Thanks!"]
    (point,) = await points_of("2026-03-05", texts, (2, "The Pegasus fits flat feet."))
    assert (point.author, point.trust) == ("Assistant", 0.6)
