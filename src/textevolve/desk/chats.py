"""Chats with a stored agent: its model, session and memories are looked up and opened here for the
command line, Python and the server.

`plan_chat` looks everything up before a model is called, and `Chats` opens chats by such plans.
`agents/chat.py` holds the chat itself.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from textevolve.agents.chat import (
    CHAT_SOURCE,
    AgentChat,
    ChatParts,
    FinishedTurn,
    Learner,
    Persona,
    SessionKeeper,
    SessionMessage,
    learned_messages,
)
from textevolve.agents.resources import StoredAgent
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import empty_default
from textevolve.events import Listener, silence
from textevolve.llm.mapreduce import SMALLEST_BUDGET, compress
from textevolve.llm.model import Message, Request, text_hash
from textevolve.llm.providers import CONTEXT, context_of
from textevolve.memory.creation import create_memories
from textevolve.memory.extraction import CreationSettings
from textevolve.memory.recall import Cue, Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import ChangeSource, DialogueTurn
from textevolve.memory_snapshots import find_agent, find_collection, memories_of
from textevolve.runs.stored import open_standing_run
from textevolve.settings import Settings, today
from textevolve.spans import span
from textevolve.spec import Frozen, option
from textevolve.store import kinds
from textevolve.store.repository import Store
from textevolve.store.sessions import StoredSessions
from textevolve.wiring import Limits, Setting, Workbench, choose_model

# The instructions for summarising the first messages of a chat that no longer fit the context.
KEEP_OF_CHAT = (
    "These are the first messages of a chat. Keep what later ones may come back to: who the user"
    " is, what they want, names, numbers and dates, what was agreed, and what is still open."
)


class ChatOptions(Frozen):
    """The options of a chat with an agent."""

    agent: str = option(description="The agent, as NAMESPACE/AGENT or AGENT.", argument=True)
    user: str = option(
        "",
        "The name of the user who talks with the agent; memories and sessions record it.",
        metavar="NAME",
    )
    session: str | None = option(
        None, "Resume this session: its id, the beginning of it, or last.", metavar="ID"
    )
    model: str | None = option(
        None,
        "The model that answers; default: the model of the agent, else that of the settings.",
        short="-m",
        metavar="MODEL",
    )
    memory: bool = option(
        True, "Recall memories, and make new ones of the chat if the agent stores any."
    )
    answer_tokens: int = option(1024, "The most tokens of one answer.", ge=1, le=1_000_000)
    context: int | None = option(
        None,
        "The model's context window in tokens, prompt and answer together; older messages are left"
        f" out to fit. Default: `context` of the provider in the settings, else {CONTEXT:,}; for"
        " models on this machine at most `local.context`.",
        ge=512,
    )
    temperature: float | None = option(None, "The temperature of answers.", ge=0, le=2)


MemoryUse: TypeAlias = Literal["on", "recall", "off"]
"""`on`: memories are recalled and made; `recall`: they are only recalled; `off`: neither."""
ALSO_TOLD = "For this conversation you are also told:"
"""The line that separates the agent's persona from further instructions of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request to open a chat.

    Attributes:
        keep: Whether the session is stored. If not, the conversation so far is in `history`.
        text: The user's message; it is part of the journal key of a chat that is not stored.
        instructions: Further instructions of the client, added to the agent's persona.
        recall: Settings of the memory recall that override the agent's, by name.
        schema: The JSON schema of the answer.
        tools: The tools that the model may call, as JSON; `tool_choice`: "auto", "none", "required"
            or the tool's name; `exchange`: the tool calls since the last message, and their
            results.
        seed: A number that makes answers repeatable: an equal request with the same seed gets the
            stored answer.
    """

    options: ChatOptions
    keep: bool = True
    text: str = ""
    history: tuple[SessionMessage, ...] = ()
    instructions: str = ""
    memory: MemoryUse = "on"
    recall: Mapping[str, Any] = empty_default(dict)
    schema: str | None = None
    tools: str | None = None
    tool_choice: str | None = None
    exchange: tuple[Message, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """The agent, models and session of a chat, looked up before any model call.

    Attributes:
        model: The model that answers, and `reason`: why it was chosen.
        collections: The collections of memories that the agent recalls from.
        embedders: The models that compute embeddings for these collections, and for the one in
            which the agent stores memories.
        session: The id of the resumed session; empty for a new one.
        messages: The earlier messages of the conversation.
        persona: The agent's persona, with the user's name and description.
    """

    request: ChatRequest
    agent: StoredAgent
    model: str
    reason: str
    collections: tuple[str, ...]
    embedders: tuple[str, ...]
    session: str
    messages: tuple[SessionMessage, ...]
    persona: Persona

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.model, *self.embedders]))


async def plan_chat(
    request: ChatRequest, settings: Settings, resources: Store | None = None
) -> ChatPlan:
    """Look up the agent, model, collections and session of a chat. `resources`: the open store of
    agents; by default that of the settings is opened.

    Raises:
        InputError: there is no such agent, collection or session, or a setting cannot be used.
        SettingsError: the requested model is not available.
    """
    if resources is None:
        with Store(settings.memory_location) as opened:
            return await plan_chat(request, settings, opened)
    options = request.options
    agent = await asyncio.to_thread(find_agent, resources, options.agent, settings.namespace)
    model, reason = await choose_model(settings, options.model or agent.spec.model)

    return await asyncio.to_thread(_look_up, request, agent, resources, model, reason)


def _look_up(
    request: ChatRequest, agent: StoredAgent, resources: Store, model: str, reason: str
) -> ChatPlan:
    spec = agent.spec
    namespace = agent.namespace
    options = request.options
    recalled = spec.recalled if options.memory else ()
    collections = [
        find_collection(resources, name, namespace)
        for name in dict.fromkeys([*recalled, *spec.written] if options.memory else [])
    ]
    session = ""
    user = options.user
    messages = request.history

    if options.session is not None:
        stored = resources.sessions(namespace)
        earlier = stored.get(options.session, agent_id=agent.id, user=user or None)
        if user and user != earlier.user:
            whose = earlier.user or "a user without a name"
            raise InputError(f"session {earlier.id}: is a chat with {whose}, not with {user}")
        session = earlier.id
        user = earlier.user
        messages = tuple(stored.messages(session))

    users = {
        each.spec.name: each.spec.description
        for each in resources.read(kinds.list_all, kinds.USERS, namespace)
    }
    recall = RecallSettings.model_validate({**spec.memory.model_dump(), **request.recall})
    addition = f"\n\n{ALSO_TOLD}\n{request.instructions}" if request.instructions else ""

    return ChatPlan(
        request=request,
        agent=replace(agent, spec=spec.model_copy(update={"memory": recall})),
        model=model,
        reason=reason,
        collections=recalled,
        embedders=tuple(dict.fromkeys(each.embedder for each in collections)),
        session=session,
        messages=messages,
        persona=Persona(
            agent=agent.full_name,
            text=f"{spec.persona}{addition}",
            user=user,
            user_description=users.get(user, ""),
        ),
    )


@asynccontextmanager
async def open_chat_run(
    plan: ChatPlan,
    settings: Settings,
    *,
    source: str,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[AgentChat]:
    """Open a chat whose model calls are stored as a run. If it ends before memories of its last
    turns are made, the next chat with the agent makes them.

    Raises:
        StoreError: the store cannot be used.
    """
    spec = {"agent": plan.agent.full_name, "user": plan.persona.user, "model": plan.model}
    spec |= {"why": plan.reason, "today": today()}
    opened = open_standing_run(
        "chat",
        spec,
        Setting(plan.model, plan.models, today()),
        settings,
        source=source,
        limits=limits,
        listener=listener,
    )
    async with opened as bench, aclosing(Chats(bench)) as chats:
        yield await chats.open(plan)


class Chats:
    """The chats that share a workbench (the open models and stores): the single chat of a command,
    or all chats of a server. Close it at the end. If memories of stored turns are not made by then,
    a later chat makes them."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._learners: dict[tuple[str, ...], Learner] = {}
        self._unkept: dict[str, _UnkeptKeeper] = {}
        self._cuts: dict[str, deque[str]] = {}
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    @asynccontextmanager
    async def hold_session(self, session: str | None, text: str) -> AsyncGenerator[bool]:
        """Answer a message of a stored session alone: other messages wait until the `with` block
        ends. The value is whether the message repeats one that was being answered when it came: a
        client that no longer hears the answer sends it again."""
        turn = self._turns.setdefault(session, _Turn()) if session else _Turn()
        is_repeated = turn.lock.locked() and turn.text == text

        async with turn.lock:
            turn.text = text
            yield is_repeated

    async def plan(self, request: ChatRequest) -> ChatPlan:
        """Plan a chat with an agent of the workbench's store. An agent without a model of its own
        uses the workbench's default model. Raises the errors of `plan_chat`."""
        model = self._bench.default_model or self._bench.settings.model
        settings = self._bench.settings.model_copy(update={"model": model})
        return await plan_chat(request, settings, self._bench.resources)

    async def open(self, plan: ChatPlan) -> AgentChat:
        """Open a chat. It needs no closing, since it holds resources only while a message is
        answered."""
        bench = self._bench
        request = plan.request
        agent = plan.agent
        store = bench.resources.memories(agent.namespace)
        sessions = self._sessions(plan)
        learner = None
        pending: list[FinishedTurn] = []
        collection = agent.spec.memories

        if collection is not None and request.options.memory and request.memory == "on":
            key = (agent.id, collection, plan.model)
            learner = self._learners.get(key)
            if learner is None:
                learner = Learner(partial(self._learn, plan, collection))
                self._learners[key] = learner
                pending = await asyncio.to_thread(sessions.pending_turns, agent.id)

        keeper: SessionKeeper = StoredKeeper(sessions, plan)
        if not (request.keep or plan.session):
            cuts = self._cuts.setdefault(agent.id, deque(maxlen=CUTS))
            keeper = _UnkeptKeeper(self._unkept, cuts, plan, learns=learner is not None)
        parts = ChatParts(
            persona=plan.persona,
            model=bench.model_of(plan.model),
            keeper=keeper,
            today=today(),
            context=_context_of(plan, bench.settings),
            asking=Request(
                messages=(),
                schema=request.schema,
                temperature=request.options.temperature,
                max_tokens=request.options.answer_tokens,
                tools=request.tools,
                tool_choice=request.tool_choice,
                seed=request.seed,
            ),
            exchange=request.exchange,
            recall=partial(_recall, bench, plan) if plan.collections else None,
            use=store.use,
            learner=learner,
            tracing=bench.tracing,
        )
        chat = AgentChat(parts, plan.session, plan.messages)
        if learner is not None:
            chat.learning += map(learner.add, pending)

        return chat

    def _sessions(self, plan: ChatPlan) -> StoredSessions:
        return self._bench.resources.sessions(plan.agent.namespace)

    async def _learn(self, plan: ChatPlan, collection: str, turn: FinishedTurn) -> tuple[str, ...]:
        """Make memories of a turn (a message with its answer), and return their ids. The earlier
        turns of the session are context; no memories are made of them again."""
        unkept = self._unkept.pop(turn.session, None)
        if unkept is not None:
            dialogue, source, learned = unkept.dialogue(turn)
            return await self._create(plan, collection, turn, dialogue, source, learned)
        sessions = self._sessions(plan)
        messages = await asyncio.to_thread(sessions.messages, turn.session)
        mark = partial(sessions.set_learning, turn.session, turn.position)
        learned = (each for each in learned_messages(messages) if each.position <= turn.position)
        dialogue = list(map(_turn, learned))
        source = ChangeSource("", f"{CHAT_SOURCE}{turn.session}")

        try:
            ids = await self._create(plan, collection, turn, dialogue, source)
        except AnswerError:  # the journal would give the same answer for ever
            await asyncio.to_thread(mark, "failed")
            raise

        await asyncio.to_thread(mark, "done")

        return ids

    async def _create(
        self,
        plan: ChatPlan,
        collection: str,
        turn: FinishedTurn,
        dialogue: Sequence[DialogueTurn],
        source: ChangeSource,
        context_turns: int = 0,
    ) -> tuple[str, ...]:
        """Create memories and return their ids. `context_turns`: the number of first turns that are
        context only; of a stored session those that were read before are found by themselves."""
        bench = self._bench
        shared = plan.agent.spec.memory.scope == "agent"
        source = replace(source, user=turn.user, shared=shared)
        store, name = memories_of(bench.resources, collection, plan.agent.namespace)
        with span("part", "learn", bench.tracing, conversation=turn.session):
            created = await create_memories(
                store,
                bench.embed,
                bench.model_of(plan.model),
                name,
                dialogue,
                CreationSettings(about=turn.user),
                source,
                context_turns=context_turns,
            )

        return () if created.applied is None or created.applied.repeated else created.applied.ids

    async def aclose(self, patience: float = 0.0) -> None:
        """Stop making memories, after at most `patience` seconds."""
        await asyncio.gather(*(learner.aclose(patience) for learner in self._learners.values()))


def _context_of(plan: ChatPlan, settings: Settings) -> int:
    return plan.request.options.context or context_of(plan.model, settings)


async def _condense(bench: Workbench, plan: ChatPlan, texts: Sequence[str], budget: int) -> str:
    context = _context_of(plan, bench.settings)
    model = bench.model_of(plan.model)
    compressed = await compress(model, texts, budget, instruction=KEEP_OF_CHAT, context=context)
    return compressed.text


async def _recall(bench: Workbench, plan: ChatPlan, text: str, history: str) -> Recalled:
    """Recall memories for a message, up to the agent's budget of tokens; without a budget, up to a
    quarter of the model's context."""
    memory_settings: RecallSettings = plan.agent.spec.memory
    budget = memory_settings.budget or max(SMALLEST_BUDGET, _context_of(plan, bench.settings) // 4)
    settings = memory_settings.model_copy(
        update={"collections": plan.collections, "budget": budget}
    )
    store = bench.resources.memories(plan.agent.namespace)
    cue = Cue(
        plan.agent.full_name,
        plan.collections,
        text,
        history=history,
        settings=settings,
        user=plan.persona.user,
    )
    condense = partial(_condense, bench, plan)

    return await recall_memories(store, bench.embed, settings, cue, summarize=condense)


def _turn(message: SessionMessage) -> DialogueTurn:
    return DialogueTurn(message.role, message.text, _format_time(message.created))


def _format_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, as turns of dialogues have it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class StoredKeeper(SessionKeeper):
    """A keeper that stores the messages of a chat in the sessions of its agent and user."""

    _sessions: StoredSessions
    _plan: ChatPlan

    async def begin(self, title: str) -> str:
        user = self._plan.persona.user
        return await asyncio.to_thread(self._sessions.create, self._plan.agent.id, user, title)

    async def append(self, session: str, message: SessionMessage) -> None:
        await asyncio.to_thread(self._sessions.append, session, message)


class _Turn:
    """The turn of a session that is under way. `text`: the user's message."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.text = ""


CUTS = 1000
"""The number of an agent's interrupted answers, in conversations that are not stored, of which it
is known that no memories were made."""


class _UnkeptKeeper(SessionKeeper):
    """A keeper for a chat that is not stored: it holds the conversation in memory until memories
    are made of its last exchange. `cuts`: the keys of exchanges whose answers were interrupted."""

    def __init__(
        self, unkept: dict[str, _UnkeptKeeper], cuts: deque[str], plan: ChatPlan, *, learns: bool
    ) -> None:
        self._unkept = unkept
        self._cuts = cuts
        self._request = plan.request
        self._user = plan.persona.user
        self._learns = learns

    async def begin(self, title: str) -> str:
        """Return a name for the conversation in the journal. With a seed it is derived from the
        request; without one it is new each time."""
        request = self._request
        if request.seed is None:
            return f"unkept {secrets.token_hex(16)}"
        transcript = _transcript(request.history)
        seeded = json.dumps([request.options.agent, request.seed, transcript, request.text])
        return f"unkept {text_hash(seeded)}"

    async def append(self, session: str, message: SessionMessage) -> None:
        if message.role != "assistant" or not self._learns:
            return
        key = self._key([*_transcript(self._request.history), ("user", self._request.text)])

        if message.details.interrupted:
            self._cuts.append(key)
            return

        if key in self._cuts:
            self._cuts.remove(key)
        self._unkept[session] = self

    def dialogue(self, turn: FinishedTurn) -> tuple[list[DialogueTurn], ChangeSource, int]:
        """Return the conversation with its last exchange, a source key for its memories, which are
        made only once even if the same message is answered several times, and the number of first
        turns that are context only."""
        now = _format_time(turn.created)
        before = _transcript(self._request.history)
        last = [
            DialogueTurn("user", turn.message, now),
            DialogueTurn("assistant", turn.answer, now),
        ]
        source = ChangeSource(f"exchange {self._key([*before, ('user', turn.message)])}", "chat")
        turns = [*(DialogueTurn(role, text) for role, text in before), *last]

        return turns, source, self._count_learned(before)

    def _count_learned(self, transcript: Sequence[tuple[str, str]]) -> int:
        """Return the number of first turns of which memories were made, or declined, when these
        were new. If the last answers were interrupted, their exchanges are read now, as the
        conversation has gone on."""
        learned = len(transcript)

        for place in range(learned - 1, -1, -1):
            if transcript[place][0] == "user":
                if self._key(transcript[: place + 1]) not in self._cuts:
                    break
                learned = place

        return learned

    def _key(self, asked: Sequence[tuple[str, str]]) -> str:
        """Return the key of the exchange that begins with the last message of these."""
        return text_hash(json.dumps([self._user, asked]))


def _transcript(messages: Sequence[SessionMessage]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]
