"""How code with named prompts is run: a function, a LangGraph graph, a DSPy module.

None of their packages is needed here: they are told by what they can do.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.llm.chains.callables import take_callee
from textevolve.llm.chains.chat_template import value_text
from textevolve.llm.chains.prompt_set import PromptSet
from textevolve.llm.chains.prompt_uses import PromptUse, Trying
from textevolve.user_code import call_function, callable_name

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
        return await callee({name: row[name] for name in names if name in row})

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
