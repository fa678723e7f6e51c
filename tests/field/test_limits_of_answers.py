"""A client sends an agent a long history, and sets no limit of the answer."""

import logging
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")

from textevolve.agents.chat import ChatAnswer, HistoryShortened
from textevolve.llm.wire import AnswerPiece
from textevolve.server.openai.served import _answer

SHORTENED = "the oldest 44 messages (the history is shortened)"
CUT = "the end of the answer (cut at 1,024 tokens; max_tokens allows more)"


class LongChat:
    """A chat whose history is too long once, and once more for the model."""

    session = "unkept 1"
    parts = SimpleNamespace(persona=SimpleNamespace(agent="acme/guide"))

    def __init__(self, finish_reason):
        self.finish_reason = finish_reason

    async def say(self, _text):
        yield HistoryShortened(20)
        yield HistoryShortened(44)
        yield AnswerPiece("It was")
        yield ChatAnswer("It was", 2, finish_reason=self.finish_reason)


@pytest.mark.parametrize(
    ("finish_reason", "own_limit", "left_out"),
    [
        ("stop", True, [SHORTENED]),
        ("length", True, [SHORTENED, CUT]),
        ("length", False, [SHORTENED]),  # the client's own limit
    ],
)
async def test_answers_say_what_is_cut(finish_reason, own_limit, left_out, caplog):
    chat = LongChat(finish_reason)
    with caplog.at_level(logging.WARNING, "textevolve.server"):
        *_, end = [piece async for piece in _answer(chat, "And then?", own_limit=own_limit)]
    assert end.finish_reason == finish_reason
    assert end.metadata == {"left_out": ", ".join(left_out)}
    assert caplog.messages == [f"acme/guide left out: {part}" for part in left_out]
