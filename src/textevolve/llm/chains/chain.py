"""A chain: a function from named values to named values, made of steps and checked when it is
created.

A step that uses a value that is neither an input nor the result of an earlier step is an error
before any call. The models come from the run (`ChainContext`), so all calls pass through its
journal, limits and budget. Errors and cancellation are passed through, and the trace keeps the
finished steps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError

from textevolve.engine import sync
from textevolve.errors import AnswerError, InputError
from textevolve.llm.chains.callables import Callee
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    read_text_template,
    value_text,
)
from textevolve.llm.chains.scope import (
    ChainContext,
    StepScope,
    TraceRecorder,
    current_scope,
    current_trial,
    note_use,
    recording,
)
from textevolve.llm.chains.steps import (
    CallStep,
    ChainStep,
    ModelStep,
    ask,
    check_names,
    describe_type,
    run_steps,
)
from textevolve.llm.model import Request, Response, text_hash
from textevolve.mappings import map_values
from textevolve.spec import explain, suggest

Values: TypeAlias = Mapping[str, Any]
NamesGiven: TypeAlias = Mapping[str, Any] | Iterable[str] | str
"""The names of values: a mapping of names to types, several names, or a single name."""


class Chain:
    """A function of named values to named values: `chain(question="...")["answer"]`, or `await
    chain.acall(question="...")`.

    Attributes:
        name: The name in traces and reports.
        steps: The steps in the order of their execution.
        inputs: The names of the inputs, or names with types; by default all values that the steps
            use and do not produce.
        outputs: The names of the outputs, or names with types; by default the value of the last
            step.
        model: The spec of the model for steps that name none; None: the model of the run.

    Raises:
        InputError: a step uses a value that does not exist, or produces one that exists already.
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
            raise InputError(
                "the first argument of a chain is its name, as in Chain('summary', ask(...))"
            )
        self.name, self.model, self.description = name, model, description
        self.own_name = name  # in the specification of a study
        try:
            self.steps = _check_steps(steps)
            self.inputs = _typed(inputs or ())
            if wrong := [
                input_name for input_name in self.inputs if not str(input_name).isidentifier()
            ]:
                raise InputError(f"an input has a name such as 'question', not {wrong[0]!r:.40}")
            produced = check_names(steps, self.inputs, is_open=inputs is None)
            self.outputs = _take_outputs(
                _typed(steps[-1].into if outputs is None else outputs), {**self.inputs, **produced}
            )
        except InputError as error:
            raise InputError(f"chain '{name}': {error}") from None

    def __repr__(self) -> str:
        return f"Chain({self.name!r}: {', '.join(self.inputs)} -> {', '.join(self.outputs)})"

    def __call__(self, **values: Any) -> dict[str, Any]:
        """Run the chain and return its outputs by name, as `acall` does, but wait for them. It also
        works while an event loop is running, as in a notebook."""
        return sync.run(self.acall(**values))

    async def acall(self, **values: Any) -> dict[str, Any]:
        """Run the chain on the inputs and return its outputs by name. Within a step of another
        chain, it uses the models, journal and limits of that chain; otherwise those of the
        settings, which stay open for further calls.

        Raises:
            InputError: an input is missing, unknown, or of another type.
        """
        if not _callers:
            raise InputError(
                "a chain has no models of its own: open it with textevolve.open_chain(chain),"
                " and call what that returns"
            )
        return await _callers[0](self, values)

    def as_callee(self) -> Callee:
        """Return the chain as a `Callee`, which a step of another chain can call."""

        async def call(arguments: Any) -> Any:
            scope = current_scope.get()
            assert scope is not None
            inner = replace(scope, model=self.model or scope.model)
            return _single(await _run_in(self, arguments, inner))

        return Callee(
            self,
            "chain",
            self.name,
            call,
            lambda: f"{self.name} {self.version}",
            takes=tuple(self.inputs),
            gives=_single(self.outputs) if len(self.outputs) == 1 else dict,
        )

    def take_inputs(self, values: Values, *, others: bool = False) -> dict[str, Any]:
        """Select the inputs among values, and check their types. `others`: allow further values,
        such as other columns of a row.

        Raises:
            InputError: an input is missing, unknown, or of another type.
        """
        names = tuple(self.inputs)
        unknown = [] if others else [name for name in values if name not in names]
        missing = [name for name in names if name not in values]
        if unknown:
            raise InputError(
                f"chain '{self.name}': no input '{unknown[0]}'{suggest(unknown[0], names)}"
            )
        if missing:
            raise InputError(
                f"chain '{self.name}': the input '{missing[0]}' is missing; inputs: "
                + ", ".join(names)
            )
        try:
            return {name: _check(name, kind, values[name]) for name, kind in self.inputs.items()}
        except ValueError as error:
            raise InputError(f"chain '{self.name}': the input {error}") from None

    def take_outputs(self, values: Values) -> dict[str, Any]:
        """Select the outputs among all values, and check their types.

        Raises:
            AnswerError: an output has another type.
        """
        try:
            return {name: _check(name, kind, values[name]) for name, kind in self.outputs.items()}
        except ValueError as error:
            raise AnswerError(f"chain '{self.name}': the output {error}") from None

    @property
    def templates(self) -> Mapping[str, ChatTemplate]:
        """Return the templates of the chain's model steps by name, without those of inner
        chains."""
        return {step.name: step.template for step in _model_steps(self)}

    def with_template(self, name: str, template: ChatTemplate) -> Chain:
        """Return a copy of the chain in which the step of this name has another template.

        Raises:
            InputError: no step or several steps have this name, or the template uses a value that
                does not exist.
        """
        self.template_of(name)

        def replaced(step: ChainStep) -> ChainStep:
            is_meant = isinstance(step, ModelStep) and step.name == name
            return replace(step, template=template) if is_meant else step

        return Chain(
            self.name,
            *map(replaced, self.steps),
            inputs=self.inputs,
            outputs=self.outputs,
            model=self.model,
            description=self.description,
        )

    def template_of(self, name: str | None = None) -> tuple[str, ChatTemplate]:
        """Return a template with its name; without a name, the only template.

        Raises:
            InputError: no step has this name, or there are several templates.
        """
        steps = _model_steps(self)
        named = [step for step in steps if name in (None, step.name)]
        if len(named) == 1:
            return named[0].name, named[0].template
        there = ", ".join(dict.fromkeys(step.name for step in steps)) or "none"
        problem = f"no step '{name}' calls a model; there are: {there}"
        if name is None:
            problem = f"several steps call a model; name one of: {there}"
        elif named:
            problem = f"two steps have the name '{name}'; give them different names"
        raise InputError(f"chain '{self.name}': {problem}")

    @property
    def models(self) -> tuple[str, ...]:
        """Return the specs of the models that the chain, its steps and inner chains name, each
        once."""
        return tuple(dict.fromkeys(m for m in self._models(self.model) if m is not None))

    @property
    def asks_default(self) -> bool:
        """Return whether any step calls the model of the run, since neither it nor its chain names
        one."""
        return None in self._models(self.model)

    def _models(self, default: str | None) -> list[str | None]:
        models: list[str | None] = [step.model or default for step in _model_steps(self)]
        for target in _called_by(self):
            if isinstance(target, Chain):
                models += target._models(target.model or default)
        return models

    @property
    def may_ask(self) -> bool:
        """Return whether the chain or an inner one calls user code, which might call the model of
        the run."""
        return any(not isinstance(callee, Chain) or callee.may_ask for callee in _called_by(self))

    def describe(self) -> dict[str, Any]:
        """Return the chain as JSON data that changes whenever the chain changes."""
        return {
            "name": self.name,
            "model": self.model,
            "inputs": map_values(describe_type, self.inputs),
            "outputs": map_values(describe_type, self.outputs),
            "steps": [step.describe() for step in self.steps],
        }

    @property
    def version(self) -> str:
        """Return a hash of `describe`, which changes whenever the chain changes."""
        described = json.dumps(self.describe(), sort_keys=True)
        return text_hash(described)[:16]

    def text_of(self, outputs: Values) -> str:
        """Return the outputs as one text: a single output as its text, several outputs as JSON."""
        return value_text(_single(outputs))


def _model_steps(chain: Chain) -> list[ModelStep]:
    """Return the steps that call a model, without those of inner chains."""
    return [step for step in chain.steps if isinstance(step, ModelStep)]


def _called_by(chain: Chain) -> list[Any]:
    """Return the functions, chains, Runnables and modules that the steps of a chain call."""
    return [step.callee.target for step in chain.steps if isinstance(step, CallStep)]


def _single(outputs: Values) -> Any:
    """Return the value of a single output, or several outputs as a dictionary by name."""
    return next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)


class ChainDoor(Protocol):
    """The interface that LangChain and DSPy programs use to call a chain whose models are open,
    such as `OpenChain`. Errors are passed through unchanged, and cancelling the caller cancels the
    chain. `__call__` blocks until the outputs are there, also while an event loop is running."""

    @property
    def chain(self) -> Chain: ...
    def __call__(self, **values: Any) -> dict[str, Any]: ...
    async def acall(self, **values: Any) -> dict[str, Any]: ...


class ModelDoor(Protocol):
    """The interface that LangChain and DSPy programs use to call an open model. Within a step of a
    running chain, calls use the journal, limits and usage count of that chain. `ask` is for async
    code, `wait` for code that is not."""

    @property
    def name(self) -> str: ...
    async def ask(self, request: Request) -> Response: ...
    def wait(self, request: Request) -> Response: ...


ChainCaller: TypeAlias = Callable[[Chain, Values], Awaitable[dict[str, Any]]]

_callers: list[ChainCaller] = []


def call_by(caller: ChainCaller) -> None:
    """Set the function that runs a chain when a program calls it. That function also opens the
    models, which this module cannot do."""
    _callers[:] = [caller]


async def _run_in(chain: Chain, values: Values, scope: StepScope) -> dict[str, Any]:
    inputs = chain.take_inputs(values)
    await run_steps(chain.steps, inputs, scope)
    return chain.take_outputs(inputs)


async def perform_chain(
    chain: Chain,
    values: Values,
    context: ChainContext,
    recorder: TraceRecorder | None = None,
) -> dict[str, Any]:
    """Run a chain on the values of its inputs, and return its outputs by name. `recorder`: receives
    the trace of the steps, also if the chain fails.

    Raises:
        InputError: an input is missing or of another type.
        AnswerError: an answer or an output cannot be used.
        BudgetError, ModelError: a model's call fails.
        Exception: any error of the user's own code, unchanged.
    """
    recorder = recorder or TraceRecorder(chain.name, "chain")
    model = chain.model or context.default_model
    scope = StepScope(context, recorder, model, asyncio.get_running_loop())
    with recording(recorder, context.case, context.listener):
        return await _run_in(chain, values, scope)


async def run_within(chain: Chain, values: Values) -> dict[str, Any] | None:
    """Run a chain within the current step of another chain, and return its outputs; None if no
    chain is running."""
    scope = current_scope.get()
    if scope is None:
        return None
    model = chain.model or scope.model
    with scope.enter(chain.name, "chain", model=model) as inner:
        return await _run_in(chain, values, inner)


def _check_steps(steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
    for step in steps:
        if not isinstance(step, ModelStep | CallStep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{step!r:.60} is not a step: make one with ask or call")
    if not steps:
        raise InputError("a chain needs at least one step")
    return steps


def _typed(names: NamesGiven) -> dict[str, Any]:
    """Return names with their types, None for names without one."""
    if isinstance(names, Mapping):
        return dict(cast("Mapping[str, Any]", names))
    return dict.fromkeys([names] if isinstance(names, str) else names)


def _take_outputs(expected: Mapping[str, Any], produced: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of the outputs with their types; an output without a type has that of the
    value.

    Raises:
        InputError: there is no output, or no step produces it.
    """
    if not expected:
        raise InputError("a chain needs at least one output")
    for name in expected:
        if name not in produced:
            raise InputError(f"no step makes the output '{name}'{suggest(name, tuple(produced))}")
    return {name: produced[name] if kind is None else kind for name, kind in expected.items()}


def _check(name: str, kind: Any, value: Any) -> Any:
    """Return the value, converted to its type if it has another one. Without a type any value is
    allowed.

    Raises ValueError if the value cannot be converted.
    """
    if kind is None or kind is Any or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(
            f"'{name}' is not of its type {describe_type(kind)}: {explain(error)}"
        ) from None


class PromptSet(Mapping[str, str]):
    """Prompts of a program that `calibrate` can improve: `PromptSet(draft="Write about {topic}.",
    check="...")`.

    A mapping from names to prompt templates. While `calibrate` tries other templates, the mapping
    returns those instead. `fill` fills a template in, and `ask` sends it to a model: the model of
    the run, otherwise that of the settings.

    Raises:
        InputError: a prompt is blank, or is not a text.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, /, **named: str) -> None:
        self._texts = {**(texts or {}), **named}
        for name, text in self._texts.items():
            if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InputError(f"the prompt '{name}' must be a text that is not blank")

    def __getitem__(self, name: str) -> str:
        text, trying = self._texts[name], current_trial.get()
        return text if trying is None else trying.texts.get(name, text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def fill(self, name: str, values: Mapping[str, Any] | None = None, /, **named: Any) -> str:
        """Return a prompt with its placeholders filled in. The placeholders are those of the
        original text; all other braces are text.

        Raises:
            InputError: there is no such prompt, or a value is missing.
        """
        if name not in self._texts:
            raise InputError(f"there is no prompt '{name}'; there are: {', '.join(self._texts)}")
        template = read_text_template(self._texts[name])
        slots = {part.name for part in template if isinstance(part, Slot)}
        message = TemplateMessage("user", read_text_template(self[name], slots))
        return ChatTemplate((message,)).fill({**(values or {}), **named})[0].text

    async def ask(
        self,
        name: str,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        model: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        **named: Any,
    ) -> str:
        """Fill in a prompt and return the model's answer. The call is journaled, limited and
        counted like all others. `model`: a model's spec; by default the model of the run.

        Raises:
            InputError: there is no such prompt, or a value is missing.
            AnswerError, BudgetError, ModelError: the model gives no usable answer.
        """
        options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        step = ask("answer", "{prompt}", name=name, model=model, **options)
        chain = Chain(name, step, inputs=["prompt"])
        inputs = {"prompt": self.fill(name, values, **named)}
        result = await run_within(chain, inputs)
        return str((await chain.acall(**inputs) if result is None else result)["answer"])

    def ask_sync(
        self, name: str, values: Mapping[str, Any] | None = None, /, **options: Any
    ) -> str:
        """Do the same as `ask`, but wait for the answer; for code that is not async."""
        return sync.run(self.ask(name, values, **options))

    def note(self, name: str, prompt: str, output: str) -> None:
        """Record a filled-in prompt and the model's answer, for programs that call models by
        themselves. The model that writes better prompts is shown these records."""
        note_use(name, prompt, output)
