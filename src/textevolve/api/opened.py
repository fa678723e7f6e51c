"""Judges, chains, models, chats and namespaces that stay open between the calls of a client.

The model calls of each opened object are stored as one run. A call whose answer an earlier run has
stored is answered from the journal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from textevolve.agents.chat import AgentChat, ChatAnswer, ChatEvent, Learned, SessionMessage
from textevolve.api.namespaces import AsyncNamespace, Namespace
from textevolve.api.options import ClientOptions
from textevolve.api.runs import AsyncRuns as AsyncRuns
from textevolve.api.runs import Runs as Runs
from textevolve.desk.chats import ChatOptions, ChatRequest, open_chat_run, plan_chat
from textevolve.desk.memories import MemoryDesk
from textevolve.engine import sync
from textevolve.engine.sync import KeptOpen, StaysOpen
from textevolve.evaluation import Case, Evaluation, Evaluator
from textevolve.judges.fitted import check_name as check_name
from textevolve.judges.judge import Judge, require_absolute
from textevolve.llm.chains.chain import (
    Chain,
    Values,
    as_chain,
    call_by,
    load_chain,
    perform_chain,
    run_within,
)
from textevolve.llm.chains.chain import PromptSet as PromptSet  # asks by `call_by` here
from textevolve.llm.chains.scope import ChainContext, running_model, wait_within
from textevolve.llm.model import Request, Response
from textevolve.loops.attempt import as_evaluator
from textevolve.loops.metrics import Metric, Pick
from textevolve.mappings import drop_none
from textevolve.memory.recall import Recalled
from textevolve.runs.stored import StandingKind, open_standing_run
from textevolve.settings import today
from textevolve.store import kinds
from textevolve.store.repository import open_resources
from textevolve.wiring import Setting, Workbench, choose_model, take_limits


def keep_bench(
    client: ClientOptions,
    kind: StandingKind,
    name: str,
    described: Mapping[str, Any],
    models: Sequence[str | None],
    model: str | None,
) -> KeptOpen[Workbench]:
    """Return a workbench (opened models and judges with their store) that opens when it is first
    used. `models`: the models that it may call; None among them stands for `model`, or for the
    model of the settings if that is None. `described`: the facts that are stored with its run."""
    settings = client.read_settings(model)

    @asynccontextmanager
    async def open() -> AsyncGenerator[Workbench]:
        default = ""
        reason = ""
        if models:
            only_model = None if None in models else models[0]
            default, reason = await choose_model(settings, model or only_model)
        model_names = tuple(dict.fromkeys(model_name or default for model_name in models))
        opened = open_standing_run(
            kind,
            {**described, "model": default, "why": reason, "today": today()},
            Setting(default, model_names, today()),
            settings,
            source="Python",
            cases=[Case(name, (), "1")],
            limits=take_limits(client.limits),
            listener=client.listener,
        )

        async with opened as bench:
            yield bench

    return client.keep(KeptOpen(open, f"{name} is closed; open it again"))


class OpenJudge(StaysOpen):
    """An evaluator that stays open until it or its client is closed, or the program ends."""

    def __init__(self, client: ClientOptions, judge: Judge, model: str | None) -> None:
        self.judge = judge
        require_absolute(judge)
        judge.describe()  # its files are read, so that errors in them are reported now
        name = judge.text
        models = judge.models(model)
        self.resource = keep_bench(client, "metric", name, {"judge": name}, models, model)

    async def __call__(self, case: Case, /) -> Evaluation:
        """Judge a case.

        Raises:
            InputError: the judge is or was closed during the call, or the case cannot be used.
        """

        async def judge(bench: Workbench) -> Evaluation:
            return await bench.whole_judge_of(self.judge)(case)

        return await self.resource.do(judge)


def make_metric(
    judge: Evaluator, input: Pick, output: Pick, threshold: float | None, missing: float | None
) -> Metric:
    release = judge.close if isinstance(judge, OpenJudge) else lambda: None
    return Metric(as_evaluator(judge), input, output, threshold, missing, release)


def keep_models(client: ClientOptions, chain: Chain, model: str | None) -> KeptOpen[Workbench]:
    """Return a workbench, opened when first used, with the models of a chain."""
    may_ask = chain.may_ask and (model or client.read_settings(model).model)
    models = [*([None] if chain.asks_default or may_ask else []), *chain.models]
    return keep_bench(client, "chains", chain.name, {"chain": chain.describe()}, models, model)


class OpenModel:
    """A model that stays open, called on its own event loop. Code of other frameworks, such as
    LangChain, calls it by `ask` (async) or `wait` (blocking); within a step of a chain these two
    call the model of that chain instead."""

    def __init__(self, kept: KeptOpen[Workbench], spec: str | None) -> None:
        self.name = spec or "the model of the settings"
        self._spec = spec
        self._kept = kept

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


class OpenChain(StaysOpen):
    """A chain whose models stay open: `with client.open_chain(chain) as answer: answer(n=3)`.

    Call it with its inputs as keywords, or `acall` from async code. The chain's own code runs on
    the caller's event loop.
    """

    def __init__(self, client: ClientOptions, chain: object, model: str | None) -> None:
        self.chain = find_chain(chain)
        self.resource = keep_models(client, self.chain, model)

    def __call__(self, **values: Any) -> dict[str, Any]:
        return sync.run(self.acall(**values))

    async def acall(self, **values: Any) -> dict[str, Any]:
        """Run the chain, and return its outputs. Errors of steps pass through unchanged, and
        cancelling the call cancels the current step.

        Raises:
            InputError: an input is missing, unknown or of another type, or the chain is closed.
        """
        if (outputs := await run_within(self.chain, values)) is not None:
            return outputs

        async def make(bench: Workbench) -> ChainContext:
            return bench.chain_context()

        context = replace(await self.resource.do(make), model_of=partial(OpenModel, self.resource))

        return await perform_chain(self.chain, values, context)


def find_chain(chain: object) -> Chain:
    """Return a chain: the given one, the one that a YAML file or an import path names, or a new
    chain with a function, a LangChain Runnable or a DSPy module as its only step.

    Raises:
        InputError: there is no such chain.
    """
    if isinstance(chain, str | Path):
        return load_chain(str(chain))

    return chain.chain if isinstance(chain, OpenChain) else as_chain(chain)


_opened: WeakKeyDictionary[Chain, OpenChain] = WeakKeyDictionary()


async def _call_chain(chain: Chain, values: Values) -> dict[str, Any]:
    """Run a chain that is called like a function. Within a step of another chain it uses the models
    of that chain, otherwise the models of the settings, which stay open."""
    if (outputs := await run_within(chain, values)) is not None:
        return outputs
    if chain not in _opened:
        _opened[chain] = OpenChain(ClientOptions(), chain, None)
    return await _opened[chain].acall(**values)


call_by(_call_chain)


def open_model(client: ClientOptions, model: str | None) -> OpenModel:
    return OpenModel(keep_bench(client, "chains", model or "", {}, [None], model), model)


OpenRun: TypeAlias = Callable[[], AbstractAsyncContextManager[AgentChat]]
"""A function that opens a chat, whose model calls are stored as one run."""


async def _get(chat: AgentChat) -> AgentChat:
    return chat


class OpenChat(StaysOpen):
    """A chat with an agent, whose methods block until the result is there. The chat opens when it
    is first used, and closes at the end of its `with` block or by `close`."""

    def __init__(self, open_run: OpenRun) -> None:
        self.resource = KeptOpen(open_run, "the chat is closed; open another one")

    @property
    def chat(self) -> AgentChat:
        """The underlying async chat, opened if necessary."""
        return self.resource.current or self.resource.wait(_get)

    @property
    def session(self) -> str:
        """The id of the session; empty before the first message."""
        return self.resource.current.session if self.resource.current else ""

    @property
    def messages(self) -> Sequence[SessionMessage]:
        return tuple(self.chat.messages)

    @property
    def recalled(self) -> Recalled:
        """The memories that were recalled for the last message."""
        return self.chat.recalled

    def say(self, text: str) -> ChatAnswer:
        """Send a message, wait for the answer, and return it. The message is stored first, so that
        it can be sent again after an error. Raises InputError if the text is blank or an answer is
        being written, ConflictError if another client has continued the session, and ModelError or
        BudgetError if there is no answer."""
        (last,) = deque(self.stream(text), maxlen=1)
        assert isinstance(last, ChatAnswer)
        return last

    def stream(self, text: str) -> Generator[ChatEvent]:
        """Send a message, and yield the events of the turn as they come. Closing the generator
        early stops the answer."""
        return self.resource.iterate(lambda chat: chat.say(text))

    def stop(self) -> None:
        """Stop the answer that is being generated. A signal handler may call this."""
        if self.resource.current is not None:
            self.resource.call_soon(self.resource.current.stop)

    @property
    def unlearned(self) -> int:
        """The number of turns from which memories have not been made yet."""
        return self.resource.current.unlearned if self.resource.current else 0

    def learned(self) -> list[Learned]:
        """Return, for each turn from which memories have been made since the last call, the ids of
        the new memories, or the error that prevented them."""
        return self.resource.current.learned() if self.resource.current else []

    def finish(self) -> None:
        """Wait until memories have been made from all turns."""
        if self.resource.current is not None:
            self.resource.wait(AgentChat.finish)

    def __exit__(self, *_raised: object) -> None:
        try:
            if _raised[0] is None:
                self.finish()
        finally:
            self.close()


@asynccontextmanager
async def open_chat(
    client: ClientOptions, agent: str, options: Mapping[str, Any]
) -> AsyncGenerator[AgentChat]:
    """Open a chat with an agent; its calls are stored as a run."""
    settings = client.read_settings()
    set_options = drop_none(options)
    plan = await plan_chat(ChatRequest(options=ChatOptions(agent=agent, **set_options)), settings)
    opened = open_chat_run(
        plan,
        settings,
        source="Python",
        limits=take_limits(client.limits),
        listener=client.listener,
    )
    async with opened as chat:
        yield chat


@asynccontextmanager
async def open_namespace(
    client: ClientOptions, name: str | None, *, create: bool, source: str = "Python"
) -> AsyncGenerator[AsyncNamespace]:
    """Open a namespace, by default the one of the settings, which is created if it does not exist.
    `create`: create any other namespace, too. `source`: the caller, as shown by `runs list`.

    Raises:
        InputError: there is no such namespace. StoreError: the store cannot be used.
    """
    settings = client.read_settings()
    limits = take_limits(client.limits)
    name = name or settings.namespace
    resources = open_resources(settings)

    async with AsyncExitStack() as stack:
        stack.callback(resources.close)
        if create or name == settings.namespace:
            await asyncio.to_thread(resources.ensure_namespace, name)
        else:
            await asyncio.to_thread(resources.read, kinds.get, kinds.NAMESPACES, "", name)

        desk = MemoryDesk(settings, name, resources, stack, source, limits, client.listener)
        yield AsyncNamespace(desk)


def keep_namespace(
    client: ClientOptions, name: str | None, *, create: bool = False, source: str = "Python"
) -> Namespace:
    namespace = name or client.read_settings().namespace
    space = Namespace(
        namespace, partial(open_namespace, client, namespace, create=create, source=source)
    )
    client.keep(space.resource)
    return space
