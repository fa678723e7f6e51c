"""Programs whose prompt templates are improved: a chain, a Python function, a LangGraph graph, or a
DSPy module. Their packages are not imported; an object is recognised by its methods.

Model calls through this package's client are journaled, limited and counted like those of a chain;
calls by a program's own client are not. `llm.chains` runs chains.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Usage
from textevolve.llm.chains.callables import is_module, is_runnable, take_callee
from textevolve.llm.chains.chain import Chain, PromptSet
from textevolve.llm.chains.chain_file import (
    ENDINGS,
    load_chain,
    read_prompts,
)
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    read_text_template,
    value_text,
    write_text_template,
)
from textevolve.llm.chains.scope import (
    PromptTrial,
    PromptUse,
    TraceRecorder,
    current_trial,
    trying_prompts,
)
from textevolve.llm.chains.steps import call
from textevolve.loops.calibration.trial_runner import (
    PROMPT,
    Example,
    ProgramError,
    ProgramNames,
    ProgramOutput,
    Templates,
)
from textevolve.loops.placeholders import placeholders_of
from textevolve.metrics.label_metrics import open_metric
from textevolve.metrics.shapes import takes_row
from textevolve.studies.chained import ask_chain, chain_response
from textevolve.user_code import OWN, call_function, callable_name, load_object, load_user_object
from textevolve.wiring import Workbench


@dataclass(frozen=True)
class ChainProgram:
    """A chain with templates to improve. A step's template is its last user message, whose
    placeholders must remain.

    Attributes:
        steps: The names of the steps whose templates are improved.
        is_plain: Whether only one template is improved, which is then named like a plain prompt.
        bench: The open models with which the chain runs; None if only its templates are shown.
    """

    chain: Chain
    steps: tuple[str, ...]
    is_plain: bool = False
    bench: Workbench | None = None

    @property
    def _messages(self) -> Iterator[tuple[str, str, int, TemplateMessage]]:
        """Yield for each step the name of its template, the name of the step, the position of the
        message, and the message."""
        for step in self.steps:
            messages = enumerate(self.chain.templates[step].messages)
            users = [(n, message) for n, message in messages if message.role == "user"]
            if not users:
                raise InputError(
                    f"chain '{self.chain.name}': the template of the step '{step}' has no message"
                    " of a user"
                )
            yield PROMPT if self.is_plain else step, step, *users[-1]

    @property
    def templates(self) -> Templates:
        return Templates(
            tuple(
                (name, write_text_template(message.parts)) for name, _, _, message in self._messages
            )
        )

    @property
    def names(self) -> ProgramNames:
        slots = tuple((name, _slots(message)) for name, _, _, message in self._messages)
        return ProgramNames(tuple(self.chain.inputs), slots, whole=not self.is_plain)

    def with_templates(self, templates: Templates) -> Chain:
        """Return a copy of the chain with these templates."""
        chain = self.chain
        for name, step, number, message in self._messages:
            parts = read_text_template(templates[name], _slots(message))
            messages = list(chain.templates[step].messages)
            messages[number] = replace(message, parts=parts)
            chain = chain.with_template(step, ChatTemplate(tuple(messages)))
        return chain

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        chain = self.with_templates(templates)
        texts = {} if self.is_plain else dict(templates.parts)
        return await run_traced(self.bench, chain, example.values, texts, example.id, count)

    def show(self, _templates: Templates, example: Example, /) -> str:
        return show_values(example)


def _slots(message: TemplateMessage) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.name for part in message.parts if isinstance(part, Slot)))


@dataclass(frozen=True)
class CodeProgram:
    """User code with named templates to improve.

    Attributes:
        templates: The initial templates.
        run: The function that runs the code with the templates' texts and a row.
        bench: The open models; None if only the templates are shown.
        answer: The name of the value that is scored, if the code returns several.
        hidden: The columns of a row that the code does not receive.
    """

    name: str
    templates: Templates
    run: ProgramRun
    bench: Workbench | None = None
    answer: str | None = None
    hidden: tuple[str, ...] = ()

    @property
    def names(self) -> ProgramNames:
        slots = tuple((name, placeholders_of(text)) for name, text in self.templates.parts)
        return ProgramNames(None, slots, whole=True)

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        texts = dict(templates.parts)
        row = {name: value for name, value in example.known.items() if name not in self.hidden}

        async def output() -> str:
            trying = current_trial.get()
            assert trying is not None
            result = await self.run(texts, row, trying)
            return choose_answer(result, row, self.answer, self.name)

        chain = Chain(self.name, call("output", output), inputs=())
        return await run_traced(self.bench, chain, {}, texts, example.id, count)

    def show(self, _templates: Templates, example: Example, /) -> str:
        return show_values(example)


async def run_traced(
    bench: Workbench | None,
    chain: Chain,
    values: Mapping[str, Any],
    texts: Mapping[str, str],
    case: str,
    count: Callable[[Usage], None],
) -> ProgramOutput:
    """Run a chain with these templates, and return its output with the uses of each template, if
    any. `texts`: the templates by name; `count`: is called with the usage.

    Raises:
        ProgramError: there is no usable output. ModelError, BudgetError: raised by its models.
    """
    assert bench is not None
    spent = TraceRecorder(chain.name, "chain")
    with trying_prompts(texts) as trying:
        try:
            outputs, trace = await ask_chain(bench, chain, values, case, spent=spent)
            response = chain_response(chain, outputs, trace)
        except AnswerError as error:
            raise ProgramError(str(error), _trace(trying)) from error
        finally:
            count(spent.trace.usage)
    return ProgramOutput(response, _trace(trying))


def _trace(trying: PromptTrial) -> tuple[PromptUse, ...]:
    return tuple(trying.in_order()) if trying.texts else ()


def show_values(example: Example) -> str:
    return "\n\n".join(f"{name}: {value}" for name, value in example.values.items())


def choose_answer(result: Any, row: Mapping[str, Any], answer: str | None, name: str) -> str:
    """Return the text of a program's result that is scored. That is the value named `answer`, or
    without a name all values that are not columns of the row. From a list of messages the last
    one's text is taken.

    Raises:
        AnswerError: there is no such value, or no result.
    """
    if isinstance(result, Mapping):
        values = cast("Mapping[str, Any]", result)
        if answer is not None and answer not in values:
            there = ", ".join(map(str, values)) or "nothing"
            raise AnswerError(f"program '{name}' gave no value '{answer}', but: {there}")
        if answer is not None:
            values = {answer: values[answer]}
        fresh = {key: value for key, value in values.items() if answer or key not in row}
        result = next(iter(fresh.values())) if len(fresh) == 1 else fresh
    listed = cast("list[Any]", result) if isinstance(result, list) else [result]
    text: object = getattr(listed[-1] if listed else None, "content", cast(object, result))
    if text is None or text == {}:
        raise AnswerError(f"program '{name}' gave nothing")
    return value_text(text)


OpenedProgram: TypeAlias = ChainProgram | CodeProgram


def open_program(
    name: str,
    text: str,
    objects: Mapping[str, object],
    *,
    bench: Workbench | None = None,
    step: str | None = None,
    answer: str | None = None,
    hidden: tuple[str, ...] = (),
) -> OpenedProgram:
    """Open a program with all its templates; a chain with only the template of `step` if that is
    set. `answer`: the name of the value that is scored; a chain does not use it.

    `text`: the initial templates (several as `read_prompts` takes them); empty: those of the
    program itself. `hidden`: columns that the program does not receive.

    Raises:
        InputError: there is no such program, it has no templates, or no template of that name.
    """
    program = find_object(name, objects)
    if isinstance(program, Chain):
        return _open_chain(program, step, text, bench)
    if step is not None:
        raise InputError(f"--step {step}: {name} is not a chain, so it has no steps")
    texts = read_prompts(text, "templates") if text.strip() else {}
    called = name.removeprefix(OWN).rpartition(":")[2] or name
    called = called.rpartition(".")[2]
    if is_module(program):
        run, templates = run_module(program), module_prompts(program)
        return CodeProgram(called, _begin(templates, texts, called), run, bench, answer, hidden)
    if not texts:
        raise InputError(
            f"program '{called}': its templates are missing: name a YAML file of templates by"
            " name, or pass templates={...} in Python"
        )
    run = run_graph(program) if is_runnable(program) else run_function(program, called, texts)
    return CodeProgram(called, Templates(tuple(texts.items())), run, bench, answer, hidden)


def find_object(name: str, objects: Mapping[str, object]) -> object:
    """Return the object that a name refers to: a file, an import path, or a key of `objects`.

    Raises:
        InputError: there is no such object.
    """
    if name.startswith(OWN):
        return load_user_object(name, objects)
    if name.lower().endswith(ENDINGS):
        return load_chain(name)
    if (loaded := load_object(name, Path())) is None:
        raise InputError(f"{name}: there is no object with that name")
    return loaded


def _open_chain(chain: Chain, step: str | None, text: str, bench: Workbench | None) -> ChainProgram:
    is_plain = step is not None or len(chain.templates) == 1
    templates = chain.templates.items()
    asking = [
        name for name, template in templates if any(m.role == "user" for m in template.messages)
    ]
    steps = [step] if is_plain else asking
    if not steps:
        raise InputError(f"chain '{chain.name}': none of its steps sends a template to a model")
    names = tuple(chain.template_of(name)[0] for name in steps)
    program = ChainProgram(chain, names, is_plain, bench)
    if not text.strip():
        return program
    texts = {PROMPT: text.replace("\r\n", "\n")} if is_plain else read_prompts(text, "templates")
    begun = _begin(dict(program.templates.parts), texts, chain.name)
    return replace(program, chain=program.with_templates(begun))


def _begin(templates: Mapping[str, str], texts: Mapping[str, str], name: str) -> Templates:
    for template in texts:
        if template not in templates:
            raise InputError(
                f"program '{name}': no template '{template}'; there are: {', '.join(templates)}"
            )
    return Templates(tuple({**templates, **texts}.items()))


def keeps_rows(
    program: OpenedProgram | None, metric: str | None, objects: Mapping[str, object]
) -> bool:
    """Tell whether the program or the metric receives complete rows."""
    if isinstance(program, CodeProgram):
        return True
    if metric is None:
        return False
    metric_object = objects.get(metric) if metric.startswith(OWN) else open_metric(metric)
    return metric_object is not None and takes_row(metric_object)


ProgramRun: TypeAlias = Callable[
    [Mapping[str, str], Mapping[str, Any], PromptTrial], Awaitable[Any]
]
"""A function that runs a program with its templates' texts on a row."""


def run_function(function: Any, name: str, texts: Mapping[str, str]) -> ProgramRun:
    """Return a function that calls the user's function with prompts and a row, or with the row
    alone if it needs only one argument; such a function holds a `PromptSet` of its own.

    Raises:
        InputError: the function has other parameters.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InputError(f"program '{name}': it is no function, graph or module") from None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(parameter.default is parameter.empty for parameter in places)
    if needed not in (1, 2):
        raise InputError(
            f"program '{name}' ({callable_name(function)}): it must take prompts and a row, or"
            f" only a row, and needs {needed} arguments"
        )
    prompts = PromptSet(texts)  # it gives the texts that are tried

    async def run(_texts: Mapping[str, str], row: Mapping[str, Any], _: PromptTrial) -> Any:
        return await call_function(
            function, *((prompts, dict(row)) if needed == 2 else (dict(row),))
        )

    return run


def run_graph(graph: Any) -> ProgramRun:
    """Return a function that runs a LangGraph graph, or another Runnable. The graph receives the
    templates' texts in `config["configurable"]`, in the runtime's context if its schema names them,
    and in every `PromptSet` that it holds."""
    takes = take_callee(graph).takes
    context_fields = _field_names(getattr(graph, "context_schema", None))

    async def run(texts: Mapping[str, str], row: Mapping[str, Any], trying: PromptTrial) -> Any:
        from textevolve.llm.chains.langchain_runnables import PromptListener

        config = {
            "configurable": {**texts, "thread_id": uuid.uuid4().hex},
            "callbacks": [PromptListener(trying)],
        }
        context = {name: text for name, text in texts.items() if name in context_fields}
        inputs = {name: row[name] for name in takes if name in row} if takes else dict(row)
        return await graph.ainvoke(inputs, config, **({"context": context} if context else {}))

    return run


def _field_names(schema: Any) -> frozenset[str]:
    """Return the fields of a typed dictionary, a dataclass or a pydantic model; none for None."""
    kinds = getattr(schema, "__mro__", ())
    return frozenset(name for kind in kinds for name in getattr(kind, "__annotations__", ()))


def module_prompts(module: Any) -> dict[str, str]:
    """Return the instructions of a DSPy module's predictors by the predictors' names."""
    return {
        name: str(predictor.signature.instructions) for name, predictor in module.named_predictors()
    }


def run_module(module: Any) -> ProgramRun:
    """Return a function that runs a copy of a DSPy module, whose signatures have the templates'
    texts as instructions."""

    async def run(texts: Mapping[str, str], row: Mapping[str, Any], trying: PromptTrial) -> Any:
        copy = module.deepcopy()
        for name, predictor in copy.named_predictors():
            predictor.signature = predictor.signature.with_instructions(texts[name])
            _listen(predictor, name, trying)
        callee = take_callee(copy)
        names = (*(callee.takes or row), *callee.may_take)
        return await callee.call({name: row[name] for name in names if name in row})

    return run


def _listen(predictor: Any, name: str, trying: PromptTrial) -> None:
    """Make a predictor of a DSPy module record its inputs and its prediction."""
    forward, aforward = predictor.forward, getattr(predictor, "aforward", None)

    def note(inputs: Mapping[str, Any], prediction: Any) -> Any:
        input_text = "\n".join(f"{field}: {value_text(value)}" for field, value in inputs.items())
        gave = dict(prediction) if hasattr(prediction, "keys") else prediction
        trying.uses.append(PromptUse(name, input_text, value_text(gave)))
        return prediction

    def waiting(**inputs: Any) -> Any:
        return note(inputs, forward(**inputs))

    async def asking(**inputs: Any) -> Any:
        assert aforward is not None
        return note(inputs, await aforward(**inputs))

    predictor.forward = waiting
    if aforward is not None:
        predictor.aforward = asking
