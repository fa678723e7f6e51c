"""The steps that chains are made of, and the verbs that make them.

    ask("facts", "List the facts in this text:\n{text}")
    ask("verdict", "Do they answer {question}?\n{facts}", parse=Verdict)
    call("short", shorten)
    branch("verdict.ok", {"true": ask("answer", ...)}, otherwise=call("answer", refuse))
    each("summaries", over="chapters", item="chapter", steps=ask("summary", "Shorten: {chapter}"))
    together(ask("pros", ...), ask("cons", ...))

Whatever a step makes has a name, under which later steps find it. Nothing here runs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from textevolve.errors import InputError
from textevolve.llm.chains.callables import Callee, take_callee
from textevolve.llm.chains.chat_template import ChatTemplate, take_template

Parse: TypeAlias = type[BaseModel] | Callable[[str], Any]
"""A type of answer that the model has to follow, or a function of its text."""


@dataclass(frozen=True)
class ModelStep:
    """A template filled in, a model asked, and its answer read. `attempts`: how often at most it is
    asked where its answer cannot be used, each time for another sample. `name`: of its template."""

    into: str
    name: str
    template: ChatTemplate
    model: str | None = None
    parse: Parse | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    attempts: int = 1


@dataclass(frozen=True)
class CallStep:
    """`arguments`: the value for each argument, by name; a single name: that value is all that is
    given; None: the callee's own names. `attempts`: how often at most it is called where it raises
    an error that is none of ours."""

    into: str
    callee: Callee
    arguments: Mapping[str, str] | str | None = None
    attempts: int = 1

    @property
    def name(self) -> str:
        return self.into


@dataclass(frozen=True)
class BranchStep:
    """Goes on with the steps that stand under what is chosen: the value of a name as a text, or
    what a function of values says."""

    on: str | Callee
    cases: Mapping[str, tuple[ChainStep, ...]]
    otherwise: tuple[ChainStep, ...] | None = None

    @property
    def name(self) -> str:
        return self.on if isinstance(self.on, str) else self.on.name


@dataclass(frozen=True)
class EachStep:
    """Its steps for each item of a list, of which `take` is gathered into another list."""

    into: str
    over: str
    item: str
    steps: tuple[ChainStep, ...]
    take: str
    concurrency: int | None = None

    @property
    def name(self) -> str:
        return self.into


@dataclass(frozen=True)
class ParallelStep:
    """Lanes of steps that go on side by side, and see nothing of each other."""

    lanes: tuple[tuple[ChainStep, ...], ...]

    @property
    def name(self) -> str:
        return "together"


ChainStep: TypeAlias = ModelStep | CallStep | BranchStep | EachStep | ParallelStep
Steps: TypeAlias = ChainStep | Iterable[ChainStep]


def ask(
    into: str,
    template: str | ChatTemplate | Iterable[Any],
    *,
    parse: Parse | None = None,
    model: str | None = None,
    name: str | None = None,
    attempts: int = 1,
    **asked: Any,
) -> ModelStep:
    """Ask a model: the answer to the template, filled in, is the value `into`.

    `template`: a text in which `{name}` stands for a value, or messages, each a role and a text.
    `parse`: a pydantic model that the answer has to follow, or a function of its text. `model`: a
    model's spec, where it is not the chain's. `name`: of the template, where it is not `into`.
    `asked`: temperature, max_tokens, seed.

    Raises:
        InputError: the template or a number cannot be used.
    """
    known = ("temperature", "max_tokens", "seed")
    if wrong := [one for one in asked if one not in known]:
        raise InputError(f"step '{into}': no parameter '{wrong[0]}'; there are: {', '.join(known)}")
    if parse is not None and not callable(parse):
        raise InputError(f"step '{into}': parse must be a pydantic model or a function")
    try:
        taken = take_template(template)
    except InputError as error:
        raise InputError(f"step '{into}': {error}") from None
    return ModelStep(
        into=_check_name(into),
        name=name or into,
        template=taken,
        model=model,
        parse=parse,
        attempts=_check_attempts(into, attempts),
        **asked,
    )


def call(
    into: str,
    function: object,
    *,
    inputs: Mapping[str, str] | Iterable[str] | str | None = None,
    attempts: int = 1,
) -> CallStep:
    """Call something: what it gives is the value `into`.

    `function`: any callable, async or not; a chain; a LangChain Runnable; a DSPy module. `inputs`:
    the name of the value for each argument, or names that are the arguments' too; a single name for
    a Runnable that takes one value and no mapping. Where none is said, the arguments' own names.

    Raises:
        InputError: it cannot be called, or does not say what it takes.
    """
    callee = take_callee(function)
    arguments = _take_arguments(inputs)
    if callee.takes is None and arguments is None:
        raise InputError(
            f"step '{into}': {callee.name} does not say what it takes: name its inputs"
        )
    if isinstance(arguments, str) and callee.kind in ("chain", "module"):
        raise InputError(f"step '{into}': {callee.name} takes values by name: inputs=[...]")
    return CallStep(_check_name(into), callee, arguments, _check_attempts(into, attempts))


def branch(
    on: str | Callable[..., Any], cases: Mapping[Any, Steps], *, otherwise: Steps | None = None
) -> BranchStep:
    """Go on with the steps that stand under a value. `on`: its name, or a function of values by
    their names. Values are compared as texts, true and false as such.

    Raises:
        InputError: there is no case.
    """
    if not cases:
        raise InputError("a branch has no cases")
    told = {case_key(key): as_steps(steps) for key, steps in cases.items()}
    chosen = on if isinstance(on, str) else take_callee(on)
    return BranchStep(chosen, told, None if otherwise is None else as_steps(otherwise))


def each(
    into: str,
    *,
    over: str,
    steps: Steps,
    item: str = "item",
    take: str | None = None,
    concurrency: int | None = None,
) -> EachStep:
    """The steps for each item of the list `over`, side by side; what they make is a list, too.

    `item`: what an item is called in the steps. `take`: which value of theirs is gathered; the
    last one's. `concurrency`: how many items are worked on at once.

    Raises:
        InputError: there are no steps.
    """
    listed = as_steps(steps)
    return EachStep(
        _check_name(into), over, _check_name(item), listed, take or last_name(listed), concurrency
    )


def together(*lanes: Steps) -> ParallelStep:
    """Steps, or lists of them, that go on side by side; all that they make is known afterwards.

    Raises:
        InputError: there are none.
    """
    if not lanes:
        raise InputError("together: name what is to go on side by side")
    return ParallelStep(tuple(as_steps(lane) for lane in lanes))


def as_steps(given: Steps) -> tuple[ChainStep, ...]:
    """
    Raises:
        InputError: something is no step, or there is none.
    """
    listed = (given,) if isinstance(given, ChainStep) else tuple(given)
    for one in listed:
        if not isinstance(one, ChainStep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{one!r:.60} is no step: make one by ask, call, branch or each")
    if not listed:
        raise InputError("there are no steps")
    return listed


def case_key(value: object) -> str:
    """A value as the cases of a branch have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def last_name(steps: tuple[ChainStep, ...]) -> str:
    """What the last step makes.

    Raises:
        InputError: it makes several values, or none that is known.
    """
    last = steps[-1]
    if isinstance(last, ModelStep | CallStep | EachStep):
        return last.into
    inner = [*last.cases.values()] if isinstance(last, BranchStep) else [*last.lanes]
    if isinstance(last, BranchStep) and last.otherwise is not None:
        inner.append(last.otherwise)
    names = {last_name(lane) for lane in inner}
    if len(names) != 1:
        raise InputError(
            f"the last step makes several values ({', '.join(sorted(names))}): name the outputs"
        )
    return names.pop()


def _take_arguments(
    given: Mapping[str, str] | Iterable[str] | str | None,
) -> Mapping[str, str] | str | None:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, str]", given))
    return {one: one for one in given}


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"a step makes a value with a name such as 'answer', not {name!r:.40}")
    return name


def _check_attempts(into: str, attempts: object) -> int:
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise InputError(f"step '{into}': attempts must be 1 or more")
    return attempts
