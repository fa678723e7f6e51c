"""Agents as models of chat completions: a request's metadata choose the session, the user and the
settings of recall."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from textevolve.agents.chat import AgentChat, ChatAnswer
from textevolve.agents.session import SessionMessage
from textevolve.desk.chats import ChatOptions, ChatRequest, MemoryUse
from textevolve.errors import InputError
from textevolve.llm.model import Message
from textevolve.llm.streaming import AnswerPiece
from textevolve.llm.wire import as_tool_calls
from textevolve.memory.recall_settings import RecallSettings
from textevolve.server.decisions.deciders import spending
from textevolve.server.errors import ApiError, bad_request
from textevolve.server.identity import Caller
from textevolve.server.openai.requests import (
    ClientMessage,
    NamedChoice,
    ServedRequest,
    pair_texts,
)
from textevolve.server.openai.streams import AnswerEnd, AnswerPieces, NoteTokens
from textevolve.server.state import ServerState
from textevolve.store import kinds

SESSION, MEMORY, RECALL = "session", "memory", "memory."
"""The names of fields in the metadata of a request and of an answer: the session's id, how memories
are used, and the prefix of settings of recall."""
NEW = "new"
"""The session's id in a request that creates a session; the answer contains the new id."""
USES: Mapping[str, MemoryUse] = {"on": "on", "recall": "recall", "off": "off"}


async def is_agent(server: ServerState, caller: Caller, name: str) -> bool:
    """Check whether an agent NAMESPACE/AGENT exists and the caller may see it."""
    namespace, _, agent = name.partition("/")
    if not agent or "/" in agent or not caller.sees(namespace):
        return False
    try:
        await asyncio.to_thread(server.resources.read, kinds.get, kinds.AGENTS, namespace, agent)
    except InputError:
        return False
    return True


async def answer_as_agent(
    server: ServerState, name: str, body: ServedRequest, note: NoteTokens
) -> AnswerPieces:
    """Return the pieces of an agent's answer to a chat completion.

    Raises:
        ApiError: the request is invalid, or names a session that does not exist.
    """
    request, chat = read_chat_request(name, body), None
    session = request.options.session
    try:
        chat = await server.chats.open(await server.chats.plan(request))
    except InputError:
        if session is None:
            raise
    if chat is None or session not in (None, chat.session):
        raise ApiError(
            404,
            "not_found",
            f"there is no session '{session}'; give the complete id",
            param="metadata.session",
        )
    return _answer(server, chat, request.text, note)


def read_chat_request(name: str, body: ServedRequest) -> ChatRequest:
    """Read the chat request in a chat completion.

    Raises:
        ApiError: the body has no message to answer, or its metadata is invalid.
    """
    messages = pair_texts(body.messages, tools=True)
    instructions = [text for message, text in messages if message.role in ("system", "developer")]
    asking = max(
        (n for n, (message, _) in enumerate(messages) if message.role == "user"), default=-1
    )
    exchange = _read_exchange(messages[asking + 1 :])
    # Earlier tool calls and their results are no part of the conversation.
    turns = [
        (message.role, text)
        for message, text in messages[: asking + 1]
        if message.role == "user" or (message.role == "assistant" and text.strip())
    ]
    if not turns or not turns[-1][1].strip() or exchange is None:
        raise bad_request(
            "the last message must have the role user, or be the result of a tool",
            param="messages",
        )
    metadata, choice = body.metadata or {}, body.tool_choice if body.tools else None
    session = metadata.get(SESSION) or None
    options = ChatOptions(
        agent=name,
        user=body.user or "",
        session=None if session == NEW else session,
        memory=metadata.get(MEMORY) != "off",
        answer_tokens=body.max_completion_tokens or body.max_tokens or 1024,
        temperature=body.temperature,
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
        instructions="\n\n".join(filter(str.strip, instructions)),
        memory=_read_use(metadata),
        recall=_read_recall(metadata),
        schema=body.response_format and body.response_format.schema_text,
        tools=json.dumps([tool.model_dump(exclude_unset=True) for tool in body.tools])
        if body.tools
        else None,
        tool_choice=choice.function.name if isinstance(choice, NamedChoice) else choice,
        exchange=exchange,
        seed=body.seed,
    )


def _read_exchange(messages: Sequence[tuple[ClientMessage, str]]) -> tuple[Message, ...] | None:
    """Return the tool calls and their results in these messages, after which the model continues;
    None if there is any other message, or no result at the end."""
    exchange: list[Message] = []
    for message, text in messages:
        if message.role in ("system", "developer"):
            continue
        if message.role == "assistant" and message.tool_calls:
            calls = as_tool_calls(message.tool_calls)
            exchange.append(Message("assistant", (text,), tool_calls=calls))
        elif message.role == "tool" and exchange and message.tool_call_id:
            exchange.append(Message("tool", (text,), tool_call_id=message.tool_call_id))
        else:
            return None
    return tuple(exchange) if not exchange or exchange[-1].role == "tool" else None


def _read_recall(metadata: Mapping[str, str]) -> dict[str, str]:
    """Read the settings of recall. A client cannot change the collections of an agent."""
    overrides = {
        key.removeprefix(RECALL): v for key, v in metadata.items() if key.startswith(RECALL)
    }
    names = RecallSettings.model_fields.keys() - {"collections"}
    for key in overrides.keys() - names:
        raise bad_request(
            f"there is no setting memory.{key}; there are: {', '.join(sorted(names))}",
            param=f"metadata.memory.{key}",
        )
    try:
        RecallSettings.model_validate({"budget": 1000, **overrides})
    except InputError as error:
        raise bad_request(f"memory: {error}", param="metadata") from None
    return overrides


def _read_use(metadata: Mapping[str, str]) -> MemoryUse:
    mode = metadata.get(MEMORY, "on")
    if mode not in USES:
        raise bad_request(
            f"memory must be one of {', '.join(USES)}, not '{mode}'",
            param="metadata.memory",
        )
    return USES[mode]


async def _answer(
    server: ServerState, chat: AgentChat, text: str, note: NoteTokens
) -> AsyncGenerator[str | AnswerEnd]:
    """Yield the pieces of the answer. A client cannot take back text that was sent, so an answer
    that starts again must begin with the same text, or it fails."""
    sent = now = ""
    with server.serving.place(), spending(note):
        async with aclosing(chat.say(text)) as events:
            async for event in events:
                if isinstance(event, AnswerPiece):
                    now = event.text if event.anew else now + event.text
                    if not (now.startswith(sent) or sent.startswith(now)):
                        raise ApiError(
                            503,
                            "upstream_unavailable",
                            "the answer broke off, and the second attempt began with"
                            " other words; send the request again",
                        )
                    if len(now) > len(sent):
                        yield now[len(sent) :]
                        sent = now
                elif isinstance(event, ChatAnswer):
                    is_stored = not chat.session.startswith("unkept")
                    session = {SESSION: chat.session} if is_stored else dict[str, str]()
                    reason, calls = event.finish_reason or "stop", event.tool_calls
                    yield AnswerEnd(reason, event.usage, session, calls)
