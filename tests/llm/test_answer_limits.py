"""How long an answer may be to be read tolerantly, and that others are served meanwhile."""

import asyncio
import threading

import pytest
from pydantic import BaseModel

from textevolve.errors import AnswerError
from textevolve.evaluation import Usage
from textevolve.llm import structured
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.structured import MENDED, READ_AT_ONCE, ask_structured, read_answer
from textevolve.llm.testing import ScriptedServer


class Note(BaseModel):
    text: str


def said(text: str) -> Response:
    return Response(text=text, finish_reason="stop", usage=Usage())


def test_a_long_answer_that_is_no_json_is_not_mended() -> None:
    """Without a bound, half a minute went by with this one."""
    with pytest.raises(AnswerError, match="with 500005 characters too long to be mended"):
        read_answer(said("{x: " + "x" * 500_000 + "}"), Note)


@pytest.mark.parametrize("around", ["{}", "Here it is: {} Anything else?"])
def test_a_long_answer_that_is_json_is_read(around: str) -> None:
    text = "x" * (2 * MENDED)
    json = f'{{"text": "{text}"}}'
    assert read_answer(said(around.replace("{}", json)), Note)[0].text == text


def test_what_is_short_enough_is_mended() -> None:
    assert read_answer(said("{text: 'fine',}"), Note) == (Note(text="fine"), "tolerant")


async def test_a_long_answer_is_read_beside_the_loop(
    server: ScriptedServer, client: OpenAIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop gets a turn before the reading ends, or the reading waits for it in vain."""
    loop, turned = asyncio.get_running_loop(), threading.Event()

    def read(response: Response, answer: type[Note]):
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(30)
        return read_answer(response, answer)

    monkeypatch.setattr(structured, "read_answer", read)
    text = "x" * READ_AT_ONCE
    server.script = lambda _body, _number: f'{{"text": "{text}",}}'
    request = Request(messages=(Message("user", ("?",)),))
    found = await ask_structured(client, request, Note)
    assert (found.value.text, found.parse_mode) == (text, "tolerant")
