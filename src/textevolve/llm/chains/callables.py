"""Functions, chains, LangChain's Runnables and DSPy's modules as steps of a chain, each as a
`Callee` that says what it takes and how it is called.

Objects of LangChain and DSPy are recognised by their methods, so neither package is loaded here.
Arguments, results, errors and cancellation pass through as they are.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_type_hints

from textevolve.errors import InputError, TextEvolveError
from textevolve.user_code import call_function, callable_name

CalleeKind: TypeAlias = Literal["code", "chain", "runnable", "module"]


@dataclass(frozen=True)
class Callee:
    """Something that a step calls.

    Attributes:
        target: The function, chain, Runnable or module itself.
        call: Call it with a mapping of arguments, or with any value for a Runnable.
        describe: Return a text that changes with what it is, for the identity of a run.
        takes: The names of its arguments; None where it does not say.
        may_take: The names of arguments that it can do without.
        gives: The type of its result; None where it is not known.
    """

    target: Any
    kind: CalleeKind
    name: str
    call: Callable[[Any], Awaitable[Any]]
    describe: Callable[[], str]
    takes: tuple[str, ...] | None
    may_take: tuple[str, ...] = ()
    gives: Any = None


def take_callee(given: Any) -> Callee:
    """Return something callable as a `Callee`.

    Raises:
        InputError: it cannot be called.
    """
    if hasattr(given, "as_callee"):  # a chain
        return cast("Callee", given.as_callee())
    if is_runnable(given):
        return _take_runnable(given)
    if is_module(given):
        return _take_module(given)
    if not callable(given):
        raise InputError(f"a step cannot call {given!r:.60}: it is no function, Runnable or module")
    name, function = callable_name(given), cast("Callable[..., Any]", given)

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


def is_runnable(given: object) -> bool:
    """Whether it is one of LangChain's Runnables."""
    return all(hasattr(given, name) for name in ("ainvoke", "astream", "abatch", "get_name"))


def _take_runnable(runnable: Any) -> Callee:
    """One of LangChain's. It may take a mapping, or a single value of any kind."""
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


def is_module(given: object) -> bool:
    """Whether it is one of DSPy's modules."""
    return not isinstance(given, type) and all(
        hasattr(given, name) for name in ("named_predictors", "dump_state", "acall")
    )


def _take_module(module: Any) -> Callee:
    """One of DSPy's: called with its fields, it gives a prediction, which is kept as a mapping."""
    name = type(module).__name__

    def describe() -> str:
        state = json.dumps(module.dump_state(), sort_keys=True, default=str)
        return f"{name} {hash_source(type(module))} {_hash(_without_addresses(state))}"

    async def call(arguments: Any) -> Any:
        is_async = inspect.iscoroutinefunction(getattr(module, "aforward", None))
        try:
            found = await call_function(module.acall if is_async else module, **arguments)
        except Exception as error:
            inner = error.__cause__  # DSPy wraps an error of ours into one of its own
            while inner is not None and not isinstance(inner, TextEvolveError):
                inner = inner.__cause__
            if inner is None:
                raise
            raise inner from None
        return dict(found) if hasattr(found, "keys") and hasattr(found, "completions") else found

    return Callee(module, "module", name, call, describe, *_module_inputs(module))


def _module_inputs(module: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the arguments of a module's signature, or of its `forward` if it has none."""
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


def hash_source(given: Any) -> str:
    """A hash of a function's or class's source; where there is none, of what it is called."""
    try:
        return _hash(inspect.getsource(inspect.unwrap(getattr(given, "func", given))))
    except (OSError, TypeError):
        code = getattr(given, "__code__", None)
        told = (
            (code.co_code.hex(), repr(code.co_names)) if code is not None else callable_name(given)
        )
        return _hash(_without_addresses(repr(told)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _signature_of(function: Callable[..., Any]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Which arguments a function needs, and which it may be given; None: it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None, ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None, ()
    for one in parameters:
        if one.kind is one.POSITIONAL_ONLY and one.default is one.empty:
            named = f"{callable_name(function)}: its argument '{one.name}'"
            raise InputError(f"{named} cannot be given by name; wrap it")
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = tuple(one.name for one in named if one.default is one.empty)
    return needed, tuple(one.name for one in named if one.default is not one.empty)


def return_type(function: Any) -> Any:
    """The type of a function's result, None where it is not known."""
    try:
        return get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001  annotations are the user's, and may name anything
        return None
