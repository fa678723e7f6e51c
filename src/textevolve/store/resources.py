"""Namespaces, and what belongs to them: agents, collections, users, memories and chats.

A `ResourceStore` opens its database with the first question. Everything but the list of namespaces
is asked of one namespace, and finds nothing of another one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

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
from textevolve.labelling.tasks import GivenLabel, LabelItem, StoredTask, TaskSpec
from textevolve.memory.record import Collection
from textevolve.store import agents, collections, labelling
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

    def ensure_namespace(self, name: str) -> None:
        """Make a namespace unless it is there, as for the one that is in force by the settings."""
        if name not in (one.spec.name for one in self.list_namespaces()):
            self.database.write(lambda c: collections.ensure_namespace(c, name))

    def create_namespace(self, spec: NamespaceSpec) -> StoredNamespace:
        return self.database.write(lambda c: collections.create_namespace(c, spec))

    def get_namespace(self, name: str) -> StoredNamespace:
        return self.database.read(lambda c: collections.get_namespace(c, name))

    def list_namespaces(self) -> list[StoredNamespace]:
        return self.database.read(collections.list_namespaces)

    def update_namespace(self, name: str, changes: Mapping[str, Any]) -> StoredNamespace:
        return self.database.write(lambda c: collections.update_namespace(c, name, changes))

    def delete_namespace(self, name: str) -> None:
        self.database.write(lambda c: collections.delete_namespace(c, name))

    def create_agent(self, namespace: str, spec: AgentSpec, source: str = "") -> StoredAgent:
        return self.database.write(lambda c: agents.create_agent(c, namespace, spec, source))

    def get_agent(self, name: str, namespace: str) -> StoredAgent:
        return self.database.read(lambda c: agents.get_agent(c, namespace, name))

    def list_agents(self, namespace: str) -> list[StoredAgent]:
        return self.database.read(lambda c: agents.list_agents(c, namespace))

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

    def list_collections(self, namespace: str) -> list[Collection]:
        return self.database.read(lambda c: collections.list_collections(c, namespace))

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

    def list_users(self, namespace: str) -> list[StoredUser]:
        return self.database.read(lambda c: collections.list_users(c, namespace))

    def update_user(self, name: str, namespace: str, changes: Mapping[str, Any]) -> StoredUser:
        return self.database.write(lambda c: collections.update_user(c, namespace, name, changes))

    def delete_user(self, name: str, namespace: str) -> None:
        self.database.write(lambda c: collections.delete_user(c, namespace, name))

    def sessions(self, namespace: str) -> StoredSessions:
        """The chats of a namespace; whether there is one is found out with the first question."""
        return StoredSessions(self.database, namespace)

    def create_task(
        self, namespace: str, name: str, spec: TaskSpec, items: Sequence[LabelItem]
    ) -> StoredTask:
        return self.database.write(lambda c: labelling.create_task(c, namespace, name, spec, items))

    def find_task(self, name: str, namespace: str) -> StoredTask:
        return self.database.read(lambda c: labelling.find_task(c, namespace, name))

    def get_task(self, id: str) -> StoredTask:
        return self.database.read(lambda c: labelling.get_task(c, id))

    def list_tasks(self, namespace: str | None = None) -> list[StoredTask]:
        return self.database.read(lambda c: labelling.list_tasks(c, namespace))

    def delete_task(self, id: str) -> None:
        self.database.write(lambda c: labelling.delete_task(c, id))

    def read_task(self, id: str) -> tuple[list[LabelItem], list[GivenLabel]]:
        """All items of a task and all its labels, of one moment."""
        return self.database.read(
            lambda c: (labelling.read_task_items(c, id), labelling.read_labels(c, id))
        )

    def read_task_item(self, id: str, position: int) -> LabelItem:
        return self.database.read(lambda c: labelling.read_task_item(c, id, position))

    def read_labels(self, id: str, labeller: str) -> list[GivenLabel]:
        return self.database.read(lambda c: labelling.read_labels(c, id, labeller))

    def keep_label(self, task: StoredTask, label: GivenLabel) -> GivenLabel:
        """It is on the disk when this returns."""
        return self.database.write(lambda c: labelling.keep_label(c, task, label))

    def drop_label(self, id: str, position: int, labeller: str) -> bool:
        return self.database.write(lambda c: labelling.drop_label(c, id, position, labeller))
