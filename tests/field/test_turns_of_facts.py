"""A model names the turn of a fact rightly, and the memory gets another turn's date and speaker.

The fact is in the third person, so few of its words stand in its turn, and a common word of another
turn decided. Where words disagree clearly with the model, they win, and the decision says so.
"""

import json

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer
from textevolve.memory.extraction import CreationSettings, extract_points
from textevolve.memory.record import DialogueTurn
from textevolve.texts.dates import read_moment

DATES = ("2026-01-10", "2026-01-11", "2026-02-20", "2026-02-21", "2026-03-30")


async def point_of(fact, turn, *texts):
    """Return the point that is made of a fact. `texts`: each with its speaker before a colon."""
    dialogue = [
        DialogueTurn(*text.split(": ", 1), date) for text, date in zip(texts, DATES, strict=False)
    ]
    answer = {"turn": turn, "fact": fact, "status": "true", "importance": 5, "since": ""}
    text = json.dumps({"facts": [answer]})

    def script(_body, _number):
        return text

    async with ScriptedServer(script) as server, OpenAIClient(server.url, "any") as model:
        (point,) = await extract_points(model, dialogue, CreationSettings(), 0)
        return point


@pytest.mark.parametrize(
    ("fact", "turn", "texts"),
    [
        (
            "The user goes swimming in the evening.",
            3,
            (
                "user: What can I cook this evening?",
                "assistant: A soup.",
                "user: Fine. Swim training is after work, by the way.",
            ),
        ),
        (
            "The user has no children.",
            3,
            ("user: Hi!", "assistant: Do you have children?", "user: No, none."),
        ),
        (
            "The user gave up the job at the bakery.",
            3,
            (
                "user: What does a job at a bakery pay?",
                "assistant: A job at a bakery pays little.",
                "user: I handed in my notice to the bakery today.",
            ),
        ),
        (
            "The user and Tomas do yoga.",
            3,
            (
                "user: How do I do my taxes?",
                "assistant: How do others do it? Do ask them.",
                "user: Tomas and I do yoga now.",
            ),
        ),
        (
            "Die Nutzerin singt abends im Chor.",
            3,
            (
                "user: Was gibt es am Abend im Kino?",
                "assistant: Am Abend gibt es einen Film.",
                "user: Schade, da singe ich im Chor.",
            ),
        ),
    ],
)
async def test_right_turn_is_kept(fact, turn, texts):
    point = await point_of(fact, turn, *texts)
    assert (point.turn, point.author, point.trust) == (turn, "User", 0.9)
    assert point.since == read_moment(DATES[turn - 1]).timestamp()
    assert point.doubt == ""


@pytest.mark.parametrize(
    ("fact", "turn", "texts", "right"),
    [
        (
            "The user flies to Lima on Friday.",
            1,
            (
                "user: Can you help me?",
                "assistant: Yes.",
                "user: I fly to Lima on Friday.",
            ),
            (3, "User", 0.9),
        ),
        (
            "The user owes the bank 900 euros.",
            1,
            (
                "user: What does the bank say?",
                "tool: The user owes the bank 900 euros.",
            ),
            (2, "Tool", 0.5),
        ),
        (
            "The user keeps two dogs.",
            2,
            ("user: I keep two dogs.", "assistant: You keep two dogs, how nice!"),
            (1, "User", 0.9),
        ),
    ],
)
async def test_clear_words_win_openly(fact, turn, texts, right):
    point = await point_of(fact, turn, *texts)
    assert (point.turn, point.author, point.trust) == right
    assert f"the model names turn {turn}" in point.doubt


async def test_unmatched_facts_take_dates():
    """No word of the fact was said, so nobody is its author; its date is that of the turn."""
    texts = ("user: 我上个月搬家了。", "assistant: 好的。", "user: 谢谢。")
    point = await point_of("The user moved last month.", 1, *texts)
    assert (point.turn, point.author, point.trust) == (None, "", 0.6)
    assert point.since == read_moment(DATES[0]).timestamp()
