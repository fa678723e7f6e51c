"""Programs whose templates are improved: a chain, a function, a LangGraph graph, a DSPy module.
None of the packages is imported: an object is recognised by what it can do.

What each asks through our client is journaled, limited and counted as any call of a chain's; what
it asks by a client of its own is not. How a chain runs is in `llm.chains`.
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
    PromptUse,
    TraceRecorder,
    Trying,
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
from textevolve.user_code import OWN, call_function, callable_name, load_object, own_object
from textevolve.wiring import Workbench


@dataclass(frozen=True)
class ChainProgram:
    """A chain with the templates of some of its steps: of each the text of the last message of a
    user. Its placeholders have to stay, whichever values they stand for.

    Attributes:
        steps: The names of the steps.
        is_plain: Whether the template of a single step stands for a plain prompt.
        bench: Where the chain runs; None if it does not.
    """

    chain: Chain
    steps: tuple[str, ...]
    is_plain: bool = False
    bench: Workbench | None = None

    @property
    def _messages(self) -> Iterator[tuple[str, str, int, TemplateMessage]]:
        """Yield for each step the name of its template, its own name, and its message."""
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
    def given(self) -> ProgramNames:
        slots = tuple((name, _slots(message)) for name, _, _, message in self._messages)
        return ProgramNames(tuple(self.chain.inputs), slots, whole=not self.is_plain)

    def with_templates(self, templates: Templates) -> Chain:
        """The chain with other texts in place of its templates."""
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
    """Code with named templates. `run` is given texts and a row; `answer`: of several values that
    it gives, the one that is scored."""

    name: str
    templates: Templates
    run: ProgramRun
    bench: Workbench | None = None
    answer: str | None = None
    hidden: tuple[str, ...] = ()

    @property
    def given(self) -> ProgramNames:
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
            found = await self.run(texts, row, trying)
            return choose_answer(found, row, self.answer, self.name)

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
    """What a chain gives while these templates are tried, and how each of them was used; without
    any only what it gives.

    Raises:
        ProgramError: it gave nothing that can be used. ModelError, BudgetError: as its models.
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


def _trace(trying: Trying) -> tuple[PromptUse, ...]:
    return tuple(trying.in_order()) if trying.texts else ()


def show_values(example: Example) -> str:
    return "\n\n".join(f"{name}: {value}" for name, value in example.values.items())


def choose_answer(found: Any, row: Mapping[str, Any], answer: str | None, name: str) -> str:
    """The text that is scored of what a program gave: the value `answer`; where none is named, all
    that is not the row's. Of a list of messages it is the last one's text.

    Raises:
        AnswerError: there is no such value, or nothing.
    """
    if isinstance(found, Mapping):
        values = cast("Mapping[str, Any]", found)
        if answer is not None and answer not in values:
            there = ", ".join(map(str, values)) or "nothing"
            raise AnswerError(f"program '{name}' gave no value '{answer}', but: {there}")
        if answer is not None:
            values = {answer: values[answer]}
        fresh = {key: value for key, value in values.items() if answer or key not in row}
        found = next(iter(fresh.values())) if len(fresh) == 1 else fresh
    listed = cast("list[Any]", found) if isinstance(found, list) else [found]
    text: object = getattr(listed[-1] if listed else None, "content", cast(object, found))
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
    """The program of this name with all its templates, or of a chain with that of the `step`, or
    with its only one. `text`: those to begin with, several as `read_prompts` takes them; empty: its
    own, where it has some. `hidden`: columns that it is not given.

    Raises:
        InputError: there is no such program, or it has no templates; a name is of none of them.
    """
    given = find_object(name, objects)
    if isinstance(given, Chain):
        return _open_chain(given, step, text, bench)
    if step is not None:
        raise InputError(f"--step {step}: {name} is no chain")
    told = read_prompts(text, "templates") if text.strip() else {}
    called = name.removeprefix(OWN).rpartition(":")[2] or name
    called = called.rpartition(".")[2]
    if is_module(given):
        run, own = run_module(given), module_prompts(given)
        return CodeProgram(called, _begin(own, told, called), run, bench, answer, hidden)
    if not told:
        raise InputError(
            f"program '{called}': name its templates: a YAML file of them by name, or from Python"
            " templates={...}"
        )
    run = run_graph(given) if is_runnable(given) else run_function(given, called, told)
    return CodeProgram(called, Templates(tuple(told.items())), run, bench, answer, hidden)


def find_object(name: str, objects: Mapping[str, object]) -> object:
    """What a file, an import path, or an object's name in `objects` names.

    Raises:
        InputError: there is nothing of that name.
    """
    if name.startswith(OWN):
        return own_object(name, objects)
    if name.lower().endswith(ENDINGS):
        return load_chain(name)
    if (found := load_object(name, Path())) is None:
        raise InputError(f"{name}: there is nothing of that name")
    return found


def _open_chain(chain: Chain, step: str | None, text: str, bench: Workbench | None) -> ChainProgram:
    is_plain = step is not None or len(chain.templates) == 1
    templates = chain.templates.items()
    asking = [name for name, one in templates if any(m.role == "user" for m in one.messages)]
    steps = [step] if is_plain else asking
    if not steps:
        raise InputError(f"chain '{chain.name}': no step of it asks a model by a template")
    names = tuple(chain.template_of(name)[0] for name in steps)
    program = ChainProgram(chain, names, is_plain, bench)
    if not text.strip():
        return program
    texts = {PROMPT: text.replace("\r\n", "\n")} if is_plain else read_prompts(text, "templates")
    begun = _begin(dict(program.templates.parts), texts, chain.name)
    return replace(program, chain=program.with_templates(begun))


def _begin(own: Mapping[str, str], told: Mapping[str, str], name: str) -> Templates:
    for one in told:
        if one not in own:
            raise InputError(f"program '{name}': no template '{one}'; there are: {', '.join(own)}")
    return Templates(tuple({**own, **told}.items()))


def keeps_rows(
    program: OpenedProgram | None, metric: str | None, objects: Mapping[str, object]
) -> bool:
    """Whether the program or the metric is given whole rows."""
    if isinstance(program, CodeProgram):
        return True
    if metric is None:
        return False
    given = objects.get(metric) if metric.startswith(OWN) else open_metric(metric)
    return given is not None and takes_row(given)


ProgramRun: TypeAlias = Callable[[Mapping[str, str], Mapping[str, Any], Trying], Awaitable[Any]]
"""What a program gives for its templates' texts and a row."""


def run_function(given: Any, name: str, texts: Mapping[str, str]) -> ProgramRun:
    """A function of prompts and a row, or of the row alone, where it holds a `PromptSet`.

    Raises:
        InputError: it takes something else.
    """
    try:
        parameters = list(inspect.signature(given).parameters.values())
    except (TypeError, ValueError):
        raise InputError(f"program '{name}': it is no function, graph or module") from None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(one.default is one.empty for one in places)
    if needed not in (1, 2):
        raise InputError(
            f"program '{name}' ({callable_name(given)}): it must take prompts and a row, or a row"
            f" alone, and needs {needed} arguments"
        )
    prompts = PromptSet(texts)  # it gives the texts that are tried

    async def run(_texts: Mapping[str, str], row: Mapping[str, Any], _: Trying) -> Any:
        return await call_function(given, *((prompts, dict(row)) if needed == 2 else (dict(row),)))

    return run


def run_graph(graph: Any) -> ProgramRun:
    """A LangGraph graph, or another Runnable: it finds the texts in `config["configurable"]`, in
    the runtime's context where its schema names them, and in every `PromptSet` that it holds."""
    takes = take_callee(graph).takes
    shown = _field_names(getattr(graph, "context_schema", None))

    async def run(texts: Mapping[str, str], row: Mapping[str, Any], trying: Trying) -> Any:
        from textevolve.llm.chains.langchain_runnables import PromptListener

        config = {
            "configurable": {**texts, "thread_id": uuid.uuid4().hex},
            "callbacks": [PromptListener(trying)],
        }
        named = {name: text for name, text in texts.items() if name in shown}
        given = {name: row[name] for name in takes if name in row} if takes else dict(row)
        return await graph.ainvoke(given, config, **({"context": named} if named else {}))

    return run


def _field_names(schema: Any) -> frozenset[str]:
    """The fields of a typed dictionary, a dataclass or a pydantic model; of None none."""
    kinds = getattr(schema, "__mro__", ())
    return frozenset(name for kind in kinds for name in getattr(kind, "__annotations__", ()))


def module_prompts(module: Any) -> dict[str, str]:
    """The instructions of a DSPy module's predictors, by the predictors' names."""
    return {name: str(one.signature.instructions) for name, one in module.named_predictors()}


def run_module(module: Any) -> ProgramRun:
    """A DSPy module, a copy of which has the texts for the instructions of its signatures."""

    async def run(texts: Mapping[str, str], row: Mapping[str, Any], trying: Trying) -> Any:
        copy = module.deepcopy()
        for name, predictor in copy.named_predictors():
            predictor.signature = predictor.signature.with_instructions(texts[name])
            _listen(predictor, name, trying)
        callee = take_callee(copy)
        names = (*(callee.takes or row), *callee.may_take)
        return await callee.call({name: row[name] for name in names if name in row})

    return run


def _listen(predictor: Any, name: str, trying: Trying) -> None:
    """Has a predictor note what it was given, and what it gave."""
    forward, aforward = predictor.forward, getattr(predictor, "aforward", None)

    def note(given: Mapping[str, Any], found: Any) -> Any:
        shown = "\n".join(f"{field}: {value_text(value)}" for field, value in given.items())
        gave = dict(found) if hasattr(found, "keys") else found
        trying.uses.append(PromptUse(name, shown, value_text(gave)))
        return found

    def waiting(**given: Any) -> Any:
        return note(given, forward(**given))

    async def asking(**given: Any) -> Any:
        assert aforward is not None
        return note(given, await aforward(**given))

    predictor.forward = waiting
    if aforward is not None:
        predictor.aforward = asking
