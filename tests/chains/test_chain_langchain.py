"""LangChain's own package on both sides of the border: Runnables as steps, chains as Runnables."""

import pytest

pytest.importorskip("langchain_core")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel

from flat_verbs import as_chat_model, as_runnable, open_chain, run_chain
from textevolve import Chain, Limits, ask, call
from textevolve.errors import BudgetError, InputError


@pytest.fixture
def opened(home, model):
    """How chains and models are opened here."""
    return {"model": model, "store": home / "store.db"}


def upper(body, _number):
    return body["messages"][-1]["content"].upper()


@pytest.fixture
def server():
    from textevolve.llm.testing import ScriptedServer

    with ScriptedServer(upper) as started:
        yield started


class Heard(BaseCallbackHandler):
    def __init__(self):
        self.errors = []

    def on_chain_error(self, error, **kwargs):
        self.errors.append(error)


TWO = Chain("two", ask("draft", "Draft {topic}"), ask("answer", "Better: {draft}"))


async def test_a_chain_is_a_runnable(opened, server):
    runnable = as_runnable(TWO, **opened)
    expected = {"answer": "BETTER: DRAFT TEA"}
    assert runnable.invoke({"topic": "tea"}) == expected  # within a running loop
    assert await runnable.ainvoke({"topic": "tea"}) == expected
    assert await runnable.abatch([{"topic": "tea"}] * 2) == [expected] * 2
    assert runnable.batch([{"topic": "tea"}]) == [expected]
    assert server.calls == 2  # the journal has the rest
    line = RunnableLambda(lambda x: {"topic": x}) | runnable | (lambda found: found["answer"])
    assert await line.ainvoke("tea") == expected["answer"]


async def test_runnables_are_steps(opened, server):
    prompt = ChatPromptTemplate.from_messages([("system", "Be kind."), ("human", "Say {word}")])
    lcel = prompt | as_chat_model(**opened) | StrOutputParser()
    both = RunnableParallel(a=lcel, b=RunnableLambda(lambda given: len(given["word"])))
    chain = Chain(
        "mixed",
        call("both", both),
        call("length", RunnableLambda(lambda text: len(text)), inputs="both.a"),
        ask("answer", "{both.a} {length}"),
    )
    assert tuple(chain.inputs) == ("word",)
    assert await open_chain(chain, **opened).acall(word="tea") == {"answer": "SAY TEA 7"}
    assert server.requests[0]["messages"][0]["content"] == "Be kind."


def test_calls_of_their_chat_models_are_ours(opened, home, model, server):
    lcel = ChatPromptTemplate.from_template("Say {word}") | as_chat_model() | StrOutputParser()
    chain = Chain("c", call("said", lcel), ask("answer", "{said}"))
    record = {"model": model, "store": home / "store.db"}
    chain_result = run_chain(chain, {"word": "tea"}, **record)
    (spoken_answer, answer) = chain_result.runs[0].trace.steps
    assert (spoken_answer.usage.calls, answer.usage.calls, chain_result.usage.calls) == (1, 1, 2)
    run_chain(chain, {"word": "tea"}, **record)
    assert server.calls == 2
    stopped = run_chain(chain, {"word": "milk"}, limits=Limits(calls=1), **record)
    assert stopped.runs[0].failure.kind == "skipped"
    with pytest.raises(BudgetError):
        _ = stopped.outputs


async def test_an_error_is_the_same_object_on_the_other_side(opened):
    class OwnError(Exception):
        pass

    raised = OwnError("mine")

    def fail(x):
        raise raised

    for step in (call("a", fail), call("a", RunnableLambda(fail), inputs="x")):
        heard, runnable = Heard(), as_runnable(Chain("c", step), **opened)
        with pytest.raises(OwnError) as caught:
            await runnable.ainvoke({"x": 1}, config={"callbacks": [heard]})
        assert caught.value is raised
        assert heard.errors[-1] is raised
        with pytest.raises(OwnError) as caught:
            runnable.invoke({"x": 1})
        assert caught.value is raised
    with pytest.raises(InputError, match="the input 'topic' is missing"):
        await as_runnable(TWO, **opened).ainvoke({})
