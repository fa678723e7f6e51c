"""A generation fails inside of a 200: half a text with an error, or an answer that says nothing.

Gateways put the error of a provider into the choice; inference servers end with a finish reason
such as "abort"; some answer with an empty text or a vector of zeros. The next try may be well, so
such an answer is tried again like a 502, and is never kept as the answer.
"""

import json

import pytest

from textevolve.errors import UnavailableError
from textevolve.evaluation import Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.wire import AnswerPiece, ask_streaming
from textevolve.llm.wrappers import Journaled, Retrying
from textevolve.settings import Retries

QUICK = Retries(attempts=3, first=0.001, longest=0.002)
REQUEST = Request(messages=(Message("user", ("Name a colour.",)),))
UPSTREAM = {"message": "the provider is overloaded", "code": 502}


def choice(finish_reason, **more):
    message = {"role": "assistant", "content": "Mad"}
    return {"index": 0, "message": message, "finish_reason": finish_reason, **more}


FAILED = {
    "error": (choice("error", error=UPSTREAM), "the provider is overloaded"),
    "error without reason": (choice(None, error=UPSTREAM), "the provider is overloaded"),
    "abort": (choice("abort"), "finish reason abort"),
    "an object": (choice({"type": "abort", "message": "gone"}), "finish reason abort"),
    "resources": (choice("insufficient_system_resource"), "insufficient_system_resource"),
    "network": (choice("network_error"), "network_error"),
}


def completion(choice):
    return Answer(body=json.dumps({"object": "chat.completion", "choices": [choice]}).encode())


@pytest.mark.parametrize("name", FAILED)
async def test_half_an_answer_is_retried(name):
    bad, reason = FAILED[name]
    async with ScriptedServer() as server, OpenAIClient(server.url, "m") as client:
        server.script = lambda _body, number: completion(bad) if number == 1 else "Madrid"
        response = await Retrying(client, QUICK)(REQUEST)
        assert (response.text, response.attempts) == ("Madrid", 2)
        server.script = lambda _body, _number: completion(bad)
        with pytest.raises(UnavailableError, match=reason):
            await Retrying(client, QUICK)(REQUEST)


async def test_failed_stream_begins_anew():
    def script(_body, number):
        if number > 1:
            return "Madrid"
        chunk = {"object": "chat.completion.chunk", "choices": []}
        delta = {"index": 0, "delta": {"content": "Mad"}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "error", "error": UPSTREAM}
        events = [json.dumps({**chunk, "choices": [part]}) for part in (delta, end)]
        packets = tuple(f"data: {event}\n\n".encode() for event in [*events, "[DONE]"])
        return Answer(body=b"", events=packets)

    pieces: list[AnswerPiece] = []
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "m") as client:
        response = await ask_streaming(Retrying(client, QUICK), REQUEST, pieces.append)
    assert response.text == "Madrid"
    assert pieces[:2] == [AnswerPiece("Mad"), AnswerPiece("", anew=True)]
    assert "".join(piece.text for piece in pieces[2:]) == "Madrid"


LOST = {
    "abort": Response("Mad", "abort", Usage(1)),
    "error": Response("Mad", "error", Usage(1)),
    "empty": Response("", "stop", Usage(1)),
    "blank": Response(" \n", "stop", Usage(1)),
    "cut at once": Response("", "length", Usage(1)),
    "zeros": Response('{"embedding": [0.0, 0.0]}', "stop", Usage(1)),
    "NaN": Response('{"embedding": [0.1, NaN]}', "stop", Usage(1)),
    "no numbers": Response('{"embedding": []}', "stop", Usage(1)),
}
KEPT = {
    "whole": Response("Madrid", "stop", Usage(1)),
    "cut": Response("Mad", "length", Usage(1)),
    "filtered": Response("Mad", "content_filter", Usage(1)),
    "thought": Response("", "length", Usage(1), reasoning="Hm."),
    "vector": Response('{"embedding": [0.0, 0.1]}', "stop", Usage(1)),
}


class OldJournal:
    """A journal with one answer, which stands for any request."""

    def __init__(self, stored):
        self.stored = stored

    async def find(self, _key):
        return self.stored

    async def append(self, entry):
        self.stored = entry.response


@pytest.mark.parametrize("name", [*LOST, *KEPT])
async def test_older_journals_are_asked_again(name):
    stored = {**LOST, **KEPT}[name]
    async with ScriptedServer(lambda *_: "Madrid") as server:
        async with OpenAIClient(server.url, "m") as client:
            response = await Journaled(client, OldJournal(stored))(REQUEST)
        assert server.calls == (name in LOST)
    assert response.text == ("Madrid" if name in LOST else stored.text)


@pytest.mark.parametrize("vector", ["[0.0, 0.0]", "[NaN, 1.0]", "[]"])
async def test_vectors_without_direction(vector):
    body = f'{{"data": [{{"index": 0, "embedding": {vector}}}]}}'.encode()
    async with ScriptedServer() as server, OpenAIClient(server.url, "m") as client:
        well = server.answer
        server.answer = lambda *_: Answer(body=body)
        with pytest.raises(UnavailableError, match="embedding"):
            await embed(client, "a text")
        server.answer = well
        assert any(await embed(client, "a text"))
