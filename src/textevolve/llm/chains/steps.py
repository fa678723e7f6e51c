"""The steps that chains are made of, and the verbs that create them.

    ask("facts", "List the facts in this text:\n{text}")
    ask("verdict", "Do they answer {question}?\n{facts}", parse=Verdict)
    call("short", shorten)

A step is an async function (`run`) of the values so far and of a scope, which has the models. It
declares the values that it needs and produces, so a chain is checked before any call. Branches,
loops and concurrent work are functions of the user that call other chains.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_type_hints

from pydantic import BaseModel

from textevolve.contents import digest_object
from textevolve.errors import AnswerError, CallError, CapabilityError, InputError, TextEvolveError
from textevolve.evaluation import empty_default, mend_texts
from textevolve.llm.chains.chat_template import ChatTemplate, find_value, take_template, value_text
from textevolve.llm.chains.langchain_prompts import find_langchain_prompt
from textevolve.llm.chains.scope import StepScope, note_use
from textevolve.llm.model import Model, Request, draw_sample, text_hash
from textevolve.llm.structured import IncompleteError, ask_structured, describe_fault
from textevolve.mappings import read_fields
from textevolve.spec import suggest
from textevolve.user_code import call_function, callable_name

# Wrap functions, chains, LangChain's Runnables and DSPy's modules as a `Callee`, which a step can
# call.
#
# Objects of LangChain and DSPy are recognised by their methods, so neither package is imported
# here. Arguments, results, errors and cancellation are passed through unchanged.


CalleeKind: TypeAlias = Literal["code", "application", "chain", "runnable", "module"]


@dataclass(frozen=True)
class Callee:
    """A function, chain, Runnable or module that a step can call.

    Attributes:
        target: The function, chain, Runnable or module itself.
        kind: Which of these it is; an application is a function in place of a whole chain.
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

    name = callable_name(target)
    function = cast("Callable[..., Any]", target)

    async def call(arguments: Any) -> Any:
        return await call_function(function, **arguments)

    takes, may_take = _signature_of(function)

    return Callee(
        function,
        "code",
        name,
        call,
        lambda: f"{name} {digest_object(function)}",
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
        code = digest_object(cast("object", type(module)))
        return f"{name} {code} {_hash(_without_addresses(state))}"

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


Parse: TypeAlias = type[BaseModel] | Callable[[str], Any]
"""How an answer is read: the pydantic type that the model has to follow, or a function of its
text."""
SAMPLING = ("temperature", "max_tokens", "seed")


@dataclass(frozen=True, kw_only=True)
class ModelStep:
    """A step that fills a template, calls a model, and reads its answer.

    Attributes:
        into: The name of the value that the step produces.
        name: The name of the template, which may differ from that of the value.
        template: The template of the prompt.
        model: The spec of the model; None: the chain's model.
        parse: How the answer is read; None: as text.
        sampling: The temperature, the token limit and the seed, if set.
        attempts: The most calls if answers are unusable, each for another sample.
    """

    kind: ClassVar[str] = "ask"

    into: str
    name: str
    template: ChatTemplate
    model: str | None = None
    parse: Parse | None = None
    sampling: Mapping[str, Any] = empty_default(dict)
    attempts: int = 1

    @property
    def needs(self) -> Iterable[str]:
        return self.template.names

    @property
    def _form(self) -> type[BaseModel] | None:
        is_form = inspect.isclass(self.parse) and issubclass(self.parse, BaseModel)
        return cast("type[BaseModel]", self.parse) if is_form else None

    @property
    def gives(self) -> Any:
        """Return the type of the value that the step produces; None if unknown."""
        if self.parse is None:
            return str
        return self.parse if inspect.isclass(self.parse) else return_type(self.parse)

    def describe(self) -> dict[str, Any]:
        parse = "text"
        if self._form is not None:
            parse = describe_type(self._form)
        elif self.parse is not None:
            parse = f"{callable_name(self.parse)} {digest_object(self.parse)}"

        return {
            **read_fields(self, "into", "name", "model"),
            **{name: self.sampling.get(name) for name in SAMPLING},
            "attempts": self.attempts,
            "template": self.template.describe(),
            "parse": parse,
        }

    async def run(self, values: Mapping[str, Any], scope: StepScope) -> Any:
        model = scope.model_of(self.model)
        scope.recorder.trace.note = model.name
        request = Request(messages=self.template.fill(values), **self.sampling)
        prompt = "\n\n".join(message.text for message in request.messages)
        first_sample = scope.context.sample * self.attempts

        for sample in range(first_sample, first_sample + self.attempts):
            try:
                value = await self._ask(model, draw_sample(request, sample))
            except AnswerError as error:
                note_use(self.name, prompt, f"(nothing that can be used: {error})")
                if sample == first_sample + self.attempts - 1:
                    raise
            else:
                improve = scope.context.improve
                if improve is not None and isinstance(value, str):
                    value, used = await improve(self.name, prompt, value, model)
                    scope.recorder.add(used)
                note_use(self.name, prompt, value_text(value))
                return value

        raise AssertionError  # there is at least one attempt

    async def _ask(self, model: Model, request: Request) -> Any:
        """Call the model once, and read its answer.

        Raises:
            AnswerError: the answer is not complete or cannot be parsed.
        """
        if self._form is not None:
            return (await ask_structured(model, request, self._form)).value
        response = await model(request)
        if fault := describe_fault(response):
            raise IncompleteError(fault)
        if self.parse is None:
            return response.text
        try:
            return await call_function(self.parse, response.text)
        except ValueError as error:
            raise AnswerError(f"the answer cannot be read: {error}") from error


@dataclass(frozen=True, kw_only=True)
class CallStep:
    """A step that calls a function, a chain, a Runnable or a module.

    Attributes:
        into: The name of the value that the step produces.
        name: The name of the step in traces.
        callee: The function, chain, Runnable or module.
        arguments: The name of the value for each argument; a single name if that value is the only
            argument; None: each argument takes the value with its own name.
    """

    kind: ClassVar[str] = "call"

    into: str
    name: str
    callee: Callee
    arguments: Mapping[str, str] | str | None = None

    @property
    def gives(self) -> Any:
        return self.callee.gives

    @property
    def needs(self) -> Iterable[str]:
        if self.arguments is None:
            return self.callee.takes or ()
        return [self.arguments] if isinstance(self.arguments, str) else self.arguments.values()

    def describe(self) -> dict[str, Any]:
        arguments = self.arguments
        return {
            "into": self.into,
            "calls": self.callee.describe(),
            "arguments": dict(arguments) if isinstance(arguments, Mapping) else arguments,
            "attempts": 1,  # as in descriptions of before
        }

    async def run(self, values: Mapping[str, Any], scope: StepScope) -> Any:
        callee = self.callee
        if callee.kind in ("runnable", "module", "application") and scope.context.rehearsed:
            raise CapabilityError(
                f"step '{self.name}': the cost of {callee.name}, which may call models by itself,"
                " cannot be estimated; run the chain without --dry-run"
            )

        return await callee.call(_collect_arguments(callee, self.arguments, values))


def _collect_arguments(
    callee: Callee, arguments: Mapping[str, str] | str | None, values: Mapping[str, Any]
) -> Any:
    if isinstance(arguments, str):
        value = find_value(arguments, values)
        takes = callee.takes
        return {takes[0]: value} if callee.kind == "code" and takes and len(takes) == 1 else value

    if arguments is not None:
        return {argument: find_value(name, values) for argument, name in arguments.items()}
    optional = [name for name in callee.may_take if name in values]

    return {name: values[name] for name in (*(callee.takes or ()), *optional)}


ChainStep: TypeAlias = ModelStep | CallStep


def check_names(
    steps: Iterable[ChainStep], inputs: dict[str, Any], *, is_open: bool
) -> dict[str, Any]:
    """Return the names of the values that steps produce, with their types. `is_open`: a value that
    no earlier step produces is added to `inputs`; otherwise it is an error.

    Raises:
        InputError: a step uses a value or a field that does not exist, or produces a value that
            does.
    """
    produced: dict[str, Any] = {}

    for step in steps:
        for name in step.needs:
            root, *path = name.split(".")
            kind = produced.get(root, inputs.get(root))
            # A type without fields, as BaseModel itself, is a base of those with fields.
            fields = () if kind is str else getattr(kind, "model_fields", None) or None
            if path and fields is not None and path[0] not in fields:
                raise InputError(
                    f"step '{step.name}': '{root}' has no field"
                    f" '{path[0]}'{suggest(path[0], tuple(fields))}"
                )

            if root in produced or root in inputs:
                continue
            if not is_open:
                near = suggest(root, (*inputs, *produced))
                raise InputError(
                    f"step '{step.name}': there is no value '{root}' at this point{near}"
                )

            inputs[root] = None

        if step.into in produced or step.into in inputs:
            raise InputError(
                f"step '{step.name}': the value '{step.into}' exists already, or is used"
                " before it is produced: choose another name"
            )

        produced[step.into] = step.gives

    return produced


async def run_steps(steps: Iterable[ChainStep], values: dict[str, Any], scope: StepScope) -> None:
    """Run one step after another, and add their results to `values`, which is changed.

    Raises:
        CallError: a call of a step failed; the error names the step.
    """
    for step in steps:
        try:
            with scope.enter(step.name, step.kind) as inner:
                values.update(mend_texts({step.into: await step.run(values, inner)}))
        except CallError as error:
            place = f"step '{step.name}': "
            # Equal calls of several rows raise the same error.
            error.args = (place + str(error).removeprefix(place),)
            raise


def ask(
    into: str,
    template: object,
    *,
    parse: Parse | None = None,
    model: str | None = None,
    name: str | None = None,
    attempts: int = 1,
    **asked: Any,
) -> ModelStep:
    """Return a step that calls a model: the answer to the filled-in template is the value `into`.

    `template`: a text with placeholders `{name}`, messages, each a role and a text, or a prompt
    template of LangChain. `parse`: a
    pydantic model that the answer has to follow, or a function of its text. `model`: a model's
    spec; by default the chain's. `name`: of the template; by default `into`. `asked`: temperature,
    max_tokens, seed.

    Raises:
        InputError: the template or a parameter is invalid.
    """
    _check(into, attempts)
    if wrong := [parameter for parameter in asked if parameter not in SAMPLING]:
        raise InputError(
            f"step '{into}': no parameter '{wrong[0]}'; there are: {', '.join(SAMPLING)}"
        )

    if parse is not None and not callable(parse):
        raise InputError(f"step '{into}': parse must be a pydantic model or a function")
    try:
        known = None if isinstance(template, str) else find_langchain_prompt(template)
        parsed = known or take_template(cast("str | Iterable[Any]", template))
    except InputError as error:
        raise InputError(f"the template of step '{into}': {error}") from None

    return ModelStep(
        into=into,
        name=name or into,
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
    """Return a step that calls a function: its result is the value `into`.

    `function`: any callable, async or not; a chain; a LangChain Runnable; a DSPy module. `inputs`:
    the name of the value for each argument, or names that equal the arguments'; a single name for a
    Runnable that takes one value and no mapping. By default the arguments' own names are used.

    Raises:
        InputError: the function cannot be called, or its arguments are unknown.
    """
    _check(into)
    callee = take_callee(function)
    arguments = inputs
    if inputs is not None and not isinstance(inputs, str | Mapping):
        arguments = {name: name for name in inputs}
    problem = ""

    if callee.takes is None and arguments is None:
        problem = f"the arguments of {callee.name} are not known: name them with inputs"
    elif isinstance(arguments, str) and callee.kind in ("chain", "module"):
        problem = f"{callee.name} takes several values by name: write inputs as a list or a mapping"
    elif isinstance(arguments, Mapping) and callee.takes is not None and callee.kind != "runnable":
        takes = (*callee.takes, *callee.may_take)
        unknown = [name for name in arguments if name not in takes]
        missing = [name for name in callee.takes if name not in arguments]
        if unknown:
            problem = f"{callee.name} takes no '{unknown[0]}'{suggest(unknown[0], takes)}"
        elif missing:
            problem = f"{callee.name} also needs '{missing[0]}'"

    if problem:
        raise InputError(f"step '{into}': {problem}")

    argument_names = cast("Mapping[str, str] | str | None", arguments)

    return CallStep(into=into, name=into, callee=callee, arguments=argument_names)


def describe_type(kind: Any) -> str:
    """Return a text that describes a type and differs between types that allow different values."""
    if kind is None or kind is Any:
        return "any"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        schema = json.dumps(kind.model_json_schema(), sort_keys=True)
        return f"{kind.__name__} {text_hash(schema)[:12]}"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _check(into: object, attempts: int = 1) -> None:
    if not isinstance(into, str) or not into.isidentifier():
        raise InputError(f"the value of a step has a name such as 'answer', not {into!r:.40}")
    if attempts < 1:
        raise InputError(f"step '{into}': attempts must be 1 or more")
