"""Answers told while they are written: pieces, faults of streams, and what is kept of them."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from batch_world import MemoryJournal
from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import Limited
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, Fault
from textevolve.llm.testing.faults import misbehave
from textevolve.llm.wire import AnswerPiece, EventStream, TextSender, ask_streaming
from textevolve.llm.wrappers import Journaled, Retrying
from textevolve.settings import Retries, Timeouts

TEXT = "Über den Bergen,\nsagt das Kind \N{GRINNING FACE}, ist es schön."
HARMLESS = (Fault.STREAM_IGNORED, Fault.STREAM_NO_DONE, Fault.NO_STREAM, "crlf", "no usage")
BROKEN_EVENT = Answer(text=TEXT, packets=lambda events: [*events[:3], b"data: {\n\n", *events[3:]])
BREAKING = (
    *(Fault.STREAM_STALL, Fault.STREAM_SHORT, BROKEN_EVENT, Fault.CUT_BODY, Fault.ERROR_IN_200),
)


def ask(text: str = "What does the child say?", **more) -> Request:
    return Request(messages=(Message("user", (text,)),), **more)


class Heard:
    """What a reader has before them, and how often it was wiped."""

    def __init__(self) -> None:
        self.text, self.pieces, self.wiped = "", 0, 0

    def __call__(self, piece: AnswerPiece) -> None:
        self.wiped += piece.anew
        self.text = piece.text if piece.anew else self.text + piece.text
        self.pieces += bool(piece.text)


def around(client, journal=None):
    tried = Retrying(Limited(client, 4), Retries(attempts=3, first=0.0))
    return Journaled(tried, journal or MemoryJournal())


@pytest.mark.parametrize("fault", HARMLESS)
async def test_unusual_streams_are_read(server, client, fault) -> None:
    answer = Answer(text=TEXT)

    def script(body, _number):
        altered = {Fault.STREAM_IGNORED: replace(answer, streams=False)}
        if fault is Fault.NO_STREAM:
            return fault if "stream" in body else answer
        return altered.get(fault) or replace(answer, packets=_packets(fault))

    server.script = script
    heard = Heard()
    response = await ask_streaming(client, ask(), heard)
    assert (response.text, heard.text, heard.wiped) == (TEXT, TEXT, 0)
    assert response.finish_reason == "stop"
    estimate = Usage(1, 6, 0, -(-len(TEXT.encode()) // 4), estimated=1)
    expected = estimate if fault == "no usage" else (await client(ask())).usage
    assert replace(response.usage, cost=None) == replace(expected, cost=None)
    assert (heard.pieces == 1) == (fault in (Fault.STREAM_IGNORED, Fault.NO_STREAM))


def _packets(fault):
    if fault == "no usage":
        return lambda events: [event for event in events if b'"usage"' not in event]
    if fault == "crlf":
        return lambda events: [b": a comment\r\n\r\n", *(e.replace(b"\n", b"\r\n") for e in events)]
    return misbehave(fault).packets


@pytest.mark.parametrize("fault", BREAKING, ids=range(len(BREAKING)))
async def test_a_stream_that_breaks_off_is_asked_again(server, fault) -> None:
    server.script = lambda _body, number: fault if number == 1 else TEXT
    heard, journal = Heard(), MemoryJournal()
    timeouts = Timeouts(read=0.2)
    async with OpenAIClient(server.url, "scripted", timeouts=timeouts) as client:
        response = await ask_streaming(around(client, journal), ask(), heard)
    assert (response.text, heard.text, response.attempts) == (TEXT, TEXT, 2)
    told_before = fault not in (Fault.NOT_JSON, Fault.ERROR_IN_200)
    assert heard.wiped == told_before
    *lost, entry = journal.entries
    assert entry.response == response
    # A page or an error costs nothing; a stream that had begun is charged, as far as it came.
    assert [attempt.usage.tokens > 0 for attempt in lost] == [True] * told_before


async def test_a_reader_who_goes_is_charged(server, client) -> None:
    server.script = lambda _body, _number: Answer(text=TEXT, transport="stall")
    heard, journal = Heard(), MemoryJournal()
    task = asyncio.create_task(ask_streaming(around(client, journal), ask(), heard))
    while not heard.pieces:  # noqa: ASYNC110  the server has no event for it
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (lost,) = journal.entries
    assert lost.response is None
    assert lost.usage.completion_tokens > 0
    server.script = lambda _body, _number: TEXT
    assert (await ask_streaming(around(client, journal), ask(), heard)).text == TEXT
    assert journal.entries[1].response


@given(st.lists(st.integers(0, 600), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_wherever_packets_are_cut_the_answer_is_the_same(cuts, end) -> None:
    chunk = '{"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": %s}]}'
    lines = [
        "event: chunk",
        "data: " + chunk % ("Grüße ", "null"),
        "",
        ": a sign of life",
        "",
        'data: {"choices": [{"delta":',
        'data: {"content": "\N{GRINNING FACE}"}}]}',
        "",
        "data: " + chunk % ("!", '"length"'),
        'data: {"choices": null, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}',
        'data: {"choices": [{"index": 1, "delta": {"content": "other"}}]}',
        "",
        "data: [DONE]",
    ]
    raw = end.join(lines).encode()
    bounds = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    heard = Heard()
    events = EventStream("m", TextSender(heard), lambda part: part)
    for start, stop in itertools.pairwise(bounds):
        events.feed(raw[start:stop])
    full_completion = events.completion()
    assert full_completion.choices[0].message.content == heard.text == "Grüße \N{GRINNING FACE}!"
    assert full_completion.choices[0].finish_reason == "length"
    assert full_completion.usage.prompt_tokens == 3
