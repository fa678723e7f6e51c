"""The client's decisions against the scripted server: every wire, and every way to misbehave."""

from collections.abc import AsyncIterator

import pytest
from batch_world import MemoryJournal

from textevolve.errors import (
    AccessError,
    CapabilityError,
    ModelError,
    TooLongError,
    UnavailableError,
)
from textevolve.evaluation import Failure
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decisions import Decision, Wire, choice, decide, predicate, score
from textevolve.llm.model import Message, Request
from textevolve.llm.providers import resolve
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.llm.verdicts import let_decide, wire_of
from textevolve.settings import Provider, Settings
from textevolve.wiring import open_models

STATE = "The parcel came late, and the box was torn."
QUESTIONS = (
    predicate("late", "Did the parcel come late?", yes="later than promised", no="in time"),
    choice("tone", "Which tone has it?", {"calm": "no reproach", "angry": "", "other": ""}),
    score("damage", "How bad is the damage?", ["none", "the box", "the goods"]),
)
WIRES: tuple[Wire, ...] = ("systemone", "decisions")


@pytest.fixture
async def deciding() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(wires=WIRES) as server:
        yield server


async def ask(server: ScriptedServer, wire: Wire = "systemone") -> Decision:
    async with OpenAIClient(server.url, "any", decisions=wire) as client:
        return await decide(client, STATE, QUESTIONS)


async def test_every_wire_carries_the_same_answers(deciding: ScriptedServer):
    first_decision, second_decision = [await ask(deciding, wire) for wire in WIRES]
    for name, answer in first_decision.answers.items():
        assert not isinstance(answer, Failure)
        assert second_decision.answer(name).probabilities == pytest.approx(answer.probabilities)
    assert not first_decision.emulated
    assert first_decision.seconds > 0


async def test_an_endpoint_without_a_wire_says_what_to_set(deciding: ScriptedServer):
    async with OpenAIClient(deciding.url, "any") as client:
        with pytest.raises(CapabilityError, match="set `decisions`"):
            await decide(client, STATE, QUESTIONS)
    assert deciding.calls == 0


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.NOT_JSON, UnavailableError),
        (Fault.UNAUTHORISED, AccessError),
        (Fault.NO_DECISIONS, CapabilityError),
    ],
)
async def test_what_is_no_answer_at_all_is_raised(fault: Fault, error: type[ModelError]):
    async with ScriptedServer(lambda *_: fault, wires=WIRES) as server:
        with pytest.raises(error) as raised:
            await ask(server)
    assert type(raised.value) is error


TOO_LONG = [
    (400, "request (9321 tokens) exceeds the available context size (512 tokens)"),
    (500, "input (9321 tokens) is too large to process. increase the physical batch size"),
]


@pytest.mark.parametrize(("status", "message"), TOO_LONG)
async def test_a_state_that_is_too_long_says_what_to_do(status: int, message: str):
    body = f'{{"error":{{"code":{status},"message":"{message}"}}}}'.encode()
    async with ScriptedServer(lambda *_: Answer(status=status, body=body), wires=WIRES) as server:
        with pytest.raises(TooLongError, match="set `context`"):
            await ask(server)


@pytest.mark.parametrize(
    ("spec", "wire", "chats"),
    [
        ("typesafe", "systemone", False),
        ("openai/gpt-6-luna", "decisions", True),
        ("upstage/solar-decide", "systemone", True),
        ("local/laya", "systemone", False),
        ("local/qwen2.5-coder-1.5b", None, True),
        ("local/not-there", None, True),
        ("http://127.0.0.1:9/v1#any", None, True),
    ],
)
def test_the_wire_of_an_endpoint(spec: str, wire: str | None, chats: bool):
    endpoint = resolve(spec, Settings(), asks=False)
    assert endpoint.decisions == wire
    assert endpoint.chats is chats


async def test_what_was_decided_is_kept():
    journal, question = MemoryJournal(), predicate("kind", "Is it kind?")
    with ScriptedServer(wires=["decisions"]) as server:
        mine = Provider(base_url=server.url, keyless=True, decisions="decisions")
        settings = Settings(providers={"mine": mine})
        async with open_models(settings, journal, None) as model_of:
            model = let_decide(model_of, settings)("mine/any")
            assert wire_of(model) == "decisions"
            first_decision = await decide(model, "A text.", [question])
            again = await decide(model, "A text.", [question])
        assert server.calls == 1
    assert not first_decision.emulated
    assert again.answers == first_decision.answers


async def test_a_model_that_only_decides_is_not_opened_to_chat(tmp_path):
    """Its weights, which are not there, are not fetched for that."""
    settings = Settings(weights_folder=tmp_path)
    async with open_models(settings, MemoryJournal(), None) as model_of:
        with pytest.raises(CapabilityError, match="local/laya: this is a decision model"):
            await model_of("local/laya")(Request(messages=(Message("user", ("Hello",)),)))
