"""A call of a local model takes as long as its server gets on, and no longer."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import count

import pytest

from textevolve.errors import UnavailableError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, Fault, ScriptedServer, misbehave
from textevolve.llm.wrappers import Retrying
from textevolve.settings import Retries, Timeouts

SHORT = Timeouts(read=0.4, total=0.5)
LONG = 0.8
"""Seconds of an answer, past all of them."""


def ask(text: str = "?") -> Request:
    return Request(messages=(Message("user", (text,)),), max_tokens=5, seed=1, top_logprobs=2)


def with_slots(server: ScriptedServer, slots: Callable[[], Answer]) -> None:
    """The scripted server, which says what its slots do, as llama.cpp's does."""
    plain = server.answer

    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        return slots() if path == "/slots" else plain(method, path, headers, body)

    server.answer = answer


@pytest.fixture
async def local(server: ScriptedServer) -> AsyncIterator[OpenAIClient]:
    async with OpenAIClient(server.url, "scripted", timeouts=SHORT, watched=True) as opened:
        yield opened


@pytest.fixture
def working(server: ScriptedServer) -> ScriptedServer:
    steps = count()
    with_slots(server, lambda: Answer(body=f'[{{"n_decoded": {next(steps)}}}]'.encode()))
    return server


@pytest.mark.slow
async def test_it_may_take_as_long_as_it_gets_on(
    working: ScriptedServer, local: OpenAIClient
) -> None:
    working.script = lambda _body, _number: Answer(text="done", delay=LONG)
    patient = Retrying(local, Retries(attempts=1))
    response = await patient(ask())
    assert (response.text, response.attempts, working.calls) == ("done", 1, 1)


@pytest.mark.parametrize(
    "slots", [Answer(body=b"[]"), misbehave(Fault.TIMEOUT)], ids=["the same", "no answer"]
)
async def test_a_standstill_is_an_error(
    server: ScriptedServer, local: OpenAIClient, slots: Answer
) -> None:
    with_slots(server, lambda: slots)
    server.script = lambda _body, _number: Fault.TIMEOUT
    with pytest.raises(UnavailableError, match=r"no progress for 0\.\d+ s"):
        await local(ask())
    server.script = None
    assert (await local(ask())).text  # and the next call starts with its whole patience


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that uses the processor, as llama.cpp's do within a batch of tokens."""
    over = threading.Event()

    def work() -> None:
        block = bytes(1 << 20)
        while not over.is_set():
            sha256(block)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
async def test_a_starved_batch_goes_on(server: ScriptedServer, local: OpenAIClient) -> None:
    """Other programs have the processor, so that one batch of tokens takes longer than the
    patience: the server does not even say what its slots do."""
    with_slots(server, lambda: misbehave(Fault.TIMEOUT))
    server.script = lambda _body, _number: Answer(text="done", delay=1.6)
    with busy_thread():
        assert (await local(ask())).text == "done"
    assert server.calls == 1


@pytest.mark.slow
async def test_work_without_end_is_stopped(server: ScriptedServer) -> None:
    limits = Timeouts(read=0.2, total=0.5)
    with_slots(server, lambda: Answer(body=b"[]"))
    server.script = lambda _body, _number: Fault.TIMEOUT
    async with OpenAIClient(server.url, "scripted", timeouts=limits, watched=True) as local:
        with busy_thread(), pytest.raises(UnavailableError, match="more of the processor"):
            await local(ask())
