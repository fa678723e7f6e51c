"""A dialogue's times stand in the zone of its speaker, or in a form of the speaker's country: the
fact has the speaker's own day, and a time that cannot be read is refused, with its place."""

import json

import pytest

from textevolve.errors import InputError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer
from textevolve.memory.extraction import CreationSettings, extract_points
from textevolve.memory.record import DialogueTurn
from textevolve.studies.memories.create import read_dialogues, take_dialogues
from textevolve.texts.dates import read_moment


async def read_facts(timestamp, text, **fact):
    """Return the point that a model makes of a turn, and the text of the model's request."""
    answer = {"turn": 1, "fact": text, "status": "true", "importance": 5, "since": "", **fact}
    requests = []

    def script(body, _number):
        requests.append(body["messages"][1]["content"])
        return json.dumps({"facts": [answer]})

    turns = [DialogueTurn("user", text, timestamp)]
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "any") as model:
        points = await extract_points(model, turns, CreationSettings(), 0)
    return points[0], requests[0]


@pytest.mark.parametrize(
    "timestamp",
    ["2024-03-05T00:30:00+09:00", "5. März 2024", "March 5th, 2024 9:30 PM PST", "2024年3月5日"],
)
async def test_model_sees_speakers_day(timestamp):
    point, request = await read_facts(timestamp, "The user sold a car yesterday.")
    assert "1 (2024-03-05) User" in request
    assert point.text == "The user sold a car yesterday (2024-03-04)."


async def test_fact_of_today_holds():
    """At half past midnight in Tokyo it is still the day before in UTC."""
    stamp = "2024-03-05T00:30:00+09:00"
    point, _ = await read_facts(stamp, "The user moved to Kobe.", since="2024-03-05")
    assert point.since == read_moment("2024-03-05T00:00:00+09:00").timestamp()


def write(folder, *messages):
    path = folder / "chats.jsonl"
    path.write_text(json.dumps({"messages": list(messages)}) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("value", ["03/04/2024 10:00", "14:30", "soon", {"$date": "2024-03-05"}])
def test_unread_time_is_refused(tmp_path, value):
    message = {"role": "user", "content": "Hello there.", "timestamp": value}
    with pytest.raises(InputError, match=r"chats.jsonl:1: the time of turn 2"):
        list(read_dialogues(write(tmp_path, {"role": "user", "content": "Hi."}, message)))


async def test_unread_time_of_turns():
    with pytest.raises(InputError, match="the time of turn 1: 'soon' is not a date"):
        await read_facts("soon", "The user sold a car.")


def test_times_of_python_objects():
    chat = [{"role": "user", "content": "Hi.", "created_at": read_moment("2024-03-05").timestamp()}]
    (dialogue,) = take_dialogues([{"messages": chat}])
    assert (
        read_moment(dialogue.turns[0].timestamp).timestamp()
        == read_moment("2024-03-05").timestamp()
    )
