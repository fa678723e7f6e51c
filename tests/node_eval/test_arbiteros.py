"""Code for ArbiterOS's evaluators and histories, with the name of the package changed."""

import asyncio
import datetime
import operator
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import START, StateGraph

import textevolve.node_eval.arbiteros.instructions as named
from textevolve.errors import InputError
from textevolve.node_eval.arbiteros import ArbiterOSAlpha
from textevolve.node_eval.arbiteros.evaluation import (
    EvaluationResult,
    NodeEvaluator,
    ThresholdEvaluator,
)
from textevolve.node_eval.arbiteros.history import History
from textevolve.node_eval.arbiteros.instructions import CognitiveCore, NormativeCore


@pytest.fixture(params=["native", "langgraph"])
def kernel(request):
    return ArbiterOSAlpha(backend=request.param)


@pytest.fixture
def native():
    return ArbiterOSAlpha(backend="native")


class Judge(NodeEvaluator):
    """Says what `say` makes of the history; notes the types of the nodes that it saw."""

    def __init__(self, name, say=lambda history: 1.0, target_instructions=None):
        super().__init__(name, target_instructions)
        self.say, self.types = say, []

    def evaluate(self, history: History) -> EvaluationResult:
        self.types.append(history.entries[-1][-1].instruction)
        score = self.say(history)
        return EvaluationResult(score=score, passed=score > 0.5, feedback=f"{score:.1f} given")


def step(kernel, kind, output, name="step"):
    """A decorated node that gives this output, alone in its superstep."""

    def node(state):
        return output

    node.__name__ = name
    decorated = kernel.instruction(kind)(node)

    def run(state):
        kernel.history.enter_next_superstep([name])
        return decorated(state)

    return run


def last(kernel):
    return kernel.history.entries[-1][-1]


# Results and evaluators alone.


def test_a_result_has_four_parts_that_can_be_set():
    result = EvaluationResult(score=0.25, passed=False, feedback="short")
    assert (result.score, result.passed, result.feedback, result.metadata) == (
        0.25,
        False,
        "short",
        {},
    )
    result.score, result.passed = 0.75, True
    result.metadata["why"] = "longer"
    assert result == EvaluationResult(0.75, True, "short", {"why": "longer"})
    assert EvaluationResult(1.0, True, "").metadata == {}


def test_an_evaluator_is_derived_and_shows_its_class():
    with pytest.raises(TypeError):
        NodeEvaluator("abstract")
    judge = Judge(name="own", target_instructions=[CognitiveCore.GENERATE])
    assert (judge.name, judge.target_instructions) == ("own", [CognitiveCore.GENERATE])
    assert "Judge" in repr(judge)


@pytest.mark.parametrize(
    ("output", "score", "passed", "feedback"),
    [
        ({"sure": 0.9}, 0.9, True, "sure=0.90 (✓ threshold=0.7)"),
        ({"sure": 0.5}, 0.5, False, "sure=0.50 (✗ threshold=0.7)"),
        ({}, 0.0, False, "sure=0.00 (✗ threshold=0.7)"),
        ({"sure": "very"}, 0.0, False, "sure is not a number but 'very': failed (threshold 0.7)"),
    ],
)
def test_a_threshold_marks_what_passed(kernel, output, score, passed, feedback):
    evaluator = ThresholdEvaluator(name="sure", key="sure", threshold=0.7)
    assert (evaluator.name, evaluator.key, evaluator.threshold) == ("sure", "sure", 0.7)

    @kernel.rollout()
    def run():
        return step(kernel, CognitiveCore.GENERATE, output)({"query": "test"})

    assert run() == output
    result = evaluator.evaluate(kernel.history)
    assert (result.score, result.passed, result.feedback) == (score, passed, feedback)
    assert result.metadata == {"key": "sure", "threshold": 0.7, "value": output.get("sure", 0.0)}
    result.score = 1.0


# Evaluators of a kernel.


def test_evaluators_are_kept_in_their_order(kernel):
    first, second = ThresholdEvaluator("a", "x", 0.5), Judge("b")
    kernel.add_evaluator(first)
    kernel.add_evaluator(second)
    assert kernel.evaluators == [first, second]
    with pytest.raises(InputError, match="two evaluators have the name 'a'"):
        kernel.add_evaluator(ThresholdEvaluator("a", "y", 0.5))
    with pytest.raises(InputError, match="has no name"):
        kernel.add_evaluator(object())
    assert len(kernel.evaluators) == 2


def test_results_are_there_when_the_node_has_returned(kernel):
    kernel.add_evaluator(ThresholdEvaluator("one", "x", 0.5))
    kernel.add_evaluator(ThresholdEvaluator("two", "y", 0.5))
    step(kernel, CognitiveCore.GENERATE, {"x": 0.75, "y": 0.25})({})
    results = last(kernel).evaluation_results
    assert {name: (one.score, one.passed) for name, one in results.items()} == {
        "one": (0.75, True),
        "two": (0.25, False),
    }
    results["one"].score = 0.0
    assert results["one"].score == 0.0
    assert type(results["one"]) is EvaluationResult


def test_an_evaluator_that_raises_leaves_no_result_and_the_node_its_own(kernel):
    kernel.add_evaluator(Judge("broken", lambda history: 1 / 0))
    kernel.add_evaluator(Judge("fine"))
    assert step(kernel, CognitiveCore.GENERATE, {"result": "success"})({}) == {"result": "success"}
    assert list(last(kernel).evaluation_results) == ["fine"]
    assert "ZeroDivisionError" in last(kernel).item.evaluation_results["broken"].reason


def test_an_evaluator_sees_all_that_went_before(kernel):
    def count(history):
        return min(1.0, sum(map(len, history.entries)) / 2)

    kernel.add_evaluator(Judge("count", count))

    @kernel.rollout()
    def run():
        node, passed = step(kernel, CognitiveCore.GENERATE, {}), []
        for _ in range(3):
            node({})
            passed.append(last(kernel).evaluation_results["count"].passed)
        return passed

    assert run() == [False, True, True]


def test_an_evaluator_sees_the_published_shape(kernel):
    def look(history):
        item = history.entries[-1][-1]
        seen.append((type(item.timestamp), item.output_state, item.check_policy_results))
        before = [one.evaluation_results for step in history.entries[:-1] for one in step]
        return 1.0 if all(type(r["look"]) is EvaluationResult for r in before) else 0.0

    seen = []
    kernel.add_evaluator(Judge("look", look))
    for _ in range(2):
        step(kernel, CognitiveCore.GENERATE, {"x": 1})({})
    assert seen == [(datetime.datetime, {"x": 1}, {})] * 2
    assert last(kernel).evaluation_results["look"].passed


@pytest.mark.parametrize(
    ("targets", "judged"),
    [
        ([CognitiveCore.GENERATE], ["GENERATE"]),
        ([CognitiveCore.GENERATE, CognitiveCore.REFLECT], ["GENERATE", "REFLECT"]),
        (None, ["GENERATE", "REFLECT", "VERIFY"]),
    ],
)
def test_targets_say_which_nodes_are_judged(kernel, targets, judged):
    judge = Judge("aimed", target_instructions=targets)
    kernel.add_evaluator(judge)
    for kind in (CognitiveCore.GENERATE, CognitiveCore.REFLECT, NormativeCore.VERIFY):
        step(kernel, kind, {})({})
    assert [kind.name for kind in judge.types] == judged
    assert [bool(item.evaluation_results) for (item,) in kernel.history.entries] == [
        kind.name in judged for kind in (named.GENERATE, named.REFLECT, named.VERIFY)
    ]


def test_an_async_evaluator_and_an_async_node(kernel):
    class Later(NodeEvaluator):
        async def evaluate(self, history):
            await asyncio.sleep(0)
            return EvaluationResult(0.5, True, "later")

    kernel.add_evaluator(Later("later"))

    @kernel.instruction(CognitiveCore.GENERATE)
    async def answer(state):
        await asyncio.sleep(0)
        return {"x": 1}

    @kernel.rollout()
    async def run():
        return await answer({})

    assert asyncio.run(run()) == {"x": 1}
    assert last(kernel).evaluation_results["later"].feedback == "later"


# Instructions, supersteps, rollouts.


def test_a_decorated_function_stays_what_it_is(kernel):
    @kernel.instruction(named.GENERATE)
    def answer(state):
        """Answers."""
        raise LookupError("nothing")

    assert (answer.__name__, answer.__doc__) == ("answer", "Answers.")
    with pytest.raises(LookupError, match="nothing"):
        answer({})
    assert (last(kernel).output_state, last(kernel).evaluation_results) == ({}, {})
    with pytest.raises(TypeError, match="positional argument"):
        answer({}, 1, 2)


def test_what_is_no_instruction_is_refused(kernel):
    with pytest.raises(InputError, match="no instruction type '5'"):
        kernel.instruction(5)


def test_a_backend_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="langgraph or native, not 'crewai'"):
        ArbiterOSAlpha(backend="crewai")
    assert ArbiterOSAlpha().backend == "langgraph"


def test_the_input_is_what_each_backend_gives(kernel):
    @kernel.instruction(CognitiveCore.GENERATE)
    def answer(state, more=2):
        return {}

    answer({"q": 1})
    assert last(kernel).input_state == (
        {"q": 1} if kernel.backend == "langgraph" else {"state": {"q": 1}, "more": 2}
    )


def test_nodes_stand_in_the_superstep_that_was_entered_for_them(kernel):
    @kernel.instruction(CognitiveCore.GENERATE)
    def answer(state):
        return state

    assert kernel.history.entries == []
    kernel.history.enter_next_superstep(["a", "b"])
    assert kernel.history.entries == [[]]
    for number in range(4):
        answer({"n": number})
    kernel.history.enter_next_superstep(["__start__"])
    shape = [[item.output_state["n"] for item in one] for one in kernel.history.entries]
    assert shape == [[0, 1], [2], [3]]


def test_a_rollout_begins_an_empty_history_and_runs_at_once_are_not_mixed(kernel):
    @kernel.instruction(CognitiveCore.GENERATE)
    def answer(state):
        barrier.wait(20)
        return state

    @kernel.rollout()
    def run(number):
        assert kernel.history.entries == []
        answer({"n": number})
        answer({"n": number})
        return [item.output_state["n"] for (item,) in kernel.history.entries]

    barrier = threading.Barrier(4)
    kernel.add_evaluator(Judge("alone", lambda history: len(history.entries) / 10))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [[n, n] for n in range(4)]
    barrier = threading.Barrier(1)
    held = kernel.history
    assert run(7) == [7, 7]
    assert [item.output_state for (item,) in kernel.history.entries] == [{"n": 7}] * 2
    assert last(kernel).evaluation_results["alone"].score == 0.2
    assert len(held.entries) == 2  # whoever holds an earlier one keeps it
    assert len(kernel.monitor.history.runs) == 1
    answer({"n": 8})
    assert len(kernel.history.entries) == 3


def test_rollouts_do_not_nest_and_pass_errors_on(kernel):
    @kernel.rollout()
    def inner():
        raise ValueError("its own")

    @kernel.rollout()
    def outer():
        inner()

    with pytest.raises(InputError, match="Nested rollouts are not allowed"):
        outer()
    with pytest.raises(ValueError, match="its own"):
        inner()


# Histories.


def test_a_history_prints_as_a_tree(native, capsys):
    native.add_evaluator(ThresholdEvaluator("sure", "sure", 0.7, [CognitiveCore.GENERATE]))
    step(native, CognitiveCore.GENERATE, {"sure": 0.85})({"q": "why"})
    native.history.pprint()
    shown = capsys.readouterr().out
    assert "superstep 1" in shown
    assert "sure  0.85 passed: sure=0.85 (✓ threshold=0.7)" in shown


# Graphs.


class State(TypedDict, total=False):
    n: Annotated[int, lambda old, new: new]
    said: Annotated[list, operator.add]


def graph(kernel):
    """`plan`, then `left` and `right` side by side, then `join`; `plain` is not decorated."""

    def plan(state):
        return {"n": state["n"], "said": ["plan"]}

    def left(state):
        return {"said": [f"left {state['n']}"]}

    def right(state):
        return {"said": [f"right {state['n']}"]}

    def plain(state):
        return {}

    def join(state):
        return {"said": [len(kernel.history.entries)]}

    built = StateGraph(State)
    kinds = [named.DECOMPOSE, named.GENERATE, named.GENERATE, None, named.RESPOND]
    for node, kind in zip((plan, left, right, plain, join), kinds, strict=True):
        built.add_node(node.__name__, kernel.instruction(kind)(node) if kind else node)
    built.add_edge(START, "plan")
    built.add_edge("plan", "left")
    built.add_edge("plan", "right")
    built.add_edge(["left", "right"], "plain")
    built.add_edge("plain", "join")
    return built.compile()


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
def test_the_nodes_of_a_registered_graph_stand_in_its_supersteps(way):
    kernel = ArbiterOSAlpha(backend="langgraph")
    judge = Judge("any")
    kernel.add_evaluator(judge)
    app = graph(kernel)
    kernel.register_compiled_graph(app)
    given = {"n": 1, "said": []}
    if way == "ainvoke":
        asyncio.run(app.ainvoke(given))
    else:
        list(getattr(app, way)(given))
    shape = [sorted(i.instruction.name for i in one) for one in kernel.history.entries]
    assert shape == [["DECOMPOSE"], ["GENERATE", "GENERATE"], ["RESPOND"]]
    assert len(judge.types) == 4
    assert {item.item.node for one in kernel.history.entries for item in one} == {
        *("plan", "left", "right", "join")
    }


def test_runs_of_a_registered_graph_are_not_mixed():
    def look(history):
        return float(len({i.input_state["n"] for one in history.entries for i in one}) == 1)

    kernel = ArbiterOSAlpha(backend="langgraph")
    kernel.add_evaluator(Judge("alone", look))
    app = graph(kernel)
    kernel.register_compiled_graph(app)
    app.batch([{"n": n, "said": []} for n in range(6)])
    items = [item for one in kernel.history.entries for item in one]
    assert len(items) == 24
    assert len({item.item.run_id for item in items}) == 6
    assert all(item.evaluation_results["alone"].passed for item in items)

    @kernel.rollout()
    def run():
        return app.invoke({"n": 1, "said": []})["said"][-1]

    assert run() == 2  # supersteps before `join`, of this rollout alone
    assert len(kernel.history.entries) == 3


def test_a_graph_that_is_not_compiled_cannot_be_registered(kernel):
    with pytest.raises(InputError, match="StateGraph cannot be watched"):
        kernel.register_compiled_graph(StateGraph(State))
