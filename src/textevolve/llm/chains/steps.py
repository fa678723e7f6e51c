"""The steps that chains are made of, and the verbs that make them.

    ask("facts", "List the facts in this text:\\n{text}")
    ask("verdict", "Do they answer {question}?\\n{facts}", parse=Verdict)
    call("short", shorten)
    branch("verdict.ok", {"true": ask("answer", ...)}, otherwise=call("answer", refuse))
    each("summaries", over="chapters", item="chapter", steps=ask("summary", "Shorten: {chapter}"))
    together(ask("pros", ...), ask("cons", ...))

A step is an async function of the values so far and a scope, which has the models (`run`). It
declares the values that it needs and makes, so that a chain is checked before anything is asked.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias, cast

from pydantic import BaseModel

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, CapabilityError, InputError
from textevolve.evaluation import mend_texts
from textevolve.llm.chains.callables import Callee, hash_source, return_type, take_callee
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    find_value,
    take_template,
    value_text,
)
from textevolve.llm.chains.scope import StepScope, note_use
from textevolve.llm.model import Model, Request
from textevolve.llm.structured import ask_structured
from textevolve.spec import suggest
from textevolve.user_code import call_function, callable_name

Parse: TypeAlias = type[BaseModel] | Callable[[str], Any]
"""A type of answer that the model has to follow, or a function of its text."""
StepSequence: TypeAlias = "tuple[ChainStep, ...]"
Types: TypeAlias = dict[str, Any]
"""Names of values with their types, None for a type that is not known."""


@dataclass(frozen=True, kw_only=True)
class ChainStep(ABC):
    """A step of a chain.

    Attributes:
        into: The name of the value that the step makes; empty if its lanes make the values.
        lanes: The lists of steps within the step, each with its label.
    """

    kind: ClassVar[str]

    into: str = ""
    lanes: tuple[tuple[str, StepSequence], ...] = ()

    @property
    def name(self) -> str:
        """The name of the step in traces and errors."""
        return self.into or self.kind

    @property
    def needs(self) -> Iterable[str]:
        """The names of the values that the step itself uses."""
        return ()

    @property
    def items(self) -> Types:
        """The values that the lanes see beside those of the chain."""
        return {}

    @abstractmethod
    def made(self, lanes: list[Types]) -> Types:
        """Return the values that the step makes, given those that each of its lanes makes.

        Raises:
            InputError: the lanes do not fit together.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Describe the step as JSON, so that a changed step has another description."""

    @abstractmethod
    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        """Return the values that the step makes.

        Raises:
            AnswerError: an answer cannot be used. BudgetError, ModelError: as the models.
            Exception: whatever the user's own code raises, as it is.
        """


Steps: TypeAlias = ChainStep | Iterable[ChainStep]


@dataclass
class ChainNames:
    """Check the names of a chain's values before it runs. `is_open`: a value that no step makes
    becomes an input."""

    inputs: Types
    is_open: bool

    def follow(self, steps: StepSequence, outer: Types) -> Types:
        """Return the values that steps make which see the `outer` ones.

        Raises:
            InputError: a step uses a value that is not there, or makes one that is.
        """
        made: Types = {}
        for step in steps:
            known = {**outer, **made}
            for name in step.needs:
                self._check_use(name, step, known)
            lanes = [self.follow(lane, {**known, **step.items}) for _, lane in step.lanes]
            for name, kind in (step.items | step.made(lanes)).items():
                if name in known or name in self.inputs:
                    raise InputError(
                        f"step '{step.name}': there is a value '{name}' already, or it is used"
                        " before it is made: call it otherwise"
                    )
                if name not in step.items:
                    made[name] = kind
        return made

    def _check_use(self, name: str, step: ChainStep, known: Types) -> None:
        first, *fields = name.split(".")
        if first not in known and first not in self.inputs:
            if not self.is_open:
                near = suggest(first, (*self.inputs, *known))
                raise InputError(
                    f"step '{step.name}': there is no value '{first}' at this point{near}"
                )
            self.inputs[first] = None
        kind = known.get(first, self.inputs.get(first))
        for part in fields:
            if not (inspect.isclass(kind) and issubclass(kind, BaseModel)):
                return
            if part not in kind.model_fields:
                raise InputError(
                    f"step '{step.name}': '{name}': {kind.__name__} has no field '{part}'"
                    f"{suggest(part, tuple(kind.model_fields))}"
                )
            kind = kind.model_fields[part].annotation


async def run_steps(steps: StepSequence, known: dict[str, Any], scope: StepScope) -> None:
    """Run one step after another, and add what they make to what is known."""
    for step in steps:
        with scope.enter(step.name, step.kind) as inner:
            known.update(mend_texts(dict(await step.run(known, inner))))


async def _run_lane(
    steps: StepSequence, known: Mapping[str, Any], scope: StepScope
) -> dict[str, Any]:
    """Return the values that the steps of a lane make."""
    values = dict(known)
    await run_steps(steps, values, scope)
    return {name: value for name, value in values.items() if name not in known}


def walk_steps(steps: Iterable[ChainStep]) -> Iterator[ChainStep]:
    """All steps with those within them, but not those of chains that are called."""
    for step in steps:
        yield step
        for _, lane in step.lanes:
            yield from walk_steps(lane)


def _describe_lane(steps: StepSequence) -> list[dict[str, Any]]:
    return [step.describe() for step in steps]


@dataclass(frozen=True, kw_only=True)
class ModelStep(ChainStep):
    """Fill a template, ask a model, and read its answer.

    Attributes:
        template_name: The name of the template, which may differ from that of the value.
        sampling: The temperature, the token limit and the seed, where they are set.
        attempts: How often at most the model is asked if its answer cannot be used, each time for
            another sample.
    """

    kind: ClassVar[str] = "ask"

    template_name: str
    template: ChatTemplate
    model: str | None = None
    parse: Parse | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    attempts: int = 1

    @property
    def name(self) -> str:
        return self.template_name

    @property
    def needs(self) -> Iterable[str]:
        return self.template.names

    @property
    def _form(self) -> type[BaseModel] | None:
        is_form = inspect.isclass(self.parse) and issubclass(self.parse, BaseModel)
        return cast("type[BaseModel]", self.parse) if is_form else None

    def made(self, lanes: list[Types]) -> Types:
        if self.parse is None:
            return {self.into: str}
        return {self.into: self.parse if inspect.isclass(self.parse) else return_type(self.parse)}

    def describe(self) -> dict[str, Any]:
        parse = "text"
        if self._form is not None:
            parse = describe_type(self._form)
        elif self.parse is not None:
            parse = f"{callable_name(self.parse)} {hash_source(self.parse)}"
        return {
            **{name: getattr(self, name) for name in ("into", "name", "model")},
            **{name: self.sampling.get(name) for name in SAMPLING},
            "attempts": self.attempts,
            "template": self.template.describe(),
            "parse": parse,
        }

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        model = scope.model_of(self.model)
        scope.recorder.note = model.name
        request = Request(messages=self.template.fill(known), **self.sampling)
        prompt = "\n\n".join(message.text for message in request.messages)
        first = scope.context.sample * self.attempts
        for sample in range(first, first + self.attempts):
            try:
                value = await self._ask(model, replace(request, sample=sample))
            except AnswerError as error:
                note_use(self.name, prompt, f"(nothing that can be used: {error})")
                if sample == first + self.attempts - 1:
                    raise
            else:
                note_use(self.name, prompt, value_text(value))
                return {self.into: value}
        raise AssertionError  # there is at least one attempt

    async def _ask(self, model: Model, request: Request) -> Any:
        """
        Raises:
            AnswerError: the answer is empty, was cut where it is parsed, or cannot be parsed.
        """
        if self._form is not None:
            return (await ask_structured(model, request, self._form)).value
        response = await model(request)
        if not response.text.strip():
            raise AnswerError(f"step '{self.into}': the answer is empty")
        if self.parse is None:
            return response.text
        if response.finish_reason == "length":
            raise AnswerError(f"step '{self.into}': the answer was cut at the token limit")
        try:
            return await call_function(self.parse, response.text)
        except ValueError as error:
            raise AnswerError(f"step '{self.into}': the answer cannot be read: {error}") from error


@dataclass(frozen=True, kw_only=True)
class CallStep(ChainStep):
    """Call a function, a chain, a Runnable or a module.

    Attributes:
        arguments: The value for each argument, by name; a single name if that value is the only
            argument; None for the callee's own names.
    """

    kind: ClassVar[str] = "call"

    callee: Callee
    arguments: Mapping[str, str] | str | None = None

    @property
    def needs(self) -> Iterable[str]:
        if self.arguments is None:
            return self.callee.takes or ()
        return [self.arguments] if isinstance(self.arguments, str) else self.arguments.values()

    def made(self, lanes: list[Types]) -> Types:
        return {self.into: self.callee.gives}

    def describe(self) -> dict[str, Any]:
        arguments = self.arguments
        return {
            "into": self.into,
            "calls": self.callee.describe(),
            "arguments": dict(arguments) if isinstance(arguments, Mapping) else arguments,
            "attempts": 1,  # as in descriptions of before
        }

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        callee = self.callee
        if callee.kind in ("runnable", "module") and scope.context.rehearsed:
            raise CapabilityError(
                f"step '{self.name}': what {callee.name} may ask cannot be known beforehand"
            )
        arguments = _collect_arguments(callee, self.arguments, known)
        return {self.into: await callee.call(arguments)}


def _collect_arguments(
    callee: Callee, arguments: Mapping[str, str] | str | None, known: Mapping[str, Any]
) -> Any:
    if isinstance(arguments, str):
        value, takes = find_value(arguments, known), callee.takes
        return {takes[0]: value} if callee.kind == "code" and takes and len(takes) == 1 else value
    if arguments is not None:
        return {argument: find_value(name, known) for argument, name in arguments.items()}
    optional = [name for name in callee.may_take if name in known]
    return {name: known[name] for name in (*(callee.takes or ()), *optional)}


@dataclass(frozen=True, kw_only=True)
class BranchStep(ChainStep):
    """Run the steps of one case, chosen by the text of a value. `has_default`: the last lane is
    that of all other values."""

    kind: ClassVar[str] = "branch"

    on: str
    has_default: bool = False

    @property
    def name(self) -> str:
        return self.on

    @property
    def needs(self) -> Iterable[str]:
        return [self.on]

    @property
    def cases(self) -> dict[str, StepSequence]:
        return dict(self.lanes[:-1] if self.has_default else self.lanes)

    def made(self, lanes: list[Types]) -> Types:
        common = [name for name in lanes[0] if all(name in lane for lane in lanes)]
        first = lanes[0]
        return {
            name: first[name] if all(lane[name] == first[name] for lane in lanes) else None
            for name in common
        }

    def describe(self) -> dict[str, Any]:
        return {
            "branch": self.on,
            "cases": {key: _describe_lane(lane) for key, lane in self.cases.items()},
            "otherwise": _describe_lane(self.lanes[-1][1]) if self.has_default else None,
        }

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        lanes = [lane for _, lane in self.lanes]
        if scope.context.rehearsed == "shortest":
            return await _run_lane(min(lanes, key=_count_model_steps), known, scope)
        if scope.context.rehearsed == "longest":
            return [await _run_lane(lane, known, scope) for lane in lanes][-1]
        scope.recorder.note = key = case_key(find_value(self.on, known))
        lane = self.cases.get(key, lanes[-1] if self.has_default else None)
        if lane is None:
            there = ", ".join(self.cases)
            raise AnswerError(f"step '{self.name}': no case for {key!r:.60}; there are: {there}")
        return await _run_lane(lane, known, scope)


def _count_model_steps(steps: StepSequence) -> int:
    return sum(isinstance(step, ModelStep) for step in walk_steps(steps))


def case_key(value: object) -> str:
    """A value as the cases of a branch have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class EachStep(ChainStep):
    """Run its steps for each item of a list, and gather the value `take` into another list."""

    kind: ClassVar[str] = "each"

    over: str
    item: str
    take: str

    @property
    def needs(self) -> Iterable[str]:
        return [self.over]

    @property
    def items(self) -> Types:
        return {self.item: None}

    def made(self, lanes: list[Types]) -> Types:
        if self.take not in lanes[0]:
            raise InputError(f"step '{self.name}': its steps make no value '{self.take}'")
        return {self.into: list}

    def describe(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("into", "over", "item", "take")}
        return {**plain, "steps": _describe_lane(self.lanes[0][1])}

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        items: Any = find_value(self.over, known)
        if isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
            kind = type(cast(object, items)).__name__
            raise AnswerError(f"step '{self.name}': '{self.over}' is no list but {kind}")

        async def work(number: int, item: Any) -> Any:
            with scope.enter(f"{self.item} {number}", "item") as inner:
                return (await _run_lane(self.lanes[0][1], {**known, self.item: item}, inner))[
                    self.take
                ]

        pieces = [partial(work, number, item) for number, item in enumerate(items, 1)]
        return {self.into: await gather_bounded(pieces, scope.context.concurrency)}


@dataclass(frozen=True, kw_only=True)
class ParallelStep(ChainStep):
    """Run lanes of steps side by side, each without the values of the others."""

    kind: ClassVar[str] = "together"

    def made(self, lanes: list[Types]) -> Types:
        made: Types = {}
        for lane in lanes:
            if twice := sorted(made.keys() & lane.keys()):
                raise InputError(f"two steps that go on side by side make '{twice[0]}'")
            made |= lane
        return made

    def describe(self) -> dict[str, Any]:
        return {"together": [_describe_lane(lane) for _, lane in self.lanes]}

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        lanes = [partial(_run_lane, lane, known, scope) for _, lane in self.lanes]
        made = await gather_bounded(lanes, scope.context.concurrency)
        return {name: value for lane in made for name, value in lane.items()}


SAMPLING = ("temperature", "max_tokens", "seed")


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
    _check(into, attempts)
    if wrong := [parameter for parameter in asked if parameter not in SAMPLING]:
        known = ", ".join(SAMPLING)
        raise InputError(f"step '{into}': no parameter '{wrong[0]}'; there are: {known}")
    if parse is not None and not callable(parse):
        raise InputError(f"step '{into}': parse must be a pydantic model or a function")
    try:
        parsed = take_template(template)
    except InputError as error:
        raise InputError(f"step '{into}': {error}") from None
    return ModelStep(
        into=into,
        template_name=name or into,
        template=parsed,
        model=model,
        parse=parse,
        sampling=asked,
        attempts=attempts,
    )


def call(
    into: str,
    function: object,
    *,
    inputs: Mapping[str, str] | Iterable[str] | str | None = None,
) -> CallStep:
    """Call something: what it gives is the value `into`.

    `function`: any callable, async or not; a chain; a LangChain Runnable; a DSPy module. `inputs`:
    the name of the value for each argument, or names that are the arguments' too; a single name for
    a Runnable that takes one value and no mapping. Where none is said, the arguments' own names.

    Raises:
        InputError: it cannot be called, or does not say what it takes.
    """
    _check(into)
    callee = take_callee(function)
    arguments = inputs
    if inputs is not None and not isinstance(inputs, str | Mapping):
        arguments = {name: name for name in inputs}
    problem = ""
    if callee.takes is None and arguments is None:
        problem = f"{callee.name} does not say what it takes: name its inputs"
    elif isinstance(arguments, str) and callee.kind in ("chain", "module"):
        problem = f"{callee.name} takes values by name: inputs=[...]"
    elif isinstance(arguments, Mapping) and callee.takes is not None and callee.kind != "runnable":
        takes = (*callee.takes, *callee.may_take)
        unknown = [name for name in arguments if name not in takes]
        missing = [name for name in callee.takes if name not in arguments]
        if unknown:
            problem = f"{callee.name} takes no '{unknown[0]}'{suggest(unknown[0], takes)}"
        elif missing:
            problem = f"{callee.name} needs '{missing[0]}', too"
    if problem:
        raise InputError(f"step '{into}': {problem}")
    named = cast("Mapping[str, str] | str | None", arguments)
    return CallStep(into=into, callee=callee, arguments=named)


def branch(on: str, cases: Mapping[Any, Steps], *, otherwise: Steps | None = None) -> BranchStep:
    """Run the steps of the case for a value. `on`: its name. Values are compared as texts, true and
    false as such.

    Raises:
        InputError: there is no case.
    """
    if not cases:
        raise InputError("a branch has no cases")
    lanes = [(case_key(key), as_steps(steps)) for key, steps in cases.items()]
    if otherwise is not None:
        lanes.append(("otherwise", as_steps(otherwise)))
    return BranchStep(on=on, lanes=tuple(lanes), has_default=otherwise is not None)


def each(
    into: str,
    *,
    over: str,
    steps: Steps,
    item: str = "item",
    take: str | None = None,
) -> EachStep:
    """The steps for each item of the list `over`, side by side; what they make is a list, too.

    `item`: what an item is called in the steps. `take`: which value of theirs is gathered; the
    last one's.

    Raises:
        InputError: there are no steps.
    """
    _check(into)
    _check(item)
    lane = as_steps(steps)
    return EachStep(
        into=into,
        over=over,
        item=item,
        lanes=(("", lane),),
        take=take or last_name(lane),
    )


def together(*lanes: Steps) -> ParallelStep:
    """Steps, or lists of them, that go on side by side; all that they make is known afterwards.

    Raises:
        InputError: there are none.
    """
    if not lanes:
        raise InputError("together: name what is to go on side by side")
    labelled = [(f"lane {number}", as_steps(lane)) for number, lane in enumerate(lanes, 1)]
    return ParallelStep(lanes=tuple(labelled))


def as_steps(steps: Steps) -> StepSequence:
    """
    Raises:
        InputError: something is no step, or there is none.
    """
    lane = (steps,) if isinstance(steps, ChainStep) else tuple(steps)
    for step in lane:
        if not isinstance(step, ChainStep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{step!r:.60} is no step: make one by ask, call, branch or each")
    if not lane:
        raise InputError("there are no steps")
    return lane


def last_name(steps: StepSequence) -> str:
    """Return the name of the value that the last step makes.

    Raises:
        InputError: it makes several values, or none that is known.
    """
    last = steps[-1]
    if last.into:
        return last.into
    names = {last_name(lane) for _, lane in last.lanes}
    if len(names) != 1:
        raise InputError(
            f"the last step makes several values ({', '.join(sorted(names))}): name the outputs"
        )
    return names.pop()


def describe_type(kind: Any) -> str:
    """A type as a text, another where what it allows has changed."""
    if kind is None or kind is Any:
        return "any"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        schema = json.dumps(kind.model_json_schema(), sort_keys=True)
        return f"{kind.__name__} {hashlib.sha256(schema.encode()).hexdigest()[:12]}"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _check(into: object, attempts: int = 1) -> None:
    if not isinstance(into, str) or not into.isidentifier():
        raise InputError(f"a step makes a value with a name such as 'answer', not {into!r:.40}")
    if attempts < 1:
        raise InputError(f"step '{into}': attempts must be 1 or more")
