"""A step of a chain gives a message of LangChain, or several by name, since no parser stands behind
its model: prompts, outputs and scores have the message's text, not the message as JSON, whose id
is another one each time."""

import pytest

pytest.importorskip("langchain_core")

from asked import record
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel

from flat_verbs import as_chat_model, compare, open_chain, run_chain
from textevolve import Chain, ask, call

JOKE = 'Why "{x}"?\n  Because \\n.'
CALL = {"name": "find", "args": {"town": "Oslo"}, "id": "c1"}


@pytest.fixture
def opened(home, model):
    """How chains and models are opened here."""
    return {"model": model, "store": home / "store.db"}


def tell(opened):
    joke = ChatPromptTemplate.from_template("A joke about {topic}") | as_chat_model(**opened)
    poem = ChatPromptTemplate.from_template("A poem about {topic}") | as_chat_model(**opened)
    return RunnableParallel(joke=joke, poem=poem)


def shown(server, opened, result, template):
    """Return the prompt that shows what a step gave."""
    bodies = record(server)
    chain = Chain(
        "c", call("made", lambda topic: result), ask("answer", template), inputs=["topic"]
    )
    open_chain(chain, **opened)(topic="bears")
    return bodies[-1]["messages"][-1]["content"]


def test_a_prompt_shows_the_texts_of_branches(server, opened):
    bodies = record(server, JOKE)
    chain = Chain("c", call("both", tell(opened)), ask("answer", "Better: {both.joke}|{both}"))
    open_chain(chain, **opened)(topic="bears")
    branches = '{"joke": "Why \\"{x}\\"?\\n  Because \\\\n.", '
    last = bodies[-1]["messages"][-1]["content"]
    assert last.startswith(f"Better: {JOKE}|{branches}")
    assert len(bodies) == 3


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "one"}, {"type": "text", "text": " two"}], "one two"),
        ("", ""),
        ('a "b"', 'a "b"'),
    ],
)
def test_a_message_is_its_text(server, opened, content, text):
    assert shown(server, opened, AIMessage(content=content), "X: {made}|") == f"X: {text}|"


@pytest.mark.parametrize(
    "result",
    [AIMessage(content="Let me see.", tool_calls=[CALL]), [AIMessage(content="ask")]],
)
def test_calls_and_roles_are_not_lost(server, opened, result):
    text = shown(server, opened, result, "X: {made}|")
    assert '"type": "ai"' in text


def test_an_output_is_the_text(server, opened):
    record(server, JOKE)
    line = ChatPromptTemplate.from_template("A joke about {topic}") | as_chat_model(**opened)
    chain = Chain("c", call("said", line))
    row = {"topic": "bears", "label": JOKE}
    assert run_chain(chain, {"topic": "bears"}, **opened).outputs["said"] == JOKE
    compared = compare([row], models=[chain], label="label", metric="exact", store=opened["store"])
    assert compared.variants[0].mean.value == 1
