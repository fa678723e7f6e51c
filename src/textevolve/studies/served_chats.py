"""Chats that a server has with many clients at once, in one workbench.

A client goes on with a session that is kept here, or sends the whole conversation with each
message; then nothing of it is kept but memories of the last exchange. Memories are made beside
all chats of an agent, one turn after the other. Not here: how a chat goes (`agents/chat.py`) and
what a request looks like (`server.openai`).
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from textevolve.agents.chat import AgentChat, ChatEvent
from textevolve.agents.learning import Learn, Learner, StandAside
from textevolve.agents.resources import split_name
from textevolve.agents.session import FinishedTurn, SessionKeeper, SessionMessage
from textevolve.llm.model import Message
from textevolve.memory.creation import Start, keep_points
from textevolve.memory.creation_settings import CreationSettings
from textevolve.memory.dialogue import DialogueTurn
from textevolve.memory.extraction import extract_points
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.reconciliation import Ground
from textevolve.memory.record import ChangeSource
from textevolve.settings import today
from textevolve.studies.chats import (
    ChatOptions,
    ChatPlan,
    StoredKeeper,
    chat_parts,
    learn_in,
    plan_chat,
)
from textevolve.wiring import Workbench

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
