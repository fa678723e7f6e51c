"""Chains: checked when they are made, run through the one door to the models, traced."""

import asyncio
import json
import re

import pytest
from pydantic import BaseModel

from textevolve import Chain
from textevolve.errors import AnswerError, InputError
from textevolve.llm.chains.chain import perform_chain
from textevolve.llm.chains.scope import ChainContext, TraceRecorder
from textevolve.llm.chains.steps import ask, call
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer


class Verdict(BaseModel):
    ok: bool
    reason: str


def echo(body, _number):
    """Says what it was asked, in capitals; an object where a form is wanted."""
    content = body["messages"][-1]["content"]
    if "response_format" in body:
        return json.dumps({"ok": "good" in content, "reason": f"because of {content}"})
    return content.upper()


@pytest.fixture
async def run():
    """Runs a chain with a scripted model; what was asked is in `server`."""
    async with ScriptedServer(echo) as server, OpenAIClient(server.url, "scripted") as client:

        async def perform(chain, recorder=None, **values):
            context = ChainContext(lambda _: client, "scripted", listener=perform.events.append)
            return await perform_chain(chain, values, context, recorder)

        perform.events, perform.server = [], server
        yield perform


async def test_steps_see_what_earlier_ones_made(run):
    async def both(facts):
        pros, cons = Chain("p", ask("a", "for {facts}")), Chain("c", ask("a", "no {{ facts }}"))
        records = await asyncio.gather(pros.acall(facts=facts), cons.acall(facts=facts))
        return " ".join(step["a"] for step in records)

    chain = Chain(
        "judged",
        ask("facts", "facts of {text}"),
        call("both", both),
        ask("verdict", [("system", "Judge."), ("user", "{both} good")], parse=Verdict),
        call("short", lambda reason: reason[:7], inputs={"reason": "verdict.reason"}),
        outputs=["verdict", "short"],
    )
    assert tuple(chain.inputs) == ("text",)
    recorder = TraceRecorder("judged", "chain")
    records = await run(chain, recorder, text="tea")
    assert records["short"] == "because"
    assert records["verdict"].reason == "because of FOR FACTS OF TEA NO FACTS OF TEA good"
    assert run.server.requests[-1]["messages"][0] == {"role": "system", "content": "Judge."}
    assert [step.name for step in recorder.trace.steps[1].steps] == ["p", "c"]
    assert recorder.trace.steps[1].usage.calls == 2


async def test_a_function_declared_to_return_a_base_type_may_return_one_with_fields(run):
    def judge(text) -> BaseModel:
        return Verdict(ok=True, reason=f"it is {text}")

    outcome = await run(
        Chain("c", call("verdict", judge), ask("a", "{verdict.reason}")), text="tea"
    )
    assert outcome["a"] == "IT IS TEA"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Chain("c", ask("a", "{txt}"), inputs=["text"]), "no value 'txt' at this"),
        (
            lambda: Chain("c", ask("a", "{b}"), ask("b", "x")),
            "'b' exists already, or is used before",
        ),
        (
            lambda: Chain("c", ask("a", "x", parse=Verdict), ask("b", "{a.raeson}")),
            "step 'b': 'a' has no field 'raeson'; did you mean 'reason'?",
        ),
        (lambda: Chain("c", ask("a", "x"), outputs="b"), "no step makes the output 'b'"),
        (lambda: Chain("c", call("a", lambda **x: x)), "are not known: name them"),
    ],
)
def test_what_is_wrong_is_said_when_the_chain_is_made(make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make()


async def test_inputs_are_checked_before_anything_is_asked(run):
    chain = Chain("c", ask("a", "{n} {text}"), inputs={"n": int, "text": str})
    for values, message in (
        ({"n": 1}, "the input 'text' is missing; inputs: n, text"),
        ({"n": 1, "text": "x", "tex": 1}, "no input 'tex'; did you mean 'text'"),
        ({"n": "many", "text": "x"}, "the input 'n' is not of its type int"),
    ):
        with pytest.raises(InputError, match=message):
            await run(chain, **values)
    assert run.server.calls == 0


async def test_an_error_is_the_same_object_and_the_trace_says_where(run):
    raised = RuntimeError("the pump is dry")

    def fail(a):
        raise raised

    chain = Chain("c", ask("a", "x"), call("b", fail), ask("d", "{b}"))
    recorder = TraceRecorder("c", "chain")
    with pytest.raises(RuntimeError) as caught:
        await run(chain, recorder)
    assert caught.value is raised
    first_step_trace, second_step_trace = recorder.trace.steps
    assert (first_step_trace.error, second_step_trace.error) == (
        "",
        "RuntimeError: the pump is dry",
    )
    assert recorder.trace.usage.calls == 1


async def test_attempts_are_further_samples_and_end(run):
    tried = []

    def number(text: str) -> int:
        tried.append(text)
        return int(text)

    with pytest.raises(AnswerError, match=r"step 'a': the answer cannot be read: invalid literal"):
        await run(Chain("c", ask("a", "x", parse=number, attempts=3)))
    assert tried == ["X", "X", "X"]


def test_what_a_chain_is_changes_with_all_that_it_is_made_of():
    def first(x):
        return x

    def second(x):
        return x + 1

    versions = [
        Chain("c", *steps, model=model).version
        for steps, model in (
            ([ask("a", "x")], None),
            ([ask("a", "y")], None),
            ([ask("a", "x")], "openai/gpt-6-luna"),
            ([ask("a", "x", temperature=0.1)], None),
            ([ask("a", "x", parse=Verdict)], None),
            ([ask("a", "x", parse=first)], None),
            ([ask("a", "x", parse=second)], None),
            ([ask("a", [("system", "x"), ("user", "x")])], None),
            ([call("a", first)], None),
            ([call("a", second)], None),
        )
    ]
    assert len(set(versions)) == len(versions)
    assert Chain("c", ask("a", "x")).version == versions[0]
