"""Chats put together: an agent's memories, its model and a session, from a store and settings.

Every door to a chat comes through here: the command line, Python, a server. What a chat is stands
in `agents/chat.py`.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from textevolve.agents.chat import (
    AgentChat,
    ChatEvent,
    ChatParts,
    Learn,
    Learner,
    Persona,
    StandAside,
)
from textevolve.agents.resources import StoredAgent, split_name
from textevolve.agents.session import FinishedTurn, Learning, SessionKeeper, SessionMessage
from textevolve.errors import AnswerError, InputError
from textevolve.events import Listener, silence
from textevolve.llm.mapreduce import SMALLEST_BUDGET, compress
from textevolve.llm.model import Message
from textevolve.llm.providers import CONTEXT, context_of
from textevolve.memory.creation import Start, create_memories, keep_points
from textevolve.memory.extraction import CreationSettings, extract_points
from textevolve.memory.recall import Cue, Memory, Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.reconciliation import Ground
from textevolve.memory.record import ChangeSource, DialogueTurn, Forget
from textevolve.settings import Settings, today
from textevolve.spec import Frozen, option
from textevolve.store import ResourceStore, kinds
from textevolve.store.sessions import StoredSessions
from textevolve.studies.memory_work import find_agent
from textevolve.studies.standing import open_standing_run
from textevolve.wiring import Limits, Setting, Workbench, choose_model

KEEP_OF_CHAT = (
    "These are the first messages of a chat. Keep what later ones may come back to: who the user"
    " is, what they want, names, numbers and dates, what was agreed, and what is still open."
)


class ChatOptions(Frozen):
    """A chat with an agent."""

    agent: str = option(description="The agent, as NAMESPACE/AGENT or AGENT.", argument=True)
    user: str = option("", "Who talks with it; memories and sessions say so.", metavar="NAME")
    session: str | None = option(
        None, "Go on with this session: its id, the beginning of it, or last.", metavar="ID"
    )
    model: str | None = option(
        None,
        "The model that speaks for it; else the agent's own, or that of the settings.",
        short="-m",
        metavar="MODEL",
    )
    memory: bool = option(
        True, "Recall memories, and make new ones of what is said where the agent keeps them."
    )
    answer_tokens: int = option(1024, "The most tokens of one answer.", ge=1, le=1_000_000)
    context: int | None = option(
        None,
        "How many tokens the model takes, prompt and answer together; older messages are summarised"
        f" to fit. Of an endpoint {CONTEXT:,} where nothing is said.",
        ge=512,
    )
    temperature: float | None = option(None, "The temperature of answers.", ge=0, le=2)


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """What a chat needs, found before anything is asked. `collections`: those that the agent
    recalls from; `embedders`: the models that embed for them."""

    options: ChatOptions
    agent: StoredAgent
    model: str
    why: str
    collections: tuple[str, ...]
    embedders: tuple[str, ...]
    session: str
    messages: tuple[SessionMessage, ...]
    persona: Persona

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.model, *self.embedders]))


async def plan_chat(
    options: ChatOptions, settings: Settings, resources: ResourceStore | None = None
) -> ChatPlan:
    """
    Raises:
        InputError: there is no such agent, collection or session.
        SettingsError: no model can be had as asked.
    """
    if resources is None:
        with closing(ResourceStore(settings.memory_location)) as opened:
            return await plan_chat(options, settings, opened)
    agent = await find_agent(resources, options.agent, settings.namespace)
    model, why = await choose_model(settings, options.model or agent.spec.model)
    look_up = partial(_look_up, options, agent, resources)
    collections, embedders, session, messages, persona = await asyncio.to_thread(look_up)
    return ChatPlan(options, agent, model, why, collections, embedders, session, messages, persona)


def _look_up(
    options: ChatOptions, agent: StoredAgent, resources: ResourceStore
) -> tuple[tuple[str, ...], tuple[str, ...], str, tuple[SessionMessage, ...], Persona]:
    spec, namespace = agent.spec, agent.namespace
    written = tuple(one for one in (spec.memories, spec.insights) if one)
    named = (spec.memory.collections or written) if options.memory else ()
    wanted = dict.fromkeys([*named, *written] if options.memory else [])
    found = [
        resources.read(kinds.get, kinds.COLLECTIONS, namespace, split_name(n, namespace)[1])
        for n in wanted
    ]
    session, user, messages = "", options.user, ()
    if options.session is not None:
        kept = resources.sessions(namespace)
        going_on = kept.get(options.session, agent_id=agent.id, user=options.user or None)
        if options.user and options.user != going_on.user:
            whose = going_on.user or "somebody who gave no name"
            raise InputError(f"session {going_on.id}: is with {whose}, and not with {options.user}")
        session, user = going_on.id, going_on.user
        messages = tuple(kept.messages(session))
    users = {
        one.spec.name: one.spec.description
        for one in resources.read(kinds.list_all, kinds.USERS, namespace)
    }
    persona = Persona(
        agent=agent.full_name, text=spec.persona, user=user, known=users.get(user, "")
    )
    embedders = tuple(dict.fromkeys(one.embedder for one in found))
    return named, embedders, session, messages, persona


@asynccontextmanager
async def open_chat_run(
    plan: ChatPlan,
    settings: Settings,
    *,
    source: str,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[AgentChat]:
    """A chat whose calls are kept as a run of its own. Who leaves without `finish` leaves turns of
    which memories are made when the next chat with the agent begins.

    Raises:
        StoreError: the store cannot be used.
    """
    spec = {"agent": plan.agent.full_name, "user": plan.persona.user, "model": plan.model}
    spec |= {"why": plan.why, "today": today()}
    opened = open_standing_run(
        "chat",
        spec,
        Setting(plan.model, plan.models, today()),
        settings,
        source=source,
        limits=limits,
        listener=listener,
    )
    async with opened as bench, open_chat_in(bench, plan) as chat:
        yield chat


@asynccontextmanager
async def open_chat_in(bench: Workbench, plan: ChatPlan) -> AsyncGenerator[AgentChat]:
    """The same in a workbench that is open already, as a server has one for all its chats."""
    sessions, free = bench.resources.sessions(plan.agent.namespace), asyncio.Event()
    learner = None
    if plan.options.memory and plan.agent.spec.memories is not None:
        learner = Learner(learn_in(bench, plan, plan.agent.spec.memories, free), free)
    parts = chat_parts(bench, plan, StoredKeeper(sessions, plan), learner, free)
    chat = AgentChat(parts, plan.session, plan.messages)
    try:
        if learner is not None:
            for turn in await asyncio.to_thread(sessions.pending_turns, plan.agent.id):
                learner.add(turn)
        yield chat
    finally:
        if learner is not None:
            await learner.aclose()


def chat_parts(
    bench: Workbench,
    plan: ChatPlan,
    keeper: SessionKeeper,
    learner: Learner | None,
    free: asyncio.Event,
) -> ChatParts:
    """What a chat works with, in a workbench."""
    store = bench.resources.memories(plan.agent.namespace)
    collection = plan.agent.spec.memories

    async def use(shown: Sequence[str], when: float) -> None:
        await store.use(shown, when)

    async def forget(memory: Memory) -> None:
        where = memory.source.partition(":")[0].partition("/")[2] or collection or ""
        await store.apply(where, [Forget(memory.id)])

    return ChatParts(
        persona=plan.persona,
        model=bench.model_of(plan.model),
        keeper=keeper,
        today=bench.today,
        context=_context_of(plan, bench.settings),
        max_tokens=plan.options.answer_tokens,
        temperature=plan.options.temperature,
        recall=partial(_recall, bench, plan) if plan.collections else None,
        use=use,
        forget=forget,
        learner=learner,
        condense=partial(_condense, bench, plan),
        free=free,
    )


def _context_of(plan: ChatPlan, settings: Settings) -> int:
    if plan.options.context is not None:
        return plan.options.context
    return context_of(plan.model, settings)


async def _condense(bench: Workbench, plan: ChatPlan, texts: Sequence[str], budget: int) -> str:
    context = _context_of(plan, bench.settings)
    model = bench.model_of(plan.model)
    made = await compress(model, texts, budget, instruction=KEEP_OF_CHAT, context=context)
    return made.text


async def _recall(bench: Workbench, plan: ChatPlan, text: str, history: str) -> Recalled:
    """What is remembered; of a context no more than a quarter, unless the agent has its budget."""
    own: RecallSettings = plan.agent.spec.memory
    budget = own.budget or max(SMALLEST_BUDGET, _context_of(plan, bench.settings) // 4)
    settings = own.model_copy(update={"collections": plan.collections, "budget": budget})
    store = bench.resources.memories(plan.agent.namespace)
    cue = Cue(plan.agent.full_name, plan.collections, text, history=history, settings=settings)
    condense = partial(_condense, bench, plan)
    return await recall_memories(store, bench.embed, settings, cue, summarize=condense)


def learn_in(bench: Workbench, plan: ChatPlan, collection: str, free: asyncio.Event) -> Learn:
    """Memories of a turn come from its session up to there: what was learned of it before is not
    read again, and helps to understand."""
    sessions = bench.resources.sessions(plan.agent.namespace)
    model = StandAside(bench.model_of(plan.model), free)

    async def learn(turn: FinishedTurn) -> tuple[str, ...]:
        messages = await asyncio.to_thread(sessions.messages, turn.session)

        async def mark(learning: Learning) -> None:
            where = turn.session, turn.position
            await asyncio.to_thread(sessions.set_learning, *where, learning)

        try:
            created = await create_memories(
                bench.resources.memories(plan.agent.namespace),
                bench.embed,
                model,
                split_name(collection, plan.agent.namespace)[1],
                as_dialogue(messages, turn.position),
                CreationSettings(about=turn.user),
                ChangeSource("", f"chat {turn.session}"),
            )
        except AnswerError:  # the journal would give the same answer for ever
            await mark("failed")
            raise
        await mark("done")
        done = created.applied
        return () if done is None or done.repeated else done.ids

    return learn


def as_dialogue(messages: Sequence[SessionMessage], until: int) -> list[DialogueTurn]:
    """The turns up to a position that may be remembered, each a message with its answer."""
    found: list[DialogueTurn] = []
    for asked, answer in pairwise(messages):
        if answer.role == "assistant" and answer.details.learning in ("pending", "done"):
            if answer.position > until:
                break
            found += [_turn(asked), _turn(answer)]
    return found


def _turn(message: SessionMessage) -> DialogueTurn:
    when = datetime.datetime.fromtimestamp(message.created, datetime.UTC)
    return DialogueTurn(message.role, message.text, when.isoformat(timespec="seconds"))


class StoredKeeper(SessionKeeper):
    """The sessions of a plan's agent and user."""

    def __init__(self, sessions: StoredSessions, plan: ChatPlan) -> None:
        self._sessions, self._plan = sessions, plan

    async def begin(self, title: str) -> str:
        user = self._plan.persona.user
        return await asyncio.to_thread(self._sessions.create, self._plan.agent.id, user, title)

    async def append(self, session: str, message: SessionMessage) -> None:
        await asyncio.to_thread(self._sessions.append, session, message)


MemoryUse: TypeAlias = Literal["on", "recall", "off"]
"""Whether memories are recalled and made, only recalled, or neither."""
ALSO_TOLD = "For this conversation you are also told:"
"""Stands between the persona and what a client adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One message to an agent. `options.session`: the one that is gone on with; `keep`: a new one
    is begun where none is named; else `history` is what was said before. `told`: what the client
    tells the agent beside its persona. `recall`: settings of its recall that differ, by name.
    `schema`: of the answer, as JSON. `tools`, `tool_choice`, `exchange`: as `ChatParts` has them.
    `seed`: the same request gets the same answer again."""

    options: ChatOptions
    text: str
    history: tuple[SessionMessage, ...] = ()
    keep: bool = False
    told: str = ""
    memory: MemoryUse = "on"
    recall: Mapping[str, Any]
    schema: str | None = None
    tools: str | None = None
    tool_choice: str | None = None
    exchange: tuple[Message, ...] = ()
    seed: int | None = None


class ServedChats:
    """The chats of one server. Close it at the end; what is then still to be learned of kept
    sessions is learned another time. `noticed`: agents of which a client was told that its chat
    names no user."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._learners: dict[tuple[str, ...], Learner] = {}
        self._unkept: dict[str, _UnkeptKeeper] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._answering = 0
        self.noticed: set[str] = set()

    async def open(self, asked: ChatRequest) -> AgentChat:
        """A chat for one request.

        Raises:
            InputError: there is no such agent, collection or session, or a setting will not do.
            SettingsError: no model can be had.
        """
        plan = await self._plan(asked)
        learner = await self._learner(plan) if asked.memory == "on" else None
        if plan.session or asked.keep:
            sessions = self._bench.resources.sessions(plan.agent.namespace)
            keeper: SessionKeeper = StoredKeeper(sessions, plan)
        else:
            keeper = _UnkeptKeeper(self._unkept if learner else {}, asked)
        parts = chat_parts(self._bench, plan, keeper, learner, asyncio.Event())
        tools = {"tools": asked.tools, "tool_choice": asked.tool_choice}
        parts = replace(parts, today=today(), schema=asked.schema, exchange=asked.exchange, **tools)
        if asked.memory == "off":
            parts = replace(parts, recall=None)
        return AgentChat(parts, plan.session, plan.messages or asked.history)

    async def _plan(self, asked: ChatRequest) -> ChatPlan:
        settings = self._bench.settings
        if self._bench.default_model:
            settings = settings.model_copy(update={"model": self._bench.default_model})
        plan = await plan_chat(asked.options, settings, self._bench.resources)
        spec = plan.agent.spec
        recall = RecallSettings.model_validate({**spec.memory.model_dump(), **asked.recall})
        told = f"{plan.persona.text}\n\n{ALSO_TOLD}\n{asked.told}" if asked.told else spec.persona
        agent = replace(plan.agent, spec=spec.model_copy(update={"memory": recall}))
        return replace(plan, agent=agent, persona=replace(plan.persona, text=told))

    async def _learner(self, plan: ChatPlan) -> Learner | None:
        """The one that makes memories of all chats with an agent; it begins with what was left."""
        collection = plan.agent.spec.memories
        if collection is None:
            return None
        key = (plan.agent.id, collection, plan.model)
        if (known := self._learners.get(key)) is not None:
            return known
        always = asyncio.Event()
        always.set()
        learner = Learner(self._learn(plan, collection), always)
        self._learners[key] = learner
        sessions = self._bench.resources.sessions(plan.agent.namespace)
        for turn in await asyncio.to_thread(sessions.pending_turns, plan.agent.id):
            learner.add(turn)
        return learner

    def _learn(self, plan: ChatPlan, collection: str) -> Learn:
        kept = learn_in(self._bench, plan, collection, self._quiet)

        async def learn(turn: FinishedTurn) -> tuple[str, ...]:
            unkept = self._unkept.pop(turn.session, None)
            if unkept is None:
                return await kept(turn)
            return await self._learn_unkept(plan, collection, unkept, turn)

        return learn

    async def _learn_unkept(
        self, plan: ChatPlan, collection: str, unkept: _UnkeptKeeper, turn: FinishedTurn
    ) -> tuple[str, ...]:
        """Only the last exchange is learned: those before it were learned when they were new, or
        were not to be. A conversation up to a message is learned once, whatever answers it got."""
        store = self._bench.resources.memories(plan.agent.namespace)
        held = await store.collection(split_name(collection, plan.agent.namespace)[1])
        model = StandAside(self._bench.model_of(plan.model), self._quiet)
        ground = Ground(store, self._bench.embed, model, held, CreationSettings(about=turn.user))
        dialogue = unkept.dialogue(turn)
        said = json.dumps([turn.user, [(one.role, one.content) for one in dialogue[:-1]]])
        key = f"exchange {hashlib.sha256(said.encode()).hexdigest()}"
        if await store.applied(held.name, key) is not None:
            return ()
        start = Start(key, len(dialogue) - 2)
        points = await extract_points(model, dialogue, ground.settings, start.first)
        created = await keep_points(ground, points, start, ChangeSource(key, "chat"))
        return created.applied.ids if created.applied else ()

    async def say(self, chat: AgentChat, text: str) -> AsyncGenerator[ChatEvent]:
        """As `AgentChat.say`; a message that was kept and has no answer yet is not kept twice.
        Where the model runs on this machine, memories wait until nobody waits for an answer."""
        again = chat.unanswered and chat.messages[-1].text == text
        asked = chat.answer() if again else chat.say(text)
        local = chat.parts.model.name.startswith("local/")
        self._answering += local
        if self._answering:
            self._quiet.clear()
        try:
            async with aclosing(asked) as events:
                async for event in events:
                    yield event
        finally:
            self._answering -= local
            if not self._answering:
                self._quiet.set()

    async def finish(self) -> None:
        """Wait until memories are made of all turns."""
        await asyncio.gather(*(one.finish() for one in self._learners.values()))

    async def aclose(self) -> None:
        await asyncio.gather(*(one.aclose() for one in self._learners.values()))


def _name_unkept(asked: ChatRequest) -> str:
    """What the journal knows a conversation by that is not kept: each request is one of its own,
    unless it has a seed."""
    if asked.seed is None:
        return f"unkept {secrets.token_hex(16)}"
    said = [(one.role, one.text) for one in asked.history]
    seeded = json.dumps([asked.options.agent, asked.seed, said, asked.text])
    return f"unkept {hashlib.sha256(seeded.encode()).hexdigest()}"


class _UnkeptKeeper:
    """Keeps a conversation until memories are made of its last exchange, and not on the disk."""

    def __init__(self, unkept: dict[str, _UnkeptKeeper], asked: ChatRequest) -> None:
        self._unkept, self._asked = unkept, asked

    async def begin(self, title: str) -> str:
        return _name_unkept(self._asked)

    async def append(self, session: str, message: SessionMessage) -> None:
        if message.role == "assistant":
            self._unkept[session] = self

    def dialogue(self, turn: FinishedTurn) -> list[DialogueTurn]:
        when = datetime.datetime.fromtimestamp(turn.created, datetime.UTC)
        now = when.isoformat(timespec="seconds")
        before = [DialogueTurn(one.role, one.text) for one in self._asked.history]
        last = [DialogueTurn("user", turn.said, now), DialogueTurn("assistant", turn.answer, now)]
        return [*before, *last]
