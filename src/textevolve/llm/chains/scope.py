"""The context in which a chain runs: its models, the current step with its trace, and the prompts
that an optimiser tries instead of a program's own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from textevolve.engine.sync import is_blocked
from textevolve.errors import InputError, describe_error
from textevolve.evaluation import Usage, empty_default
from textevolve.events import Listener, StepFinished, StepStarted, silence
from textevolve.llm.model import Model, Request, Response
from textevolve.spans import span

CHAIN_STEP = "chain step"
"""The value of `step` in the events that a chain announces; their details have its `path` and
`kind`."""


@dataclass
class StepTrace:
    """The trace of a step, which grows while the step runs.

    Attributes:
        name: The name of the step.
        kind: The kind of the step, such as "ask" or "call".
        began: The start, in seconds after the start of the chain.
        seconds: The duration.
        usage: The usage of all calls within the step.
        note: The spec of the model that the step called.
        error: The reason if the step failed; otherwise empty.
        steps: The traces of the steps within this step.
    """

    name: str
    kind: str
    began: float = 0.0
    seconds: float = 0.0
    usage: Usage = Usage()
    note: str = ""
    error: str = ""
    steps: list[StepTrace] = empty_default(list)


class TraceRecorder:
    """A recorder of one step: it fills the step's `trace`, and adds the step's usage to the traces
    of all enclosing steps. `path`: the names of the enclosing steps and of this one, joined by
    slashes."""

    def __init__(self, name: str, kind: str, parent: TraceRecorder | None = None) -> None:
        self.parent = parent
        self.start = time.perf_counter()
        self.origin = self.start if parent is None else parent.origin
        self.path = name if parent is None else f"{parent.path}/{name}"
        self.trace = StepTrace(name, kind, self.start - self.origin)
        if parent is not None:
            parent.trace.steps.append(self.trace)

    def add(self, usage: Usage) -> None:
        self.trace.usage += usage
        if self.parent is not None:
            self.parent.add(usage)


@contextmanager
def recording(recorder: TraceRecorder, case: str, listener: Listener) -> Generator[None]:
    """Report the start and the end of a step, and record its error if it fails or is cancelled."""
    listener(StepStarted(case, CHAIN_STEP, {"path": recorder.path, "kind": recorder.trace.kind}))
    try:
        with span("part", recorder.trace.name, step=recorder.trace.kind):
            yield
    except BaseException as error:
        recorder.trace.error = describe_error(error).removesuffix(": ")
        raise
    finally:
        recorder.trace.seconds = time.perf_counter() - recorder.start
        listener(StepFinished(case, CHAIN_STEP, (recorder.path, recorder.trace)))


T = TypeVar("T")

MUST_AWAIT = (
    "async code of a step must not block while a model answers: use await, acall or ainvoke"
)


ImproveStep: TypeAlias = Callable[[str, str, str, Model], Awaitable[tuple[str, Usage]]]
"""A function that improves the answer of a step. It takes the step's name, prompt, answer and
model, and returns a better answer, with the usage of calls that this model does not count, such as
those of a judge."""


@dataclass(frozen=True)
class ChainContext:
    """The context of a chain's run.

    Attributes:
        model_of: Returns the model of a spec.
        default_model: The spec for steps that name none; may be empty if all steps name one.
        listener: Receives the events of the run.
        case: The id of the case, which the events contain.
        rehearsed: Whether the models invent their answers to estimate the cost; then user code that
            could call other models is skipped.
        sample: A number that distinguishes runs that are otherwise equal.
        improve: Is called with each text that a step's model answered; None: answers stay as they
            are.
    """

    model_of: Callable[[str], Model]
    default_model: str
    listener: Listener = silence
    case: str = ""
    rehearsed: bool = False
    sample: int = 0
    improve: ImproveStep | None = None


@dataclass(frozen=True)
class StepScope:
    """The state of the step that is running.

    Attributes:
        context: The context of the chain's run.
        recorder: The recorder of the step's trace.
        model: The spec of the model for steps that name none.
        loop: The event loop that the chain runs on.
    """

    context: ChainContext
    recorder: TraceRecorder
    model: str
    loop: asyncio.AbstractEventLoop

    @contextmanager
    def enter(self, name: str, kind: str, **changes: Any) -> Generator[StepScope]:
        """Open a scope for a step within this one, and report and record the step."""
        recorder = TraceRecorder(name, kind, self.recorder)
        inner = replace(self, recorder=recorder, **changes)
        token = current_scope.set(inner)

        try:
            with recording(recorder, self.context.case, self.context.listener):
                yield inner
        finally:
            current_scope.reset(token)

    def model_of(self, spec: str | None) -> Model:
        """Return the model of a spec; None: the chain's default model. Calls of the returned model
        count in the step's usage."""
        name = spec or self.model
        if not name:
            raise InputError(
                f"step '{self.recorder.trace.name}': neither the step nor its chain names"
                " a model; name one"
            )

        return _Counted(self.context.model_of(name), self.recorder, self.loop)


current_scope: ContextVar[StepScope | None] = ContextVar("chain", default=None)


def running_model(spec: str | None) -> Model | None:
    """Return the model of a spec from the chain that is running; None outside of any chain."""
    scope = current_scope.get()
    return None if scope is None else scope.model_of(spec)


def wait_within(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the chain's event loop and wait for its result; for a step's code that is
    not async and runs in a thread.

    Raises:
        InputError: the caller is on the chain's own event loop, so it would wait for ever.
    """
    scope = current_scope.get()
    assert scope is not None
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None

    if here is scope.loop:
        work.close()
        raise InputError(MUST_AWAIT)
    begun = asyncio.run_coroutine_threadsafe(work, scope.loop)

    try:
        return begun.result()
    except BaseException:
        begun.cancel()
        raise


@dataclass(frozen=True, slots=True)
class _Counted:
    """A model that adds the usage of its calls to a step and all enclosing steps. Each call runs on
    the chain's event loop, also if the calling code has an event loop of its own."""

    model: Model
    recorder: TraceRecorder
    loop: asyncio.AbstractEventLoop

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        if asyncio.get_running_loop() is self.loop:
            response = await self.model(request)
        elif is_blocked(self.loop):
            raise InputError(MUST_AWAIT)
        else:
            call = asyncio.run_coroutine_threadsafe(self.model(request), self.loop)
            response = await asyncio.wrap_future(call)

        self.recorder.add(response.usage)

        return response


@dataclass(frozen=True, slots=True)
class PromptUse:
    """One use of a template: the name of the template, the filled-in prompt, and the model's
    answer."""

    name: str
    prompt: str
    output: str


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """A trial of prompts by an optimiser. `texts`: the texts that replace a program's own prompts,
    by name; `uses`: the recorded uses of the prompts."""

    texts: Mapping[str, str]
    uses: list[PromptUse] = empty_default(list)

    def in_order(self) -> tuple[PromptUse, ...]:
        """Return the uses sorted by template and then by prompt, so that the order does not depend
        on which call was answered first."""
        place = {name: number for number, name in enumerate(self.texts)}

        def rank(use: PromptUse) -> tuple[int, str, str, str]:
            return place.get(use.name, len(place)), use.name, use.prompt, use.output

        return tuple(sorted(self.uses, key=rank))


current_trial: ContextVar[PromptTrial | None] = ContextVar("prompts", default=None)
_running: dict[int, PromptTrial] = {}
"""The trials whose program runs now, in all threads and tasks, by their `id()`."""
_read_apart = threading.Event()
"""Set once a program has read a prompt in a thread without its context."""
TURN = 0.005
"""The seconds between two checks whether a trial of other texts has ended."""


@contextmanager
def trying_prompts(texts: Mapping[str, str]) -> Generator[PromptTrial]:
    """Make every `PromptSet` return these texts for their names within the block, in all tasks and
    threads that start within it."""
    trying = PromptTrial(texts)
    token = current_trial.set(trying)
    try:
        yield trying
    finally:
        current_trial.reset(token)


def find_trial() -> PromptTrial | None:
    """Return the trial to which the code that runs belongs; None outside of trials.

    Threads that a program starts by itself do not inherit its context. They belong to the trials
    that run now, which is certain if all of these try the same texts.

    Raises:
        InputError: it is unknown, since trials of several texts run.
    """
    trial = current_trial.get()
    running = [] if trial else list(_running.values())
    if not running:
        return trial
    _read_apart.set()
    if all(other.texts == running[0].texts for other in running):
        return running[0]

    raise InputError(
        "a prompt is read in a thread that the program starts by itself, so it is unknown which"
        " texts it is to try: start the thread with contextvars.copy_context().run, use"
        " asyncio.to_thread, or try one program at a time with --concurrency 1"
    )


@asynccontextmanager
async def running_program(trial: PromptTrial) -> AsyncGenerator[None]:
    """Run a program of a trial within the block, so that threads of its own find the trial. Once a
    program has read a prompt in such a thread, only trials of the same texts run side by side."""
    # Trials may run on several event loops, for which asyncio has no common event to wait for.
    while _read_apart.is_set() and any(  # noqa: ASYNC110
        other.texts != trial.texts for other in _running.values()
    ):
        await asyncio.sleep(TURN)

    _running[id(trial)] = trial
    try:
        yield
    finally:
        del _running[id(trial)]


def note_use(name: str, prompt: str, output: str) -> None:
    """Record a filled-in prompt and its output, for the optimiser that tries prompts. Outside of
    `trying_prompts` nothing is recorded."""
    if (trying := current_trial.get()) is not None:
        trying.uses.append(PromptUse(name, prompt, output))
