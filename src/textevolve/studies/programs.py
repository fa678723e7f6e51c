"""Programs whose prompt templates are improved: a chain, a Python function, a LangGraph graph, or a
DSPy module. Their packages are not imported; an object is recognised by its methods.

Model calls through this package's client are journaled, limited and counted like those of a chain;
calls by a program's own client are not. `llm.chains` runs chains.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Usage
from textevolve.json_texts import is_array, is_mapping
from textevolve.llm.chains.chain import ENDINGS, Chain, PromptSet, load_chain, read_prompts
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
    running_program,
    trying_prompts,
)
from textevolve.llm.chains.steps import call, is_module, is_runnable, take_callee
from textevolve.llm.meter import DistinctCalls, Tab
from textevolve.llm.structured import IncompleteError, UnusableAnswer, describe_fault
from textevolve.loops.calibration.trial_runner import (
    PROMPT,
    Example,
    ProgramError,
    ProgramNames,
    ProgramOutput,
    Templates,
)
from textevolve.mappings import omit, pick
from textevolve.metrics.label_metrics import reads_trajectory
from textevolve.runs.chains import RaisedError, chain_response
from textevolve.studies.row_values import wants_row
from textevolve.texts.placeholders import placeholders_of
from textevolve.user_code import (
    OWN,
    call_function,
    callable_name,
    count_required,
    load_object,
    load_user_object,
)
from textevolve.wiring import Workbench


@dataclass(frozen=True, slots=True)
class OpenedProgram:
    """A program whose templates are improved, as a chain.

    Attributes:
        templates: The initial templates.
        names: The names that it uses.
        chain_of: Returns the program as a chain with other templates, for a row.
        bench: The open models with which it runs; None if only its templates are shown.
        distinct: Counts each request once: with another template for a later step, the earlier
            steps' requests are answered by the journal.
    """

    templates: Templates
    names: ProgramNames
    chain_of: Callable[[Templates, Mapping[str, Any]], Chain]
    bench: Workbench | None
    distinct: DistinctCalls = field(default_factory=DistinctCalls, compare=False)

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        """Run the program, and return its output with the uses of each template, if it has several.

        Raises:
            ProgramError: there is no usable output. ModelError, BudgetError: raised by its models.
        """
        assert self.bench is not None
        chain = self.chain_of(templates, example.known)
        spent = TraceRecorder(chain.name, "chain")

        texts = dict(templates.parts) if self.names.whole else {}
        with trying_prompts(texts) as trial, Tab() as tab:
            try:
                response = await chain_response(
                    self.bench, chain, example.values, spent, example.id
                )
            except AnswerError as error:
                raise ProgramError(str(error), _trace(trial), missing=_is_missing(error)) from error
            finally:
                count(self.distinct.count(tab)[0])

        return ProgramOutput(response, _trace(trial))

    def show(self, _templates: Templates, example: Example, /) -> str:
        return "\n\n".join(f"{name}: {value}" for name, value in example.values.items())


def _is_missing(error: AnswerError) -> bool:
    """Tell whether an error leaves a row without an answer to judge, so that it speaks against no
    template: an exception of the program, or an answer that is empty, cut, filtered or refused."""
    if isinstance(error, UnusableAnswer):
        return bool(describe_fault(error.responses[-1]))
    return isinstance(error, RaisedError | IncompleteError)


def _trace(trial: PromptTrial) -> tuple[PromptUse, ...]:
    return tuple(trial.in_order()) if trial.texts else ()


def choose_answer(result: Any, row: Mapping[str, Any], answer: str | None, name: str) -> str:
    """Return the text of a program's result that is scored. That is the value named `answer`, or
    without a name all values that are not columns of the row. From a list of messages the last
    one's text is taken.

    Raises:
        IncompleteError: there is no such value, or no result.
    """
    if is_mapping(result):
        values = result
        if answer is not None and answer not in values:
            there = ", ".join(map(str, values)) or "nothing"
            raise IncompleteError(f"program '{name}' gave no value '{answer}', but: {there}")
        if answer is not None:
            values = {answer: values[answer]}
        fresh = {key: value for key, value in values.items() if answer or key not in row}
        result = next(iter(fresh.values())) if len(fresh) == 1 else fresh

    listed = result if is_array(result) else [result]
    text: object = getattr(listed[-1] if listed else None, "content", result)
    if text is None or text == {}:
        raise IncompleteError(f"program '{name}' gave nothing")

    return value_text(text)


def open_program(
    name: str,
    text: str,
    objects: Mapping[str, object],
    *,
    bench: Workbench | None,
    step: str | None,
    answer: str | None,
    hidden: tuple[str, ...],
) -> OpenedProgram:
    """Open a program with all its templates; a chain with only the template of `step` if that is
    set. `answer`: the name of the value that is scored; a chain does not use it.

    `text`: the initial templates (several as `read_prompts` takes them); empty: those of the
    program itself. `hidden`: columns that the program does not receive.

    Raises:
        InputError: there is no such program, it has no templates, or no template of that name.
    """
    program: Any = find_object(name, objects)
    if isinstance(program, Chain):
        return _open_chain(program, step, text, bench)
    if step is not None:
        raise InputError(f"--step {step}: {name} is not a chain, so it has no steps")
    texts = read_prompts(text, "templates") if text.strip() else {}
    called = name.removeprefix(OWN).rpartition(":")[2] or name
    called = called.rpartition(".")[2]
    if is_module(program):
        instructions = {
            n: str(each.signature.instructions) for n, each in program.named_predictors()
        }
        templates = _begin(instructions, texts, called)
        return _open_code(called, templates, run_module(program), bench, answer, hidden)

    if not texts:
        raise InputError(
            f"program '{called}': its templates are missing: name a YAML file of templates by"
            " name, or pass templates={...} in Python"
        )

    run = run_graph(program) if is_runnable(program) else run_function(program, called, texts)

    return _open_code(called, Templates(tuple(texts.items())), run, bench, answer, hidden)


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


def _open_chain(
    chain: Chain, step: str | None, text: str, bench: Workbench | None
) -> OpenedProgram:
    """Open a chain: the template of a step is its last user message, whose placeholders must
    remain. A single template is named like a plain prompt."""
    is_plain = step is not None or len(chain.templates) == 1
    templates = chain.templates.items()
    asking = [
        name for name, template in templates if any(m.role == "user" for m in template.messages)
    ]
    steps = [step] if is_plain else asking
    if not steps:
        raise InputError(f"chain '{chain.name}': none of its steps sends a template to a model")
    messages: dict[str, tuple[str, int, TemplateMessage]] = {}

    for name in steps:
        full_name, template = chain.template_of(name)
        users = [(n, m) for n, m in enumerate(template.messages) if m.role == "user"]
        if not users:
            raise InputError(
                f"chain '{chain.name}': the template of the step '{full_name}' has no message of a"
                " user"
            )

        messages[PROMPT if is_plain else full_name] = (full_name, *users[-1])

    def chain_of(templates: Templates, _row: Mapping[str, Any] = {}) -> Chain:
        changed = chain
        for name, (full_name, number, message) in messages.items():
            parts = read_text_template(templates[name], _slots(message))
            sent = list(chain.templates[full_name].messages)
            sent[number] = replace(message, parts=parts)
            changed = changed.with_template(full_name, ChatTemplate(tuple(sent)))

        return changed

    written = {name: write_text_template(m.parts) for name, (_, _, m) in messages.items()}
    if text.strip():
        plain = {PROMPT: text.replace("\r\n", "\n")}
        texts = plain if is_plain else read_prompts(text, "templates")
        return _open_chain(chain_of(_begin(written, texts, chain.name)), step, "", bench)

    slots = tuple((name, _slots(message)) for name, (_, _, message) in messages.items())
    names = ProgramNames(tuple(chain.inputs), slots, whole=not is_plain)

    return OpenedProgram(Templates(tuple(written.items())), names, chain_of, bench)


def _slots(message: TemplateMessage) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.name for part in message.parts if isinstance(part, Slot)))


def _open_code(
    name: str,
    templates: Templates,
    run: ProgramRun,
    bench: Workbench | None,
    answer: str | None,
    hidden: tuple[str, ...],
) -> OpenedProgram:
    """Open user code with named templates. `answer`: the name of the value that is scored, if the
    code returns several. `hidden`: the columns of a row that it does not receive."""

    def chain_of(_templates: Templates, row: Mapping[str, Any]) -> Chain:
        visible = omit(row, hidden)

        async def output() -> str:
            trial = current_trial.get()
            assert trial is not None
            async with running_program(trial):
                returned = await run(visible, trial)
            return choose_answer(returned, visible, answer, name)

        return Chain(name, call("output", output), inputs=())

    slots = tuple((part, placeholders_of(text)) for part, text in templates.parts)

    return OpenedProgram(templates, ProgramNames(None, slots, whole=True), chain_of, bench)


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
    if program is not None and program.names.inputs is None:
        return True
    return metric is not None and (reads_trajectory(metric) or wants_row([metric], objects))


ProgramRun: TypeAlias = Callable[[Mapping[str, Any], PromptTrial], Awaitable[Any]]
"""A function that runs a program on a row with the templates of a trial."""


def run_function(function: Any, name: str, texts: Mapping[str, str]) -> ProgramRun:
    """Return a function that calls the user's function with prompts and a row, or with the row
    alone if it needs only one argument; such a function holds a `PromptSet` of its own.

    Raises:
        InputError: the function has other parameters.
    """
    needed = count_required(function)
    if needed is None:
        raise InputError(f"program '{name}': it is no function, graph or module")
    if needed not in (1, 2):
        raise InputError(
            f"program '{name}' ({callable_name(function)}): it must take prompts and a row, or"
            f" only a row, and needs {needed} arguments"
        )

    prompts = PromptSet(texts)  # it gives the texts that are tried

    async def run(row: Mapping[str, Any], _: PromptTrial) -> Any:
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

    async def run(row: Mapping[str, Any], trial: PromptTrial) -> Any:
        from textevolve.llm.chains.langchain_runnables import PromptListener

        config = {
            "configurable": {**trial.texts, "thread_id": uuid.uuid4().hex},
            "callbacks": [PromptListener(trial)],
        }
        context = {name: text for name, text in trial.texts.items() if name in context_fields}
        inputs = pick(row, takes) if takes else dict(row)

        return await graph.ainvoke(inputs, config, **({"context": context} if context else {}))

    return run


def _field_names(schema: Any) -> frozenset[str]:
    """Return the fields of a typed dictionary, a dataclass or a pydantic model; none for None."""
    kinds = getattr(schema, "__mro__", ())
    return frozenset(name for kind in kinds for name in getattr(kind, "__annotations__", ()))


def run_module(module: Any) -> ProgramRun:
    """Return a function that runs a copy of a DSPy module, whose signatures have the templates'
    texts as instructions."""

    async def run(row: Mapping[str, Any], trial: PromptTrial) -> Any:
        copy = module.deepcopy()
        for name, predictor in copy.named_predictors():
            predictor.signature = predictor.signature.with_instructions(trial.texts[name])
            _listen(predictor, name, trial)
        callee = take_callee(copy)
        names = (*(callee.takes or row), *callee.may_take)
        return await callee.call(pick(row, names))

    return run


def _listen(predictor: Any, name: str, trial: PromptTrial) -> None:
    """Make a predictor of a DSPy module record its inputs and its prediction."""
    forward = predictor.forward
    aforward = getattr(predictor, "aforward", None)

    def note(inputs: Mapping[str, Any], prediction: Any) -> Any:
        input_text = "\n".join(f"{field}: {value_text(value)}" for field, value in inputs.items())
        gave = dict(prediction) if hasattr(prediction, "keys") else prediction
        trial.uses.append(PromptUse(name, input_text, value_text(gave)))
        return prediction

    def waiting(**inputs: Any) -> Any:
        return note(inputs, forward(**inputs))

    async def asking(**inputs: Any) -> Any:
        assert aforward is not None
        return note(inputs, await aforward(**inputs))

    predictor.forward = waiting
    if aforward is not None:
        predictor.aforward = asking
