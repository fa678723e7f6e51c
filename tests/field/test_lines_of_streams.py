"""An endpoint writes its stream as the HTML standard allows, and our server passes it on: the last
event has no empty line after it, a byte order mark comes first, the JSON of a chunk stands on two
lines, lines end with a carriage return, or the line is kept open by empty data. Clients lost the
beginning or the end of the answer, and nothing told them.

The right answer is the one that the endpoint wrote. The client here leaves out an event without an
empty line after it, as the standard has it, and parses the data of all others.
"""

import json
import re
import urllib.request

import pytest

pytest.importorskip("fastapi")

from server import conftest as server_fixtures
from textevolve.llm.testing import Answer, ScriptedServer

serve = server_fixtures.serve

TEXT = "At noon."


def event(delta, finish_reason=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % json.dumps({"id": "a", "choices": [choice]}).encode()


FIRST = event({"role": "assistant", "content": "At "})
LAST = event({"content": "noon."}, "stop")
DONE = b"data: [DONE]\n\n"
STREAMS = {
    "no empty line at the end": [FIRST, LAST.rstrip()],
    "one packet": [(FIRST + LAST).rstrip()],
    "a byte order mark": [b"\xef\xbb\xbf" + FIRST, LAST, DONE],
    "two lines of data": [FIRST.replace(b', "choices"', b',\ndata: "choices"'), LAST, DONE],
    "empty data": [b"data:\n\n", FIRST, b"data: \n\n", b"data\n\n", LAST, DONE],
}
RETURNS = [part.replace(b"\n", b"\r") for part in (FIRST, LAST, DONE)]


@pytest.fixture
def stream(serve):
    """Return the data of the events by which a served model answers with these packets."""

    def ask(packets, path, **body):
        answer = Answer(text="x", packets=lambda _events: list(packets))
        with ScriptedServer(lambda _body, _number: answer) as endpoint:
            model = f"{endpoint.url}#any"
            request = urllib.request.Request(
                f"{serve(model=model)}/v1/{path}",
                json.dumps({"model": model, "stream": True, **body}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as response:
                *blocks, _unended = re.split(r"\n\r?\n", response.read().decode())
        found = [re.findall("^data:? ?(.*)", block, re.MULTILINE) for block in blocks]
        return [json.loads("".join(lines)) for lines in found if lines not in ([], ["[DONE]"])]

    return ask


@pytest.mark.parametrize("packets", STREAMS.values(), ids=STREAMS)
def test_chats_are_whole(stream, packets):
    messages = [{"role": "user", "content": "When?"}]
    chunks = stream(packets, "chat/completions", messages=messages)
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == TEXT


@pytest.mark.parametrize("packets", [*STREAMS.values(), RETURNS], ids=[*STREAMS, "returns"])
def test_responses_are_whole(stream, packets):
    *_, last = stream(packets, "responses", input="When?")
    assert last["response"]["output"][0]["content"][0]["text"] == TEXT
