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
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model

from textevolve.engine import sync
from textevolve.errors import AnswerError, InputError
from textevolve.json_texts import is_array, is_mapping, is_object
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    read_text_template,
    value_text,
)
from textevolve.llm.chains.langchain_prompts import find_langchain_prompt
from textevolve.llm.chains.scope import (
    ChainContext,
    StepScope,
    TraceRecorder,
    current_scope,
    find_trial,
    note_use,
    recording,
)
from textevolve.llm.chains.steps import (
    SAMPLING,
    Callee,
    CallStep,
    ChainStep,
    ModelStep,
    ask,
    call,
    check_names,
    describe_type,
    is_runnable,
    run_steps,
    take_callee,
)
from textevolve.llm.model import Request, Response, text_hash
from textevolve.mappings import map_values
from textevolve.rows import read_text
from textevolve.spec import Count, Frozen, explain, suggest
from textevolve.texts.yaml_lines import dump_yaml, line_of, parse_yaml
from textevolve.user_code import ENDINGS, OWN, load_object, names_chain

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

        self.name = name
        self.model = model
        self.description = description
        self.own_name = name  # in the specification of a study

        try:
            self.steps = _check_steps(steps)
            self.inputs = _typed(inputs or ())
            for input_name in self.inputs:
                if not str(input_name).isidentifier():
                    raise InputError(
                        f"an input has a name such as 'question', not {input_name!r:.40}"
                    )

            produced = check_names(steps, self.inputs, is_open=inputs is None)
            self.outputs = _take_outputs(
                _typed(steps[-1].into if outputs is None else outputs), {**self.inputs, **produced}
            )
        except InputError as error:
            raise InputError(f"chain '{name}': {error}") from None
        check_templates(self, (*self.inputs, *produced))

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
            return _check_all(self.inputs, values)
        except ValueError as error:
            raise InputError(f"chain '{self.name}': the input {error}") from None

    def take_outputs(self, values: Values) -> dict[str, Any]:
        """Select the outputs among all values, and check their types.

        Raises:
            AnswerError: an output has another type.
        """
        try:
            return _check_all(self.outputs, values)
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
        matching_steps = [step for step in steps if name in (None, step.name)]
        if len(matching_steps) == 1:
            return matching_steps[0].name, matching_steps[0].template
        there = ", ".join(dict.fromkeys(step.name for step in steps)) or "none"
        problem = f"no step '{name}' calls a model; there are: {there}"
        if name is None:
            problem = f"several steps call a model; name one of: {there}"
        elif matching_steps:
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


def check_templates(chain: Chain, names: Collection[str]) -> None:
    """Check that no template of a chain has one of these names, such as a column of the rows, with
    more than the name in its braces.

    Raises:
        InputError: one has a format or a filter, which would reach the model as it stands.
    """
    for step, template in chain.templates.items():
        if fault := template.find_fault(names):
            raise InputError(f"chain '{chain.name}': the template of the step '{step}': {fault}")


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
    if is_mapping(names):
        return dict(names)
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


def _check_all(types: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Return the values that have a type, each as `_check` does."""
    return {name: _check(name, kind, values[name]) for name, kind in types.items()}


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
        text = self._texts[name]
        trying = find_trial()
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


# Load a chain from a YAML file or an import path, or wrap a function or another object into a
# chain.
#
# A YAML file has the verbs of `steps.py`; each step is a mapping that begins with one of them. A
# file refers to code only by import paths, which clients of a server may not use
# (`textevolve.reach`).

TYPES: Mapping[str, Any] = {
    "text": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "list": list[str],
    "any": Any,
}
"""The types of inputs, outputs and fields by their names in a file."""


def load_chain(name: str, folder: Path = Path()) -> Chain:
    """Load the chain in a YAML file, or at `MODULE:NAME` or `FILE.py:NAME`.

    Raises:
        InputError: the file or module does not exist, or has no chain; the message names the line
            of a YAML file.
    """
    if name.lower().endswith(ENDINGS):
        return _read_file(folder / name, name)
    if not names_chain(name) or name.startswith(OWN):
        raise InputError(
            f"{name}: is not the name of a chain: write FILE.yaml, MODULE:NAME or FILE.py:NAME"
        )

    target = load_object(name, folder)
    if target is None:
        raise InputError(f"{name}: there is no object with that name")

    return as_chain(target, name.rpartition(":")[2])


_reading: ContextVar[tuple[Path, ...]] = ContextVar("reading", default=())


def _read_file(path: Path, name: str) -> Chain:
    if path in _reading.get():
        raise InputError(
            f"{name}: the chain calls itself, directly or through another chain: remove that step"
        )

    before = _reading.set((*_reading.get(), path))
    try:
        return read_chain(read_text(str(path)), name, path.parent)
    finally:
        _reading.reset(before)


def as_chain(target: object, name: str = "") -> Chain:
    """Return a chain unchanged; wrap a function, Runnable or module into a chain with one step,
    whose result is the value `output`.

    Raises:
        InputError: the target is not callable.
    """
    if isinstance(target, Chain):
        return target
    callee = take_callee(target)
    single = "input" if callee.takes is None and is_runnable(target) else None
    called = name or callee.name.rpartition(":")[2]

    step = call("output", target, inputs=single)
    if step.callee.kind == "code":
        step = replace(step, callee=replace(step.callee, kind="application"))

    return Chain(called, step)


def read_chain(text: str, source: str = "chain", folder: Path = Path()) -> Chain:
    """Build the chain that a YAML text describes. `source`: the name of the text in messages.
    `folder`: the folder for relative paths in the text.

    Raises:
        InputError: a part of the text is invalid; the message names the line.
    """
    node, data = parse_yaml(text, source)
    if not is_object(data):
        raise InputError(f"{source}:1: a chain is a mapping with name and steps")
    place: tuple[str | int, ...] = ()
    steps: list[ChainStep] = []

    try:
        spec = _ChainSpec(**{str(name): value for name, value in data.items()})
        for number, step in enumerate(spec.steps):
            place = ("steps", number)
            steps.append(_read_step(step, folder))
        place = ()
        return Chain(
            spec.name or Path(source).stem,
            *steps,
            inputs=_read_types(spec.inputs),
            outputs=_read_types(spec.outputs),
            model=spec.model,
            description=spec.description,
        )
    except InputError as error:
        cause = error.__cause__
        inner = cause.errors()[0]["loc"] if isinstance(cause, ValidationError) else ()
        raise InputError(f"{source}:{line_of(node, (*place, *inner))}: {error}") from None


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
    model: str | None = None
    name: str | None = None
    attempts: Count = 1
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: Count | None = None
    seed: int | None = None

    def build(self, folder: Path) -> ChainStep:
        texts: list[Any] = [self.prompt, self.messages, self.file]
        if sum(text is not None for text in texts) != 1:
            raise InputError(f"step '{self.ask}': give exactly one of prompt, messages and file")
        text = self.prompt if self.file is None else read_text(str(folder / self.file))
        template: Any = [("system", self.system)] if self.system else []
        template += self.messages or [("user", text)]
        saved = None if self.file is None else find_langchain_prompt(text, self.file)
        if saved is not None:
            system = TemplateMessage("system", read_text_template(self.system))
            template = ChatTemplate((*([system] if self.system else []), *saved.messages))
        options = self.model_dump(include={"model", "name", "attempts", *SAMPLING})
        return ask(self.ask, template, parse=self._read_form(), **options)

    def _read_form(self) -> type[BaseModel] | None:
        if self.fields is None:
            return None
        types: dict[str, Any] = {n: (_read_type(n, k), ...) for n, k in self.fields.items()}
        title = "".join(part.capitalize() for part in self.ask.split("_"))
        try:
            return create_model(title, **types)
        except (NameError, TypeError, ValueError) as error:
            raise InputError(f"step '{self.ask}': {error}") from None


class _CallSpec(Frozen):
    call: str
    function: str
    inputs: str | list[str] | dict[str, str] | None = None

    def build(self, folder: Path) -> ChainStep:
        is_file = self.function.lower().endswith(ENDINGS)
        function = (load_chain if is_file else load_object)(self.function, folder)
        if function is None:
            raise InputError(f"{self.function}: there is no object with that name")
        return call(self.call, function, inputs=self.inputs)


_STEPS: Mapping[str, type[_AskSpec | _CallSpec]] = {"ask": _AskSpec, "call": _CallSpec}


def _read_step(fields: Any, folder: Path) -> ChainStep:
    kinds = [kind for kind in _STEPS if is_object(fields) and kind in fields]
    if len(kinds) != 1:
        raise InputError(f"a step begins with one of: {', '.join(_STEPS)}")
    keywords = {str(name): value for name, value in fields.items()}
    return _STEPS[kinds[0]](**keywords).build(folder)


def _read_types(written: _Typed) -> Any:
    """Read the names of inputs or outputs, with their types if the file gives any."""
    if not isinstance(written, dict):
        return written
    return {name: _read_type(name, kind) for name, kind in written.items()}


def _read_type(name: str, kind: Any) -> Any:
    """Return the type that a name such as `text` or `list of number` stands for, or the choice (a
    Literal) that a list of values stands for."""
    if is_array(kind) and kind:
        return Literal[tuple(kind)]  # pyright: ignore[reportReturnType]
    text = str(kind)
    listed = text.removeprefix("list of ")
    if listed not in TYPES:
        raise InputError(f"'{name}': no type {kind!r:.40}{suggest(text, tuple(TYPES))}")

    return TYPES[listed] if listed == text else list[TYPES[listed]]


def write_prompts(prompts: Mapping[str, str]) -> str:
    """Return prompts by name as YAML, which `read_prompts` reads."""
    return dump_yaml(dict(prompts))


def read_prompts(text: str, source: str) -> dict[str, str]:
    """Read prompts by name, from YAML or JSON.

    Raises:
        InputError: the text is not a mapping of names to texts.
    """
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        parsed = parse_yaml(text, source)[1]

    wrong = (
        f"{source}: must be a mapping of names of templates to their texts, as in 'draft: Write"
        " ...'"
    )
    if not is_mapping(parsed) or not parsed:
        raise InputError(wrong)
    for name, template in cast("Mapping[object, object]", parsed).items():
        if not isinstance(name, str) or not isinstance(template, str) or not template.strip():
            raise InputError(f"{wrong}; a wrong entry is {name!r:.60}")

    return {str(name): str(template).replace("\r\n", "\n") for name, template in parsed.items()}
