"""Callables of every kind, what is done to them, and where: the parts of the first matrix of
`test_transparency.py`.

Each piece of code here runs twice, plain and wrapped by the product, and writes down what it sees.
The two records must be equal.
"""

import asyncio
import contextvars
import functools
import inspect
import os
import pickle
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from textevolve.node_eval import GENERATE, Monitor, NodeEvaluator, SnapshotLimits
from textevolve.node_eval.arbiteros import ArbiterOSAlpha

Record = list[Any]
Wrap = Callable[[Any], Any]

MARK = contextvars.ContextVar("MARK", default="none")
"""What the user's code sets and reads, as a web framework does with the current user."""


class GradedError(ValueError):
    """An error of the user's own."""


class Touchy:
    """An object that nobody but its user may look into, such as a connection or a lazy value."""

    def __repr__(self) -> str:
        raise RuntimeError("nobody may print this")

    def __len__(self) -> int:
        raise RuntimeError("nobody may count this")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"nobody may ask for {name}")


class Order:
    """The only argument of the user's code: what it is to do, and what it has seen."""

    def __init__(self, action: str = "", again: Callable[..., Any] | None = None) -> None:
        self.action = action
        self.again = again
        self.error = GradedError("wrong", 7)
        self.result: Any = {"text": "It is noon.", "parts": [1, 2]}
        self.seen: Record = []

    def perform(self) -> Any:
        """Do what is ordered, in the middle of the user's code."""
        self.seen.append(("mark", MARK.get()))
        match self.action:
            case "raise":
                raise self.error
            case "exit":
                raise SystemExit(3)
            case "stop":
                raise StopIteration("early")
            case "set":
                MARK.set("inner")
            case "touchy":
                self.result = Touchy()
            case "lazy":
                self.result = iter([1, 2, 3])
        return self.result


# The user's code, one body of each flavour. The first argument is the object or class of a method.


def work(owner, order, *rest, flag=False, **more):
    """Work as ordered."""
    order.seen.append(("called", name_owner(owner), rest, flag, more))
    if order.again is not None and len(order.seen) < 4:
        return ["again", order.again(order)]
    return order.perform()


async def work_async(owner, order, *rest, flag=False, **more):
    """Work as ordered, and let others work meanwhile."""
    order.seen.append(("called", name_owner(owner), rest, flag, more))
    try:
        await asyncio.sleep(0)
        if order.action == "wait":
            await asyncio.get_running_loop().create_future()
        if order.again is not None and len(order.seen) < 4:
            return ["again", await order.again(order)]
        return order.perform()
    finally:
        order.seen.append("cleaned")


def talk(owner, order, *rest, flag=False, **more):
    """Yield what comes in, and return how often."""
    order.seen.append(("called", name_owner(owner), rest, flag, more))
    number = 0
    value: Any = "first"
    try:
        while value != "enough":
            try:
                value = yield ("yielded", value)
            except GradedError as error:
                value = ("caught", error.args, error is order.error)
            number += 1
            order.perform()
        return ("said", number)
    finally:
        order.seen.append("cleaned")


async def talk_async(owner, order, *rest, flag=False, **more):
    """Yield what comes in."""
    order.seen.append(("called", name_owner(owner), rest, flag, more))
    value: Any = "first"
    try:
        while value != "enough":
            try:
                value = yield ("yielded", value)
            except GradedError as error:
                value = ("caught", error.args, error is order.error)
            await asyncio.sleep(0)
            if order.action == "wait":
                await asyncio.get_running_loop().create_future()
            order.perform()
    finally:
        order.seen.append("cleaned")


def name_owner(owner: Any) -> str:
    """Return the name of the object or class to which the user's code belongs."""
    if isinstance(owner, str):
        return owner
    return owner.__name__ if inspect.isclass(owner) else f"an object of {type(owner).__name__}"


BODIES: dict[str, Callable[..., Any]] = {
    "function": work,
    "coroutine": work_async,
    "generator": talk,
    "async generator": talk_async,
}

# The forms in which a user may write each of them.


@dataclass(frozen=True)
class Target:
    """A callable, the arguments that stand before the user's own, and whether it has a name; an
    object and a partial have none, and may get one."""

    callable: Any
    lead: tuple[Any, ...] = ()
    is_named: bool = True

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.callable(*self.lead, *arguments, **named)


def own_class(name: str, attribute: Any) -> type:
    """Return a class of the user's with a method."""
    return type(name, (), {"reply": attribute, "__module__": __name__})


def write_function(wrap: Wrap, body: Any) -> Target:
    return Target(wrap(body), ("nobody",))


def write_method(wrap: Wrap, body: Any) -> Target:
    return Target(own_class("Agent", wrap(body))().reply)


def write_bound_method(wrap: Wrap, body: Any) -> Target:
    return Target(wrap(own_class("Agent", body)().reply))


def write_class_method(wrap: Wrap, body: Any) -> Target:
    return Target(own_class("Agent", classmethod(wrap(body)))().reply)


def write_above_class_method(wrap: Wrap, body: Any) -> Target:
    return Target(own_class("Agent", wrap(classmethod(body)))().reply)


def write_static_method(wrap: Wrap, body: Any) -> Target:
    return Target(own_class("Agent", staticmethod(wrap(body)))().reply, ("nobody",))


def write_above_static_method(wrap: Wrap, body: Any) -> Target:
    return Target(own_class("Agent", wrap(staticmethod(body)))().reply, ("nobody",))


def write_partial(wrap: Wrap, body: Any) -> Target:
    return Target(wrap(functools.partial(body, "a partial")), (), False)


def write_object(wrap: Wrap, body: Any) -> Target:
    return Target(wrap(type("Caller", (), {"__call__": body})()), (), False)


def write_lambda(wrap: Wrap, body: Any) -> Target:
    return Target(wrap(lambda order, *rest, **more: body("a lambda", order, *rest, **more)))


def write_decorated(wrap: Wrap, body: Any) -> Target:
    @functools.wraps(body)
    def decorated(*arguments: Any, **named: Any) -> Any:
        return body(*arguments, **named)

    return Target(wrap(decorated), ("nobody",))


FORMS: dict[str, Callable[[Wrap, Any], Target]] = {
    "as it is": write_function,
    "method": write_method,
    "bound method": write_bound_method,
    "class method": write_class_method,
    "static method": write_static_method,
    "partial": write_partial,
    "callable object": write_object,
    "lambda": write_lambda,
    "decorated": write_decorated,
}

UPSIDE_DOWN: dict[str, Callable[[Wrap, Any], Target]] = {
    "above a class method": write_above_class_method,
    "above a static method": write_above_static_method,
}
"""Forms with the decorators in the other order."""

# What is done to them.


def describe_error(order: Order, error: BaseException) -> Any:
    """Describe an exception by all that its user can tell: what it is, and where it came from."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    is_own = error is order.error
    own_names = [name for name in names if name in {"work", "work_async", "talk", "talk_async"}]
    cause = type(error.__cause__).__name__
    return ("raised", type(error).__name__, error.args, is_own, own_names, cause)


def record_errors(drive: Callable[[Target, Order, Record], Any]) -> Callable[[Target, Order], Any]:
    """Return a behaviour that also records the exception in which it ends."""

    def record(target: Target, order: Order) -> Record:
        seen: Record = []
        try:
            drive(target, order, seen)
        except BaseException as error:  # noqa: BLE001  each one is a part of the behaviour
            seen.append(describe_error(order, error))
        return [*seen, *order.seen]

    async def record_async(target: Target, order: Order) -> Record:
        seen: Record = []
        try:
            await drive(target, order, seen)
        except BaseException as error:  # noqa: BLE001  each one is a part of the behaviour
            seen.append(describe_error(order, error))
        return [*seen, *order.seen]

    return record_async if inspect.iscoroutinefunction(drive) else record


@dataclass(frozen=True)
class Behaviour:
    """Something that is done to a callable.

    Attributes:
        drive: Does it, and records what it sees.
        action: What the user's code is ordered to do.
    """

    drive: Callable[[Target, Order, Record], Any]
    action: str = ""


def look(target: Target, order: Order, seen: Record) -> None:
    """Look at the callable, as frameworks do before they call it."""
    function = target.callable
    if target.is_named:
        seen.append((function.__name__, function.__doc__, function.__module__))
    seen.append(str(inspect.signature(function)))
    seen.append(callable(function))
    for is_kind in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    ):
        # Of an object, its method tells.
        of_object = is_kind(getattr(type(function), "__call__", None))  # noqa: B004
        seen.append((is_kind.__name__, is_kind(function) or of_object))


def call(target: Target, order: Order, seen: Record) -> None:
    result = target(order)
    seen.append((type(result).__name__, result is order.result))
    seen.append(MARK.get())
    if isinstance(result, Iterator):
        seen.append(list(result))


def call_with_more(target: Target, order: Order, seen: Record) -> None:
    seen.append(target(order, 1, "two", flag=True, key=None))


def call_wrongly(target: Target, order: Order, seen: Record) -> None:
    target()


def call_again(target: Target, order: Order, seen: Record) -> None:
    order.again = target
    seen.append(target(order))


async def call_async(target: Target, order: Order, seen: Record) -> None:
    pending = target(order)
    seen.append((inspect.iscoroutine(pending), list(order.seen)))
    result = await pending
    seen.append((type(result).__name__, result is order.result))
    seen.append(MARK.get())


async def call_async_with_more(target: Target, order: Order, seen: Record) -> None:
    seen.append(await target(order, 1, "two", flag=True, key=None))


async def call_async_again(target: Target, order: Order, seen: Record) -> None:
    order.again = target
    seen.append(await target(order))


async def cancel(target: Target, order: Order, seen: Record) -> None:
    task = asyncio.ensure_future(target(order))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel("enough")
    with suppress(asyncio.CancelledError):
        seen.append(await task)
    seen.append(("cancelled", task.cancelled()))


async def time_out(target: Target, order: Order, seen: Record) -> None:
    try:
        async with asyncio.timeout(None) as limit:
            limit.reschedule(asyncio.get_running_loop().time())
            seen.append(await target(order))
    except TimeoutError:
        seen.append("timed out")


def iterate(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append((inspect.isgenerator(values), list(order.seen)))
    for number, value in enumerate(values):
        seen.append(value)
        if number == 2:
            break
    seen.append(MARK.get())


def send(target: Target, order: Order, seen: Record) -> None:
    values = target(order, 1, flag=True)
    seen.append(next(values))
    seen.append(values.send("moon"))
    seen.append(values.send(["sea"]))


def return_value(target: Target, order: Order, seen: Record) -> None:
    def delegate() -> Any:
        result = yield from target(order)
        seen.append(("returned", result))

    values = delegate()
    seen.append(next(values))
    with suppress(StopIteration):
        seen.append(values.send("enough"))


def throw(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(next(values))
    seen.append(values.throw(order.error))


def throw_unknown(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(next(values))
    values.throw(KeyError("lost"))


def close(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(next(values))
    seen.append(values.close())
    seen.append(list(values))


def close_unused(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(values.close())


def roll_back(target: Target, order: Order, seen: Record) -> None:
    """Use a generator as a context manager: what is raised in the block must reach it."""

    def managed() -> Any:
        return target(order)

    with contextmanager(managed)() as value:
        seen.append(value)
        raise KeyError("roll back")


async def iterate_async(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append((inspect.isasyncgen(values), list(order.seen)))
    number = 0
    async for value in values:
        seen.append(value)
        number += 1
        if number == 3:
            break
    await values.aclose()
    seen.append(MARK.get())


async def send_async(target: Target, order: Order, seen: Record) -> None:
    values = target(order, 1, flag=True)
    seen.append(await anext(values))
    seen.append(await values.asend("moon"))
    with suppress(StopAsyncIteration):
        seen.append(await values.asend("enough"))


async def throw_async(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(await anext(values))
    try:
        seen.append(await values.athrow(order.error))
    finally:
        await values.aclose()


async def close_async(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(await anext(values))
    seen.append(await values.aclose())
    seen.append([value async for value in values])


async def close_async_unused(target: Target, order: Order, seen: Record) -> None:
    seen.append(await target(order).aclose())


async def close_in_another_task(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(await anext(values))
    seen.append(await asyncio.create_task(values.aclose()))


async def step_in_other_tasks(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(await asyncio.wait_for(anext(values), None))
    seen.append(await asyncio.create_task(anext(values)))
    await asyncio.create_task(values.aclose())


async def cancel_within(target: Target, order: Order, seen: Record) -> None:
    values = target(order)
    seen.append(await anext(values))
    task = asyncio.ensure_future(anext(values))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        seen.append(await task)
    seen.append(("cancelled", task.cancelled()))


async def roll_back_async(target: Target, order: Order, seen: Record) -> None:
    def managed() -> Any:
        return target(order)

    async with asynccontextmanager(managed)() as value:
        seen.append(value)
        raise KeyError("roll back")


BEHAVIOURS: dict[str, dict[str, Behaviour]] = {
    "function": {
        "its looks": Behaviour(look),
        "its result": Behaviour(call),
        "its arguments": Behaviour(call_with_more),
        "wrong arguments": Behaviour(call_wrongly),
        "an error": Behaviour(call, "raise"),
        "an exit": Behaviour(call, "exit"),
        "a StopIteration": Behaviour(call, "stop"),
        "a context variable": Behaviour(call, "set"),
        "a result that nobody may touch": Behaviour(call, "touchy"),
        "an iterator as result": Behaviour(call, "lazy"),
        "a call of itself": Behaviour(call_again),
    },
    "coroutine": {
        "its looks": Behaviour(look),
        "its result": Behaviour(call_async),
        "its arguments": Behaviour(call_async_with_more),
        "an error": Behaviour(call_async, "raise"),
        "a context variable": Behaviour(call_async, "set"),
        "a result that nobody may touch": Behaviour(call_async, "touchy"),
        "a call of itself": Behaviour(call_async_again),
        "cancelled midway": Behaviour(cancel, "wait"),
        "out of time": Behaviour(time_out, "wait"),
    },
    "generator": {
        "its looks": Behaviour(look),
        "its values": Behaviour(iterate),
        "sent values": Behaviour(send),
        "its return value": Behaviour(return_value),
        "a thrown error": Behaviour(throw),
        "a thrown error that it does not catch": Behaviour(throw_unknown),
        "closed": Behaviour(close),
        "closed before its first value": Behaviour(close_unused),
        "an error of its own": Behaviour(iterate, "raise"),
        "a context variable": Behaviour(iterate, "set"),
        "a block that raises": Behaviour(roll_back),
    },
    "async generator": {
        "its looks": Behaviour(look),
        "its values": Behaviour(iterate_async),
        "sent values": Behaviour(send_async),
        "a thrown error": Behaviour(throw_async),
        "closed": Behaviour(close_async),
        "closed before its first value": Behaviour(close_async_unused),
        "closed in another task": Behaviour(close_in_another_task),
        "stepped in other tasks": Behaviour(step_in_other_tasks),
        "an error of its own": Behaviour(iterate_async, "raise"),
        "a context variable": Behaviour(iterate_async, "set"),
        "cancelled midway": Behaviour(cancel_within, "wait"),
        "a block that raises": Behaviour(roll_back_async),
    },
}

# Where it is done. A place runs a job and returns its record.

Job = Callable[[], Any]


HUNG = "it hung"
"""What stands for the record of a job in another process that does not end."""


def run_here(job: Job) -> Any:
    return job()


def run_in_thread(job: Job) -> Any:
    records: Record = []
    thread = threading.Thread(target=lambda: records.append(job()))
    thread.start()
    thread.join()
    return records


def run_in_pool(job: Job) -> Any:
    with ThreadPoolExecutor(2) as pool:
        pending = [pool.submit(job) for _ in range(3)]
        return [future.result() for future in pending]


def run_in_copied_context(job: Job) -> Any:
    return contextvars.copy_context().run(job)


def run_in_loop(job: Job) -> Any:
    async def run() -> Any:
        return job()

    return asyncio.run(run())


def run_in_child(job: Job, patience: float = 60.0) -> Any:
    """Run a job in a forked child, and return its value, or HUNG after so many seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            content = pickle.dumps(job())
        except BaseException as error:  # noqa: BLE001  the parent is to know
            content = pickle.dumps(("the child raised", type(error).__name__, str(error)))
        with suppress(OSError), os.fdopen(writer, "wb") as pipe:
            pipe.write(content)
        os._exit(0)
    os.close(writer)
    try:
        if not select.select([reader], [], [], patience)[0]:
            return HUNG
        with os.fdopen(reader, "rb", closefd=False) as pipe:
            return pickle.loads(pipe.read())
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def run_in_used_child(job: Job) -> Any:
    """Run a job here, and then in a forked child, whose record counts."""
    began = time.perf_counter()
    job()
    return run_in_child(job, max(3.0, 50 * (time.perf_counter() - began)))


PLACES: dict[str, Callable[[Job], Any]] = {
    "here": run_here,
    "in a thread": run_in_thread,
    "in a pool": run_in_pool,
    "in a copied context": run_in_copied_context,
    "within a running loop": run_in_loop,
    "in a forked child": run_in_child,
    "in a child forked after its first use": run_in_used_child,
}


async def await_here(drive: Callable[[], Any]) -> Any:
    return await drive()


async def await_in_task(drive: Callable[[], Any]) -> Any:
    return await asyncio.create_task(drive())


async def await_side_by_side(drive: Callable[[], Any]) -> Any:
    return await asyncio.gather(drive(), drive(), drive())


async def await_with_limit(drive: Callable[[], Any]) -> Any:
    return await asyncio.wait_for(drive(), 3600)


TASKS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "awaited": await_here,
    "in a task": await_in_task,
    "side by side": await_side_by_side,
    "with a limit": await_with_limit,
}


def exercise(target: Target, behaviour: Behaviour, task: str | None) -> Record:
    """Do something to a callable, in a context of its own, and return what was seen."""
    record = record_errors(behaviour.drive)

    def run() -> Record:
        MARK.set("outer")
        if not inspect.iscoroutinefunction(record):
            return record(target, Order(behaviour.action))

        async def drive() -> Record:
            return await record(target, Order(behaviour.action))

        return asyncio.run(TASKS[task or "awaited"](drive))

    return contextvars.copy_context().run(run)


# What watches them.


class Raises(NodeEvaluator):
    """An evaluator that raises."""

    def evaluate(self, history):
        raise GradedError("the evaluator is broken")


class Hangs(NodeEvaluator):
    """An evaluator that waits until it is released, in the background."""

    background = True
    released: threading.Event

    def evaluate(self, history):
        self.released.wait()
        raise GradedError("released")


class Spoils(NodeEvaluator):
    """An evaluator that changes all that it is shown."""

    def evaluate(self, history):
        item = history.entries[-1][-1]
        for state in (item.input_state, item.output_state):
            with suppress(Exception):
                state.clear()
        MARK.set("spoiled")
        raise GradedError("spoiled")


@dataclass
class Watcher:
    """Something of the product that wraps a user's callable.

    Attributes:
        wrap: Wraps it.
        around: Opens the block within which it is called.
        count: Returns how many calls it has recorded.
        close: Ends it.
    """

    wrap: Wrap
    count: Callable[[], int]
    close: Callable[[], object] = lambda: None
    around: Callable[[], Any] = nullcontext


def watch_with(*evaluators: NodeEvaluator, **options: Any) -> Watcher:
    """Return a monitor as a watcher."""
    monitor = Monitor(evaluators, **options)
    return Watcher(
        monitor.node(GENERATE),
        lambda: len(list(monitor.history.items)),
        lambda: monitor.close(5),
    )


def watch_alone() -> Watcher:
    return watch_with()


def watch_broken() -> Watcher:
    return watch_with(Raises("broken"))


def watch_hanging() -> Watcher:
    evaluator = Hangs("slow")
    evaluator.released = threading.Event()
    watcher = watch_with(evaluator, queue_size=1, concurrency=1)
    end = watcher.close

    def close() -> None:
        evaluator.released.set()
        end()

    watcher.close = close
    return watcher


def watch_spoiling() -> Watcher:
    return watch_with(Spoils("spoils"), limits=SnapshotLimits(characters=5, items=1))


def watch_in_run() -> Watcher:
    monitor = Monitor([])
    return Watcher(
        monitor.node(GENERATE),
        lambda: len(list(monitor.history.items)),
        lambda: monitor.close(5),
        lambda: monitor.run("r"),
    )


def watch_published() -> Watcher:
    arbiter = ArbiterOSAlpha(backend="native")
    arbiter.add_evaluator(Raises("broken"))
    return Watcher(
        arbiter.instruction(GENERATE),
        lambda: len(list(arbiter.monitor.history.items)),
        lambda: arbiter.monitor.close(5),
    )


WATCHERS: dict[str, Callable[[], Watcher]] = {
    "a monitor": watch_alone,
    "a monitor whose judge raises": watch_broken,
    "a monitor whose judge hangs": watch_hanging,
    "a monitor whose judge spoils what it sees": watch_spoiling,
    "a monitor in a run": watch_in_run,
    "an instruction of ArbiterOS": watch_published,
}


# Blocks of a monitor within a generator, which another context may end.

STEPS = 3


BLOCKS: dict[str, Callable[[Monitor], Any]] = {
    "a run": lambda monitor: monitor.run("one"),
    "a superstep": lambda monitor: monitor.superstep(),
    "a node": lambda monitor: monitor.node(GENERATE, name="outer"),
}


def stream(monitor: Monitor, block: Any) -> Iterator[str]:
    """Stream words within a block of the monitor, a node for each."""
    with block:
        for number in range(STEPS):
            with monitor.node(GENERATE, name="word"):
                pass
            yield f"word {number}"


async def stream_async(monitor: Monitor, block: Any) -> Any:
    """Stream words within a block of the monitor, a node for each."""
    with block:
        for number in range(STEPS):
            with monitor.node(GENERATE, name="word"):
                pass
            yield f"word {number}"


def read_all(words: Iterator[str]) -> Record:
    return list(words)


def read_in_contexts(words: Iterator[str]) -> Record:
    record: Record = []
    for _ in range(STEPS + 1):
        record.append(contextvars.copy_context().run(next, words, "end"))
    return record


def read_in_threads(words: Iterator[str]) -> Record:
    with ThreadPoolExecutor(1) as pool:
        return [pool.submit(next, words, "end").result() for _ in range(STEPS + 1)]


def close_in_context(words: Iterator[str]) -> Record:
    return [next(words), contextvars.copy_context().run(words.close)]


def close_in_thread(words: Iterator[str]) -> Record:
    first_text = next(words)
    with ThreadPoolExecutor(1) as pool:
        return [first_text, pool.submit(words.close).result()]


def throw_in_context(words: Iterator[str]) -> Record:
    first_text = next(words)
    try:
        contextvars.copy_context().run(words.throw, GradedError("gone"))
    except GradedError as error:
        return [first_text, error.args]
    return [first_text]


async def read_by_tasks(words: Any) -> Record:
    return [await asyncio.create_task(anext(words, "end")) for _ in range(STEPS + 1)]


async def read_with_limits(words: Any) -> Record:
    return [await asyncio.wait_for(anext(words, "end"), 3600) for _ in range(STEPS + 1)]


async def close_by_task(words: Any) -> Record:
    return [await anext(words), await asyncio.create_task(words.aclose())]


ENDINGS: dict[str, Callable[[Any], Any]] = {
    "read to its end": read_all,
    "each step in another context": read_in_contexts,
    "each step in a thread": read_in_threads,
    "closed in another context": close_in_context,
    "closed in a thread": close_in_thread,
    "an error thrown in another context": throw_in_context,
    "each step in another task": read_by_tasks,
    "each step with a limit": read_with_limits,
    "closed in another task": close_by_task,
}
READ_TO_THE_END = {
    "read to its end",
    "each step in another context",
    "each step in a thread",
    "each step in another task",
    "each step with a limit",
}


def end_stream(ending: Callable[[Any], Any], open_block: Callable[[Monitor], Any]) -> Record:
    """Stream within a block, and end the stream; return what its reader sees, the number of words
    in each run of the monitor, and in which run a node is that comes after."""
    with Monitor([]) as monitor:

        def run() -> Record:
            block = open_block(monitor)
            try:
                if inspect.iscoroutinefunction(ending):
                    record = asyncio.run(ending(stream_async(monitor, block)))
                else:
                    record = ending(stream(monitor, block))
            except Exception as error:  # noqa: BLE001  each one is what the reader sees
                record = ["raised", type(error).__name__]
            with monitor.node(GENERATE, name="after"):
                pass
            return record

        record = contextvars.copy_context().run(run)
        nodes = [(item.node, item.run_id) for item in monitor.history.items]
    return [record, nodes]
