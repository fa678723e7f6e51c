"""Chats put together: an agent's memories, its model and a session, from a store and settings.

Every door to a chat comes through here: the command line, Python, a server. What a chat is stands
in `agents/chat.py`.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from textevolve.agents.chat import AgentChat, ChatParts
from textevolve.agents.chat_prompt import Persona
from textevolve.agents.learning import Learn, Learner, StandAside
from textevolve.agents.resources import StoredAgent, split_name
from textevolve.agents.session import FinishedTurn, Learning, SessionKeeper, SessionMessage
from textevolve.errors import AnswerError, InputError
from textevolve.events import Listener, silence
from textevolve.llm.mapreduce import SMALLEST_BUDGET, compress
from textevolve.llm.providers import CONTEXT, context_of
from textevolve.memory.creation import create_memories
from textevolve.memory.creation_settings import CreationSettings
from textevolve.memory.dialogue import DialogueTurn
from textevolve.memory.recall import Cue, Memory, Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import ChangeSource, Forget
from textevolve.settings import Settings, today
from textevolve.spec import Frozen, option
from textevolve.store import ResourceStore
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
    found = [resources.get_collection(split_name(n, namespace)[1], namespace) for n in wanted]
    session, user, messages = "", options.user, ()
    if options.session is not None:
        kept = resources.sessions(namespace)
        going_on = kept.get(options.session, agent_id=agent.id, user=options.user or None)
        if options.user and options.user != going_on.user:
            whose = going_on.user or "somebody who gave no name"
            raise InputError(f"session {going_on.id}: is with {whose}, and not with {options.user}")
        session, user = going_on.id, going_on.user
        messages = tuple(kept.messages(session))
    users = {one.spec.name: one.spec.description for one in resources.list_users(namespace)}
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
        *("chat", spec, Setting(plan.model, plan.models, today()), settings),
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
