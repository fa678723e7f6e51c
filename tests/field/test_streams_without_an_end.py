"""A served model's endpoint breaks off between two events of a stream: its body ends in order,
without a reason why the answer ended, and our server passed the half on as a whole answer. So did
it when the half was a call of a tool, and an answer in the format of Responses was "completed".

The right value is what the protocol says: an answer ends with a finish reason, and a stream with
[DONE]. Without both there is an error event, which the clients of OpenAI raise. An endpoint that
sends one of the two has answered, and what it sent is passed on letter for letter.
"""

import json
import urllib.request

import pytest

pytest.importorskip("fastapi")

from server import conftest as server_fixtures
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.server.errors import ApiError
from textevolve.server.openai.relaying import read_events

serve = server_fixtures.serve

MESSAGES = [{"role": "user", "content": "When does it leave?"}]
DONE = b"data: [DONE]\n\n"
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
QUOTED = 'It says "finish_reason": "stop".\ndata: [DONE]'


def event(delta, finish_reason=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % json.dumps({"id": "a", "choices": [choice]}).encode()


HALF = event({"role": "assistant", "content": QUOTED})
BROKEN = {
    "in a text": [HALF],
    "in a call": [HALF, event({"tool_calls": [CALL]})],
    "with nothing": [b": a sign of life\n\n"],
}
WHOLE = {
    "with a reason alone": [HALF, event({}, "stop")],
    "with a mark alone": [HALF, DONE],
    "with a mark in two packets": [HALF, DONE[:9], DONE[9:]],
    "with a mark without a line's end": [HALF, DONE.strip()],
}


@pytest.fixture
def stream(serve):
    """Stream the answer of a served model that sends these packets; return the text."""

    def ask(packets, path="chat/completions", **body):
        answer = Answer(text="x", packets=lambda _events: list(packets))
        with ScriptedServer(lambda _body, _number: answer) as endpoint:
            model = f"{endpoint.url}#any"
            fields = {"model": model, "stream": True, **body}
            request = urllib.request.Request(
                f"{serve(model=model)}/v1/{path}",
                json.dumps(fields).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as response:
                return response.read()

    return ask


@pytest.mark.parametrize("packets", BROKEN.values(), ids=BROKEN)
def test_half_an_answer_ends_with_an_error(stream, packets):
    passed = stream(packets, messages=MESSAGES)
    sent = b"".join(packets)
    assert passed.startswith(sent)
    error = json.loads(passed.removeprefix(sent).strip().removeprefix(b"data:"))["error"]
    assert "broke off" in error["message"]


@pytest.mark.parametrize("packets", WHOLE.values(), ids=WHOLE)
def test_whole_answers_pass_unchanged(stream, packets):
    # A client leaves out a last event that no empty line ends.
    assert stream(packets, messages=MESSAGES).strip() == b"".join(packets).strip()


def test_half_a_response_is_not_completed(stream):
    passed = stream(BROKEN["in a call"], "responses", input="When does it leave?").decode()
    assert "broke off" in passed
    assert "response.completed" not in passed


async def test_an_error_without_a_message_is_told():
    async def parts():
        yield b'data: {"error": "STREAM_EXPLODED"}\n\n'

    with pytest.raises(ApiError, match="STREAM_EXPLODED"):
        [event async for event in read_events(parts())]
