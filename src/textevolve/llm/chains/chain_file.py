"""Chains by what names them: a YAML file, or an import path; and whatever can stand for a chain.

A YAML file has the verbs of `steps.py`, each step a mapping that begins with one of them. Code is
only named in it, by import paths, which a server's clients may not do (`textevolve.reach`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import yaml
from pydantic import BaseModel, Field, ValidationError, create_model

from textevolve.errors import InputError
from textevolve.llm.chains.callables import is_runnable, take_callee
from textevolve.llm.chains.chain import Chain
from textevolve.llm.chains.steps import ChainStep, Parse, ask, branch, call, each, together
from textevolve.rows import read_text
from textevolve.spec import Frozen, suggest
from textevolve.texts.yaml_lines import line_of, parse_yaml
from textevolve.user_code import ENDINGS, OWN, load_object, names_chain

TYPES: Mapping[str, Any] = {
    "text": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "list": list[str],
    "any": Any,
}
"""Types of inputs, outputs and fields, by their names in a file."""


def load_chain(name: str, folder: Path = Path()) -> Chain:
    """The chain in a YAML file, or at `MODULE:NAME` or `FILE.py:NAME`.

    Raises:
        InputError: there is no such file or module, or it holds no chain; names the line.
    """
    if name.lower().endswith(ENDINGS):
        return _read_file(folder / name, name)
    if not names_chain(name) or name.startswith(OWN):
        raise InputError(f"{name}: names no chain: give FILE.yaml, MODULE:NAME or FILE.py:NAME")
    found = load_object(name, folder)
    if found is None:
        raise InputError(f"{name}: there is nothing of that name")
    return as_chain(found, name.rpartition(":")[2])


_reading: ContextVar[tuple[Path, ...]] = ContextVar("reading", default=())


def _read_file(path: Path, name: str) -> Chain:
    if path in _reading.get():
        raise InputError(f"{name}: the chain calls itself")
    before = _reading.set((*_reading.get(), path))
    try:
        return read_chain(read_text(str(path)), name, path.parent)
    finally:
        _reading.reset(before)


def as_chain(given: object, name: str = "") -> Chain:
    """A chain itself; or one of a single step, `output`, that calls what is given: a function, a
    Runnable or a module.

    Raises:
        InputError: it can be called by no step.
    """
    if isinstance(given, Chain):
        return given
    callee = take_callee(given)
    single = "input" if callee.takes is None and is_runnable(given) else None
    called = name or callee.name.rpartition(":")[2]
    return Chain(called, call("output", given, inputs=single))


def read_chain(text: str, source: str = "chain", folder: Path = Path()) -> Chain:
    """The chain that a YAML text describes. `source` names it in messages; what it names itself
    lies in `folder`.

    Raises:
        InputError: something in it cannot be used; names the line.
    """
    node, data = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: a chain is a mapping with name and steps")
    reader = _Reader(source, node, folder)
    told = reader.check(_ChainSpec, data, ())
    steps = reader.steps(told.steps, ("steps",))
    return reader.at(
        (),
        lambda: Chain(
            told.name or Path(source).stem,
            *steps,
            inputs=reader.types(told.inputs, ("inputs",)),
            outputs=reader.types(told.outputs, ("outputs",)),
            model=told.model,
            description=told.description,
        ),
    )


_Place: TypeAlias = tuple[str | int, ...]
_Typed: TypeAlias = str | list[str] | dict[str, Any] | None


class _ChainSpec(Frozen):
    steps: list[Any] = Field(min_length=1)
    name: str = ""
    description: str = ""
    inputs: _Typed = None
    outputs: _Typed = None
    model: str | None = None


class _AskSpec(Frozen):
    ask: str
    prompt: str | None = None
    messages: list[dict[str, str]] | None = None
    file: str | None = None
    system: str = ""
    fields: dict[str, Any] | None = None
    parse: str | None = None
    model: str | None = None
    name: str | None = None
    attempts: int = Field(default=1, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None


class _CallSpec(Frozen):
    call: str
    function: str
    inputs: str | list[str] | dict[str, str] | None = None
    attempts: int = Field(default=1, ge=1)


class _BranchSpec(Frozen):
    branch: str
    when: dict[str | bool | int, Any]
    otherwise: Any = None


class _EachSpec(Frozen):
    each: str
    over: str
    steps: Any
    item: str = "item"
    take: str | None = None
    concurrency: int | None = Field(default=None, ge=1)


class _TogetherSpec(Frozen):
    together: list[Any] = Field(min_length=1)


_STEPS: Mapping[str, type[Frozen]] = {
    "ask": _AskSpec,
    "call": _CallSpec,
    "branch": _BranchSpec,
    "each": _EachSpec,
    "together": _TogetherSpec,
}


@dataclass(frozen=True)
class _Reader:
    """A file as it is read: where its parts stand, and the folder that it names things in."""

    source: str
    node: yaml.Node | None
    folder: Path

    def fault(self, place: _Place, why: object) -> InputError:
        return InputError(f"{self.source}:{line_of(self.node, place)}: {why}")

    def at(self, place: _Place, make: Callable[[], Any]) -> Any:
        """What is made; what is wrong with it is said with its line."""
        try:
            return make()
        except InputError as error:
            raise self.fault(place, error) from None

    def check(self, spec: type[Any], data: Any, place: _Place) -> Any:
        try:
            return spec(**{str(name): value for name, value in data.items()})
        except InputError as error:
            cause = error.__cause__
            inner = cause.errors()[0]["loc"] if isinstance(cause, ValidationError) else ()
            raise self.fault((*place, *inner), error) from None

    def steps(self, given: Any, place: _Place) -> list[ChainStep]:
        """A step, or a list of them."""
        if isinstance(given, dict):
            return [self.step(given, place)]
        if not isinstance(given, list) or not given:
            raise self.fault(place, "there must be a step, or a list of steps")
        listed = cast("list[Any]", given)
        return [self.step(one, (*place, n)) for n, one in enumerate(listed)]

    def step(self, given: Any, place: _Place) -> ChainStep:
        named = [kind for kind in _STEPS if isinstance(given, dict) and kind in given]
        if len(named) != 1:
            raise self.fault(place, f"a step begins with one of: {', '.join(_STEPS)}")
        told = self.check(_STEPS[named[0]], given, place)
        make = cast("Callable[[Any, _Place], ChainStep]", getattr(self, f"_{named[0]}"))
        return (
            self.at(place, partial(make, told, place))
            if named[0] in ("ask", "call")
            else make(told, place)
        )

    def _ask(self, told: _AskSpec, place: _Place) -> ChainStep:
        given: list[Any] = [told.prompt, told.messages, told.file]
        given = [one for one in given if one is not None]
        if len(given) != 1:
            raise InputError(f"step '{told.ask}': give a prompt, messages, or the file of a prompt")
        text = given[0] if told.file is None else read_text(str(self.folder / told.file))
        messages: list[Any] = (
            [("user", text)] if isinstance(text, str) else [*cast("list[Any]", text)]
        )
        if told.system:
            messages = [("system", told.system), *messages]
        return replace(
            ask(told.ask, messages, parse=self._parse(told, place), attempts=told.attempts),
            name=told.name or told.ask,
            model=told.model,
            temperature=told.temperature,
            max_tokens=told.max_tokens,
            seed=told.seed,
        )

    def _parse(self, told: _AskSpec, place: _Place) -> Parse | None:
        if told.fields is not None and told.parse is not None:
            raise InputError(f"step '{told.ask}': give fields or parse, and not both")
        if told.fields is not None:
            return self.model(told.ask, told.fields)
        if told.parse is None or told.parse == "text":
            return None
        found = load_object(told.parse, self.folder)
        if not callable(found):
            raise InputError(f"{told.parse}: is no function, and no pydantic model")
        return cast(Parse, found)

    def model(self, name: str, fields: Mapping[str, Any]) -> type[BaseModel]:
        """The type of an answer with these fields."""
        told = {one: (self.type(one, kind), ...) for one, kind in fields.items()}
        title = "".join(part.capitalize() for part in name.split("_"))
        try:
            return create_model(title, **cast("dict[str, Any]", told))
        except (NameError, TypeError, ValueError) as error:
            raise InputError(f"step '{name}': {error}") from None

    def type(self, name: str, kind: Any) -> Any:
        """The type that a name, or a list of what there may be, stands for."""
        if isinstance(kind, list) and kind:
            return Literal[tuple(cast("list[Any]", kind))]  # pyright: ignore[reportReturnType]
        if isinstance(kind, str) and kind in TYPES:
            return TYPES[kind]
        listed = kind.removeprefix("list of ") if isinstance(kind, str) else ""
        if listed in TYPES and listed != kind:
            return list[TYPES[listed]]
        near = suggest(str(cast(object, kind)), tuple(TYPES))
        raise InputError(f"'{name}': no type {kind!r:.40}{near}")

    def types(self, given: _Typed, place: _Place) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: self.at((*place, name), partial(self.type, name, kind))
            for name, kind in given.items()
        }

    def _call(self, told: _CallSpec, _place: _Place) -> ChainStep:
        function: Any
        if told.function.lower().endswith(ENDINGS):
            function = load_chain(told.function, self.folder)
        else:
            function = load_object(told.function, self.folder)
        if function is None:
            raise InputError(f"{told.function}: there is nothing of that name")
        return call(told.call, function, inputs=told.inputs, attempts=told.attempts)

    def _branch(self, told: _BranchSpec, place: _Place) -> ChainStep:
        cases = {key: self.steps(one, (*place, "when", str(key))) for key, one in told.when.items()}
        last = None
        if told.otherwise is not None:
            last = self.steps(told.otherwise, (*place, "otherwise"))
        return self.at(place, lambda: branch(told.branch, cases, otherwise=last))

    def _each(self, told: _EachSpec, place: _Place) -> ChainStep:
        steps = self.steps(told.steps, (*place, "steps"))
        return self.at(
            place,
            lambda: each(
                told.each,
                over=told.over,
                steps=steps,
                item=told.item,
                take=told.take,
                concurrency=told.concurrency,
            ),
        )

    def _together(self, told: _TogetherSpec, place: _Place) -> ChainStep:
        lanes = [self.steps(one, (*place, "together", n)) for n, one in enumerate(told.together)]
        return self.at(place, lambda: together(*lanes))
