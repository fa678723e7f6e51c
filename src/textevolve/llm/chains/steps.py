"""The steps that chains are made of, and the verbs that make them.

    ask("facts", "List the facts in this text:\\n{text}")
    ask("verdict", "Do they answer {question}?\\n{facts}", parse=Verdict)
    call("short", shorten)
    branch("verdict.ok", {"true": ask("answer", ...)}, otherwise=call("answer", refuse))
    each("summaries", over="chapters", item="chapter", steps=ask("summary", "Shorten: {chapter}"))
    together(ask("pros", ...), ask("cons", ...))

A step is an async function of the values so far and a scope, which has the models (`run`); it says
beforehand which values it needs and makes. Whatever a step makes has a name, under which later
steps find it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias, cast, get_type_hints

from pydantic import BaseModel

from textevolve.engine.local import gather_bounded
from textevolve.errors import (
    AnswerError,
    CapabilityError,
    InputError,
    TextEvolveError,
    UnavailableError,
)
from textevolve.evaluation import mend_texts
from textevolve.llm.chains.callables import Callee, hash_source, return_type, take_callee
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    find_value,
    take_template,
    value_text,
)
from textevolve.llm.chains.prompt_uses import note_use
from textevolve.llm.chains.scope import NO_STREAMS, PieceHeard, StepScope
from textevolve.llm.model import Model, Request
from textevolve.llm.streaming import AnswerPiece, ask_streaming
from textevolve.llm.structured import ask_structured
from textevolve.spec import suggest
from textevolve.user_code import call_function, callable_name

Parse: TypeAlias = type[BaseModel] | Callable[[str], Any]
"""A type of answer that the model has to follow, or a function of its text."""
Lane: TypeAlias = "tuple[ChainStep, ...]"


@dataclass
class ChainNames:
    """Which values are there at a point of a chain, with their types, None for a type that is not
    known. `finds`: a value that no step makes is an input that nobody has named."""

    inputs: dict[str, Any]
    known: dict[str, Any]
    finds: bool

    def follow(self, steps: Iterable[ChainStep]) -> None:
        """Add what the steps make.

        Raises:
            InputError: a step uses a value that is not there, or makes one that is.
        """
        for step in steps:
            for name, kind in step.made(self).items():
                if name in self.known:
                    raise InputError(
                        f"step '{step.name}': there is a value '{name}' already, or it is used"
                        " before it is made: call it otherwise"
                    )
                self.known[name] = kind

    def made_by(self, lane: Lane, item: str | None = None) -> dict[str, Any]:
        """Return the values that the steps of a lane make, which see all values known here, and an
        item."""
        if item in self.known:
            raise InputError(f"an item cannot be called '{item}': there is such a value")
        begun = self.known if item is None else {**self.known, item: None}
        inner = ChainNames(self.inputs, dict(begun), self.finds)
        inner.follow(lane)
        self.known.update({n: k for n, k in self.inputs.items() if n not in self.known})
        return {name: kind for name, kind in inner.known.items() if name not in self.known}

    def need(self, name: str, step: ChainStep) -> None:
        first, *fields = name.split(".")
        if first not in self.known:
            if not self.finds:
                raise InputError(
                    f"step '{step.name}': there is no value '{first}' at this point"
                    f"{suggest(first, tuple(self.known))}"
                )
            self.inputs[first] = self.known[first] = None
        kind: Any = self.known[first]
        for field in fields:
            known = _fields_of(kind)
            if known is not None and field not in known:
                raise InputError(
                    f"step '{step.name}': '{name}': {kind.__name__} has no field '{field}'"
                    f"{suggest(field, tuple(known))}"
                )
            kind = None if known is None else known[field]


def _fields_of(kind: Any) -> Mapping[str, Any] | None:
    """The fields of a type with their types; None where they are not known."""
    if not inspect.isclass(kind):
        return None
    if issubclass(kind, BaseModel):
        return {name: info.annotation for name, info in kind.model_fields.items()}
    if is_dataclass(kind):
        return get_type_hints(kind)
    return {} if kind in (str, int, float, bool, list) else None


@dataclass(frozen=True)
class ChainStep(ABC):
    """A step of a chain, of whichever kind."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The name of the step in traces and errors."""
        return self.kind

    @property
    def lanes(self) -> tuple[tuple[str, Lane], ...]:
        """The lists of steps within it, each with what it is called."""
        return ()

    def with_lanes(self, lanes: Sequence[Lane]) -> Self:
        """The same step with others within it."""
        return self

    @abstractmethod
    def made(self, names: ChainNames) -> dict[str, Any]:
        """The values that it makes, with their types.

        Raises:
            InputError: it needs a value that is not there.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Describe the step as JSON, so that a changed step has another description."""

    @abstractmethod
    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        """The values that it makes.

        Raises:
            AnswerError: an answer cannot be used. BudgetError, ModelError: as the models.
            Exception: whatever the user's own code raises, as it is.
        """


Steps: TypeAlias = ChainStep | Iterable[ChainStep]


async def run_steps(steps: Lane, known: dict[str, Any], scope: StepScope) -> None:
    """One step after another; what they make is added to what is known."""
    for step in steps:
        with scope.enter(step.name, step.kind) as inner:
            known.update(mend_texts(dict(await step.run(known, inner))))


async def _run_lane(steps: Lane, known: Mapping[str, Any], scope: StepScope) -> dict[str, Any]:
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


@dataclass(frozen=True)
class ModelStep(ChainStep):
    """A template filled in, a model asked, and its answer read. `attempts`: how often at most it is
    asked where its answer cannot be used, each time for another sample. `template_name`: what its
    template is called, where it is not `into`."""

    kind: ClassVar[str] = "ask"

    into: str
    template_name: str
    template: ChatTemplate
    model: str | None = None
    parse: Parse | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    attempts: int = 1

    @property
    def name(self) -> str:
        return self.template_name

    @property
    def _form(self) -> type[BaseModel] | None:
        is_form = inspect.isclass(self.parse) and issubclass(self.parse, BaseModel)
        return cast("type[BaseModel]", self.parse) if is_form else None

    def made(self, names: ChainNames) -> dict[str, Any]:
        for name in self.template.names:
            names.need(name, self)
        if self.parse is None:
            return {self.into: str}
        return {self.into: self.parse if inspect.isclass(self.parse) else return_type(self.parse)}

    def describe(self) -> dict[str, Any]:
        plain = ("into", "name", "model", "temperature", "max_tokens", "seed", "attempts")
        parse = "text"
        if self._form is not None:
            parse = say_type(self._form)
        elif self.parse is not None:
            parse = f"{callable_name(self.parse)} {hash_source(self.parse)}"
        described = {field: getattr(self, field) for field in plain}
        return {**described, "template": self.template.describe(), "parse": parse}

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        model = scope.model_of(self.model)
        scope.recorder.note = model.name
        request = Request(
            messages=self.template.fill(known),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )
        prompt = "\n\n".join(message.text for message in request.messages)
        first = scope.context.sample * self.attempts
        for sample in range(first, first + self.attempts):
            try:
                value = await self._ask(model, replace(request, sample=sample), scope)
            except AnswerError as error:
                note_use(self.name, prompt, f"(nothing that can be used: {error})")
                if sample == first + self.attempts - 1:
                    raise
            else:
                note_use(self.name, prompt, value_text(value))
                return {self.into: value}
        raise AssertionError  # there is at least one attempt

    async def _ask(self, model: Model, request: Request, scope: StepScope) -> Any:
        """
        Raises:
            AnswerError: the answer is empty, was cut where it is parsed, or cannot be parsed.
        """
        if self._form is not None:
            return (await ask_structured(model, request, self._form)).value
        heard = scope.context.heard if self.into in scope.streams else None
        if self.parse is None and heard is not None:
            teller = _Teller(self.into, heard)
            response = await ask_streaming(model, request, teller.hear)
            if teller.is_void:
                raise UnavailableError(
                    f"{model.name}: the answer broke off while it was streamed; ask again: the"
                    " whole answer is in the journal now"
                )
        else:
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


@dataclass
class _Teller:
    """Tells the pieces of an answer, as long as none of them is taken back."""

    name: str
    heard: PieceHeard
    is_void: bool = False

    def hear(self, piece: AnswerPiece) -> None:
        self.is_void = self.is_void or piece.anew
        if piece.text and not self.is_void:
            self.heard(self.name, piece.text)


@dataclass(frozen=True)
class CallStep(ChainStep):
    """`arguments`: the value for each argument, by name; a single name: that value is all that is
    given; None: the callee's own names. `attempts`: how often at most it is called where it raises
    an error that is none of ours."""

    kind: ClassVar[str] = "call"

    into: str
    callee: Callee
    arguments: Mapping[str, str] | str | None = None
    attempts: int = 1

    @property
    def name(self) -> str:
        return self.into

    def made(self, names: ChainNames) -> dict[str, Any]:
        callee, arguments = self.callee, self.arguments
        if arguments is None:
            needed: Iterable[str] = callee.takes or ()
        else:
            needed = [arguments] if isinstance(arguments, str) else arguments.values()
        for name in needed:
            names.need(name, self)
        if isinstance(arguments, Mapping) and callee.takes is not None:
            takes = (*callee.takes, *callee.may_take)
            unknown = [name for name in arguments if name not in takes]
            missing = [name for name in callee.takes if name not in arguments]
            if unknown and callee.kind != "runnable":
                raise InputError(
                    f"step '{self.name}': {callee.name} takes no '{unknown[0]}'"
                    f"{suggest(unknown[0], takes)}"
                )
            if missing and callee.kind != "runnable":
                raise InputError(f"step '{self.name}': {callee.name} needs '{missing[0]}', too")
        return {self.into: callee.gives}

    def describe(self) -> dict[str, Any]:
        arguments = self.arguments
        return {
            "into": self.into,
            "calls": self.callee.describe(),
            "arguments": dict(arguments) if isinstance(arguments, Mapping) else arguments,
            "attempts": self.attempts,
        }

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        callee = self.callee
        arguments = _arguments(callee, self.arguments, known)
        if callee.kind in ("runnable", "module") and scope.context.rehearsed:
            raise CapabilityError(
                f"step '{self.name}': what {callee.name} may ask cannot be known beforehand"
            )
        for attempt in range(1, self.attempts + 1):
            try:
                return {self.into: await self._call(arguments, scope)}
            except TextEvolveError:
                raise
            except Exception:
                if attempt == self.attempts:
                    raise
        raise AssertionError  # there is at least one attempt

    async def _call(self, arguments: Any, scope: StepScope) -> Any:
        if self.callee.within is not None:
            return await self.callee.within(arguments, scope)
        heard = scope.context.heard if self.into in scope.streams else None
        if self.callee.stream is None or heard is None:
            return await self.callee.call(arguments)
        whole: Any = None
        pieces: Any = self.callee.stream(arguments)
        async with aclosing(pieces) as source:
            async for piece in source:
                heard(self.into, piece)
                whole = piece if whole is None else whole + piece
        return whole


def _arguments(
    callee: Callee, arguments: Mapping[str, str] | str | None, known: Mapping[str, Any]
) -> Any:
    if isinstance(arguments, str):
        value, takes = find_value(arguments, known), callee.takes
        return {takes[0]: value} if callee.kind == "code" and takes and len(takes) == 1 else value
    if arguments is not None:
        return {argument: find_value(name, known) for argument, name in arguments.items()}
    optional = [name for name in callee.may_take if name in known]
    return {name: known[name] for name in (*(callee.takes or ()), *optional)}


@dataclass(frozen=True)
class BranchStep(ChainStep):
    """Runs the steps of one case, which is chosen by the value of a name as a text, or by the
    result of a function of values."""

    kind: ClassVar[str] = "branch"

    on: str | Callee
    cases: Mapping[str, Lane]
    otherwise: Lane | None = None

    @property
    def name(self) -> str:
        return self.on if isinstance(self.on, str) else self.on.name

    @property
    def lanes(self) -> tuple[tuple[str, Lane], ...]:
        last = () if self.otherwise is None else (("otherwise", self.otherwise),)
        return (*self.cases.items(), *last)

    def with_lanes(self, lanes: Sequence[Lane]) -> Self:
        cases = dict(zip(self.cases, lanes, strict=False))
        return replace(self, cases=cases, otherwise=None if self.otherwise is None else lanes[-1])

    def made(self, names: ChainNames) -> dict[str, Any]:
        for name in [self.on] if isinstance(self.on, str) else self.on.takes or ():
            names.need(name, self)
        lanes = [names.made_by(lane) for _, lane in self.lanes]
        common = [name for name in lanes[0] if all(name in lane for lane in lanes)]
        kinds = {name: [lane[name] for lane in lanes] for name in common}
        return {n: k[0] if all(kind == k[0] for kind in k) else None for n, k in kinds.items()}

    def describe(self) -> dict[str, Any]:
        last = self.otherwise
        return {
            "branch": self.on if isinstance(self.on, str) else self.on.describe(),
            "cases": {key: [step.describe() for step in lane] for key, lane in self.cases.items()},
            "otherwise": None if last is None else [step.describe() for step in last],
        }

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        lanes = [lane for _, lane in self.lanes]
        if scope.context.rehearsed == "shortest":
            return await _run_lane(min(lanes, key=_count_model_steps), known, scope)
        if scope.context.rehearsed == "longest":
            return [await _run_lane(lane, known, scope) for lane in lanes][-1]
        if isinstance(self.on, str):
            value = find_value(self.on, known)
        else:
            value = await self.on.call(_arguments(self.on, None, known))
        scope.recorder.note = key = case_key(value)
        lane = self.cases.get(key, self.otherwise)
        if lane is None:
            there = ", ".join(self.cases)
            raise AnswerError(f"step '{self.name}': no case for {key!r:.60}; there are: {there}")
        return await _run_lane(lane, known, scope)


def _count_model_steps(steps: Lane) -> int:
    return sum(isinstance(step, ModelStep) for step in walk_steps(steps))


def case_key(value: object) -> str:
    """A value as the cases of a branch have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class EachStep(ChainStep):
    """Its steps for each item of a list, of which `take` is gathered into another list."""

    kind: ClassVar[str] = "each"

    into: str
    over: str
    item: str
    steps: Lane
    take: str
    concurrency: int | None = None

    @property
    def name(self) -> str:
        return self.into

    @property
    def lanes(self) -> tuple[tuple[str, Lane], ...]:
        return (("", self.steps),)

    def with_lanes(self, lanes: Sequence[Lane]) -> Self:
        return replace(self, steps=lanes[0])

    def made(self, names: ChainNames) -> dict[str, Any]:
        names.need(self.over, self)
        if self.take not in names.made_by(self.steps, self.item):
            raise InputError(f"step '{self.name}': its steps make no value '{self.take}'")
        return {self.into: list}

    def describe(self) -> dict[str, Any]:
        plain = {field: getattr(self, field) for field in ("into", "over", "item", "take")}
        return {**plain, "steps": [step.describe() for step in self.steps]}

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        items: Any = find_value(self.over, known)
        if isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
            kind = type(cast(object, items)).__name__
            raise AnswerError(f"step '{self.name}': '{self.over}' is no list but {kind}")

        async def work(number: int, item: Any) -> Any:
            with scope.enter(f"{self.item} {number}", "item", streams=NO_STREAMS) as inner:
                made = await _run_lane(self.steps, {**known, self.item: item}, inner)
            return made[self.take]

        pieces = [partial(work, number, item) for number, item in enumerate(items, 1)]
        concurrency = self.concurrency or scope.context.concurrency
        return {self.into: await gather_bounded(pieces, concurrency)}


@dataclass(frozen=True)
class ParallelStep(ChainStep):
    """Lanes of steps that go on side by side, and see nothing of each other."""

    kind: ClassVar[str] = "together"

    parallel: tuple[Lane, ...]

    @property
    def lanes(self) -> tuple[tuple[str, Lane], ...]:
        return tuple((f"lane {number}", lane) for number, lane in enumerate(self.parallel, 1))

    def with_lanes(self, lanes: Sequence[Lane]) -> Self:
        return replace(self, parallel=tuple(lanes))

    def made(self, names: ChainNames) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for lane in self.parallel:
            more = names.made_by(lane)
            if twice := sorted(made.keys() & more.keys()):
                raise InputError(f"two steps that go on side by side make '{twice[0]}'")
            made |= more
        return made

    def describe(self) -> dict[str, Any]:
        return {"together": [[step.describe() for step in lane] for lane in self.parallel]}

    async def run(self, known: Mapping[str, Any], scope: StepScope) -> Mapping[str, Any]:
        lanes = [partial(_run_lane, lane, known, scope) for lane in self.parallel]
        made = await gather_bounded(lanes, scope.context.concurrency)
        return {name: value for lane in made for name, value in lane.items()}


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
    if wrong := [parameter for parameter in asked if parameter not in known]:
        raise InputError(f"step '{into}': no parameter '{wrong[0]}'; there are: {', '.join(known)}")
    if parse is not None and not callable(parse):
        raise InputError(f"step '{into}': parse must be a pydantic model or a function")
    try:
        read = take_template(template)
    except InputError as error:
        raise InputError(f"step '{into}': {error}") from None
    _check(into, attempts)
    return ModelStep(into, name or into, read, model, parse, attempts=attempts, **asked)


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
    arguments = inputs
    if inputs is not None and not isinstance(inputs, str | Mapping):
        arguments = {name: name for name in inputs}
    if callee.takes is None and arguments is None:
        raise InputError(
            f"step '{into}': {callee.name} does not say what it takes: name its inputs"
        )
    if isinstance(arguments, str) and callee.kind in ("chain", "module"):
        raise InputError(f"step '{into}': {callee.name} takes values by name: inputs=[...]")
    _check(into, attempts)
    return CallStep(into, callee, cast("Mapping[str, str] | str | None", arguments), attempts)


def branch(
    on: str | Callable[..., Any], cases: Mapping[Any, Steps], *, otherwise: Steps | None = None
) -> BranchStep:
    """Run the steps of the case for a value. `on`: its name, or a function of values by
    their names. Values are compared as texts, true and false as such.

    Raises:
        InputError: there is no case.
    """
    if not cases:
        raise InputError("a branch has no cases")
    lanes = {case_key(key): as_steps(steps) for key, steps in cases.items()}
    chooser = on if isinstance(on, str) else take_callee(on)
    return BranchStep(chooser, lanes, None if otherwise is None else as_steps(otherwise))


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
    lane = as_steps(steps)
    _check(into)
    _check(item)
    return EachStep(into, over, item, lane, take or last_name(lane), concurrency)


def together(*lanes: Steps) -> ParallelStep:
    """Steps, or lists of them, that go on side by side; all that they make is known afterwards.

    Raises:
        InputError: there are none.
    """
    if not lanes:
        raise InputError("together: name what is to go on side by side")
    return ParallelStep(tuple(as_steps(lane) for lane in lanes))


def as_steps(given: Steps) -> Lane:
    """
    Raises:
        InputError: something is no step, or there is none.
    """
    listed = (given,) if isinstance(given, ChainStep) else tuple(given)
    for step in listed:
        if not isinstance(step, ChainStep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{step!r:.60} is no step: make one by ask, call, branch or each")
    if not listed:
        raise InputError("there are no steps")
    return listed


def last_name(steps: Lane) -> str:
    """Return the name of the value that the last step makes.

    Raises:
        InputError: it makes several values, or none that is known.
    """
    last = steps[-1]
    if isinstance(last, ModelStep | CallStep | EachStep):
        return last.into
    names = {last_name(lane) for _, lane in last.lanes}
    if len(names) != 1:
        raise InputError(
            f"the last step makes several values ({', '.join(sorted(names))}): name the outputs"
        )
    return names.pop()


def say_type(kind: Any) -> str:
    """A type as a text, another where what it allows has changed."""
    if kind is None or kind is Any:
        return "any"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        schema = json.dumps(kind.model_json_schema(), sort_keys=True)
        return f"{kind.__name__} {hashlib.sha256(schema.encode()).hexdigest()[:12]}"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _check(into: object, attempts: object = 1) -> None:
    if not isinstance(into, str) or not into.isidentifier():
        raise InputError(f"a step makes a value with a name such as 'answer', not {into!r:.40}")
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise InputError(f"step '{into}': attempts must be 1 or more")
