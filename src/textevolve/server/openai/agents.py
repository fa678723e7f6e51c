"""Agents answer chat completions: what of a request says who talks, in which session, and what is
remembered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from textevolve.agents.chat import AgentChat, ChatAnswer
from textevolve.agents.session import SessionMessage
from textevolve.errors import InputError
from textevolve.llm.model import Message
from textevolve.llm.streaming import AnswerPiece
from textevolve.llm.wire import as_tool_calls
from textevolve.memory.recall_settings import RecallSettings
from textevolve.server.decisions.deciders import spending
from textevolve.server.errors import INVALID, ApiError
from textevolve.server.identity import Caller
from textevolve.server.openai.requests import (
    ClientMessage,
    NamedChoice,
    OwnRequest,
    text_of,
    write_schema,
)
from textevolve.server.openai.streams import AnswerEnd, AnswerPieces, NoteTokens
from textevolve.server.state import ServerState
from textevolve.store import kinds
from textevolve.studies.chats import ChatOptions, ChatRequest, MemoryUse

SESSION, MEMORY, RECALL = "session", "memory", "memory."
"""Names in the metadata of a request, and of an answer."""
NEW = "new"
"""In place of a session's id: one is begun, and its id is told."""
USES: Mapping[str, MemoryUse] = {"on": "on", "recall": "recall", "off": "off"}


async def is_agent(server: ServerState, caller: Caller, name: str) -> bool:
    """Whether there is an agent of this name, NAMESPACE/AGENT, that the caller sees."""
    namespace, _, agent = name.partition("/")
    if not agent or "/" in agent or not caller.sees(namespace):
        return False
    try:
        await asyncio.to_thread(server.resources.read, kinds.get, kinds.AGENTS, namespace, agent)
    except InputError:
        return False
    return True


async def answer_as_agent(
    server: ServerState, name: str, asked: OwnRequest, note: NoteTokens
) -> AnswerPieces:
    """
    Raises:
        ApiError: the request cannot be used.
    """
    request, chat = read_chat_request(name, asked), None
    session = request.options.session
    try:
        chat = await server.chats.open(await server.chats.plan(request))
    except InputError:
        if session is None:
            raise
    if chat is None or session not in (None, chat.session):
        said = f"there is no session '{session}'; give its whole id"
        raise ApiError(404, "not_found", said, param="metadata.session")
    return _answer(server, chat, request.text, note)


def read_chat_request(name: str, asked: OwnRequest) -> ChatRequest:
    """
    Raises:
        ApiError: it says nothing, or its metadata cannot be used.
    """
    texts = [text_of(asked.messages, place, tools=True) for place in range(len(asked.messages))]
    said = list(zip(asked.messages, texts, strict=True))
    told = [text for one, text in said if one.role in ("system", "developer")]
    asking = max((n for n, one in enumerate(asked.messages) if one.role == "user"), default=-1)
    exchange = _read_exchange(said[asking + 1 :])
    turns = [(one.role, text) for one, text in said[: asking + 1] if _speaks(one, text)]
    if not turns or turns[-1][0] != "user" or not turns[-1][1].strip() or exchange is None:
        wanted = "the last message must be the user's, or the result of a tool"
        raise ApiError(400, INVALID, wanted, param="messages")
    given = asked.metadata or {}
    session = given.get(SESSION) or None
    options = ChatOptions(
        agent=name,
        user=asked.user or "",
        session=None if session == NEW else session,
        memory=given.get(MEMORY) != "off",
        answer_tokens=asked.max_completion_tokens or asked.max_tokens or 1024,
        temperature=asked.temperature,
    )
    history = [
        SessionMessage(
            position=n,
            role="user" if role == "user" else "assistant",
            text=text,
            created=0.0,
        )
        for n, (role, text) in enumerate(turns[:-1], 1)
    ]
    return ChatRequest(
        options=options,
        text=turns[-1][1],
        history=() if session else tuple(history),
        keep=session == NEW,
        instructions="\n\n".join(filter(str.strip, told)),
        memory=_read_use(given),
        recall=_read_recall(given),
        schema=write_schema(asked),
        tools=json.dumps([tool.model_dump(exclude_unset=True) for tool in asked.tools])
        if asked.tools
        else None,
        tool_choice=_read_choice(asked) if asked.tools else None,
        exchange=exchange,
        seed=asked.seed,
    )


def _speaks(message: ClientMessage, text: str) -> bool:
    """Whether it is a part of what was said; earlier calls of tools, and their results, are not."""
    return message.role == "user" or (message.role == "assistant" and bool(text.strip()))


def _read_exchange(said: Sequence[tuple[ClientMessage, str]]) -> tuple[Message, ...] | None:
    """Calls of tools and their results, the last of which is to be gone on with; None where the
    messages are no such thing."""
    rest = [(one, text) for one, text in said if one.role not in ("system", "developer")]
    made: list[Message] = []
    for one, text in rest:
        if one.role == "assistant" and one.tool_calls:
            made.append(Message("assistant", (text,), tool_calls=as_tool_calls(one.tool_calls)))
        elif one.role == "tool" and made and one.tool_call_id:
            made.append(Message("tool", (text,), tool_call_id=one.tool_call_id))
        else:
            return None
    return tuple(made) if not made or made[-1].role == "tool" else None


def _read_choice(asked: OwnRequest) -> str | None:
    choice = asked.tool_choice
    return choice.function.name if isinstance(choice, NamedChoice) else choice


def _read_recall(given: Mapping[str, str]) -> dict[str, str]:
    """Settings of the recall, checked. From which collections an agent recalls is its own."""
    named = {key.removeprefix(RECALL): v for key, v in given.items() if key.startswith(RECALL)}
    known = RecallSettings.model_fields.keys() - {"collections"}
    for key in named.keys() - known:
        said = f"there is no setting memory.{key}; there are: {', '.join(sorted(known))}"
        raise ApiError(400, INVALID, said, param=f"metadata.memory.{key}")
    try:
        RecallSettings.model_validate({"budget": 1000, **named})
    except InputError as error:
        raise ApiError(400, INVALID, f"memory: {error}", param="metadata") from None
    return named


def _read_use(given: Mapping[str, str]) -> MemoryUse:
    named = given.get(MEMORY, "on")
    if named not in USES:
        said = f"memory is {', '.join(USES)}, and not '{named}'"
        raise ApiError(400, INVALID, said, param="metadata.memory")
    return USES[named]


async def _answer(
    server: ServerState, chat: AgentChat, text: str, note: NoteTokens
) -> AsyncGenerator[str | AnswerEnd]:
    """The pieces of the answer. What a client has read cannot be taken back: an answer that is
    written anew goes on where the first one ended, or fails where it goes another way."""
    sent = now = ""
    with server.serving.place(), spending(note):
        async with aclosing(chat.say(text)) as events:
            async for event in events:
                if isinstance(event, AnswerPiece):
                    now = event.text if event.anew else now + event.text
                    if not (now.startswith(sent) or sent.startswith(now)):
                        said = "the answer broke off and was begun in another way; ask again"
                        raise ApiError(503, "upstream_unavailable", said)
                    if len(now) > len(sent):
                        yield now[len(sent) :]
                        sent = now
                elif isinstance(event, ChatAnswer):
                    kept = not chat.session.startswith("unkept")
                    session = {SESSION: chat.session} if kept else dict[str, str]()
                    reason, calls = event.finish_reason or "stop", event.tool_calls
                    yield AnswerEnd(reason, event.usage, session, calls)
