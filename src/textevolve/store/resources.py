"""Namespaces, and what belongs to them: agents, collections, users, memories and chats.

A `ResourceStore` opens its database with the first question. Everything but the list of namespaces
is asked of one namespace, and finds nothing of another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel
from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError
from textevolve.labelling.tasks import GivenLabel, LabelItem, StoredTask, TaskSpec
from textevolve.settings import StoreLocation
from textevolve.store import budgets, jobs, keys, kinds, labelling
from textevolve.store.budgets import TokenBudget
from textevolve.store.database import Database, open_database
from textevolve.store.jobs import JobClaim, JobRunStatus, NextDue, StoredJob, StoredJobRun
from textevolve.store.keys import KeySpec, StoredKey
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

    def create_job(self, namespace: str, spec: BaseModel, next_due: NextDue) -> StoredJob:
        return self.database.write(lambda c: jobs.create_job(c, namespace, spec, next_due))

    def update_job(self, namespace: str, spec: BaseModel, next_due: NextDue) -> StoredJob:
        return self.database.write(lambda c: jobs.update_job(c, namespace, spec, next_due))

    def get_job(self, name: str, namespace: str) -> StoredJob:
        return self.database.read(lambda c: jobs.get_job(c, namespace, name))

    def list_jobs(self, namespace: str) -> list[StoredJob]:
        return self.database.read(lambda c: jobs.list_jobs(c, namespace))

    def delete_job(self, name: str, namespace: str) -> None:
        self.database.write(lambda c: jobs.delete_job(c, namespace, name))

    def pause_job(self, name: str, namespace: str) -> StoredJob:
        return self.database.write(lambda c: jobs.pause_job(c, namespace, name))

    def resume_job(self, name: str, namespace: str, next_due: NextDue) -> StoredJob:
        return self.database.write(lambda c: jobs.resume_job(c, namespace, name, next_due))

    def hasten_job(self, name: str, namespace: str) -> StoredJob:
        """Make it due now."""
        return self.database.write(lambda c: jobs.hasten_job(c, namespace, name))

    def list_job_runs(
        self, job: StoredJob, limit: int = 20, before: int | None = None
    ) -> list[StoredJobRun]:
        """What became of a job, the newest first."""
        return self.database.read(lambda c: jobs.list_job_runs(c, job, limit, before))

    def files_of_jobs(self) -> set[str]:
        """Where the files lie that clients sent with their jobs."""
        return self.database.read(jobs.files_of_jobs)

    def seconds_to_next_job(self) -> float | None:
        return self.database.read(jobs.seconds_to_next)

    def claim_due_job(self, seconds: float) -> JobClaim | None:
        """A job that is due, for this process alone; see `store/jobs.py`."""
        for one in self.database.read(jobs.list_due_jobs):
            # Two who change the same at once may undo each other again and again; the next look
            # finds what neither of them got.
            with suppress(ConflictError):
                claim = self.database.write(lambda c, one=one: jobs.claim_due_job(c, one, seconds))
                if claim is not None:
                    return claim
        return None

    def claim_job(self, name: str, namespace: str, seconds: float) -> JobClaim:
        return self.database.write(lambda c: jobs.claim_job(c, namespace, name, seconds))

    def renew_claim(self, claim: JobClaim, seconds: float) -> bool:
        return self.database.write(lambda c: jobs.renew_claim(c, claim, seconds))

    def note_job_run(self, claim: JobClaim, run_id: str) -> None:
        self.database.write(lambda c: jobs.note_job_run(c, claim, run_id))

    def end_claim(
        self, claim: JobClaim, status: JobRunStatus, detail: str, next_due: NextDue
    ) -> None:
        self.database.write(lambda c: jobs.end_claim(c, claim, status, detail, next_due))

    def release_claim(self, claim: JobClaim) -> None:
        self.database.write(lambda c: jobs.release_claim(c, claim))

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
