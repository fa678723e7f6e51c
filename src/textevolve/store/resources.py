"""Namespaces, and what belongs to them: agents, collections, users, memories and chats.

A `ResourceStore` opens its database with the first question. Everything but the list of namespaces
is asked of one namespace, and finds nothing of another one.
"""

from __future__ import annotations

import threading

from textevolve.store.database import Database, open_database
from textevolve.store.memories import StoredMemories
from textevolve.store.sessions import StoredSessions


class ResourceStore:
    """`location`: the path of an SQLite file, or a postgresql:// address."""

    def __init__(self, location: str) -> None:
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

    def sessions(self, namespace: str) -> StoredSessions:
        """The chats of a namespace; whether there is one is found out with the first question."""
        return StoredSessions(self.database, namespace)
