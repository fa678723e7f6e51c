"""What a chain can call: functions, chains, LangChain's Runnables and DSPy's modules, each as a
`Callee` that says what it takes and how it is called.

Theirs are told by what they can do, so neither package is needed here, or loaded. What they are
given, give, raise, and are cancelled by, passes through as it is.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast, get_type_hints

from textevolve.errors import InputError, TextEvolveError
from textevolve.user_code import call_function, callable_name

CalleeKind: TypeAlias = Literal["code", "chain", "runnable", "module"]


class Callee(Protocol):
    """`takes`: the names of its arguments, None where it does not say; `may_take`: those it can do
    without. `gives`: the type of what it returns, None where it is not known."""

    @property
    def kind(self) -> CalleeKind: ...
    @property
    def name(self) -> str: ...
    @property
    def takes(self) -> tuple[str, ...] | None: ...
    @property
    def may_take(self) -> tuple[str, ...]: ...
    @property
    def gives(self) -> Any: ...

    def describe(self) -> str:
        """What it is, for the identity of a run: another text where it has changed."""
        ...

    async def __call__(self, arguments: Any, /) -> Any:
        """`arguments`: a mapping of names, or for a Runnable whatever it takes."""
        ...


@dataclass(frozen=True)
class Code:
    """A function of the user's own, async or plain; a plain one is called in a thread."""

    function: Callable[..., Any]
    takes: tuple[str, ...] | None
    may_take: tuple[str, ...] = ()
    gives: Any = None
    kind: CalleeKind = "code"

    @property
    def name(self) -> str:
        return callable_name(self.function)

    def describe(self) -> str:
        return f"{self.name} {hash_source(self.function)}"

    async def __call__(self, arguments: Any, /) -> Any:
        return await call_function(self.function, **arguments)


@dataclass(frozen=True)
class Runnable:
    """One of LangChain's. It may take a mapping, or a single value of any kind."""

    runnable: Any
    takes: tuple[str, ...] | None
    may_take: tuple[str, ...] = ()
    gives: Any = None
    kind: CalleeKind = "runnable"

    @property
    def name(self) -> str:
        return str(self.runnable.get_name())

    def describe(self) -> str:
        from langchain_core.load import dumps

        return f"{self.name} {_hash(_without_addresses(dumps(self.runnable)))}"

    async def __call__(self, arguments: Any, /) -> Any:
        return await self.runnable.ainvoke(arguments)

    def stream(self, arguments: Any) -> AsyncIterator[Any]:
        return cast("AsyncIterator[Any]", self.runnable.astream(arguments))


@dataclass(frozen=True)
class Module:
    """One of DSPy's: given its fields, it gives a prediction, which is kept as a mapping."""

    module: Any
    takes: tuple[str, ...] | None
    may_take: tuple[str, ...] = ()
    gives: Any = None
    kind: CalleeKind = "module"

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def describe(self) -> str:
        state = json.dumps(self.module.dump_state(), sort_keys=True, default=str)
        source = hash_source(type(self.module))
        return f"{self.name} {source} {_hash(_without_addresses(state))}"

    async def __call__(self, arguments: Any, /) -> Any:
        own = inspect.iscoroutinefunction(getattr(self.module, "aforward", None))
        call = self.module.acall if own else self.module
        try:
            found = await call_function(call, **arguments)
        except Exception as error:
            if (ours := _find_ours(error)) is None:
                raise
            raise ours from None
        return dict(found) if hasattr(found, "keys") and hasattr(found, "completions") else found


def _find_ours(error: Exception) -> TextEvolveError | None:
    """The error of ours that DSPy has wrapped into one of its own."""
    inner = error.__cause__
    while inner is not None and not isinstance(inner, TextEvolveError):
        inner = inner.__cause__
    return inner


def is_runnable(given: object) -> bool:
    """Whether it is one of LangChain's Runnables."""
    return all(hasattr(given, name) for name in ("ainvoke", "astream", "abatch", "get_name"))


def is_module(given: object) -> bool:
    """Whether it is one of DSPy's modules."""
    return not isinstance(given, type) and all(
        hasattr(given, name) for name in ("named_predictors", "dump_state", "acall")
    )


def take_callee(given: object) -> Callee:
    """What a step is to call.

    Raises:
        InputError: it cannot be called.
    """
    if hasattr(given, "as_callee"):  # a chain
        return cast("Callee", cast(Any, given).as_callee())
    if is_runnable(given):
        return Runnable(given, _runnable_inputs(given))
    if is_module(given):
        return Module(given, *_module_inputs(given))
    if not callable(given):
        raise InputError(f"a step cannot call {given!r:.60}: it is no function, Runnable or module")
    return Code(given, *_signature_of(given), _returns(given))


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
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None, ()
    for one in parameters:
        if one.kind is one.POSITIONAL_ONLY and one.default is one.empty:
            named = f"{callable_name(function)}: its argument '{one.name}'"
            raise InputError(f"{named} cannot be given by name; wrap it")
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = tuple(one.name for one in named if one.default is one.empty)
    return needed, tuple(one.name for one in named if one.default is not one.empty)


def _returns(function: Any) -> Any:
    target = function if hasattr(function, "__annotations__") else type(function).__call__
    try:
        return get_type_hints(target).get("return")
    except Exception:  # noqa: BLE001  annotations are the user's, and may name anything
        return None


def _runnable_inputs(runnable: Any) -> tuple[str, ...] | None:
    """The names that its input schema has; None where it takes something else than a mapping."""
    try:
        fields: Mapping[str, Any] = runnable.get_input_schema().model_fields
    except Exception:  # noqa: BLE001  schemas are made by the runnable's own code
        return None
    return tuple(name for name in fields if name != "root") or None


def _module_inputs(module: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """What a module's `forward` names; what its signature does where that names nothing."""
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
