"""Chains: checked when they are made, run through the one door to the models, traced."""

import asyncio
import json

import pytest
from pydantic import BaseModel

from textevolve.errors import AnswerError, BudgetError, InputError
from textevolve.events import StepFinished, StepStarted
from textevolve.llm.chains.chain import Chain, perform_chain
from textevolve.llm.chains.scope import CHAIN_STEP, ChainContext, TraceRecorder
from textevolve.llm.chains.steps import ask, branch, call, each, together
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import ScriptedServer


class Verdict(BaseModel):
    ok: bool
    reason: str


def echo(body, _number):
    """Says what it was asked, in capitals; an object where a form is wanted."""
    said = body["messages"][-1]["content"]
    if "response_format" in body:
        return json.dumps({"ok": "good" in said, "reason": f"because of {said}"})
    return said.upper()


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
    chain = Chain(
        "judged",
        ask("facts", "facts of {text}"),
        together(ask("pros", "for {facts}"), [ask("cons", "against {{ facts }}")]),
        ask("verdict", [("system", "Judge."), ("user", "{pros} {cons} good")], parse=Verdict),
        branch(
            "verdict.ok",
            {True: call("short", lambda verdict: verdict.reason[:7])},
            otherwise=ask("short", "no"),
        ),
        outputs=["verdict", "short"],
    )
    assert tuple(chain.inputs) == ("text",)
    found = await run(chain, text="tea")
    assert found["short"] == "because"
    assert found["verdict"].reason == "because of FOR FACTS OF TEA AGAINST FACTS OF TEA good"
    assert run.server.requests[-1]["messages"][0] == {"role": "system", "content": "Judge."}


async def test_a_map_keeps_the_order_of_its_items(run):
    chain = Chain(
        "map",
        each("all", over="words", item="word", steps=[ask("said", "{word} {tone}")]),
    )
    assert await run(chain, words=["a", "b", "c"], tone="!") == {"all": ["A !", "B !", "C !"]}
    with pytest.raises(AnswerError, match="'words' is no list but str"):
        await run(chain, words="abc", tone="!")


async def test_plain_and_async_functions_and_chains_are_steps(run):
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    class Adder:
        def __call__(self, doubled, more=5):
            return doubled + more

    inner = Chain("inner", ask("word", "number {n}"), inputs=["n"])
    chain = Chain(
        "numbers",
        call("doubled", double),
        call("sum", Adder()),
        call("word", inner, inputs={"n": "sum"}),
        inputs={"n": int},
    )
    recorder = TraceRecorder("numbers", "chain")
    assert await run(chain, recorder, n="4") == {"word": "NUMBER 13"}
    (last,) = [one for one in recorder.trace.steps if one.name == "word"]
    assert (last.steps[0].name, last.usage.calls) == ("word", 1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Chain("c", ask("a", "{txt}"), inputs=["text"]),
            "no value 'txt' at this",
        ),
        (lambda: Chain("c", ask("a", "{b}"), ask("b", "x")), "'b' already, or it is used before"),
        (lambda: Chain("c", ask("a", "x"), outputs="b"), "no step makes the output 'b'"),
        (lambda: Chain("c", ask("a", "x"), ask("a", "y")), "there is a value 'a' already"),
        (
            lambda: Chain("c", ask("a", "x", parse=Verdict), ask("b", "{a.resaon}")),
            "Verdict has no field 'resaon'; did you mean 'reason'",
        ),
        (lambda: Chain("c", call("a", lambda x: x, inputs={"y": "z"})), "takes no 'y'"),
        (lambda: Chain("c", call("a", lambda x, y: x, inputs={"x": "z"})), "needs 'y', too"),
        (lambda: Chain("c", call("a", lambda **x: x)), "does not say what it takes"),
        (lambda: Chain("c", call("a", "text")), "is no function, Runnable or module"),
        (lambda: Chain("c", ask("a b", "x")), "a name such as 'answer'"),
        (lambda: Chain("c", ask("a", "x", temprature=1)), "no parameter 'temprature'"),
        (lambda: Chain("c", ask("a", [("human", "x")])), "role of a message is system, user"),
        (lambda: Chain("c", "x"), "is no step"),
        (lambda: Chain("c"), "there are no steps"),
        (lambda: Chain("c", together(ask("a", "x"), ask("a", "y"))), "side by side make 'a'"),
        (
            lambda: Chain("c", branch("k", {"x": ask("a", "1")}, otherwise=ask("b", "2"))),
            "makes several values",
        ),
        (lambda: Chain("c", ask("a", "")), "the template is blank"),
        (lambda: Chain("c", ask("a", "x"), inputs={"not a name": str}), "an input has a name"),
    ],
)
def test_what_is_wrong_is_said_when_the_chain_is_made(make, told):
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        make()


async def test_inputs_are_checked_before_anything_is_asked(run):
    chain = Chain("c", ask("a", "{n} {text}"), inputs={"n": int, "text": str})
    for values, told in (
        ({"n": 1}, "the input 'text' is missing; inputs: n, text"),
        ({"n": 1, "text": "x", "tex": 1}, "no input 'tex'; did you mean 'text'"),
        ({"n": "many", "text": "x"}, "the input 'n' is not of its type int"),
    ):
        with pytest.raises(InputError, match=told):
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
    first, second = recorder.trace.steps
    assert (first.error, second.error) == ("", "RuntimeError: the pump is dry")
    assert recorder.trace.usage.calls == 1


async def test_attempts_are_further_samples_and_end(run):
    tried = []

    def number(text: str) -> int:
        tried.append(text)
        return int(text)

    with pytest.raises(AnswerError, match=r"step 'a': the answer cannot be read: invalid literal"):
        await run(Chain("c", ask("a", "x", parse=number, attempts=3)))
    assert tried == ["X", "X", "X"]


async def test_cancelling_cancels_the_inner_call(run):
    began, ended = asyncio.Event(), []

    async def wait(x):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(x)

    chain = Chain("c", together(call("a", wait), ask("b", "x")), outputs=["a", "b"])
    task = asyncio.ensure_future(run(chain, x=1))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1]


async def test_steps_are_announced_with_their_paths(run):
    chain = Chain("c", each("all", over="xs", item="x", steps=ask("y", "{x}")))
    await run(chain, xs=[1, 2])
    began = [e.details["path"] for e in run.events if isinstance(e, StepStarted)]
    assert sorted(began) == [
        *("c", "c/all", "c/all/x 1", "c/all/x 1/y", "c/all/x 2", "c/all/x 2/y"),
    ]
    ended = {e.value[0]: e.value[1] for e in run.events if isinstance(e, StepFinished)}
    assert ended["c"].usage.calls == 2
    assert ended["c/all/x 1/y"].usage.calls == 1
    assert all(e.step == CHAIN_STEP for e in run.events if isinstance(e, StepFinished))


async def test_a_case_that_there_is_not_is_an_error(run):
    chain = Chain("c", branch("kind", {"a": ask("x", "1"), "b": ask("x", "2")}))
    assert await run(chain, kind="b") == {"x": "2"}
    with pytest.raises(AnswerError, match="no case for 'c'; there are: a, b"):
        await run(chain, kind="c")


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


async def test_a_budget_ends_it_and_a_refusal_passes_through():
    class Spent:
        name = "m"

        async def __call__(self, request, /):
            raise BudgetError("the limit of 0 calls is reached")

    chain = Chain("c", ask("a", "x", attempts=5))
    with pytest.raises(BudgetError, match="the limit of 0 calls"):
        await perform_chain(chain, {}, ChainContext(lambda _: Spent(), "m"))


def test_templates_are_found_and_put_in_place():
    chain = Chain("c", ask("a", "{x}"), each("b", over="xs", steps=ask("d", "{a} {item}")))
    assert chain.template_of("d")[1].names == ("a", "item")
    other = Chain("c", ask("a", "{x}"), each("b", over="xs", steps=ask("d", "New {item}")))
    changed = chain.with_template("d", other.templates["d"])
    assert changed.describe()["steps"] == other.describe()["steps"]
    with pytest.raises(InputError, match="steps that ask a model: a, d"):
        chain.template_of()
    with pytest.raises(InputError, match="no step 'x' asks a model"):
        chain.template_of("x")


async def test_an_empty_answer_is_an_error():
    async with (
        ScriptedServer(lambda *_: " ") as server,
        OpenAIClient(server.url, "scripted") as client,
    ):
        with pytest.raises(AnswerError, match="step 'a': the answer is empty"):
            await perform_chain(
                Chain("c", ask("a", "x")), {}, ChainContext(lambda _: client, "scripted")
            )
