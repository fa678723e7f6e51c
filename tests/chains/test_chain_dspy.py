"""DSPy's own package on both sides of the border: modules as steps, chains as modules."""

import re
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dspy = pytest.importorskip("dspy")

from flat_verbs import as_dspy_lm, as_dspy_module, run_chain
from textevolve import Chain, Limits, ask, call
from textevolve.errors import InputError
from textevolve.llm.testing import ScriptedServer


def script(body, _number):
    """DSPy's chat adapter asks for fields between marks; others get capitals."""
    content = body["messages"][-1]["content"]
    if "[[ ## question ## ]]" in content:
        question = re.search(r"## question ## \]\]\n(.*)", content)[1]
        return f"[[ ## answer ## ]]\n{question.upper()}\n\n[[ ## completed ## ]]"
    return content.upper()


@pytest.fixture
def server():
    with ScriptedServer(script) as started:
        yield started


@pytest.fixture
def opened(home, model):
    return {"model": model, "store": home / "store.db"}


async def test_a_chain_is_a_module(opened, server):
    chain = Chain("two", ask("draft", "Draft {topic}"), ask("answer", "Better: {draft}"))
    module = as_dspy_module(chain, **opened)
    assert module(topic="tea").answer == "BETTER: DRAFT TEA"
    assert (await module.acall(topic="tea")).answer == "BETTER: DRAFT TEA"
    assert server.calls == 2

    class Outer(dspy.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, topic):
            return dspy.Prediction(length=len(self.inner(topic=topic).answer))

    assert Outer()(topic="tea").length == 17
    assert Outer().deepcopy()(topic="tea").length == 17


def test_the_calls_of_a_module_are_ours(home, model, server):
    class Twice(dspy.Module):
        def __init__(self):
            super().__init__()
            self.one = dspy.Predict("question -> answer")

        def forward(self, question):
            return self.one(question=self.one(question=question).answer + "?")

    module = Twice()
    module.set_lm(as_dspy_lm())
    chain = Chain("twice", call("found", module))
    record = {"model": model, "store": home / "store.db"}
    chain_result = run_chain(chain, {"question": "so"}, **record)
    assert chain_result.outputs == {"found": {"answer": "SO?"}}
    assert chain_result.usage.calls == 2
    run_chain(chain, {"question": "so"}, **record)
    assert server.calls == 2
    stopped = run_chain(chain, {"question": "no"}, limits=Limits(calls=0), **record)
    assert stopped.runs[0].failure.kind == "skipped"  # what DSPy has wrapped comes out as ours
    assert server.calls == 2


def test_what_is_no_text_is_refused(opened):
    lm = as_dspy_lm(**opened)
    assert lm("say so") == ["SAY SO"]
    with pytest.raises(Exception, match="do not support the option 'stop'") as caught:
        lm("x", stop=["y"])
    assert isinstance(caught.value.__cause__, InputError)  # DSPy wraps what engines raise
