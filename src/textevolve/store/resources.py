"""Namespaces, and what belongs to them: agents, collections, users, memories and chats.

A `ResourceStore` opens its database with the first question. Everything but the list of namespaces
is asked of one namespace, and finds nothing of another one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.engine import Connection

from textevolve.agents.resources import (
    AgentSpec,
    CollectionSpec,
    NamespaceSpec,
    PersonaVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    UserSpec,
)
from textevolve.memory.record import Collection
from textevolve.store import agents, budgets, collections, keys
from textevolve.store.budgets import TokenBudget
from textevolve.store.database import Database, open_database
from textevolve.store.keys import KeySpec, StoredKey
from textevolve.store.memories import StoredMemories
from textevolve.store.resource_rows import EVERYTHING, NameRange
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

    def ensure_namespace(self, name: str) -> None:
        """Make a namespace unless it is there, as for the one that is in force by the settings."""
        if name not in (one.spec.name for one in self.list_namespaces()):
            self.database.write(lambda c: collections.ensure_namespace(c, name))

    def create_namespace(self, spec: NamespaceSpec) -> StoredNamespace:
        return self.database.write(lambda c: collections.create_namespace(c, spec))

    def get_namespace(self, name: str) -> StoredNamespace:
        return self.database.read(lambda c: collections.get_namespace(c, name))

    def list_namespaces(self, span: NameRange = EVERYTHING) -> list[StoredNamespace]:
        return self.database.read(lambda c: collections.list_namespaces(c, span))

    def update_namespace(self, name: str, changes: Mapping[str, Any]) -> StoredNamespace:
        return self.database.write(lambda c: collections.update_namespace(c, name, changes))

    def delete_namespace(self, name: str) -> None:
        self.database.write(lambda c: collections.delete_namespace(c, name))

    def create_agent(self, namespace: str, spec: AgentSpec, source: str = "") -> StoredAgent:
        return self.database.write(lambda c: agents.create_agent(c, namespace, spec, source))

    def get_agent(self, name: str, namespace: str) -> StoredAgent:
        return self.database.read(lambda c: agents.get_agent(c, namespace, name))

    def list_agents(self, namespace: str, span: NameRange = EVERYTHING) -> list[StoredAgent]:
        return self.database.read(lambda c: agents.list_agents(c, namespace, span))

    def update_agent(
        self, name: str, namespace: str, changes: Mapping[str, Any], source: str = ""
    ) -> StoredAgent:
        return self.database.write(
            lambda c: agents.update_agent(c, namespace, name, changes, source)
        )

    def delete_agent(self, name: str, namespace: str) -> None:
        self.database.write(lambda c: agents.delete_agent(c, namespace, name))

    def add_persona(
        self,
        agent: StoredAgent,
        text: str,
        source: str = "",
        changes: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        return self.database.write(lambda c: agents.add_persona(c, agent, text, source, changes))

    def list_personas(self, agent: StoredAgent) -> list[PersonaVersion]:
        return self.database.read(lambda c: agents.list_personas(c, agent))

    def revert_persona(self, agent: StoredAgent, version: int) -> int:
        return self.database.write(lambda c: agents.revert_persona(c, agent, version))

    def create_collection(self, namespace: str, spec: CollectionSpec) -> Collection:
        return self.database.write(lambda c: collections.create_collection(c, namespace, spec))

    def get_collection(self, name: str, namespace: str) -> Collection:
        return self.database.read(lambda c: collections.get_collection(c, namespace, name))

    def list_collections(self, namespace: str, span: NameRange = EVERYTHING) -> list[Collection]:
        return self.database.read(lambda c: collections.list_collections(c, namespace, span))

    def count_memories(self, namespace: str) -> dict[str, int]:
        return self.database.read(lambda c: collections.count_memories(c, namespace))

    def update_collection(
        self, name: str, namespace: str, changes: Mapping[str, Any]
    ) -> Collection:
        return self.database.write(
            lambda c: collections.update_collection(c, namespace, name, changes)
        )

    def delete_collection(self, name: str, namespace: str, *, force: bool = False) -> None:
        self.database.write(
            lambda c: collections.delete_collection(c, namespace, name, force=force)
        )

    def create_user(self, namespace: str, spec: UserSpec) -> StoredUser:
        return self.database.write(lambda c: collections.create_user(c, namespace, spec))

    def get_user(self, name: str, namespace: str) -> StoredUser:
        return self.database.read(lambda c: collections.get_user(c, namespace, name))

    def list_users(self, namespace: str, span: NameRange = EVERYTHING) -> list[StoredUser]:
        return self.database.read(lambda c: collections.list_users(c, namespace, span))

    def update_user(self, name: str, namespace: str, changes: Mapping[str, Any]) -> StoredUser:
        return self.database.write(lambda c: collections.update_user(c, namespace, name, changes))

    def delete_user(self, name: str, namespace: str) -> None:
        self.database.write(lambda c: collections.delete_user(c, namespace, name))

    def sessions(self, namespace: str) -> StoredSessions:
        """The chats of a namespace; whether there is one is found out with the first question."""
        return StoredSessions(self.database, namespace)

    def add_key(
        self, name: str, spec: KeySpec, expires: float | None = None
    ) -> tuple[StoredKey, str]:
        return self.database.write(lambda c: keys.add_key(c, name, spec, expires))

    def list_keys(self) -> list[StoredKey]:
        return self.database.read(keys.list_keys)

    def find_key(self, text: str) -> StoredKey | None:
        return self.database.read(lambda c: keys.find_key(c, text))

    def find_key_by_id(self, id: str) -> StoredKey | None:
        return self.database.read(lambda c: keys.find_key_by_id(c, id))

    def revoke_key(self, name: str) -> StoredKey:
        return self.database.write(lambda c: keys.revoke_key(c, name))

    def add_browser_session(self, token: str, key_id: str, expires: float) -> None:
        self.database.write(lambda c: keys.add_session(c, token, key_id, expires))

    def find_browser_session(self, token: str) -> str | None:
        return self.database.read(lambda c: keys.find_session(c, token))

    def end_browser_session(self, token: str) -> None:
        self.database.write(lambda c: keys.end_session(c, token))

    def read_budget(self, namespace: str) -> TokenBudget:
        return self.database.read(lambda c: budgets.read_budget(c, namespace))

    def note_usage(self, tokens: Mapping[str, int], keys_used: Mapping[str, float]) -> None:
        """Tokens by namespaces, and when keys were last used, by their ids."""

        def write(connection: Connection) -> None:
            budgets.add_tokens(connection, tokens)
            keys.note_used(connection, keys_used)

        self.database.write(write)
