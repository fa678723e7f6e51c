"""The keys of a server's clients, the browser sessions that were started with them, and the token
budgets of namespaces.

All functions take a connection. Of keys and session tokens only the SHA-256 is stored, with their
rights and their time of expiry.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Row, delete
from sqlalchemy.engine import Connection

from textevolve.agents.resources import ResourceName
from textevolve.errors import InputError
from textevolve.spec import Frozen, option, suggest
from textevolve.store.dialects import insert_into
from textevolve.store.resource_rows import (
    build,
    delete_where,
    fetch_all,
    fetch_one,
    insert_rows,
    mapping_of,
    namespace_id,
    update_where,
)
from textevolve.store.tables import api_keys, browser_sessions, namespace_tokens, namespaces

KeyScope: TypeAlias = Literal["read", "run", "label", "admin"]
"""A right of a key. `read`: read runs, agents and memories. `run`: use models, chats and studies,
which cost money. `label`: label items. `admin`: all of these, and manage resources, jobs and
keys."""

SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
PREFIX = "te-"
"""The prefix of every key, by which a key is recognised wherever it appears."""
KEY_BYTES = 32
"""The number of random bytes of a key."""


class KeyLimits(Frozen):
    """The limits of a key; None: unlimited."""

    requests_per_minute: int | None = option(
        None, "The most requests a minute with this key; default: unlimited.", ge=1
    )
    tokens_per_minute: int | None = option(
        None,
        "The most tokens a minute with this key, of prompts and answers together; default:"
        " unlimited.",
        ge=1,
    )
    streams: int | None = option(
        None,
        "The most streams (of answers or of a study's progress) open at the same time with this"
        " key; default: unlimited.",
        ge=1,
    )


class KeySpec(Frozen):
    """The rights of a key. Without namespaces it sees all of them, and runs without a namespace."""

    scopes: tuple[KeyScope, ...] = option(
        ("read", "run"),
        "The rights of the key: read (runs, agents, memories), run (models, chats, studies),"
        " label, or admin (all of these, and resources and jobs). Repeatable.",
        flag="--scope",
        min_length=1,
    )
    namespaces: tuple[ResourceName, ...] = option(
        (), "A namespace that the key may use; default: all. Repeatable.", flag="--namespace"
    )
    limits: KeyLimits = KeyLimits()


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is stored, without its text. Times are seconds since 1970. `expires`: None:
    never. `revoked`: None if it is not revoked. `used`: the approximate time of the last use; None
    if it was never used."""

    id: str
    name: str
    spec: KeySpec
    created: float
    expires: float | None
    revoked: float | None
    used: float | None

    @property
    def live(self) -> bool:
        return self.revoked is None and (self.expires is None or self.expires > time.time())


def add_key(
    connection: Connection, name: str, spec: KeySpec, expires: float | None = None
) -> tuple[StoredKey, str]:
    """Create a key; return it with its text, which cannot be read again later.

    Raises:
        InputError: a live key has this name, or a namespace does not exist.
    """
    if any(key.name == name for key in list_keys(connection) if key.live):
        raise InputError(f"a key '{name}' exists already; revoke it, or use another name")
    for namespace in spec.namespaces:
        namespace_id(connection, namespace)
    text = f"{PREFIX}{secrets.token_urlsafe(KEY_BYTES)}"
    id = f"key_{secrets.token_hex(8)}"
    values = {"id": id, "name": name, "hash": digest(text), "created": time.time()}
    values |= {"expires": expires, "spec": spec.model_dump_json()}
    insert_rows(connection, api_keys, [values])

    return require_key(connection, id), text


def list_keys(connection: Connection) -> list[StoredKey]:
    """List all keys, including expired and revoked ones, the oldest first."""
    return list(map(_read, fetch_all(connection, api_keys, "created", "id")))


def find_key(connection: Connection, text: str) -> StoredKey | None:
    """Find the live key with this text; None if there is none."""
    return _alive(fetch_one(connection, api_keys, hash=digest(text)))


def find_key_by_id(connection: Connection, id: str) -> StoredKey | None:
    """Find a live key by its id; None if there is none."""
    return _alive(fetch_one(connection, api_keys, id=id))


def require_key(connection: Connection, name: str) -> StoredKey:
    """Return a key by its id, or a live one by its name.

    Raises:
        InputError: no such key exists.
    """
    keys = list_keys(connection)
    for key in keys:
        if key.id == name or (key.name == name and key.live):
            return key
    names = [key.name for key in keys if key.live]
    raise InputError(f"there is no valid key '{name}'{suggest(name, names)}")


def revoke_key(connection: Connection, name: str) -> StoredKey:
    """Revoke a key and end the sessions that were started with it; return the key.

    Raises:
        InputError: there is no such key.
    """
    key = require_key(connection, name)
    update_where(connection, api_keys, {"revoked": time.time()}, id=key.id, revoked=None)
    delete_where(connection, browser_sessions, key_id=key.id)

    return require_key(connection, key.id)


def leave_namespace(connection: Connection, namespace: str) -> None:
    """Take a namespace that is deleted out of the rights of all keys. Keys that are limited to it
    alone are revoked, since a key without namespaces would see all of them, and since a later
    namespace of the same name belongs to somebody else."""
    for key in list_keys(connection):
        if namespace not in key.spec.namespaces:
            continue

        other_namespaces = tuple(name for name in key.spec.namespaces if name != namespace)
        if other_namespaces:
            spec = key.spec.model_copy(update={"namespaces": other_namespaces})
            update_where(connection, api_keys, {"spec": spec.model_dump_json()}, id=key.id)
        elif key.revoked is None:
            revoke_key(connection, key.id)


def note_used(connection: Connection, used: Mapping[str, float]) -> None:
    """Store the times at which keys were last used, by the keys' ids."""
    for id, when in used.items():
        update_where(connection, api_keys, {"used": when}, id=id)


def add_session(connection: Connection, token: str, key_id: str, expires: float) -> None:
    """Store a browser's session by the token in its cookie, and delete expired ones."""
    now = time.time()
    connection.execute(delete(browser_sessions).where(browser_sessions.c.expires <= now))
    row = {"hash": digest(token), "key_id": key_id, "created": now, "expires": expires}
    insert_rows(connection, browser_sessions, [row])


def find_session(connection: Connection, token: str) -> str | None:
    """Return the id of the key with which a session was started; None if there is no such session,
    or it has expired."""
    row = fetch_one(connection, browser_sessions, hash=digest(token))
    return row.key_id if row is not None and row.expires > time.time() else None


def end_session(connection: Connection, token: str) -> None:
    delete_where(connection, browser_sessions, hash=digest(token))


def digest(text: str) -> bytes:
    """Return the SHA-256 of a key or of a session's token. No slower hash is needed, since both are
    random and cannot be guessed."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _alive(row: Row[Any] | None) -> StoredKey | None:
    return None if row is None or not (key := _read(row)).live else key


def _read(row: Row[Any]) -> StoredKey:
    return build(StoredKey, {**mapping_of(row), "spec": KeySpec.model_validate_json(row.spec)})


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """The daily token budget of a namespace. `allowed`: the tokens allowed on a day (UTC); None:
    unlimited. `used`: the tokens used today. `namespace_id`: empty if there is no such
    namespace."""

    allowed: int | None = None
    used: int = 0
    namespace_id: str = field(default="", compare=False)


def read_budget(connection: Connection, namespace: str) -> TokenBudget:
    """Return today's budget of a namespace; without an id if the namespace does not exist."""
    space = fetch_one(connection, namespaces, name=namespace)
    if space is None:
        return TokenBudget()
    today = fetch_one(connection, namespace_tokens, namespace_id=space.id, day=utc_day())
    return TokenBudget(space.tokens_per_day, 0 if today is None else today.tokens, space.id)


def add_tokens(connection: Connection, spent: Mapping[str, int]) -> None:
    """Add tokens to today's usage of namespaces, by their names; deleted namespaces are ignored."""
    table = namespace_tokens
    for name, tokens in spent.items():
        if (space := fetch_one(connection, namespaces, name=name)) is not None:
            row = {"namespace_id": space.id, "day": utc_day(), "tokens": tokens}
            more = insert_into(connection, table).values(row)
            more = more.on_conflict_do_update(
                index_elements=["namespace_id", "day"], set_={"tokens": table.c.tokens + tokens}
            )
            connection.execute(more)


def utc_day() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
