"""Wrap functions, chains, LangChain's Runnables and DSPy's modules as a `Callee`, which a step can
call.

Objects of LangChain and DSPy are recognised by their methods, so neither package is imported here.
Arguments, results, errors and cancellation are passed through unchanged.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_type_hints

from textevolve.errors import InputError, TextEvolveError
from textevolve.llm.model import text_hash
from textevolve.user_code import call_function, callable_name

CalleeKind: TypeAlias = Literal["code", "chain", "runnable", "module"]


@dataclass(frozen=True)
class Callee:
    """A function, chain, Runnable or module that a step can call.

    Attributes:
        target: The function, chain, Runnable or module itself.
        kind: Which of these it is.
        name: Its name in traces.
        call: Calls it with a mapping of arguments, or with any value for a Runnable.
        describe: Returns a text that changes with its code, for the identity of a run.
        takes: The names of its required arguments; None if unknown.
        may_take: The names of its optional arguments.
        gives: The type of its result; None if unknown.
    """

    target: Any
    kind: CalleeKind
    name: str
    call: Callable[[Any], Awaitable[Any]]
    describe: Callable[[], str]
    takes: tuple[str, ...] | None
    may_take: tuple[str, ...] = ()
    gives: Any = None


def take_callee(target: Any) -> Callee:
    """Wrap something callable as a `Callee`.

    Raises:
        InputError: the object cannot be called.
    """
    if hasattr(target, "as_callee"):  # a chain
        return cast("Callee", target.as_callee())
    if is_runnable(target):
        return _take_runnable(target)
    if is_module(target):
        return _take_module(target)
    if not callable(target):
        raise InputError(
            f"a step cannot call {target!r:.60}: it is no function, Runnable or module"
        )
    name, function = callable_name(target), cast("Callable[..., Any]", target)

    async def call(arguments: Any) -> Any:
        return await call_function(function, **arguments)

    takes, may_take = _signature_of(function)
    return Callee(
        function,
        "code",
        name,
        call,
        lambda: f"{name} {hash_source(function)}",
        takes,
        may_take,
        gives=return_type(
            function if hasattr(function, "__annotations__") else type(function).__call__
        ),
    )


def is_runnable(value: object) -> bool:
    """Check whether a value is a Runnable of LangChain."""
    return all(hasattr(value, name) for name in ("ainvoke", "astream", "abatch", "get_name"))


def _take_runnable(runnable: Any) -> Callee:
    """Wrap a Runnable of LangChain, which takes a mapping or a single value of any kind."""
    name = str(runnable.get_name())
    try:
        fields: Mapping[str, Any] = runnable.get_input_schema().model_fields
    except Exception:  # noqa: BLE001  schemas are made by the runnable's own code
        fields = {}

    def describe() -> str:
        from langchain_core.load import dumps

        return f"{name} {_hash(_without_addresses(dumps(runnable)))}"

    return Callee(
        runnable,
        "runnable",
        name,
        runnable.ainvoke,
        describe,
        takes=tuple(field for field in fields if field != "root") or None,
    )


def is_module(value: object) -> bool:
    """Check whether a value is a module of DSPy."""
    return not isinstance(value, type) and all(
        hasattr(value, name) for name in ("named_predictors", "dump_state", "acall")
    )


def _take_module(module: Any) -> Callee:
    """Wrap a module of DSPy: it is called with its fields, and its prediction becomes a mapping."""
    name = type(module).__name__

    def describe() -> str:
        state = json.dumps(module.dump_state(), sort_keys=True, default=str)
        return f"{name} {hash_source(type(module))} {_hash(_without_addresses(state))}"

    async def call(arguments: Any) -> Any:
        is_async = inspect.iscoroutinefunction(getattr(module, "aforward", None))
        try:
            prediction = await call_function(module.acall if is_async else module, **arguments)
        except Exception as error:
            inner = error.__cause__  # DSPy wraps our errors
            while inner is not None and not isinstance(inner, TextEvolveError):
                inner = inner.__cause__
            if inner is None:
                raise
            raise inner from None
        return (
            dict(prediction)
            if hasattr(prediction, "keys") and hasattr(prediction, "completions")
            else prediction
        )

    return Callee(module, "module", name, call, describe, *_module_inputs(module))


def _module_inputs(module: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the names of the required and of the optional arguments of a module, by its signature
    or else by its `forward`; the required ones are None if they are unknown."""
    signature = getattr(module, "signature", None)
    if signature is None and hasattr(module, "predict"):  # as a ChainOfThought has it
        signature = getattr(module.predict, "signature", None)
    if (fields := getattr(signature, "input_fields", None)) is not None:
        return tuple(fields), ()
    for method in ("aforward", "forward"):
        if hasattr(module, method):
            takes, may_take = _signature_of(getattr(module, method))
            if takes is not None:
                return takes, may_take
    return None, ()


def hash_source(value: Any) -> str:
    """Return a hash of a function's or class's source; without source, of its bytecode or its
    name."""
    try:
        return _hash(inspect.getsource(inspect.unwrap(getattr(value, "func", value))))
    except (OSError, TypeError):
        code = getattr(value, "__code__", None)
        identity = (
            (code.co_code.hex(), repr(code.co_names)) if code is not None else callable_name(value)
        )
        return _hash(_without_addresses(repr(identity)))


def _hash(text: str) -> str:
    return text_hash(text)[:16]


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _signature_of(function: Callable[..., Any]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the names of the required and of the optional arguments of a function. The required
    ones are None if they are unknown, as with `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None, ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None, ()
    for argument in parameters:
        if argument.kind is argument.POSITIONAL_ONLY and argument.default is argument.empty:
            raise InputError(
                f"{callable_name(function)}: its argument '{argument.name}' is positional"
                " only; wrap it in a function with named arguments"
            )
    keywords = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = tuple(p.name for p in keywords if p.default is p.empty)
    return needed, tuple(p.name for p in keywords if p.default is not p.empty)


def return_type(function: Any) -> Any:
    """Return the annotated type of a function's result; None if there is no annotation."""
    try:
        return get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001  annotations are the user's, and may name anything
        return None
