"""`textevolve sessions list|show|delete|export`: the chats that are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from textevolve.agents.resources import split_name
from textevolve.agents.session import ChatSession, SessionMessage, as_openai
from textevolve.cli import options, say
from textevolve.cli.results import print_json
from textevolve.report.files import open_target
from textevolve.report.wording import count, shorten, visible
from textevolve.settings import Settings, read_settings
from textevolve.store import Store, kinds

app = typer.Typer(**options.PLAIN)

SessionName = Annotated[str, typer.Argument(help="Its id, the start of it, or 'last'.")]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="The namespace; that of the settings else."),
]


@app.command("list")
def list_sessions(
    agent: Annotated[
        str | None, typer.Option(help="Only chats with this agent: AGENT or NAMESPACE/AGENT.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many, the latest first.", min=1)] = 20,
    namespace: NamespaceOption = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """List the chats that are kept."""
    with _open(store) as (settings, resources):
        space = namespace or settings.namespace
        agent_id = None
        if agent is not None:
            space, name = split_name(agent, space)
            agent_id = resources.read(kinds.get, kinds.AGENTS, space, name).id
        found = resources.sessions(space).list(agent_id=agent_id, limit=limit)
    if as_json:
        for one in found:
            print_json(asdict(one))
    elif found:
        print_sessions(found)
    else:
        typer.echo(f"no chats in the namespace '{space}'; begin one with: textevolve chat AGENT")


@app.command()
def show(
    session: SessionName = "last",
    namespace: NamespaceOption = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """Show what was said in a chat."""
    found, messages = _read(session, namespace, store)
    if as_json:
        for one in messages:
            print_json({**asdict(one), "details": one.details.model_dump(exclude_defaults=True)})
        return
    typer.echo(f"session {found.id}: {found.agent}, begun {_say_time(found.created)}")
    for one in messages:
        who = (found.user or "user") if one.role == "user" else found.agent
        marks = ["stopped"] if one.details.interrupted else []
        recalled = len(one.details.memories)
        marks += [f"{recalled} recalled"] if recalled else []
        told = f" [{', '.join(marks)}]" if marks else ""
        typer.echo(f"\n{who}, {_say_time(one.created)}{told}\n{visible(one.text)}")


@app.command()
def delete(
    session: SessionName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    namespace: NamespaceOption = None,
    store: options.StoreFile = None,
) -> None:
    """Remove a chat; memories that were made of it stay."""
    with _open(store) as (settings, resources):
        sessions = resources.sessions(namespace or settings.namespace)
        found = sessions.get(session)
        if not yes:
            messages = count(found.messages, "message")
            typer.confirm(f"Remove session {found.id} ({messages})?", abort=True)
        sessions.delete(found.id)
    typer.echo(f"removed session {found.id}: {count(found.messages, 'message')}")


@app.command()
def export(
    session: SessionName,
    output: Annotated[Path, typer.Argument(help="The file to write; - is standard output.")],
    namespace: NamespaceOption = None,
    store: options.StoreFile = None,
) -> None:
    """Write a chat as JSON, in the form of OpenAI's messages, as `memories create` reads it."""
    _, messages = _read(session, namespace, store)
    text = json.dumps({"messages": as_openai(messages)}, ensure_ascii=False)
    if str(output) == "-":
        typer.echo(text)
        return
    with open_target(output) as target:
        target.write(f"{text}\n".encode())
    say(f"written to {output}: {count(len(messages), 'message')}")


def print_sessions(found: Sequence[ChatSession]) -> None:
    """A line for each: when, how long, with whom, how it began; and its id."""
    for one in found:
        who = f"{one.agent}{f' with {one.user}' if one.user else ''}"
        line = f"{_say_time(one.updated)}  {one.messages:3}  {shorten(who, 30):30}"
        typer.echo(f"{line}  {shorten(one.title, 24)}\n  {one.id}")


def _read(
    session: str, namespace: str | None, store: str | None
) -> tuple[ChatSession, list[SessionMessage]]:
    with _open(store) as (settings, resources):
        sessions = resources.sessions(namespace or settings.namespace)
        found = sessions.get(session)
        return found, sessions.messages(found.id)


@contextmanager
def _open(store: str | None) -> Generator[tuple[Settings, Store]]:
    settings, _ = read_settings({"store": store})
    with closing(Store(settings.memory_location)) as resources:
        yield settings, resources


def _say_time(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
