"""Chains for programs: called, kept open, run over rows with their traces, and in the shapes that
LangChain and DSPy know.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast
from weakref import WeakKeyDictionary

from textevolve.api.calibration import Rows
from textevolve.api.running import Objects, arun, in_sync, split_keywords, takes_fields
from textevolve.engine import sync
from textevolve.engine.kept_open import KeptOpen
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.llm.chains.chain import Chain, Values, call_by, perform_chain, run_within
from textevolve.llm.chains.chain_file import as_chain, load_chain
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    take_template,
    write_text_template,
)
from textevolve.llm.chains.prompt_set import PromptSet as PromptSet  # asks by `call_by` here
from textevolve.llm.chains.scope import ChainContext, running_model, wait_within
from textevolve.llm.chains.template_syntax import Syntax, read_syntax
from textevolve.llm.model import Request, Response
from textevolve.settings import Settings, read_settings, store_location, today
from textevolve.studies.run_chain import ChainRuns, ChainSpec, chain_cases
from textevolve.studies.standing import open_standing_run
from textevolve.wiring import Limits, Setting, Workbench, choose_model

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import Runnable


class OpenKeywords(TypedDict, total=False):
    """How models are opened for a chain. `model`: for steps that name none. `store`: the file that
    keeps what is asked. `limits`: of money, tokens and calls, of all that is asked until it is
    closed."""

    model: str | None
    store: str | Path | None
    limits: Limits
    settings: Settings | None


class OpenModels:
    """Models that stay open between calls from anywhere, until `close`, which the end of the
    program calls too. What they are asked is a run of its own in the store."""

    def __init__(self, chain: Chain | None, **opened: Unpack[OpenKeywords]) -> None:
        for name in opened:
            if name not in OpenKeywords.__annotations__:
                raise InputError(f"unknown parameter '{name}'")
        self._options, self._chain = opened, chain
        overrides = {"model": opened.get("model"), "store": opened.get("store")}
        settings = opened.get("settings") or read_settings(overrides)[0]
        store = store_location(opened.get("store") or settings.store)
        self._settings = settings.model_copy(update={"store": store})
        self.kept = KeptOpen(self._open, "these models are closed; open them anew")

    async def _open(self, stack: AsyncExitStack) -> Workbench:
        chain, chosen = self._chain, self._options.get("model")
        model, why = "", ""
        may_ask = chain is not None and chain.may_ask and (chosen or self._settings.model)
        if chain is None or chain.asks_default or may_ask:
            model, why = await choose_model(self._settings, chosen)
        models = [*([model] if model else []), *(() if chain is None else chain.models)]
        described = {} if chain is None else {"chain": chain.describe()}
        opened = open_standing_run(
            "chains",
            {"model": model, "why": why, "today": today(), **described},
            Setting(model, tuple(dict.fromkeys(models)), today()),
            self._settings,
            source="Python",
            cases=[Case(chain.name if chain else model, (), "1")],
            limits=self._options.get("limits", Limits()),
        )
        return await stack.enter_async_context(opened)

    async def context(self) -> ChainContext:
        """The context of a run on any event loop, whose models are asked on their own loop."""

        async def make(bench: Workbench) -> ChainContext:
            return bench.chain_context()

        return replace(await self.kept.do(make), model_of=partial(_OpenModel, self.kept))


class _OpenModel:
    """A model that is asked on the event loop where it is open. `ask` and `wait` are for programs
    of others: within a step of a chain they ask that chain's model."""

    def __init__(self, kept: KeptOpen[Workbench], spec: str | None) -> None:
        self.name = spec or "the model of the settings"
        self._spec, self._kept = spec, kept

    async def __call__(self, request: Request, /) -> Response:
        return await self._kept.do(partial(self._ask, request))

    async def _ask(self, request: Request, bench: Workbench) -> Response:
        return await bench.model_of(self._spec or bench.default_model)(request)

    async def ask(self, request: Request) -> Response:
        return await (running_model(self._spec) or self)(request)

    def wait(self, request: Request) -> Response:
        if running_model(self._spec) is not None:
            return wait_within(self.ask(request))
        return self._kept.wait(partial(self._ask, request))


class OpenChain(AbstractContextManager["OpenChain"]):
    """A chain whose models stay open: `with open_chain(chain) as answer: answer(question="...")`.

    It is called with its inputs by name, async by `acall`. Its own code runs where it is called, on
    the caller's event loop.
    """

    def __init__(self, chain: Chain, models: OpenModels) -> None:
        self.chain = chain
        self._models = models

    def __call__(self, **values: Any) -> dict[str, Any]:
        return sync.run(self.acall(**values))

    async def acall(self, **values: Any) -> dict[str, Any]:
        """The outputs. Errors of steps are raised as they are, and cancelling cancels the step.

        Raises:
            InputError: an input is missing, unknown, or of another type; or it is closed.
        """
        if (within := await run_within(self.chain, values)) is not None:
            return within
        return await perform_chain(self.chain, values, await self._models.context())

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of models and store; what is asked meanwhile is ended. Twice is once."""
        self._models.kept.close()


def find_chain(chain: object) -> Chain:
    """A chain itself; the one that a YAML file or an import path names; one of a single step that
    calls a function, a LangChain Runnable or a DSPy module.

    Raises:
        InputError: there is none.
    """
    if isinstance(chain, str | Path):
        return load_chain(str(chain))
    return chain.chain if isinstance(chain, OpenChain) else as_chain(chain)


def open_chain(chain: object, **opened: Unpack[OpenKeywords]) -> OpenChain:
    """A chain with its models open, until it is closed: use `with`, or leave it to the end of the
    program. `chain`: as `load_chain` takes it, or whatever can be a step. `opened`: see
    `OpenKeywords`.

    Raises:
        InputError: there is no such chain.
    """
    found = find_chain(chain)
    return OpenChain(found, OpenModels(found, **opened))


_opened: WeakKeyDictionary[Chain, OpenChain] = WeakKeyDictionary()


async def _call_chain(chain: Chain, values: Values) -> dict[str, Any]:
    """Run a chain that is called: within a step of another chain with its models, otherwise with
    those of the settings, which stay open."""
    if (within := await run_within(chain, values)) is not None:
        return within
    if chain not in _opened:
        _opened[chain] = open_chain(chain)
    return await _opened[chain].acall(**values)


call_by(_call_chain)


@takes_fields(ChainSpec)
async def arun_chain(
    chain: object,
    values: Mapping[str, Any] | None = None,
    *,
    data: Rows | None = None,
    **fields: Any,
) -> ChainRuns:
    """Run a chain once on `values`, or on each row of `data`, and keep outputs and traces.

        found = run_chain(chain, {"question": "..."}, model="openai/gpt-6-luna")
        found.runs[0].outputs["answer"], found.runs[0].trace

    What fails is a run with a `failure`. The other names are those of `ChainSpec` and
    `RunKeywords`. The same call again is answered from the store, but for what the chain's own
    code does.

    Raises:
        InputError: the chain or its inputs cannot be used.
        FatalModelError: no call can succeed; what was answered is kept.
    """
    objects = Objects()
    own, keywords = split_keywords(ChainSpec, fields)
    named = str(chain) if isinstance(chain, str | Path) else objects.name(find_chain(chain))
    from_file = isinstance(data, str | Path)
    spec = ChainSpec(chain=named or "", data=str(data) if from_file else "", **own)
    cases = None
    if values is not None:
        cases = chain_cases(spec, [("values", values)], objects.found)
    elif data is not None and not isinstance(data, str | Path):
        rows = ((f"row {n}", row) for n, row in enumerate(data, 1))
        cases = chain_cases(spec, rows, objects.found)
    return await arun(spec, cases=cases, objects=objects, **keywords)


run_chain = in_sync(arun_chain)


def as_runnable(chain: object, **opened: Unpack[OpenKeywords]) -> Runnable[Any, Any]:
    """A chain as a LangChain Runnable: a mapping of inputs in, of outputs out. `chain` and `opened`
    as `open_chain` takes them, or a chain that is open.

    Raises:
        InputError: there is no such chain.
    """
    from textevolve.llm.chains.langchain_runnables import ChainRunnable

    return ChainRunnable(chain if isinstance(chain, OpenChain) else open_chain(chain, **opened))


def as_chat_model(
    model: str | None = None,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    **opened: Any,
) -> BaseChatModel:
    """A model of ours as a LangChain chat model, whose calls are journaled and limited. Within a
    step of a chain it is that chain's model, and its calls count with the step. Where no model is
    named, it is the chain's own, or that of the settings. `opened`: see `OpenKeywords`."""
    from textevolve.llm.chains.langchain_runnables import JournaledChatModel

    door = _OpenModel(OpenModels(None, model=model, **opened).kept, model)
    return JournaledChatModel(door=door, temperature=temperature, max_tokens=max_tokens, seed=seed)


def as_dspy_module(chain: object, **opened: Unpack[OpenKeywords]) -> Any:
    """A chain as a DSPy module, which gives a prediction with the chain's outputs. `chain` and
    `opened` as `open_chain` takes them, or a chain that is open.

    Raises:
        InputError: there is no such chain.
    """
    from textevolve.llm.chains.dspy_modules import ChainModule

    return ChainModule(chain if isinstance(chain, OpenChain) else open_chain(chain, **opened))


def as_dspy_lm(model: str | None = None, **given: Any) -> Any:
    """A model of ours as `dspy.LM`, as `as_chat_model`. `given`: temperature and max_tokens, and
    the names of `OpenKeywords`."""
    from textevolve.llm.chains.dspy_modules import make_lm

    opened = {name: given.pop(name) for name in OpenKeywords.__annotations__ if name in given}
    door = _OpenModel(OpenModels(None, model=model, **cast(Any, opened)).kept, model)
    return make_lm(door, **given)


def read_template(template: Any, syntax: Syntax = "text") -> ChatTemplate:
    """A template of a user's, of LangChain's or in another syntax, as one of ours.

    `template`: a text, messages (each a role and a text), a PromptTemplate or ChatPromptTemplate.
    `syntax`: of texts: text (ours: `{name}`), f-string or jinja2.

    Raises:
        InputError: there is something in it that cannot be converted, such as logic; says what.
    """
    if isinstance(template, ChatTemplate):
        return template
    if type(template).__module__.startswith("langchain_core."):
        from textevolve.llm.chains.langchain_runnables import read_langchain_template

        return read_langchain_template(template)
    plain = take_template(template, ())  # the roles and texts, of which nothing is read as a slot
    return ChatTemplate(
        tuple(
            replace(one, parts=read_syntax(write_text_template(one.parts), syntax))
            for one in plain.messages
        )
    )


def to_langchain_template(template: Any, syntax: Syntax = "f-string") -> ChatPromptTemplate:
    """A template as LangChain's ChatPromptTemplate, in the syntax f-string or jinja2.
    `template`: as `read_template` takes it.

    Raises:
        InputError: the syntax cannot write it.
    """
    from textevolve.llm.chains.langchain_runnables import write_langchain_template

    return write_langchain_template(read_template(template), syntax)
