"""`textevolve agents sessions list|show|delete`: the stored chats."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Annotated

import typer

from textevolve.agents.chat import ChatSession, as_openai
from textevolve.agents.resources import split_name
from textevolve.cli import options, say
from textevolve.cli.options import NamespaceName, Yes
from textevolve.cli.resources import ERASES, SOURCE
from textevolve.cli.results import open_named, print_json, print_lines, print_list
from textevolve.desk.memories import MemoryDesk, SourceMessage
from textevolve.report.wording import count, moment, shorten, visible
from textevolve.store import kinds

SessionName = Annotated[
    str, typer.Argument(help="The id of the chat, the start of the id, or 'last'.")
]


def list_sessions(
    agent: Annotated[
        str | None, typer.Option(help="Only chats with this agent: AGENT or NAMESPACE/AGENT.")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="The number of chats to list, the latest first.", min=1)
    ] = 20,
    namespace: NamespaceName = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """List the stored chats."""
    with open_named(store, namespace=namespace) as (_, resources, space, _own):
        agent_id = None
        if agent is not None:
            space, name = split_name(agent, space)
            agent_id = resources.read(kinds.get, kinds.AGENTS, space, name).id
        chats = resources.sessions(space).list(agent_id=agent_id, limit=limit)

    empty = f"no chats in the namespace '{space}'; begin one with: textevolve chat AGENT"
    print_list(chats, asdict, print_lines(_describe), empty, as_json=as_json)


def _describe(chat: ChatSession) -> str:
    who = f"{chat.agent}{f' with {chat.user}' if chat.user else ''}"
    line = f"{moment(chat.updated)}  {chat.messages:3}  {shorten(who, 30):30}"
    return f"{line}  {shorten(chat.title, 24)}\n  {chat.id}"


def show(
    session: SessionName = "last",
    namespace: NamespaceName = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """Show the messages of a chat; as JSON lines in the form of OpenAI's messages, which
    `memories create` reads."""
    with open_named(store, namespace=namespace) as (_, resources, space, _own):
        sessions = resources.sessions(space)
        chat = sessions.get(session)
        messages = sessions.messages(chat.id)

    if not as_json:
        typer.echo(f"session {chat.id}: {chat.agent}, begun {moment(chat.created)}")
    for message, row in zip(messages, as_openai(messages), strict=True):
        details = message.details
        if as_json:
            print_json(row | {"details": details.model_dump(exclude_defaults=True)})
            continue
        who = (chat.user or "user") if message.role == "user" else chat.agent
        marks = ["stopped"] if details.interrupted else []
        if details.memories:
            marks.append(f"{len(details.memories)} recalled")

        note = f" [{', '.join(marks)}]" if marks else ""
        typer.echo(f"\n{who}, {moment(message.created)}{note}\n{visible(message.text)}")


def delete(
    session: SessionName,
    message: Annotated[
        int | None,
        typer.Option(
            help="Erase the text of this message alone, counted from 1, wherever the store has it.",
            min=1,
        ),
    ] = None,
    yes: Yes = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Remove a chat; memories from it stay."""
    with open_named(store, namespace=namespace) as (settings, resources, space, _own):
        sessions = resources.sessions(space)
        chat = sessions.get(session)
        if message is not None:
            texts = {each.position: each.text for each in sessions.messages(chat.id)}
            say(ERASES)
            options.confirm(f"Erase message {message} of session {chat.id} for good?", yes)
            desk = MemoryDesk(settings, space, resources, AsyncExitStack(), SOURCE)
            erased = SourceMessage(chat.id, message, texts.get(message, ""))
            asyncio.run(desk.erase_messages([erased]))
            typer.echo(f"erased message {message} of session {chat.id}")
            return
        messages = count(chat.messages, "message")
        options.confirm(f"Remove session {chat.id} ({messages})?", yes)
        sessions.delete(chat.id)

    typer.echo(f"removed session {chat.id}: {messages}")
    say(
        "its words stay in the model calls of its answers, which `textevolve runs delete RUN`"
        " removes; `textevolve runs list` shows the runs (kinds chat and server)"
    )
