"""Namespaces, and what belongs to them: agents, collections, users, memories and chats.

A `ResourceStore` opens its database with the first question. Everything but the list of namespaces
is asked of one namespace, and finds nothing of another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError
from textevolve.settings import StoreLocation
from textevolve.store import budgets, jobs, keys, kinds
from textevolve.store.database import Database, open_database
from textevolve.store.jobs import JobClaim
from textevolve.store.memories import StoredMemories
from textevolve.store.sessions import StoredSessions

P = ParamSpec("P")
T = TypeVar("T")


class ResourceStore:
    """`location`: the path of an SQLite file, or a postgresql:// address."""

    def __init__(self, location: StoreLocation | str) -> None:
        self.location = location
        self._lock = threading.Lock()
        self._opened: Database | None = None

    @property
    def database(self) -> Database:
        """
        Raises:
            StoreError: it cannot be opened; says why and what to do.
        """
        with self._lock:
            if self._opened is None:
                self._opened = open_database(self.location)
            return self._opened

    def memories(self, namespace: str) -> StoredMemories:
        """Of a namespace; the first question is refused where there is none of this name."""
        return StoredMemories(lambda: self.database, namespace)

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a connection; everything that it reads is of one moment."""
        return self.database.read(lambda connection: query(connection, *args, **kwargs))

    def write(
        self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a connection; if it raises, nothing that it wrote is stored."""
        return self.database.write(lambda connection: change(connection, *args, **kwargs))

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        if name not in self.namespace_names():
            self.write(kinds.ensure_namespace, name)

    def namespace_names(self) -> list[str]:
        return [namespace.spec.name for namespace in self.read(kinds.list_all, kinds.NAMESPACES)]

    def claim_due_job(self, seconds: float) -> JobClaim | None:
        """A job that is due, for this process alone; see `store/jobs.py`."""
        for one in self.read(jobs.list_due_jobs):
            # Two who change the same at once may undo each other again and again; the next look
            # finds what neither of them got.
            with suppress(ConflictError):
                claim = self.write(jobs.claim_due_job, one, seconds)
                if claim is not None:
                    return claim
        return None

    def sessions(self, namespace: str) -> StoredSessions:
        """The chats of a namespace; whether there is one is found out with the first question."""
        return StoredSessions(self.database, namespace)

    def note_usage(self, tokens: Mapping[str, int], keys_used: Mapping[str, float]) -> None:
        """Tokens by namespaces, and when keys were last used, by their ids."""

        def write(connection: Connection) -> None:
            budgets.add_tokens(connection, tokens)
            keys.note_used(connection, keys_used)

        self.database.write(write)
