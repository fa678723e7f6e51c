"""Chains that stand for a model in a study: each is opened by its name, described for the identity
of a run, and asked for a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

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
from textevolve.evaluation import Usage
from textevolve.llm.chains.chain import Chain, Values, perform_chain
from textevolve.llm.chains.chain_file import as_chain, load_chain
from textevolve.llm.chains.scope import ImproveStep, StepTrace, TraceRecorder
from textevolve.llm.model import Request, Response
from textevolve.user_code import OWN, names_chain, own_object
from textevolve.wiring import Mode, Workbench

if TYPE_CHECKING:
    from textevolve.studies.study import AnyStudy, Asks, StudySpec


def chains_among(*models: str | None) -> tuple[str, ...]:
    """Return the names that name a chain and no model."""
    return tuple(dict.fromkeys(one for one in models if one is not None and names_chain(one)))


def open_chain_named(name: str, objects: Mapping[str, object]) -> Chain:
    """The chain that a specification names: a file, an import path, or one of the program's own.

    Raises:
        InputError: there is none.
    """
    if name.startswith(OWN):
        return as_chain(own_object(name, objects))
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


def models_of_chains(chains: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models that chains name, as `describe_chains` describes them."""
    return tuple(dict.fromkeys(model for chain in chains.values() for model in chain["models"]))


def asks_default(chains: Mapping[str, Any]) -> bool:
    """Tell whether one of some described chains asks the run's own model."""
    return any(chain["default"] for chain in chains.values())


def may_ask(chains: Mapping[str, Any]) -> bool:
    return any(chain["may_ask"] for chain in chains.values())


def refuse_chain(study: AnyStudy, spec: StudySpec, asks: Asks) -> None:
    """Raises InputError where a chain is named as the model of a study that takes none."""
    if spec.model is not None and spec.plain_model is None and spec.model not in asks.chains:
        raise InputError(
            f"--model {spec.model}: a chain writes texts, and {study.kind} needs a model that"
            " judges; optimize, calibrate, compare and `run chains run` take chains"
        )


def refuse_rehearsal(model: str | None, mode: Mode) -> None:
    """
    Raises:
        InputError: a search is rehearsed in which a chain stands for the model.
    """
    if mode == "rehearsed" and chains_among(model):
        raise InputError(
            f"{model}: what a search with a chain may take cannot be said beforehand; limit it with"
            " --max-calls or --max-cost, which say where they stopped it"
        )


async def ask_chain(
    bench: Workbench,
    chain: Chain,
    values: Values,
    case: str = "",
    *,
    sample: int = 0,
    spent: TraceRecorder | None = None,
    improve: ImproveStep | None = None,
) -> tuple[dict[str, Any], StepTrace]:
    """The outputs of a chain, and its trace. `values` may hold more than its inputs. `spent`: has
    the trace also where the chain fails.

    Raises:
        AnswerError: it gave nothing that can be used, or its own code raised an error.
        BudgetError, ModelError: as its models. InputError: an input is missing.
    """
    recorder = spent or TraceRecorder(chain.name, "chain")
    context = replace(bench.chain_context(case), sample=sample, improve=improve)
    if context.rehearsed:  # answers to different rows will differ
        context = replace(context, sample=1 + crc32(case.encode()))
    given = chain.take_inputs(values, others=True)
    try:
        outputs = await perform_chain(chain, given, context, recorder)
    except (BudgetError, FatalModelError, SettingsError, StoreError):
        raise
    except Exception as error:
        name = "" if isinstance(error, TextEvolveError) else f"{type(error).__name__}: "
        if context.rehearsed:
            raise InputError(
                f"chain '{chain.name}': what it may take cannot be known beforehand: with answers"
                f" that are made up it ends with: {name}{error}"
            ) from error
        if isinstance(error, ModelError):
            raise
        raise AnswerError(f"chain '{chain.name}' raised {name}{error}") from error
    return outputs, recorder.trace


class ChainWriter:
    """A chain where a model is asked for texts: its only input is the text of the request, what it
    gives the answer. Of a request for another sample each of its own is another, too."""

    def __init__(self, chain: Chain, bench: Workbench, improve: ImproveStep | None = None) -> None:
        if len(chain.inputs) != 1:
            raise InputError(
                f"chain '{chain.name}': to stand for a model it must have one input, which is the"
                f" whole prompt; it has {', '.join(chain.inputs) or 'none'}"
            )
        self.name = chain.name
        self._chain, self._bench, self._improve = chain, bench, improve

    async def __call__(self, request: Request, /) -> Response:
        (name,) = self._chain.inputs
        prompt = "\n\n".join(message.text for message in request.messages)
        spent = TraceRecorder(self.name, "chain")
        outputs, trace = await ask_chain(
            self._bench,
            self._chain,
            {name: prompt},
            sample=request.sample,
            spent=spent,
            improve=self._improve,
        )
        return chain_response(self._chain, outputs, trace)


def chain_response(chain: Chain, outputs: Values, trace: StepTrace) -> Response:
    """The outputs of a chain as the answer of a model, with all that its calls used."""
    text = chain.text_of(outputs)
    if not text.strip():
        raise AnswerError(f"chain '{chain.name}': its output is empty")
    return Response(text, "stop", trace.usage or Usage(), seconds=trace.seconds)
