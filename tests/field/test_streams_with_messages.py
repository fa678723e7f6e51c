"""A gateway streams an answer by deltas and sends the whole message once more in the last chunk."""

import json

import pytest

from textevolve.llm.wire import EventStream, TextSender

CALL = {"index": 0, "id": "a", "function": {"name": "tide", "arguments": '{"at": 4}'}}


def read_stream(*parts):
    """Read chunks with these fields of their only choice; return the message and the told text."""
    pieces = []
    events = EventStream("m", TextSender(lambda piece: pieces.append(piece.text)), lambda raw: raw)
    for number, part in enumerate(parts, 1):
        ending = {"finish_reason": "stop"} if number == len(parts) else {}
        chunk = {"choices": [{"index": 0, **part, **ending}]}
        events.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    events.feed(b"data: [DONE]\n\n")
    return events.completion().choices[0].message, "".join(pieces)


def delta(text):
    return {"delta": {"content": text}}


def message(text, **fields):
    return {"message": {"role": "assistant", "content": text, **fields}}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([delta("At "), delta("4:10."), message("At 4:10.")], "At 4:10."),
        ([delta("At "), delta("4:10"), message("At 4:10. Or so.")], "At 4:10. Or so."),
        ([delta(" At 4:10.\n"), message("At 4:10.")], " At 4:10.\n"),
        ([delta(""), message("At 4:10.")], "At 4:10."),
        ([message("ha"), message("ha"), message("!")], "haha!"),
        ([delta("ha"), delta("ha"), {"delta": {}}], "haha"),
    ],
)
def test_answer_is_read_once(parts, text):
    answer, told = read_stream(*parts)
    assert answer.text == told == text


def test_calls_and_thoughts_once():
    answer, _ = read_stream(
        {"delta": {"reasoning": "Hm."}},
        {"delta": {"tool_calls": [CALL]}},
        message("", reasoning="Hm.", tool_calls=[CALL]),
    )
    assert answer.thoughts == "Hm."
    assert [call.function.arguments for call in answer.tool_calls] == ['{"at": 4}']
