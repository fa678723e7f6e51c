"""Agents, and the versions of their personas, which are only ever added to.

Functions of a connection, each of one namespace.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, func, insert, select
from sqlalchemy.engine import Connection

from textevolve.agents.resources import AgentSpec, PersonaVersion, StoredAgent, split_name
from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import check_text
from textevolve.store import tables
from textevolve.store.resource_rows import (
    AGENT,
    COLLECTION,
    EVERYTHING,
    NameRange,
    check_texts,
    delete_where,
    insert_row,
    list_rows,
    merge_spec,
    require_row,
    update_row,
)


def create_agent(
    connection: Connection, namespace: str, spec: AgentSpec, source: str = ""
) -> StoredAgent:
    """
    Raises:
        InputError: the name is taken, the persona is blank, or a collection is not there.
    """
    check_text("the persona", spec.persona)
    check_collections(connection, namespace, spec)
    values = {"persona_version": 1, "spec": _dump(spec)}
    id = insert_row(connection, AGENT, spec, namespace, values)
    keep_persona(connection, id, PersonaVersion(1, spec.persona, time.time(), source))
    return get_agent(connection, namespace, spec.name)


def get_agent(connection: Connection, namespace: str, name: str) -> StoredAgent:
    """
    Raises:
        InputError: it is not there.
    """
    return _read(connection, namespace, require_row(connection, AGENT, name, namespace))


def list_agents(
    connection: Connection, namespace: str, span: NameRange = EVERYTHING
) -> list[StoredAgent]:
    rows = list_rows(connection, AGENT, namespace, span)
    return [_read(connection, namespace, row) for row in rows]


def update_agent(
    connection: Connection,
    namespace: str,
    name: str,
    changes: Mapping[str, Any],
    source: str = "",
) -> StoredAgent:
    """Change fields of its spec; another persona becomes a new version.

    Raises:
        InputError: it is not there, or cannot be so.
    """
    agent = get_agent(connection, namespace, name)
    spec = merge_spec(agent.spec, {**changes, "name": name})
    check_collections(connection, namespace, spec)
    check_texts(spec)
    update_row(connection, AGENT, agent.id, spec=_dump(spec))
    add_persona(connection, agent, spec.persona, source)
    return get_agent(connection, namespace, name)


def delete_agent(connection: Connection, namespace: str, name: str) -> None:
    """Remove it, with its personas and chats; its memories stay where they are.

    Raises:
        InputError: it is not there.
    """
    id = require_row(connection, AGENT, name, namespace).id
    chats = select(tables.sessions.c.id).where(tables.sessions.c.agent_id == id)
    connection.execute(tables.messages.delete().where(tables.messages.c.session_id.in_(chats)))
    delete_where(connection, tables.sessions, agent_id=id)
    delete_where(connection, tables.personas, agent_id=id)
    delete_where(connection, tables.agents, id=id)


def add_persona(
    connection: Connection,
    agent: StoredAgent,
    text: str,
    source: str = "",
    changes: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Give an agent a new version of its persona; its number. The text that it has already makes
    none, so that doing it again does nothing.

    Raises:
        InputError: the text is blank. ConflictError: the agent has a newer one meanwhile.
    """
    check_text("the persona", text)
    newest = list_personas(connection, agent)[-1]
    if newest.text == text:
        return newest.version
    if newest.version != agent.persona_version:
        raise ConflictError(
            f"agent {agent.full_name}: its persona was changed meanwhile (version"
            f" {newest.version}); look at it and try again"
        )
    made = PersonaVersion(newest.version + 1, text, time.time(), source, changes)
    keep_persona(connection, agent.id, made)
    update_row(connection, AGENT, agent.id, persona_version=made.version)
    return made.version


def revert_persona(connection: Connection, agent: StoredAgent, version: int) -> int:
    """Make an earlier persona the newest version once more; its number.

    Raises:
        InputError: there is no such version.
    """
    found = {one.version: one.text for one in list_personas(connection, agent)}
    if version not in found:
        known = ", ".join(map(str, found))
        raise InputError(f"agent {agent.full_name}: has no persona {version}; there are: {known}")
    return add_persona(connection, agent, found[version], f"back to version {version}")


def list_personas(connection: Connection, agent: StoredAgent) -> list[PersonaVersion]:
    """All versions, the oldest first."""
    table = tables.personas
    query = select(table).where(table.c.agent_id == agent.id).order_by(table.c.version)
    return [
        PersonaVersion(one.version, one.text, one.created, one.source, json.loads(one.changes))
        for one in connection.execute(query)
    ]


def keep_persona(connection: Connection, agent_id: str, persona: PersonaVersion) -> None:
    connection.execute(
        insert(tables.personas).values(
            agent_id=agent_id,
            version=persona.version,
            created=persona.created,
            source=persona.source,
            text=persona.text,
            changes=json.dumps(list(persona.changes), ensure_ascii=False),
        )
    )


def check_collections(connection: Connection, namespace: str, spec: AgentSpec) -> None:
    """
    Raises:
        InputError: the agent names a collection that is not in its namespace.
    """
    for given in agent_collections(spec):
        where, name = split_name(given, namespace)
        if where != namespace:
            raise InputError(
                f"collection '{given}': an agent has its memories in its own namespace,"
                f" '{namespace}'"
            )
        require_row(connection, COLLECTION, name, namespace)


def agent_collections(spec: AgentSpec) -> tuple[str, ...]:
    """The collections that an agent reads or writes, as it names them."""
    written = (spec.memories, spec.insights)
    return (*spec.memory.collections, *(one for one in written if one is not None))


def users_of_collection(connection: Connection, namespace: str, name: str) -> list[str]:
    """The agents that name a collection."""
    return [
        agent.spec.name
        for agent in list_agents(connection, namespace)
        if name in (split_name(one, namespace)[1] for one in agent_collections(agent.spec))
    ]


def _dump(spec: AgentSpec) -> str:
    return spec.model_dump_json(exclude={"persona"})


def _read(connection: Connection, namespace: str, row: Row[Any]) -> StoredAgent:
    table = tables.personas
    own = table.c.agent_id == row.id
    newest = select(func.max(table.c.version)).where(own).scalar_subquery()
    text = connection.execute(select(table.c.text).where(own, table.c.version == newest))
    spec = AgentSpec(**{**json.loads(row.spec), "persona": text.scalar_one()})
    return StoredAgent(row.id, namespace, spec, row.persona_version, row.created, row.updated)
