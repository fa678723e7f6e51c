"""Chains (sequences of model calls) that stand in for a model in a study: they are opened by name,
described so that a change of a chain makes another run, and called with a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textevolve.errors import (
    AnswerError,
    BudgetError,
    FatalModelError,
    InputError,
    ModelError,
    SettingsError,
    StoreError,
    TextEvolveError,
)
from textevolve.evaluation import failure_of
from textevolve.llm.chains.chain import Chain, Values, as_chain, load_chain, perform_chain
from textevolve.llm.chains.scope import ImproveStep, TraceRecorder
from textevolve.llm.model import Request, Response
from textevolve.llm.structured import IncompleteError
from textevolve.user_code import OWN, load_user_object, names_chain
from textevolve.wiring import Workbench


def chains_among(*models: str | None) -> tuple[str, ...]:
    """Return those of the names that stand for a chain instead of a model, without repetition."""
    return tuple(dict.fromkeys(filter(names_chain, filter(None, models))))


def open_chain_named(name: str, objects: Mapping[str, object]) -> Chain:
    """Open the chain that a specification names: a file, an import path, or one of the caller's
    Python objects.

    Raises:
        InputError: there is no such chain.
    """
    if name.startswith(OWN):
        return as_chain(load_user_object(name, objects))

    return load_chain(name)


def describe_chains(names: tuple[str, ...], objects: Mapping[str, object]) -> dict[str, Any]:
    """Describe each chain, with the models that it names, as JSON."""
    chains = {name: open_chain_named(name, objects) for name in names}
    return {
        name: {
            "version": chain.version,
            "models": list(chain.models),
            "default": chain.asks_default,
            "may_ask": chain.may_ask,
            **chain.describe(),
        }
        for name, chain in chains.items()
    }


def reject_rehearsal(bench: Workbench, model: str | None) -> None:
    """Reject the cost estimate of a search whose model is a chain.

    Raises:
        InputError: the run is an estimate (a rehearsal), and a chain is its model.
    """
    if bench.is_rehearsal and chains_among(model):
        raise InputError(
            f"{model}: the cost of a search with a chain cannot be estimated; limit it with"
            " --max-calls or --max-cost"
        )


class RaisedError(AnswerError):
    """An exception in the code of a chain or a program, which speaks for or against no answer."""


async def ask_chain(
    bench: Workbench,
    chain: Chain,
    values: Values,
    spent: TraceRecorder,
    case: str = "",
    *,
    sample: int = 0,
    improve: ImproveStep | None = None,
) -> dict[str, Any]:
    """Run a chain, and return its outputs. `values`: the chain's inputs, and possibly more.
    `spent`: receives the trace of its steps, even if the chain fails, so that its usage is counted.

    Raises:
        AnswerError: the outputs cannot be used, or the chain's own code raised an error.
        BudgetError, ModelError: raised by its models. InputError: an input is missing, or the chain
            fails in a cost estimate.
    """
    context = replace(bench.chain_context(case), sample=sample, improve=improve)
    inputs = chain.take_inputs(values, others=True)

    first_results = bench.first_results(f"chain '{chain.name}'")

    try:
        outputs = await perform_chain(chain, inputs, context, spent)
        first_results.note(outputs)
        return outputs
    except (BudgetError, FatalModelError, SettingsError, StoreError):
        raise
    except Exception as error:
        name = "" if isinstance(error, TextEvolveError) else f"{type(error).__name__}: "
        if context.rehearsed:
            raise InputError(
                f"chain '{chain.name}': its cost cannot be estimated, since it fails on made-up"
                f" answers: {name}{error}"
            ) from error

        if isinstance(error, ModelError):
            raise
        last = spent.trace.steps[-1:]
        place = "".join(f", step '{step.name}'," for step in last if step.error)
        failure = RaisedError(f"chain '{chain.name}'{place} raised {name}{error}")
        first_results.note(failure_of(failure))
        raise failure from error


async def chain_response(
    bench: Workbench,
    chain: Chain,
    values: Values,
    spent: TraceRecorder,
    case: str = "",
    *,
    sample: int = 0,
    improve: ImproveStep | None = None,
) -> Response:
    """Run a chain like `ask_chain`, and return its outputs as the answer of a model, with the usage
    of all its calls."""
    outputs = await ask_chain(bench, chain, values, spent, case, sample=sample, improve=improve)
    text = chain.text_of(outputs)
    if not text.strip():
        raise IncompleteError(f"chain '{chain.name}': its output is empty")

    return Response(text, "stop", spent.trace.usage, seconds=spent.trace.seconds)


class ChainWriter:
    """A chain with the interface of a model: the text of the request is its only input, and its
    only output is the answer. A request for another sample repeats all model calls of the chain
    with other samples."""

    def __init__(self, chain: Chain, bench: Workbench, improve: ImproveStep | None = None) -> None:
        if len(chain.inputs) != 1:
            raise InputError(
                f"chain '{chain.name}': to stand for a model it must have one input, which is the"
                f" whole prompt; it has {', '.join(chain.inputs) or 'none'}"
            )

        self.name = chain.name
        self._chain = chain
        self._bench = bench
        self._improve = improve

    async def __call__(self, request: Request, /) -> Response:
        (name,) = self._chain.inputs
        prompt = "\n\n".join(message.text for message in request.messages)
        spent = TraceRecorder(self.name, "chain")
        return await chain_response(
            self._bench,
            self._chain,
            {name: prompt},
            spent,
            sample=request.sample,
            improve=self._improve,
        )
