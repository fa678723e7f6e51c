import asyncio
import inspect
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval import (
    GENERATE,
    VERIFY,
    Monitor,
    NodeEvaluator,
    SnapshotLimits,
    ThresholdEvaluator,
)

FINE = EvaluationResult(1.0, True)


@pytest.fixture
def monitor():
    with Monitor([ThresholdEvaluator("sure", "sure", 0.5)]) as opened:
        yield opened


def last(monitor):
    return monitor.history.entries[-1][-1]


# Functions.


def test_a_plain_function_is_a_node(monitor):
    @monitor.node(GENERATE)
    def answer(state):
        """Answers."""
        state["seen"] = True
        return {"sure": 0.75}

    assert answer({"question": "why"}) == {"sure": 0.75}
    item = last(monitor)
    assert (item.node, item.instruction) == ("answer", GENERATE)
    assert (item.input_state, item.output_state) == ({"question": "why"}, {"sure": 0.75})
    assert item.seconds >= 0
    assert monitor.last_feedback("answer").results["sure"].score == 0.75
    assert (answer.__name__, answer.__doc__) == ("answer", "Answers.")


def test_arguments_are_the_input_by_their_names(monitor):
    class Agent:
        @monitor.node(VERIFY, name="look")
        def check(self, text, *more, strict=False):
            return text

        @classmethod
        @monitor.node()
        def of_class(cls, text):
            return text

    Agent().check("a", 1, 2, strict=True)
    assert last(monitor).input_state == {"text": "a", "…": [1, 2], "strict": True}
    Agent.of_class("b")
    assert last(monitor).input_state == {"text": "b"}


class OddError(Exception):
    pass


def test_a_function_that_raises_raises_the_same(monitor):
    error = OddError("gone\nwrong")

    @monitor.node(GENERATE)
    def answer():
        raise error

    with pytest.raises(OddError) as raised:
        answer()
    assert raised.value is error
    item = last(monitor)
    assert (item.error, item.output_state, item.interrupted) == (
        "raised OddError: gone wrong",
        None,
        False,
    )
    assert item.evaluation_results == {"sure": Failure("skipped", "the node failed")}
    feedback = monitor.last_feedback("answer")
    assert (feedback.passed, feedback.text) == (None, "answer: raised OddError: gone wrong")


async def test_a_coroutine_function_is_a_node(monitor):
    @monitor.node(GENERATE)
    async def answer(text):
        await asyncio.sleep(0)
        return {"sure": len(text) / 10}

    assert inspect.iscoroutinefunction(answer)
    assert await answer("abc") == {"sure": 0.3}
    assert last(monitor).input_state == {"text": "abc"}

    @monitor.node(GENERATE)
    async def wait():
        await asyncio.sleep(20)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await waiting
    item = last(monitor)
    assert (item.node, item.error, item.interrupted) == ("wait", "cancelled", True)


# Generators.


def talk(log):
    """Cleans up."""
    try:
        yield "one"
        yield "two"
    finally:
        log.append("clean")


def test_a_generator_is_a_node(monitor):
    log = []
    made = monitor.node(GENERATE)(talk)(log)
    assert list(monitor.history.items) == []
    assert list(made) == ["one", "two"]
    assert log == ["clean"]
    assert last(monitor).output_state == ["one", "two"]

    made = monitor.node(GENERATE)(talk)(log)
    next(made)
    made.close()
    assert log == ["clean"] * 2
    assert (last(monitor).output_state, last(monitor).error) == (["one"], None)

    made = monitor.node(GENERATE)(talk)(log)
    next(made)
    with pytest.raises(OddError):
        made.throw(OddError("early"))
    assert last(monitor).error == "raised OddError: early"


async def atalk(log):
    try:
        yield "one"
        yield "two"
    finally:
        log.append("clean")


async def test_an_async_generator_too(monitor):
    log = []
    watched = monitor.node(GENERATE)(atalk)
    assert inspect.isasyncgenfunction(watched)
    assert [value async for value in watched(log)] == ["one", "two"]
    assert last(monitor).output_state == ["one", "two"]

    made = watched(log)
    await anext(made)
    await made.aclose()
    assert log == ["clean"] * 2
    assert (last(monitor).output_state, last(monitor).error) == (["one"], None)

    made = watched(log)
    await anext(made)
    with pytest.raises(OddError):
        await made.athrow(OddError("early"))
    assert last(monitor).error == "raised OddError: early"


def test_of_much_that_is_yielded_the_beginning_is_kept():
    monitor = Monitor(limits=SnapshotLimits(items=4))
    assert list(monitor.node(GENERATE)(range)(9)) == list(range(9))

    @monitor.node(GENERATE)
    def count():
        yield from range(9)

    assert list(count()) == list(range(9))
    assert last(monitor).output_state == [0, 1, 2, "<6 more items: not kept>"]


# Blocks.


async def test_a_block_is_a_node(monitor):
    with monitor.node(GENERATE, input_state={"q": 1}) as node:
        node.output = {"sure": 0.25}
        node.tokens = 7
    item = last(monitor)
    assert node.item is item
    assert (item.node, item.input_state, item.output_state, item.tokens) == (
        "generate",
        {"q": 1},
        {"sure": 0.25},
        7,
    )
    with pytest.raises(OddError):
        async with monitor.node(VERIFY, name="check"):
            raise OddError
    assert (last(monitor).node, last(monitor).error) == ("check", "raised OddError")


async def test_nodes_inside_a_superstep_stand_side_by_side(monitor):
    @monitor.node(GENERATE)
    async def answer(n):
        await asyncio.sleep(0)

    await answer(0)
    with monitor.superstep():
        await asyncio.gather(answer(1), answer(2), asyncio.to_thread(asyncio.run, answer(3)))
    await answer(4)
    steps = [{item.input_state["n"] for item in step} for step in monitor.history.entries]
    assert steps == [{0}, {1, 2, 3}, {4}]


# The seam for adapters.


def test_nothing_raises_into_the_agent(monitor, caplog):
    class Unhashable:
        __hash__ = None

    node = monitor.begin("odd", GENERATE, {}, step=Unhashable())
    item = monitor.end(node, {"sure": 1.0})
    assert item.output_state == {"sure": 1.0}
    assert "node 'odd' is not judged: raised TypeError" in caplog.text
    assert monitor.end(node, {}) is item
    assert monitor.fail(node, OddError()) is item


def test_feedback_names_who_was_not_content():
    class Judge(NodeEvaluator):
        background = True

        async def evaluate(self, history):
            await asyncio.to_thread(released.wait, 20)
            return EvaluationResult(0.2, False, "Say why.")

    released = threading.Event()
    evaluators = [ThresholdEvaluator("sure", "sure", 0.5), ThresholdEvaluator("x", "x", 0.5)]
    with Monitor([*evaluators, Judge("judge")]) as monitor:
        monitor.end(monitor.begin("answer", None, {}), {"sure": 1.0})
        feedback = monitor.last_feedback("answer")
        assert feedback.text == "x: x = 0, threshold 0.5: failed"
        assert feedback.passed is False
        released.set()
        monitor.drain_sync()
        assert monitor.last_feedback("answer").text.splitlines()[1:] == ["judge: Say why."]
        assert monitor.last_feedback("nobody") is None


# Whatever evaluators do, the agent does what it did.

OUTCOMES = ["fine", "none", "nan", "raise", "exit", "spoil", "hang", "await", "await raise"]


class Unruly(NodeEvaluator):
    timeout = 0.02

    def __init__(self, name, kinds, release):
        super().__init__(name)
        self.kinds, self.release, self.calls = kinds, release, 0

    def evaluate(self, history):
        self.calls += 1
        kind = self.kinds[self.calls % len(self.kinds)]
        state = history.entries[-1][-1].output_state
        if kind == "raise":
            raise OddError
        if kind == "exit":
            raise SystemExit
        if kind == "hang":
            self.release.wait(20)
        if kind == "spoil":
            history.entries[-1][-1].input_state.clear()
            state.clear()
            history.entries[0].clear()
        if kind.startswith("await"):
            return self.later(kind)
        return {"none": None, "nan": EvaluationResult(float("nan"), True)}.get(kind, FINE)

    async def later(self, kind):
        await asyncio.sleep(0)
        if kind == "await raise":
            raise OddError
        return FINE


@st.composite
def graphs(draw):
    """Nodes in order, each with the nodes that it reads from, and whether it raises."""
    size = draw(st.integers(1, 8))
    return [
        (draw(st.lists(st.integers(0, n - 1), max_size=3)) if n else [], draw(st.integers(0, 9)))
        for n in range(size)
    ]


def execute(graph, wrap):
    """What came out of each node: a value, or the error that it raised or was told of."""
    values = {}

    def make(number, raises):
        def node(state):
            state["touched"] = True
            if raises == 0:
                raise OddError(number)
            return {"sum": sum(state["from"]) + number, "sure": 0.5}

        return node

    for number, (parents, raises) in enumerate(graph):
        try:
            before = [values[p]["sum"] for p in parents if isinstance(values[p], dict)]
            values[number] = wrap(number, make(number, raises))({"from": before})
        except OddError as error:
            values[number] = repr(error)
    return values


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(graphs(), st.lists(st.lists(st.sampled_from(OUTCOMES), min_size=1), max_size=4))
def test_evaluators_never_change_what_the_agent_does(graph, kinds):
    release = threading.Event()
    evaluators = [Unruly(f"e{n}", kind, release) for n, kind in enumerate(kinds)]
    monitor = Monitor(evaluators)
    try:
        watched = execute(graph, lambda n, node: monitor.node(GENERATE, name=f"n{n}")(node))
        assert watched == execute(graph, lambda _, node: node)
        assert monitor.drain_sync(20)
    finally:
        release.set()
        monitor.close(5)
    items = list(monitor.history.items)
    assert [item.node for item in items] == [f"n{n}" for n in range(len(graph))]
    for item in items:
        assert set(item.evaluation_results) == {e.name for e in evaluators}
        assert "touched" not in item.input_state
        assert (item.output_state is None) == (item.error is not None)
        for result in item.evaluation_results.values():
            assert isinstance(result, Failure) or 0 <= result.score <= 1
