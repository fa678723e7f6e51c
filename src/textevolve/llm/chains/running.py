"""What runs a chain: its steps one after another, each with its time, its calls and its error.

Models come from a `ChainContext`, so that all calls pass through the journal, the limits and the
budget of whoever runs it. Errors are raised as they are, cancellation passes through, and what was
done until then stays in the trace.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pydantic import BaseModel

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    CapabilityError,
    TextEvolveError,
    UnavailableError,
)
from textevolve.evaluation import mend_texts
from textevolve.llm.chains.callables import Callee, Runnable
from textevolve.llm.chains.chain import Chain, ChainCallee, Values, inner_lanes, walk_steps
from textevolve.llm.chains.chat_template import find_value, value_text
from textevolve.llm.chains.prompt_uses import note_use
from textevolve.llm.chains.scope import (
    ChainContext,
    PieceHeard,
    StepScope,
    current_scope,
    model_of_step,
)
from textevolve.llm.chains.steps import (
    BranchStep,
    CallStep,
    ChainStep,
    EachStep,
    ModelStep,
    ParallelStep,
    case_key,
)
from textevolve.llm.chains.trace import TraceRecorder, recording
from textevolve.llm.model import Model, Request
from textevolve.llm.streaming import AnswerPiece, ask_streaming
from textevolve.llm.structured import ask_structured
from textevolve.user_code import call_function


async def perform_chain(
    chain: Chain,
    values: Values,
    context: ChainContext,
    recorder: TraceRecorder | None = None,
    *,
    others: bool = False,
) -> dict[str, Any]:
    """The outputs of a chain. `recorder`: has its trace, also where it fails. `others`: values may
    hold more than the inputs.

    Raises:
        InputError: an input is missing or of another type.
        AnswerError: an answer or an output cannot be used. BudgetError, ModelError: as the models.
        Exception: whatever the user's own code raises, as it is.
    """
    recorder = recorder or TraceRecorder(chain.name, "chain")
    model = chain.model or context.default_model
    streams = frozenset(chain.outputs) if context.heard is not None else frozenset[str]()
    scope = StepScope(context, recorder, model, asyncio.get_running_loop(), streams)
    with _record(recorder, context):
        return await _run_in(chain, values, scope, others=others)


async def run_within(chain: Chain, values: Values) -> dict[str, Any] | None:
    """The outputs of a chain that is called by code within a step of another; None outside."""
    scope = current_scope.get()
    if scope is None:
        return None
    recorder = TraceRecorder(chain.name, "chain", scope.recorder)
    scope.recorder.inner.append(recorder)
    inner = replace(
        scope, recorder=recorder, streams=frozenset[str](), model=chain.model or scope.model
    )
    with _record(recorder, scope.context):
        return await _run_in(chain, values, inner)


async def _run_in(
    chain: Chain, values: Values, scope: StepScope, *, others: bool = False
) -> dict[str, Any]:
    known = chain.take_inputs(values, others=others)
    await _run_steps(chain.steps, known, scope)
    return chain.take_outputs(known)


def _record(recorder: TraceRecorder, context: ChainContext) -> AbstractContextManager[None]:
    return recording(recorder, context.case, context.listener)


async def _run_steps(steps: Sequence[ChainStep], known: dict[str, Any], scope: StepScope) -> None:
    """One step after another; what they make is added to what is known."""
    for step in steps:
        recorder = TraceRecorder(step.name, _KINDS[type(step)], scope.recorder)
        scope.recorder.inner.append(recorder)
        inner = replace(scope, recorder=recorder)
        token = current_scope.set(inner)
        try:
            with _record(recorder, scope.context):
                known.update(mend_texts(dict(await _run_step(step, known, inner))))
        finally:
            current_scope.reset(token)


_KINDS: Mapping[type, str] = {
    ModelStep: "ask",
    CallStep: "call",
    BranchStep: "branch",
    EachStep: "each",
    ParallelStep: "together",
}


async def _run_step(
    step: ChainStep, known: Mapping[str, Any], scope: StepScope
) -> Mapping[str, Any]:
    if isinstance(step, ModelStep):
        return {step.into: await _ask(step, known, scope)}
    if isinstance(step, CallStep):
        return {step.into: await _call(step, known, scope)}
    if isinstance(step, EachStep):
        return {step.into: await _map(step, known, scope)}
    if isinstance(step, ParallelStep):
        lanes = [partial(_run_lane, lane, known, scope) for lane in step.lanes]
        made = await gather_bounded(lanes, scope.context.concurrency)
        return {name: value for one in made for name, value in one.items()}
    return await _run_branch(step, known, scope)


async def _run_lane(
    steps: Sequence[ChainStep], known: Mapping[str, Any], scope: StepScope
) -> Mapping[str, Any]:
    """What the steps make, beside what is known."""
    own = dict(known)
    await _run_steps(steps, own, scope)
    return {name: value for name, value in own.items() if name not in known}


async def _run_branch(
    step: BranchStep, known: Mapping[str, Any], scope: StepScope
) -> Mapping[str, Any]:
    lanes = inner_lanes(step)
    if scope.context.rehearsed == "shortest":
        return await _run_lane(min(lanes, key=_count_asked), known, scope)
    if scope.context.rehearsed == "longest":
        return [await _run_lane(lane, known, scope) for lane in lanes][-1]
    return await _run_lane(await _choose(step, known, scope), known, scope)


def _count_asked(steps: Sequence[ChainStep]) -> int:
    return sum(isinstance(step, ModelStep) for step in walk_steps(steps))


async def _choose(
    step: BranchStep, known: Mapping[str, Any], scope: StepScope
) -> tuple[ChainStep, ...]:
    """
    Raises:
        AnswerError: no case is called so, and nothing is said for others.
    """
    if isinstance(step.on, str):
        value = find_value(step.on, known)
    else:
        value = await step.on(_arguments(step.on, None, known))
    key = case_key(value)
    scope.recorder.note = key
    if key in step.cases:
        return step.cases[key]
    if step.otherwise is None:
        there = ", ".join(step.cases)
        raise AnswerError(f"step '{step.name}': no case for {key!r:.60}; there are: {there}")
    return step.otherwise


async def _map(step: EachStep, known: Mapping[str, Any], scope: StepScope) -> list[Any]:
    items: Any = find_value(step.over, known)
    if isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
        raise AnswerError(
            f"step '{step.name}': '{step.over}' is no list but {type(cast(object, items)).__name__}"
        )

    async def work(number: int, item: Any) -> Any:
        recorder = TraceRecorder(f"{step.item} {number}", "item", scope.recorder)
        scope.recorder.inner.append(recorder)
        inner = replace(scope, recorder=recorder, streams=frozenset[str]())
        with _record(recorder, scope.context):
            made = await _run_lane(step.steps, {**known, step.item: item}, inner)
        return made[step.take]

    pieces = [partial(work, n, item) for n, item in enumerate(items, 1)]
    return await gather_bounded(pieces, step.concurrency or scope.context.concurrency)


async def _call(step: CallStep, known: Mapping[str, Any], scope: StepScope) -> Any:
    callee = step.callee
    arguments = _arguments(callee, step.arguments, known)
    if callee.kind in ("runnable", "module") and scope.context.rehearsed:
        raise CapabilityError(
            f"step '{step.name}': what {callee.name} may ask cannot be known beforehand"
        )
    for attempt in range(1, step.attempts + 1):
        try:
            if isinstance(callee, ChainCallee):
                found = await _run_in(callee.chain, arguments, _into_chain(callee.chain, scope))
                return next(iter(found.values())) if len(found) == 1 else found
            if isinstance(callee, Runnable) and step.into in scope.streams:
                return await _hear(callee.stream(arguments), step.into, scope)
            return await callee(arguments)
        except TextEvolveError:
            raise
        except Exception:
            if attempt == step.attempts:
                raise
    raise AssertionError  # there is at least one attempt


def _into_chain(chain: Chain, scope: StepScope) -> StepScope:
    return replace(scope, model=chain.model or scope.model, streams=frozenset[str]())


def _arguments(
    callee: Callee, told: Mapping[str, str] | str | None, known: Mapping[str, Any]
) -> Any:
    if isinstance(told, str):
        value = find_value(told, known)
        takes = callee.takes
        return {takes[0]: value} if callee.kind == "code" and takes and len(takes) == 1 else value
    if told is not None:
        return {argument: find_value(name, known) for argument, name in told.items()}
    found = {name: known[name] for name in callee.takes or ()}
    return found | {name: known[name] for name in callee.may_take if name in known}


async def _hear(pieces: AsyncIterator[Any], name: str, scope: StepScope) -> Any:
    """All pieces together, each told as it comes."""
    assert scope.context.heard is not None
    whole: Any = None
    async with aclosing(cast("Any", pieces)) as source:
        async for piece in source:
            scope.context.heard(name, piece)
            whole = piece if whole is None else whole + piece
    return whole


async def _ask(step: ModelStep, known: Mapping[str, Any], scope: StepScope) -> Any:
    model = model_of_step(step.model, scope)
    scope.recorder.note = model.name
    messages = step.template.fill(known)
    for attempt in range(1, step.attempts + 1):
        request = Request(
            messages=messages,
            temperature=step.temperature,
            max_tokens=step.max_tokens,
            seed=step.seed,
            sample=scope.context.sample * step.attempts + attempt - 1,
        )
        prompt = "\n\n".join(message.text for message in messages)
        try:
            value = await _ask_once(step, model, request, scope)
        except AnswerError as error:
            note_use(step.name, prompt, f"(nothing that can be used: {error})")
            if attempt == step.attempts:
                raise
        else:
            note_use(step.name, prompt, value_text(value))
            return value
    raise AssertionError  # there is at least one attempt


async def _ask_once(step: ModelStep, model: Model, request: Request, scope: StepScope) -> Any:
    """
    Raises:
        AnswerError: the answer is empty, was cut where it is parsed, or cannot be parsed.
    """
    parse: Any = step.parse
    if inspect.isclass(parse) and issubclass(parse, BaseModel):
        return (await ask_structured(model, request, parse)).value
    if parse is None and step.into in scope.streams and scope.context.heard is not None:
        teller = _Teller(step.into, scope.context.heard, model.name)
        response = await ask_streaming(model, request, teller)
        teller.require()
    else:
        response = await model(request)
    if not response.text.strip():
        raise AnswerError(f"step '{step.into}': the answer is empty")
    if parse is None:
        return response.text
    if response.finish_reason == "length":
        raise AnswerError(f"step '{step.into}': the answer was cut at the token limit")
    try:
        return await call_function(parse, response.text)
    except ValueError as error:
        raise AnswerError(f"step '{step.into}': the answer cannot be read: {error}") from error


class _Teller:
    """Tells the pieces of an answer, as long as none of them is taken back."""

    def __init__(self, name: str, heard: PieceHeard, model: str) -> None:
        self._name, self._heard, self._model = name, heard, model
        self._void = False

    def __call__(self, piece: AnswerPiece) -> None:
        self._void = self._void or piece.anew
        if piece.text and not self._void:
            self._heard(self._name, piece.text)

    def require(self) -> None:
        """
        Raises:
            UnavailableError: the answer was begun anew after a part of it had been told.
        """
        if self._void:
            raise UnavailableError(
                f"{self._model}: the answer broke off while it was streamed; ask again: the whole"
                " answer is in the journal now"
            )
