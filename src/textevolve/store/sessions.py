"""Chats with agents: sessions and their messages, each within one namespace.

A message is appended at the position that its writer expects; where another process was first, the
position is taken, and the writer is told.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Row, Select, func, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from textevolve.agents.session import (
    ChatSession,
    FinishedTurn,
    Learning,
    MessageDetails,
    SessionMessage,
)
from textevolve.errors import ConflictError, InputError, NotFoundError
from textevolve.store import tables
from textevolve.store.database import Database
from textevolve.store.resource_rows import delete_where, namespace_id

T = TypeVar("T")

LAST = "last"
_sessions, _messages = tables.sessions, tables.messages
_PENDING = '"learning":"pending"'


class StoredSessions:
    """The chats of one namespace; an id of another one is not found. Every method may raise
    StoreError, and InputError where there is no such namespace."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database, self.namespace = database, namespace

    def create(self, agent_id: str, user: str = "", title: str = "") -> str:
        """A new session's id, which nobody can guess."""
        id, now = f"se_{secrets.token_hex(16)}", time.time()

        def make(connection: Connection, namespace: str) -> str:
            row = {"id": id, "namespace_id": namespace, "agent_id": agent_id, "user": user}
            row |= {"created": now, "updated": now, "title": title}
            connection.execute(insert(_sessions).values(row))
            return id

        return self._write(make)

    def list(self, *, agent_id: str | None = None, limit: int = 20) -> list[ChatSession]:
        """Those that were gone on with last come first."""

        def read(connection: Connection, namespace: str) -> list[ChatSession]:
            query = _select_sessions(namespace).limit(limit)
            if agent_id is not None:
                query = query.where(_sessions.c.agent_id == agent_id)
            return [self._session(row) for row in connection.execute(query)]

        return self._read(read)

    def get(self, id: str, *, agent_id: str | None = None, user: str | None = None) -> ChatSession:
        """A session by its id or the beginning of it, or the last one; `agent_id`, `user`: only
        among theirs.

        Raises:
            InputError: there is none, or more than one.
        """
        return self._read(lambda c, namespace: self._find(c, namespace, id, agent_id, user))

    def messages(self, id: str) -> list[SessionMessage]:
        """
        Raises:
            InputError: there is no such session.
        """

        def read(connection: Connection, namespace: str) -> list[SessionMessage]:
            session = self._find(connection, namespace, id)
            query = select(_messages).where(_messages.c.session_id == session.id)
            rows = connection.execute(query.order_by(_messages.c.position))
            return [_message(row) for row in rows]

        return self._read(read)

    def append(self, id: str, message: SessionMessage) -> None:
        """Keep a message; it is durable when this returns.

        Raises:
            InputError: there is no such session.
            ConflictError: the session has been gone on with elsewhere.
        """

        def write(connection: Connection, namespace: str) -> None:
            self._require(connection, namespace, id)
            count = select(func.count()).where(_messages.c.session_id == id)
            try:
                if connection.execute(count).scalar_one() != message.position - 1:
                    raise _conflict(id)
                connection.execute(insert(_messages).values(_row(id, message)))
            except IntegrityError as error:  # another process was first by a moment
                raise _conflict(id) from error
            mine = update(_sessions).where(_sessions.c.id == id)
            connection.execute(mine.values(updated=message.created))

        self._write(write)

    def set_learning(self, id: str, position: int, learning: Learning) -> None:
        """Note whether memories were made of the turn with the answer at this position."""

        def write(connection: Connection, namespace: str) -> None:
            self._require(connection, namespace, id)
            this = (_messages.c.session_id == id, _messages.c.position == position)
            row = connection.execute(select(_messages).where(*this)).one_or_none()
            if row is None:
                raise InputError(f"session {id}: has no message {position}")
            details = _message(row).details.model_copy(update={"learning": learning})
            connection.execute(update(_messages).where(*this).values(details=_dump(details)))

        self._write(write)

    def pending_turns(self, agent_id: str) -> list[FinishedTurn]:
        """The turns of an agent's chats of which memories are still to be made, oldest first."""
        said = _messages.alias()

        def read(connection: Connection, namespace: str) -> list[FinishedTurn]:
            query = (
                select(_messages, _sessions.c.user, said.c.text.label("said"))
                .join(_sessions, _sessions.c.id == _messages.c.session_id)
                .join(
                    said,
                    (said.c.session_id == _messages.c.session_id)
                    & (said.c.position == _messages.c.position - 1),
                )
                .where(_sessions.c.namespace_id == namespace, _sessions.c.agent_id == agent_id)
                .where(_messages.c.details.contains(_PENDING, autoescape=True))
                .order_by(_messages.c.created)
            )
            return [
                FinishedTurn(r.session_id, r.position, r.user, r.said, r.text, r.created)
                for r in connection.execute(query)
            ]

        return self._read(read)

    def delete(self, id: str) -> ChatSession:
        """Remove a session with its messages; memories that were made of it stay.

        Raises:
            InputError: there is none, or more than one.
        """

        def write(connection: Connection, namespace: str) -> ChatSession:
            session = self._find(connection, namespace, id)
            delete_where(connection, _messages, session_id=session.id)
            delete_where(connection, _sessions, id=session.id)
            return session

        return self._write(write)

    def _find(
        self,
        connection: Connection,
        namespace: str,
        id: str,
        agent_id: str | None = None,
        user: str | None = None,
    ) -> ChatSession:
        query = _select_sessions(namespace).limit(1 if id == LAST else 2)
        if id != LAST:
            query = query.where(_sessions.c.id.startswith(id, autoescape=True))
        if agent_id is not None:
            query = query.where(_sessions.c.agent_id == agent_id)
        if user is not None and id == LAST:
            query = query.where(_sessions.c.user == user)
        rows = connection.execute(query).all()
        if not rows or not id.strip():
            said = "there is no chat yet" if id == LAST else f"there is no session '{id}'"
            hint = "see `textevolve sessions list`"
            raise NotFoundError(f"{said} in the namespace '{self.namespace}'; {hint}")
        if len(rows) > 1:
            raise InputError(f"several sessions begin with '{id}'; give more of the id")
        return self._session(rows[0])

    def _require(self, connection: Connection, namespace: str, id: str) -> None:
        mine = (_sessions.c.id == id, _sessions.c.namespace_id == namespace)
        if connection.execute(select(_sessions.c.id).where(*mine)).one_or_none() is None:
            raise NotFoundError(f"there is no session '{id}' in the namespace '{self.namespace}'")

    def _session(self, row: Row[Any]) -> ChatSession:
        return ChatSession(
            id=row.id,
            agent=f"{self.namespace}/{row.agent}",
            user=row.user,
            title=row.title,
            created=row.created,
            updated=row.updated,
            messages=row.messages,
        )

    def _read(self, query: Callable[[Connection, str], T]) -> T:
        return self._database.read(lambda c: query(c, namespace_id(c, self.namespace)))

    def _write(self, change: Callable[[Connection, str], T]) -> T:
        return self._database.write(lambda c: change(c, namespace_id(c, self.namespace)))


def _select_sessions(namespace: str) -> Select[Any]:
    count = select(func.count()).where(_messages.c.session_id == _sessions.c.id)
    return (
        select(
            _sessions,
            tables.agents.c.name.label("agent"),
            count.scalar_subquery().label("messages"),
        )
        .join(tables.agents, tables.agents.c.id == _sessions.c.agent_id)
        .where(_sessions.c.namespace_id == namespace)
        .order_by(_sessions.c.updated.desc(), _sessions.c.id)
    )


def _conflict(id: str) -> ConflictError:
    return ConflictError(
        f"session {id}: has been gone on with elsewhere meanwhile; open it again to see what was"
        " said, or begin a new one"
    )


def _row(session: str, message: SessionMessage) -> dict[str, Any]:
    return {
        "session_id": session,
        "position": message.position,
        "role": message.role,
        "created": message.created,
        "text": message.text.replace("\0", "\N{REPLACEMENT CHARACTER}"),
        "details": _dump(message.details),
    }


def _message(row: Row[Any]) -> SessionMessage:
    return SessionMessage(
        position=row.position,
        role=row.role,
        text=row.text,
        created=row.created,
        details=MessageDetails.model_validate_json(row.details),
    )


def _dump(details: MessageDetails) -> str:
    return details.model_dump_json(exclude_defaults=True)
