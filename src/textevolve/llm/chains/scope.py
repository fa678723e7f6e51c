"""What a chain is run with, and which step runs here: models are opened for that step, and their
calls counted with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from textevolve.engine.sync import is_blocked
from textevolve.errors import InputError
from textevolve.events import Listener, silence
from textevolve.llm.chains.trace import TraceRecorder
from textevolve.llm.model import Model, Request, Response

T = TypeVar("T")

MUST_AWAIT = "async code of a step must not wait for a model: use await, acall or ainvoke"

PieceHeard: TypeAlias = Callable[[str, Any], None]
"""Hears the pieces of an output while it is written, with its name. It may be called from another
thread."""


RehearsalManner: TypeAlias = Literal["", "shortest", "typical", "longest"]
"""Whether answers are only made up to see what a chain may take. At its shortest the shortest case
of a branch is gone on with, at its longest all are, since nobody knows which it will be."""


@dataclass(frozen=True)
class ChainContext:
    """What a chain is run with. `model_of`: from a model's spec to the model; `default_model`: the
    spec for steps that name none, which may be empty where no step does. `case`: what its events
    are about. `concurrency`: how many pieces of a map or of parallel lanes are worked on at once.
    `rehearsed`: its models only make answers up, so what could ask others is not called. `sample`:
    tells apart runs that are otherwise the same. `heard`: hears outputs while they are written."""

    model_of: Callable[[str], Model]
    default_model: str = ""
    listener: Listener = silence
    case: str = ""
    concurrency: int = 32
    rehearsed: RehearsalManner = ""
    sample: int = 0
    heard: PieceHeard | None = None


@dataclass(frozen=True)
class StepScope:
    """Where the work stands: what it is done with, whose step it is, the model for steps that name
    none."""

    context: ChainContext
    recorder: TraceRecorder
    model: str
    loop: asyncio.AbstractEventLoop
    streams: frozenset[str] = field(default_factory=frozenset[str])


current_scope: ContextVar[StepScope | None] = ContextVar("chain", default=None)


def running_model(spec: str | None) -> Model | None:
    """Within a step: the model of this name as the chain has it, whose calls are counted with the
    step; None names the chain's own. Outside of any chain there is none."""
    scope = current_scope.get()
    return None if scope is None else model_of_step(spec, scope)


def wait_within(work: Coroutine[Any, Any, T]) -> T:
    """The result of work of a chain's models, for plain code that a step calls in a thread.

    Raises:
        InputError: it is called where the chain itself runs, which would wait for ever.
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


def model_of_step(spec: str | None, scope: StepScope) -> Model:
    name = spec or scope.model
    if not name:
        raise InputError(
            f"step '{scope.recorder.name}': names no model, and neither does its chain"
        )
    return _Counted(scope.context.model_of(name), scope.recorder, scope.loop)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A model whose calls are counted with a step, and with all that it is a part of. It is asked
    on the loop where the chain runs, also by code that has a loop of its own."""

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
            asked = asyncio.run_coroutine_threadsafe(self._ask(request), self.loop)
            response = await asyncio.wrap_future(asked)
        self.recorder.add(response.usage)
        return response

    async def _ask(self, request: Request) -> Response:
        return await self.model(request)
