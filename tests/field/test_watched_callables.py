"""A user watches generators, streams and odd callables of an application: with and without the
monitor they must do the same, whoever makes a step and wherever a block ends.

The right value is what the plain code gives (PEP 380, PEP 525).
"""

import asyncio
import contextvars
import functools
from contextlib import ExitStack, contextmanager

import pytest

from textevolve import InputError
from textevolve.node_eval import GENERATE, Monitor
from textevolve.node_eval.arbiteros import ArbiterOSAlpha
from textevolve.user_code import is_async
from textevolve.wrapping import kind_of


def tool_loop(question):
    found = yield f"call search({question})"
    try:
        more = yield f"got {found}"
    except ValueError as error:
        more = f"caught {error}"
        yield "recovered"
    return f"final {found}, {more}"


class Rollback(Exception):
    """What a web framework throws into a dependency."""


class Agent:
    async def __call__(self, state):
        return state

    def stream(self, words):
        yield from words


def talk(loop):
    def outer():
        return (yield from loop("tides"))

    values = outer()
    record = [next(values), values.send("moon"), values.throw(ValueError("bad tool"))]
    with pytest.raises(StopIteration) as stopped:
        next(values)
    return [*record, stopped.value.value]


def watchers():
    return [Monitor([]).node(GENERATE), ArbiterOSAlpha().instruction(GENERATE)]


@pytest.mark.parametrize("watch", [*watchers(), ArbiterOSAlpha().rollout()])
def test_generators_delegate(watch):
    assert talk(watch(tool_loop)) == talk(tool_loop)


@pytest.mark.parametrize("watch", [*watchers(), ArbiterOSAlpha().rollout()])
def test_dependencies_roll_back(watch):
    seen = []

    @watch
    async def session():
        try:
            yield "session"
            seen.append("committed")
        except Rollback:
            seen.append("rolled back")
            raise

    async def request():
        values = session()
        await anext(values)
        await values.athrow(Rollback())

    with pytest.raises(Rollback):
        asyncio.run(request())
    assert seen == ["rolled back"]


def test_kinds_of_callables():
    agent = Agent()
    assert kind_of(functools.partial(agent, 1)) == "coroutine"
    assert kind_of(functools.partial(functools.partial(agent.stream), "ab")) == "generator"
    assert kind_of(Agent) == "function"
    assert is_async(functools.partial(agent))
    assert not is_async(Agent)


def test_decorators_stand_in_any_order():
    with Monitor([]) as monitor:

        class Named:
            @monitor.node(GENERATE)
            @classmethod
            def of_class(cls, word):
                return cls.__name__ + word

            @monitor.node(GENERATE)
            @staticmethod
            def of_nobody(word):
                return word

        assert [Named.of_class("!"), Named().of_class("?"), Named.of_nobody("a")] == [
            "Named!",
            "Named?",
            "a",
        ]
        inputs = [item.input_state for item in monitor.history.items]
        assert inputs == [{"word": "!"}, {"word": "?"}, {"word": "a"}]
        with pytest.raises(InputError, match="a property is not callable"):
            monitor.node(GENERATE)(property(lambda self: 1))


def words(monitor, name):
    with monitor.run(name):
        for word in ("It ", "is ", "noon."):
            with monitor.node(GENERATE, name="write"):
                pass
            yield word


def count_nodes(monitor):
    return {run: len(list(history.items)) for run, history in monitor.history.runs.items()}


def step_apart(values):
    return contextvars.copy_context().run(next, values, None)


def test_a_run_covers_all_steps():
    with Monitor([]) as monitor:
        streams = [words(monitor, name) for name in ("one", "two")]
        for _ in range(4):
            for stream in streams:
                step_apart(stream)
        assert count_nodes(monitor) == {"one": 3, "two": 3}


def test_runs_within_streams_are_inner():
    def stream(monitor):
        with monitor.run("outer"):
            yield
            with monitor.run("inner"), monitor.node(GENERATE, name="a"):
                pass
            yield

    with Monitor([]) as monitor:
        values = stream(monitor)
        step_apart(values)
        # The caller has a run of its own meanwhile, which is not that of the stream.
        with monitor.run("caller"):
            step_apart(values)
            with monitor.node(GENERATE, name="b"):
                pass
        assert count_nodes(monitor) == {"inner": 1, "caller": 1}


@pytest.mark.parametrize("way", ["helper", "stack"])
def test_runs_may_be_opened_by_helpers(way):
    with Monitor([]) as monitor:

        @contextmanager
        def traced(name):
            with monitor.run(name):
                yield

        def stream():
            with ExitStack() as stack:
                if way == "stack":
                    stack.enter_context(monitor.run("one"))
                else:
                    stack.enter_context(traced("one"))
                for _ in range(3):
                    with monitor.node(GENERATE, name="write"):
                        pass
                    yield

        values = stream()
        for _ in range(4):
            step_apart(values)
        assert count_nodes(monitor) == {"one": 3}
        assert monitor.current_run is None
