"""A small model notes what nobody said: guesses that the user denied, questions of the assistant, a
word such as Done. And it misses turns: these are kept as they were said, so that recall finds them.

What the user said is the right value.
"""

import json
from contextlib import closing

import numpy as np
import pytest

from textevolve.agents.resources import CollectionSpec
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.verdicts import Deciding
from textevolve.memory.creation import KEPT_TURN, create_memories
from textevolve.memory.extraction import CreationSettings, extract_points
from textevolve.memory.record import ChangeSource, DialogueTurn
from textevolve.store import kinds
from textevolve.store.repository import Store

VECTOR = np.ones(8, dtype=np.float32) / 8**0.5


def turns_of(texts):
    return [DialogueTurn(*text.split(": ", 1), "2026-03-05") for text in texts]


async def points_of(texts, *facts, **settings):
    """Return the points of a dialogue. `facts`: what the model notes, each with its turn."""
    kept = {"status": "true", "importance": 5, "since": ""}
    answer = json.dumps({"facts": [{"fact": fact, "turn": turn, **kept} for fact, turn in facts]})
    async with ScriptedServer(lambda *_: answer) as server, OpenAIClient(server.url, "m") as model:
        return await extract_points(model, turns_of(texts), CreationSettings(**settings), 0)


@pytest.mark.parametrize(
    ("guess", "reply", "fact", "reason"),
    [
        ("I guess you like skiing?", "Not at all!", "The user likes skiing.", "not so"),
        ("You have a dog, too?", "Haha, no way, Momo hates them.", "The user has a dog.", "not so"),
        ("I bet you love metal.", "Wrong, I play jazz.", "The user loves metal.", "not so"),
        ("Sie segeln sicher gern?", "Nein, nie.", "Die Nutzerin segelt gern.", "not so"),
        ("Are you a teacher?", "What is for dinner?", "The user is a teacher.", "nobody says it"),
        ("Is she your only child?", "No, there is Pavel.", "Lida is the only child.", "not so"),
    ],
)
async def test_guesses_are_no_facts(guess, reply, fact, reason):
    for turn in (1, 2):  # whichever turn the model names
        points = await points_of([f"assistant: {guess}", f"user: {reply}"], (fact, turn))
        assert reason in points[0].refused


@pytest.mark.parametrize(
    ("question", "reply", "fact"),
    [
        ("Do you like skiing?", "Yes, very much!", "The user likes skiing."),
        ("Do you have children?", "No, none.", "The user has no children."),
        ("Haben Sie Kinder?", "Ja.", "Der Nutzer hat Kinder."),
        ("Which town do you live in?", "In Graz.", "The user lives in Graz."),
        ("You moved for a job?", "No, I moved for love.", "The user moved for love."),
    ],
)
async def test_answers_are_facts(question, reply, fact):
    (point,) = await points_of([f"assistant: {question}", f"user: {reply}"], (fact, 2))
    assert not point.refused


async def test_answers_to_questions_are_no_facts():
    """General knowledge is the assistant's; what the user spoke of may be kept."""
    texts = ["user: Lida starts school. Which river is longest?", "assistant: The Volga, 3,500 km."]
    (_, point) = await points_of(texts, ("The Volga has 3,500 km.", 2))
    assert "answer of the assistant" in point.refused
    rice = ["user: Hello! How long has rice to cook?", "assistant: White rice takes 15 minutes."]
    points = await points_of(rice, ("White rice takes 15 minutes.", 2))
    assert "answer of the assistant" in points[-1].refused
    booked = ["user: When does my flight leave?", "assistant: Your flight leaves at 9:40."]
    (point,) = await points_of(booked, ("The user's flight leaves at 9:40.", 2))
    assert not point.refused


@pytest.mark.parametrize(
    ("said", "fact", "text"),
    [
        ("user: I drive a tram.", "I drive a tram.", "Nora said: “I drive a tram.”"),
        (
            "user: Meine Katze heißt Momo.",
            "Meine Katze ist Momo.",
            "Nora said: “Meine Katze ist Momo.”",
        ),
        ("user: I drive a tram.", "Nora drives a tram.", "Nora drives a tram."),
        ("user: I drive a tram.", "Nora: I drive a tram.", "Nora said: “I drive a tram.”"),
        ("user: Petra sings. How?", "Petra sings. Do you sing?", "Petra sings."),
        ("user: Petra drives a tram.", "User: Petra drives a tram.", "Petra drives a tram."),
        ("user: My US visa is here.", "Nora has a US visa.", "Nora has a US visa."),
    ],
)
async def test_first_persons_are_quoted(said, fact, text):
    (point,) = await points_of([said], (fact, 1), about="Nora")
    assert point.text == text


@pytest.mark.parametrize("text", ["Done.", "Perfect!", "I knew it."])
async def test_single_words_are_refused(text):
    points = await points_of([f"user: {text}"], (text, 1))
    assert points[0].refused


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("The user's cat is Momo.", "Nora's cat is Momo."),
        ("Momo is the user's cat.", "Momo is Nora's cat."),
        ("User has a cat named Momo.", "Nora has a cat named Momo."),
        ("Der Benutzer hat die Katze Momo.", "Nora hat die Katze Momo."),
        ("L'utilisatrice a un chat, Momo.", "Nora a un chat, Momo."),
    ],
)
async def test_facts_name_the_person(fact, text):
    (point,) = await points_of(["user: My cat is Momo."], (fact, 1), about="Nora")
    assert point.text == text


CHAT = (
    "user: I moved to Graz.",
    "assistant: Welcome! Shall I look for rooms with a balcony?",
    "user: My sister Petra keeps bees on the roof since last month.",
    "tool: Rooms with balconies in Graz cost 900 euros a month.",
    "user: Thanks a lot! Which one is near the old station?",
)


async def test_unread_turns_are_kept():
    points = await points_of(CHAT, ("Nora moved to Graz.", 1), about="Nora")
    assert [point.text for point in points] == [
        "Nora moved to Graz.",
        "Nora said: “My sister Petra keeps bees on the roof since last month (2026-02).”",
    ]


async def test_focus_keeps_no_turns():
    points = await points_of(CHAT, ("Nora moved to Graz.", 1), about="Nora", focus="homes")
    assert len(points) == 1


async def test_kept_turns_stay_themselves(tmp_path):
    """A later fact replaces no turn, a repeated turn is kept once, and what was extracted contains
    none."""

    def answer(body, _number):
        if "Note the facts" not in body["messages"][1]["content"]:
            return Answer(yes=0.99)
        facts = [{"turn": 3, "fact": "Petra keeps hens.", "status": "true", "importance": 5}]
        return json.dumps({"facts": facts if "hens" in json.dumps(body) else []})

    async def embed(_collection, _text):
        return VECTOR

    with closing(Store(tmp_path / "store.db")) as opened:
        opened.write(kinds.ensure_namespace, "home")
        spec = CollectionSpec(name="notes", embedder="t/e", dimension=len(VECTOR))
        opened.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        store = opened.memories("home")
        made = []
        for chat in (
            CHAT[2:3],
            [CHAT[1], CHAT[2]],
            [*CHAT[1:2], "user: Fine.", "user: Petra keeps hens."],
        ):
            async with ScriptedServer(answer) as server, OpenAIClient(server.url, "m") as model:
                chat_turns = turns_of(chat)
                source = ChangeSource("", "chat")
                deciding = Deciding(model, None)
                settings = CreationSettings()
                made += [
                    await create_memories(
                        store, embed, deciding, "notes", chat_turns, settings, source
                    )
                ]
        records = await store.page("notes")

    assert [made_memories.texts for made_memories in made] == [(), (), ("Petra keeps hens.",)]
    assert [(record.reason == KEPT_TURN, record.importance) for record in records] == [
        (True, 0.1),
        (False, 0.5),
    ]
