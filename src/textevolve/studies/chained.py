"""Chains that stand for a model in a study: each is opened by its name, described for the identity
of a run, and asked for a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    read_text_template,
    write_text_template,
)
from textevolve.llm.chains.trace import StepTrace, TraceRecorder
from textevolve.llm.model import Request, Response
from textevolve.loops.calibration.examples import Example, ProgramNames
from textevolve.loops.calibration.trial_runner import PROMPT, ProgramOutput, Templates, plain_prompt
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
    found: dict[str, Any] = {}
    for name in names:
        chain = open_chain_named(name, objects)
        told = {"version": chain.version, "models": list(chain.models)}
        asks = {"default": chain.asks_default, "may_ask": chain.may_ask}
        found[name] = {**told, **asks, **chain.describe()}
    return found


def models_of_chains(described: Mapping[str, Any]) -> tuple[str, ...]:
    """The models that chains name, which `describe_chains` described."""
    chains: Mapping[str, Any] = described.get("chains", {})
    return tuple(dict.fromkeys(model for one in chains.values() for model in one["models"]))


def refuse_chain(study: AnyStudy, spec: StudySpec, asks: Asks) -> None:
    """Raises InputError where a chain is named as the model of a study that takes none."""
    if spec.model is not None and spec.plain_model is None and spec.model not in asks.chains:
        raise InputError(
            f"--model {spec.model}: a chain writes texts, and {study.kind} needs a model that"
            " judges; optimize, calibrate, compare and `chains run` take chains"
        )


def refuse_rehearsal(model: str | None, mode: Mode) -> None:
    """
    Raises:
        InputError: a search is rehearsed in which a chain stands for the model.
    """
    if mode not in ("live", "replay") and chains_among(model):
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
) -> tuple[dict[str, Any], StepTrace]:
    """The outputs of a chain, and its trace. `values` may hold more than its inputs. `spent`: has
    the trace also where the chain fails.

    Raises:
        AnswerError: it gave nothing that can be used, or its own code raised an error.
        BudgetError, ModelError: as its models. InputError: an input is missing.
    """
    recorder = spent or TraceRecorder(chain.name, "chain")
    context = replace(bench.chain_context(case), sample=sample)
    if context.rehearsed in ("typical", "longest"):  # answers to different rows will differ
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


@dataclass(frozen=True)
class TemplateInChain:
    """A template of a chain that is to be improved: the text of the last message of a user in the
    step's template. Its placeholders have to stay, whichever values they stand for."""

    chain: Chain
    step: str
    bench: Workbench | None = None

    @property
    def _message(self) -> tuple[int, TemplateMessage]:
        template = self.chain.templates[self.step]
        users = [(n, one) for n, one in enumerate(template.messages) if one.role == "user"]
        if not users:
            raise InputError(
                f"chain '{self.chain.name}': the template of the step '{self.step}'"
                " has no message of a user"
            )
        return users[-1]

    @property
    def text(self) -> str:
        return write_text_template(self._message[1].parts)

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of its placeholders, each once."""
        parts = self._message[1].parts
        return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, Slot)))

    @property
    def given(self) -> ProgramNames:
        return ProgramNames(tuple(self.chain.inputs), ((PROMPT, self.slots),))

    def with_text(self, text: str) -> Chain:
        """The chain with another text in place of the template's."""
        number, message = self._message
        parts = read_text_template(text, self.slots)
        messages = list(self.chain.templates[self.step].messages)
        messages[number] = replace(message, parts=parts)
        return self.chain.with_template(self.step, ChatTemplate(tuple(messages)))

    @property
    def templates(self) -> Templates:
        return plain_prompt(self.text)

    async def ask(
        self, templates: Templates, example: Example, count: Callable[[Usage], None], /
    ) -> ProgramOutput:
        assert self.bench is not None
        chain = self.with_text(templates.text)
        spent = TraceRecorder(chain.name, "chain")
        try:
            made = await ask_chain(self.bench, chain, example.values, example.id, spent=spent)
        finally:
            count(spent.usage)
        return ProgramOutput(chain_response(chain, *made))

    def show(self, _templates: Templates, example: Example, /) -> str:
        return "\n\n".join(f"{name}: {value}" for name, value in example.values.items())


def template_in(
    name: str,
    step: str | None,
    text: str,
    objects: Mapping[str, object],
    bench: Workbench | None,
) -> TemplateInChain:
    """The template of a step in the chain of this name. `text`: what it is to begin with, in place
    of the chain's own; empty: that.

    Raises:
        InputError: there is no such chain, no such step in it, or several to choose from.
    """
    chain = open_chain_named(name, objects)
    found = TemplateInChain(chain, chain.template_of(step)[0], bench)
    return replace(found, chain=found.with_text(text.replace("\r\n", "\n"))) if text else found


class ChainWriter:
    """A chain where a model is asked for texts: its only input is the text of the request, what it
    gives the answer. Of a request for another sample each of its own is another, too."""

    def __init__(self, chain: Chain, bench: Workbench) -> None:
        if len(chain.inputs) != 1:
            raise InputError(
                f"chain '{chain.name}': to stand for a model it must have one input, which is the"
                f" whole prompt; it has {', '.join(chain.inputs) or 'none'}"
            )
        self.name = chain.name
        self._chain, self._bench = chain, bench

    async def __call__(self, request: Request, /) -> Response:
        (name,) = self._chain.inputs
        prompt = "\n\n".join(message.text for message in request.messages)
        spent = TraceRecorder(self.name, "chain")
        outputs, trace = await ask_chain(
            self._bench, self._chain, {name: prompt}, sample=request.sample, spent=spent
        )
        return chain_response(self._chain, outputs, trace)


def chain_response(chain: Chain, outputs: Values, trace: StepTrace) -> Response:
    """The outputs of a chain as the answer of a model, with all that its calls used."""
    text = chain.text_of(outputs)
    if not text.strip():
        raise AnswerError(f"chain '{chain.name}': its output is empty")
    return Response(text, "stop", trace.usage or Usage(), seconds=trace.seconds)
