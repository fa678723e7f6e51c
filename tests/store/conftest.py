from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import time

import pytest

from postgres_server import KINDS
from textevolve.evaluation import Usage
from textevolve.llm.model import JournalEntry, Message, Request, Response, request_key
from textevolve.memory.record import MemoryKind, MemoryStore
from textevolve.settings import StoreAddress, StoreLocation
from textevolve.store import tables
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord

MODEL = "scripted/judge"

# Where the store of lists is, which the real ones are held against.
sys.path.append(str(Path(__file__).parent.parent / "memory"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=KINDS)
def location(request: pytest.FixtureRequest, path: Path) -> StoreLocation:
    """Where an empty store is, of each kind that there is."""
    if request.param == "sqlite":
        return path
    name = request.getfixturevalue("postgres_name")
    return StoreAddress(request.getfixturevalue("postgres").address(name))


@pytest.fixture
def store(location: StoreLocation) -> Iterator[Store]:
    with open_store(location) as opened:
        yield opened


@pytest.fixture
def new_run(store: Store) -> Callable[..., RunRecord]:
    """Makes a run that differs from those before it."""
    runs: list[RunRecord] = []

    def make(name: str = "") -> RunRecord:
        runs.append(store.create_run({}, f"fingerprint {len(runs)}", name))
        return runs[-1]

    return make


@pytest.fixture(scope="session")
def make_entry() -> Callable[..., JournalEntry]:
    """A finished call: `number` makes the question, `answer` or `error` the outcome."""

    def make(
        number: int, answer: str = "yes", error: str | None = None, **changes: int
    ) -> JournalEntry:
        request = Request(
            messages=(Message("system", ("Judge.",)), Message("user", ("Case: ", str(number)))),
            schema='{"type": "object"}',
        )
        usage = Usage(**{"calls": 1, "prompt_tokens": 10, "completion_tokens": 2, **changes})
        response = Response(answer, "stop", usage) if error is None else None
        key = request_key(MODEL, request)
        return JournalEntry(key, MODEL, request, response, error, 1e9 + number, 0.5, 1)

    return make


@dataclass
class MemoryPlace:
    """A database of memories, and how namespaces and collections get into it."""

    location: str

    def __post_init__(self) -> None:
        self.resources = Store(self.location)

    def open(self, namespace: str) -> MemoryStore:
        return self.resources.memories(namespace)

    def create(
        self, namespace: str, name: str, dimension: int = 4, kind: MemoryKind = "episodic"
    ) -> str:
        """A collection, with its namespace where that is new; the collection's id."""
        now, id = time(), f"co_{secrets.token_hex(16)}"
        times = {"created": now, "updated": now, "description": ""}
        spaces = tables.namespaces

        def write(connection):
            known = connection.execute(spaces.select().where(spaces.c.name == namespace)).first()
            space = known.id if known else f"ns_{secrets.token_hex(16)}"
            if known is None:
                connection.execute(spaces.insert().values(id=space, name=namespace, **times))
            row = {"namespace_id": space, "name": name, "kind": kind, "dimension": dimension}
            row |= {"id": id, "embedder": "test/embedder", "version": 0, "changed": now, **times}
            connection.execute(tables.collections.insert().values(**row))

        self.resources.database.write(write)
        return id


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def memory_location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where memories are kept: an empty database of each kind that there is."""
    if request.param == "postgresql":
        name = request.getfixturevalue("postgres_name")
        return request.getfixturevalue("postgres").address(name)
    return str(tmp_path / "memories.db")


@pytest.fixture
def resources(memory_location: str) -> Iterator[Store]:
    """A store with two namespaces."""
    with closing(Store(memory_location)) as opened:
        for name in ("acme", "other"):
            opened.ensure_namespace(name)
        yield opened


@pytest.fixture
def place_at() -> Iterator[Callable[[str], MemoryPlace]]:
    """Opens a database; it is closed at the end."""
    memory_places: list[MemoryPlace] = []

    def open_place(location: str) -> MemoryPlace:
        memory_places.append(MemoryPlace(location))
        return memory_places[-1]

    yield open_place
    for each in memory_places:
        each.resources.close()


@pytest.fixture
def place(memory_location: str, place_at: Callable[[str], MemoryPlace]) -> MemoryPlace:
    return place_at(memory_location)


@pytest.fixture
def sqlite_place(path: Path) -> Iterator[MemoryPlace]:
    """A file with the collection home/chats, for what only files can go through."""
    memory_place = MemoryPlace(str(path))
    memory_place.create("home", "chats")
    yield memory_place
    memory_place.resources.close()
