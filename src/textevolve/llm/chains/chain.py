"""A chain: a function of values to values, made of steps and checked when it is made.

A value that no step before gives, and that is no input, is an error before anything is asked. What
runs a chain is in `running.py`; models come from whoever runs it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from textevolve.engine import sync
from textevolve.errors import AnswerError, InputError
from textevolve.llm.chains.callables import CalleeKind, hash_source
from textevolve.llm.chains.chat_template import ChatTemplate, value_text
from textevolve.llm.chains.names import check_names
from textevolve.llm.chains.steps import (
    BranchStep,
    CallStep,
    ChainStep,
    EachStep,
    ModelStep,
    ParallelStep,
    as_steps,
    last_name,
)
from textevolve.spec import explain, suggest
from textevolve.user_code import callable_name

Values: TypeAlias = Mapping[str, Any]
NamesGiven: TypeAlias = Mapping[str, Any] | Iterable[str] | str
"""Names of values, with their types where it is a mapping."""


class Chain:
    """A function of values to values. It is called with its inputs by name, and gives its outputs
    by theirs: `chain(question="...")["answer"]`, or `await chain.acall(question="...")`.

    `name`: what it is called in traces and reports. `steps`: what is done, in this order. `inputs`:
    names, or names with types; where none are said, all that the steps use and do not make.
    `outputs`: likewise; where none are said, what the last step makes. `model`: the spec of the
    model for steps that name none; None: that of whoever runs it.

    Raises:
        InputError: a step uses a value that is not there, or makes one that is there already.
    """

    def __init__(
        self,
        name: str,
        *steps: ChainStep,
        inputs: NamesGiven | None = None,
        outputs: NamesGiven | None = None,
        model: str | None = None,
        description: str = "",
    ) -> None:
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError("a chain has a name, which comes first: Chain('summary', ask(...))")
        self.name, self.model, self.description = name, model, description
        self.own_name = name  # in the specification of a study
        try:
            self.steps = as_steps(steps)
            wanted = last_name(self.steps) if outputs is None else outputs
            told = None if inputs is None else _typed(inputs, None)
            found, made = check_names(self.steps, told)
            self.inputs: Mapping[str, Any] = found
            self.outputs: Mapping[str, Any] = _take_outputs(_typed(wanted, None), made)
        except InputError as error:
            raise InputError(f"chain '{name}': {error}") from None

    def __repr__(self) -> str:
        return f"Chain({self.name!r}: {', '.join(self.inputs)} -> {', '.join(self.outputs)})"

    def __call__(self, **values: Any) -> dict[str, Any]:
        """The outputs, waited for; it also works where an event loop runs. As `acall`."""
        return sync.run(self.acall(**values))

    async def acall(self, **values: Any) -> dict[str, Any]:
        """The outputs. Within a step of another chain its models, its journal and its limits are
        used; else those of the settings, which stay open for further calls.

        Raises:
            InputError: an input is missing, unknown, or of another type.
        """
        if not _callers:
            raise InputError("textevolve.open_chain(chain) opens models for a chain")
        return await _callers[0](self, values)

    def as_callee(self) -> ChainCallee:
        """The chain as another chain calls it."""
        return ChainCallee(self)

    def take_inputs(self, values: Values, *, others: bool = False) -> dict[str, Any]:
        """The inputs among values, checked by their types. `others`: there may be more, such as
        further columns of a row.

        Raises:
            InputError: one is missing, unknown, or of another type.
        """
        known = tuple(self.inputs)
        for name in values:
            if name not in known and not others:
                raise InputError(f"chain '{self.name}': no input '{name}'{suggest(name, known)}")
        for name in known:
            if name not in values:
                raise InputError(
                    f"chain '{self.name}': the input '{name}' is missing; inputs: "
                    + ", ".join(known)
                )
        try:
            return {name: _check(name, kind, values[name]) for name, kind in self.inputs.items()}
        except ValueError as error:
            raise InputError(f"chain '{self.name}': the input {error}") from None

    def take_outputs(self, values: Values) -> dict[str, Any]:
        """The outputs among all values, checked by their types.

        Raises:
            AnswerError: one is of another type.
        """
        try:
            return {name: _check(name, kind, values[name]) for name, kind in self.outputs.items()}
        except ValueError as error:
            raise AnswerError(f"chain '{self.name}': the output {error}") from None

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        """The templates of its model steps by their names; not those of chains within."""
        steps = walk_steps(self.steps)
        return {step.name: step.template for step in steps if isinstance(step, ModelStep)}

    def with_template(self, name: str, template: ChatTemplate) -> Chain:
        """The same chain with another template in the step of this name.

        Raises:
            InputError: there is no such step, there are two, or the template uses a value that is
                not there.
        """
        self.template_of(name)
        steps = _replaced(self.steps, name, template)
        return Chain(
            self.name,
            *steps,
            inputs=self.inputs,
            outputs=self.outputs,
            model=self.model,
            description=self.description,
        )

    def template_of(self, name: str | None = None) -> tuple[str, ChatTemplate]:
        """A template with its name; where none is named, the only one that there is.

        Raises:
            InputError: there is none of this name, or there are several to choose from.
        """
        named = [step.name for step in walk_steps(self.steps) if isinstance(step, ModelStep)]
        there = ", ".join(dict.fromkeys(named)) or "none"
        if name is None and len(named) == 1:
            name = named[0]
        if name is None:
            raise InputError(
                f"chain '{self.name}': name the step that is meant; steps that ask a model: {there}"
            )
        if name not in named:
            raise InputError(
                f"chain '{self.name}': no step '{name}' asks a model; there are: {there}"
            )
        if named.count(name) > 1:
            raise InputError(f"chain '{self.name}': two steps are called '{name}': give them names")
        return name, self.templates[name]

    @property
    def models(self) -> tuple[str, ...]:
        """The models that its steps name, and those of chains within."""
        return tuple(dict.fromkeys(m for m in _models_of(self.steps, self.model) if m is not None))

    @property
    def asks_default(self) -> bool:
        """Whether a step asks the model of whoever runs it."""
        return None in _models_of(self.steps, self.model)

    @property
    def may_ask(self) -> bool:
        """Whether code among its steps might ask the model of whoever runs it."""
        called = [step.callee for step in walk_steps(self.steps) if isinstance(step, CallStep)]
        return any(not isinstance(one, ChainCallee) or one.chain.may_ask for one in called)

    def describe(self) -> dict[str, Any]:
        """All that makes it what it is, as JSON: a changed chain has another description."""
        return {
            "name": self.name,
            "model": self.model,
            "inputs": {name: say_type(kind) for name, kind in self.inputs.items()},
            "outputs": {name: say_type(kind) for name, kind in self.outputs.items()},
            "steps": [_describe(step) for step in self.steps],
        }

    @property
    def version(self) -> str:
        """A hash of what it is."""
        told = json.dumps(self.describe(), sort_keys=True)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def text_of(self, outputs: Values) -> str:
        """The outputs as one text: of a single one itself, of several as JSON."""
        return value_text(next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs))


ChainCaller: TypeAlias = Callable[[Chain, Values], Awaitable[dict[str, Any]]]

_callers: list[ChainCaller] = []


def call_by(caller: ChainCaller) -> None:
    """From now on a chain that is called is handed to this, which opens models for it."""
    _callers[:] = [caller]


@dataclass(frozen=True)
class ChainCallee:
    """A chain as a step of another; `running.py` runs it within that."""

    chain: Chain
    kind: CalleeKind = "chain"
    may_take: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.chain.name

    @property
    def takes(self) -> tuple[str, ...]:
        return tuple(self.chain.inputs)

    @property
    def gives(self) -> Any:
        kinds = list(self.chain.outputs.values())
        return kinds[0] if len(kinds) == 1 else dict

    def describe(self) -> str:
        return f"{self.name} {self.chain.version}"

    async def __call__(self, arguments: Any, /) -> Any:
        found = await self.chain.acall(**arguments)
        return next(iter(found.values())) if len(found) == 1 else found


def walk_steps(steps: Iterable[ChainStep]) -> Iterator[ChainStep]:
    """All steps with those within them, but not those of chains that are called."""
    for step in steps:
        yield step
        for lane in inner_lanes(step):
            yield from walk_steps(lane)


def inner_lanes(step: ChainStep) -> tuple[tuple[ChainStep, ...], ...]:
    """The lists of steps within a step."""
    if isinstance(step, BranchStep):
        return (*step.cases.values(), *(() if step.otherwise is None else (step.otherwise,)))
    if isinstance(step, ParallelStep):
        return step.lanes
    return (step.steps,) if isinstance(step, EachStep) else ()


def say_type(kind: Any) -> str:
    """A type as a text, another where what it allows has changed."""
    if kind is None or kind is Any:
        return "any"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        schema = json.dumps(kind.model_json_schema(), sort_keys=True)
        return f"{kind.__name__} {hashlib.sha256(schema.encode()).hexdigest()[:12]}"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _typed(given: NamesGiven, kind: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {given: kind}
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    return dict.fromkeys(given, kind)


def _take_outputs(wanted: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs with their types.

    Raises:
        InputError: there is none, one is not made, or of another type than is said.
    """
    if not wanted:
        raise InputError("there are no outputs")
    for name, kind in wanted.items():
        if name not in made:
            raise InputError(f"no step makes the output '{name}'{suggest(name, tuple(made))}")
        found = made[name]
        if isinstance(kind, type) and isinstance(found, type) and not issubclass(found, kind):
            number = kind is float and found is int
            if not number and not issubclass(kind, found):
                raise InputError(
                    f"the output '{name}' is to be {say_type(kind)}, but its step makes"
                    f" {say_type(found)}"
                )
    return {name: made[name] if kind is None else kind for name, kind in wanted.items()}


def _check(name: str, kind: Any, value: Any) -> Any:
    """Raises ValueError where the value is of another type."""
    if kind is None or kind is Any or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(
            f"'{name}' is not of its type {say_type(kind)}: {explain(error)}"
        ) from None


def _models_of(steps: Iterable[ChainStep], own: str | None) -> list[str | None]:
    found: list[str | None] = []
    for step in walk_steps(steps):
        if isinstance(step, ModelStep):
            found.append(step.model or own)
        elif isinstance(step, CallStep) and isinstance(step.callee, ChainCallee):
            inner = step.callee.chain
            found += _models_of(inner.steps, inner.model or own)
    return found


def _replaced(
    steps: tuple[ChainStep, ...], name: str, template: ChatTemplate
) -> tuple[ChainStep, ...]:
    return tuple(_replace_in(step, name, template) for step in steps)


def _replace_in(step: ChainStep, name: str, template: ChatTemplate) -> ChainStep:
    if isinstance(step, ModelStep):
        return replace(step, template=template) if step.name == name else step
    if isinstance(step, EachStep):
        return replace(step, steps=_replaced(step.steps, name, template))
    if isinstance(step, ParallelStep):
        return replace(step, lanes=tuple(_replaced(one, name, template) for one in step.lanes))
    if isinstance(step, BranchStep):
        cases = {key: _replaced(lane, name, template) for key, lane in step.cases.items()}
        last = None if step.otherwise is None else _replaced(step.otherwise, name, template)
        return replace(step, cases=cases, otherwise=last)
    return step


def _describe(step: ChainStep) -> dict[str, Any]:
    """What a step is, as JSON."""
    if isinstance(step, ModelStep):
        plain = ("into", "name", "model", "temperature", "max_tokens", "seed", "attempts")
        told = {one: getattr(step, one) for one in plain}
        return {**told, "template": step.template.describe(), "parse": _say_parse(step.parse)}
    if isinstance(step, CallStep):
        arguments = step.arguments if isinstance(step.arguments, str) else None
        named = (
            None
            if arguments is not None or step.arguments is None
            else dict(cast("Mapping[str, str]", step.arguments))
        )
        return {
            "into": step.into,
            "calls": step.callee.describe(),
            "arguments": arguments or named,
            "attempts": step.attempts,
        }
    if isinstance(step, EachStep):
        return {
            "into": step.into,
            "over": step.over,
            "item": step.item,
            "take": step.take,
            "steps": [_describe(one) for one in step.steps],
        }
    if isinstance(step, ParallelStep):
        return {"together": [[_describe(one) for one in lane] for lane in step.lanes]}
    return {
        "branch": step.on if isinstance(step.on, str) else step.on.describe(),
        "cases": {key: [_describe(one) for one in lane] for key, lane in step.cases.items()},
        "otherwise": None if step.otherwise is None else [_describe(o) for o in step.otherwise],
    }


def _say_parse(parse: Any) -> str:
    if parse is None:
        return "text"
    if inspect.isclass(parse) and issubclass(parse, BaseModel):
        return say_type(parse)
    return f"{callable_name(parse)} {hash_source(parse)}"
