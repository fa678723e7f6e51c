"""Chats with agents: sessions and their messages, each within one namespace.

A message is appended at the position that its writer expects; if another process was first, the
position is taken, and the writer gets an error.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Row, Select, exists, func, not_, or_, select
from sqlalchemy.engine import Connection

from textevolve.agents.chat import (
    ChatSession,
    FinishedTurn,
    Learning,
    MessageDetails,
    SessionMessage,
    title_of,
)
from textevolve.errors import ConflictError, InputError, NotFoundError
from textevolve.mappings import pick, read_fields
from textevolve.store import tables
from textevolve.store.database import Database
from textevolve.store.resource_rows import (
    build,
    delete_where,
    fetch_all,
    fetch_one,
    insert_rows,
    insert_unless_stored,
    mapping_of,
    namespace_id,
    update_where,
)

P = ParamSpec("P")
T = TypeVar("T")

LAST = "last"
"""The reference to the newest session."""
_sessions = tables.sessions
_messages = tables.messages
_PENDING = '"learning":"pending"'
"""The text in a message's details if its memories are not created yet."""
_INTERRUPTED = '"interrupted":true'
"""The text in the details of an interrupted answer."""


def _reads(
    query: Callable[Concatenate[StoredSessions, Connection, P], T],
) -> Callable[Concatenate[StoredSessions, P], T]:
    @wraps(query)
    def read(chats: StoredSessions, *args: P.args, **kwargs: P.kwargs) -> T:
        return chats.database.read(partial(query, chats), *args, **kwargs)

    return read


def _writes(
    change: Callable[Concatenate[StoredSessions, Connection, P], T],
) -> Callable[Concatenate[StoredSessions, P], T]:
    @wraps(change)
    def write(chats: StoredSessions, *args: P.args, **kwargs: P.kwargs) -> T:
        return chats.database.write(partial(change, chats), *args, **kwargs)

    return write


class StoredSessions:
    """The chats of one namespace; sessions of other namespaces are not found. Every method may
    raise StoreError, and InputError if the namespace does not exist."""

    def __init__(self, database: Database, namespace: str) -> None:
        self.database = database
        self.namespace = namespace

    @_writes
    def create(self, connection: Connection, agent_id: str, user: str = "", title: str = "") -> str:
        """Create a session; return its id, which nobody can guess."""
        id = f"se_{secrets.token_hex(16)}"
        now = time.time()
        row = {"id": id, "namespace_id": namespace_id(connection, self.namespace)}
        row |= {"agent_id": agent_id, "user": user, "title": title}
        insert_rows(connection, _sessions, [{**row, "created": now, "updated": now}])
        return id

    @_reads
    def list(
        self, connection: Connection, *, agent_id: str | None = None, limit: int = 20
    ) -> list[ChatSession]:
        """List at most `limit` sessions, the most recently continued first."""
        query = self._select(connection, agent_id).limit(limit)
        return list(map(self._session, connection.execute(query)))

    @_reads
    def get(
        self,
        connection: Connection,
        id: str,
        *,
        agent_id: str | None = None,
        user: str | None = None,
    ) -> ChatSession:
        """Return a session by its id, the beginning of its id, or `last`; `agent_id` limits the
        search to the sessions of an agent, and `user`, for `last` only, to those of a user.

        Raises:
            InputError: no session matches, or more than one does.
        """

        return self._find(connection, id, agent_id, user)

    @_reads
    def messages(self, connection: Connection, id: str) -> list[SessionMessage]:
        """Return the messages of a session in their order.

        Raises:
            InputError: there is no such session.
        """
        session = self._find(connection, id)
        rows = fetch_all(connection, _messages, "position", session_id=session.id)
        return list(map(_message, rows))

    @_writes
    def append(self, connection: Connection, id: str, message: SessionMessage) -> None:
        """Store a message; it is durable when this returns. An answer takes the place of an
        interrupted answer at the end of the session.

        Raises:
            InputError: there is no such session.
            ConflictError: another client has continued the session.
        """
        self._require(connection, id)
        row = read_fields(message, "position", "role", "created")
        row["text"] = message.text.replace("\0", "\N{REPLACEMENT CHARACTER}")
        row |= {"session_id": id, "details": _dump(message.details)}
        count = select(func.count()).where(_messages.c.session_id == id)
        later = connection.execute(count).scalar_one() - message.position + 1
        stored = False

        # Another process may be first by a moment.
        if later == 0:
            stored = insert_unless_stored(connection, _messages, row)
        elif later == 1 and message.role == "assistant":
            stored = _replace_interrupted(connection, row)
        if not stored:
            raise ConflictError(
                f"session {id}: another client has continued it; open it again to see the new"
                " messages, or start a new session"
            )

        update_where(connection, _sessions, {"updated": message.created}, id=id)

    @_writes
    def erase(self, connection: Connection, id: str, position: int) -> None:
        """Replace the text of a message, and the title if it is the beginning of this text."""
        session = self._find(connection, id)
        row = _require_message(connection, id, position)
        erased = {"text": tables.ERASED}
        update_where(connection, _messages, erased, session_id=id, position=position)
        if session.title and session.title == title_of(row.text):
            update_where(connection, _sessions, {"title": tables.ERASED}, id=id)

    @_writes
    def set_learning(
        self, connection: Connection, id: str, position: int, learning: Learning
    ) -> None:
        """Store whether memories were created from the turn whose answer has this position."""
        self._require(connection, id)
        row = _require_message(connection, id, position)
        details = _dump(_message(row).details.model_copy(update={"learning": learning}))
        update_where(connection, _messages, {"details": details}, session_id=id, position=position)

    @_reads
    def pending_turns(self, connection: Connection, agent_id: str) -> list[FinishedTurn]:
        """Return the turns of an agent's chats whose memories are not created yet, oldest first.
        An interrupted answer at the end of a session is none: its message may be repeated, and then
        another answer takes its place."""
        space = namespace_id(connection, self.namespace)
        question = _messages.alias()
        before = (question.c.session_id == _messages.c.session_id) & (
            question.c.position == _messages.c.position - 1
        )
        later = _messages.alias()
        goes_on = exists().where(
            later.c.session_id == _messages.c.session_id,
            later.c.position > _messages.c.position,
        )
        whole = not_(_messages.c.details.contains(_INTERRUPTED, autoescape=True))
        query = (
            select(_messages, _sessions.c.user, question.c.text.label("said"))
            .join(_sessions, _sessions.c.id == _messages.c.session_id)
            .join(question, before)
            .where(_sessions.c.namespace_id == space, _sessions.c.agent_id == agent_id)
            .where(_messages.c.details.contains(_PENDING, autoescape=True))
            .where(or_(whole, goes_on))
            .order_by(_messages.c.created)
        )

        return [
            FinishedTurn(row.session_id, row.position, row.user, row.said, row.text, row.created)
            for row in connection.execute(query)
        ]

    @_writes
    def delete(self, connection: Connection, id: str) -> ChatSession:
        """Remove a session with its messages; memories that were created from it are kept.

        Raises:
            InputError: no session matches, or more than one does.
        """
        session = self._find(connection, id)
        delete_where(connection, _messages, session_id=session.id)
        delete_where(connection, _sessions, id=session.id)

        return session

    def _select(self, connection: Connection, agent_id: str | None = None) -> Select[Any]:
        count = select(func.count()).where(_messages.c.session_id == _sessions.c.id)
        agents = tables.agents.c
        number = count.scalar_subquery().label("messages")
        query = (
            select(_sessions, agents.name.label("agent"), number)
            .join(tables.agents, agents.id == _sessions.c.agent_id)
            .where(_sessions.c.namespace_id == namespace_id(connection, self.namespace))
            .order_by(_sessions.c.updated.desc(), _sessions.c.id)
        )

        return query if agent_id is None else query.where(_sessions.c.agent_id == agent_id)

    def _find(
        self,
        connection: Connection,
        id: str,
        agent_id: str | None = None,
        user: str | None = None,
    ) -> ChatSession:
        query = self._select(connection, agent_id).limit(1 if id == LAST else 2)
        if id != LAST:
            query = query.where(_sessions.c.id.startswith(id, autoescape=True))
        elif user is not None:
            query = query.where(_sessions.c.user == user)

        rows = connection.execute(query).all()

        if not rows or not id.strip():
            missing = "there are no chats yet" if id == LAST else f"there is no session '{id}'"
            raise NotFoundError(
                f"{missing} in the namespace '{self.namespace}'; see `textevolve agents"
                " sessions list`"
            )

        if len(rows) > 1:
            raise InputError(
                f"several sessions have ids that begin with '{id}'; give more of the id"
            )

        return self._session(rows[0])

    def _require(self, connection: Connection, id: str) -> None:
        space = namespace_id(connection, self.namespace)
        if fetch_one(connection, _sessions, id=id, namespace_id=space) is None:
            raise NotFoundError(f"there is no session '{id}' in the namespace '{self.namespace}'")

    def _session(self, row: Row[Any]) -> ChatSession:
        return build(ChatSession, {**mapping_of(row), "agent": f"{self.namespace}/{row.agent}"})


def _replace_interrupted(connection: Connection, row: Mapping[str, Any]) -> bool:
    """Replace an interrupted answer at the same position; return whether there was one."""
    place = pick(row, ("session_id", "position", "role"))
    there = fetch_one(connection, _messages, **place)
    if there is None or not _message(there).details.interrupted:
        return False
    return update_where(connection, _messages, row, **place, details=there.details) > 0


def _require_message(connection: Connection, id: str, position: int) -> Row[Any]:
    row = fetch_one(connection, _messages, session_id=id, position=position)
    if row is None:
        raise NotFoundError(f"session {id}: has no message {position}")
    return row


def _message(row: Row[Any]) -> SessionMessage:
    details = MessageDetails.model_validate_json(row.details)
    return build(SessionMessage, {**mapping_of(row), "details": details})


def _dump(details: MessageDetails) -> str:
    return details.model_dump_json(exclude_defaults=True)
