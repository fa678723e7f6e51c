"""A user measures a judge on a published preference set: `chosen` and `rejected` hold whole chats
with the prompt in front, as messages or as one text, with and without a column `prompt`.

Each right value was worked out by reading the row, as a person would: what both share is the input.
"""

import json

import pytest

from textevolve.bench.items import load_items
from textevolve.errors import InputError

QUESTION = {"role": "user", "content": "Name a prime."}
FIRST = {"role": "assistant", "content": "Two."}
AGAIN = {"role": "user", "content": "One more."}
GOOD = {"role": "assistant", "content": "Seven."}
POOR = {"role": "assistant", "content": "Nine."}
HUMAN = "\n\nHuman: Name a prime.\n\nAssistant:"
TWICE = f"{HUMAN} Two.\n\nHuman: One more.\n\nAssistant:"
DIALOGUE = "User: Name a prime.\nAssistant: Two.\nUser: One more."

SETS = {
    "messages with a prompt": (
        {"prompt": "Name a prime.", "chosen": [QUESTION, GOOD], "rejected": [QUESTION, POOR]},
        "Name a prime.",
    ),
    "messages without a prompt": (
        {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, POOR]},
        "Name a prime.",
    ),
    "messages of several turns": (
        {
            "chosen": [QUESTION, FIRST, AGAIN, GOOD],
            "rejected": [QUESTION, FIRST, AGAIN, POOR],
        },
        DIALOGUE,
    ),
    "replies beside a chat as prompt": (
        {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [POOR]},
        "Name a prime.",
    ),
    "a question and a system text": (
        {
            "system": "Be brief.",
            "question": "Name a prime.",
            "chosen": "Seven.",
            "rejected": "Nine.",
        },
        "Name a prime.",
    ),
    "transcripts": ({"chosen": f"{HUMAN} Seven.", "rejected": f"{HUMAN} Nine."}, "Name a prime."),
    "transcripts of several turns": (
        {"chosen": f"{TWICE} Seven.", "rejected": f"{TWICE} Nine."},
        DIALOGUE,
    ),
    "a transcript as prompt": (
        {"prompt": TWICE, "chosen": " Seven.", "rejected": " Nine."},
        DIALOGUE,
    ),
    "texts that begin with the prompt": (
        {
            "prompt": "Name a prime.",
            "chosen": "Name a prime. Seven.",
            "rejected": "Name a prime. Nine.",
        },
        "Name a prime.",
    ),
}


def write(folder, *rows):
    path = folder / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", SETS)
def test_common_beginning_is_the_input(tmp_path, name):
    row, question = SETS[name]
    (item,) = load_items(write(tmp_path, row))
    assert item.input == question
    scores = {text.strip(): human for text, human in zip(item.candidates, item.human, strict=True)}
    assert scores == {"Seven.": 1, "Nine.": 0}


def test_chats_that_differ_earlier(tmp_path):
    other = {"role": "assistant", "content": "Four."}
    row = {"chosen": [QUESTION, FIRST, AGAIN, GOOD], "rejected": [QUESTION, other, AGAIN, POOR]}
    (item,) = load_items(write(tmp_path, row))
    assert item.input == "Name a prime."
    assert set(item.candidates) == {
        "Assistant: Two.\nUser: One more.\nAssistant: Seven.",
        "Assistant: Four.\nUser: One more.\nAssistant: Nine.",
    }


def test_equal_chats_keep_their_last_turn(tmp_path):
    row = {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, GOOD]}
    (item,) = load_items(write(tmp_path, row))
    assert (item.input, item.candidates) == ("Name a prime.", ("Seven.", "Seven."))


def test_several_rejected_texts(tmp_path):
    row = {"prompt": "Name a prime.", "chosen": ["Seven."], "rejected": ["Nine.", "Eight.", "Six."]}
    items = load_items(write(tmp_path, *({**row, "id": number} for number in range(40))))
    for item in items:
        best = item.candidates[item.human.index(1)]
        assert best == "Seven."
        assert sorted(item.candidates) == ["Eight.", "Nine.", "Seven.", "Six."]
    assert len({item.human for item in items}) == 4


def test_empty_reply_is_a_candidate(tmp_path):
    row = {"chosen": f"{HUMAN} ", "rejected": f"{HUMAN} Nine."}
    (item,) = load_items(write(tmp_path, row))
    assert (item.input, set(item.candidates)) == ("Name a prime.", {"", "Nine."})


def test_texts_without_an_input_are_refused(tmp_path):
    path = write(tmp_path, {"chosen": "Seven.", "rejected": "Nine.", "source": "x"})
    with pytest.raises(InputError, match=r"--map prompt=COLUMN; saw chosen, rejected, source"):
        load_items(path)
