"""PostgreSQL: connections, transactions, the schema, what its errors mean.

Everything of ours lies in a schema of its own, so that a database may be shared with other programs
whose tables have the same names. What is asked of it is the business of the files beside this one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from textevolve.errors import ConflictError, StoreAwayError, StoreError
from textevolve.settings import StoreAddress
from textevolve.store import tables
from textevolve.store.schema import migrate

T = TypeVar("T")

SCHEMA = "textevolve"
"""Also the schema in `store/migrations/env.py`."""
LOCK = 0x54457631
"""The advisory lock of whoever makes or changes the tables."""
CONNECTIONS = 16
"""The most that one process holds open."""
TRIES = 12
"""How often a change is made again that others' changes have undone."""
OLDEST_PGVECTOR = (0, 8)
"""The first that goes on looking in an index until enough memories have passed a filter."""

PATIENCE_SECONDS = 60.0
"""How long a lost connection is tried to be opened anew: a server that is started anew, or hands
over to another one, takes less."""

_LOST = ("57P01", "57P02", "57P03", "08", "53300")
"""The server goes down, was ended, starts, is not there, or has no connection left."""
_REFUSED = ("28", "3D", "42")

READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITING = "BEGIN ISOLATION LEVEL SERIALIZABLE"
"""As if one change were made after the other, which is also what SQLite does."""

# The schema of the extension is asked for, because some providers have one for extensions.
_SEARCH_PATH = f"""
    SELECT set_config('search_path', '{SCHEMA}, ' || coalesce((
        SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON pg_namespace.oid =
        extnamespace WHERE extname = 'vector'), 'public'), false)"""
# MAIN and the larger target keep vectors in their rows: a search reads all of a collection.
_VECTORS = (
    f"CREATE TABLE {SCHEMA}.memory_vectors (seq bigint PRIMARY KEY, collection_id text NOT NULL,"
    " embedding vector NOT NULL) WITH (toast_tuple_target = 8160)",
    f"ALTER TABLE {SCHEMA}.memory_vectors ALTER embedding SET STORAGE MAIN",
    f"CREATE INDEX memory_vectors_of_collection ON {SCHEMA}.memory_vectors (collection_id)",
)
_SETTINGS = "SET max_parallel_workers_per_gather = 0; SET jit = off"
"""Starting workers and compiling take longer than most searches do."""
_UNDONE = {"40001", "40P01", "23505", "42P07"}
"""Undone by the server because of others' changes: serialization failure, deadlock; and both made
the same at once, where trying again finds the other's."""

_ADVICE = {
    "28": "refuses this user or password; give the right ones in the address or in ~/.pgpass",
    "3D": "there is no such database; make it with CREATE DATABASE, or name another one",
    "42501": "this user may not do that; grant it, or name another user",
    "53": "the server is out of connections, memory or disk; try again when it has some",
    "57": "the server is going down or has ended this connection; try again when it is back",
    "08": "there is no connection to the server; try again when it is back",
    "42P01": (
        "memories need the extension vector, 0.8 or newer: install pgvector on the server, and let"
        " an administrator run CREATE EXTENSION vector in this database, or ALTER EXTENSION vector"
        " UPDATE"
    ),
    "22P05": "its encoding cannot hold this text; it needs a database with ENCODING 'UTF8'",
    "25006": "the server takes no changes (a standby?); name the primary one",
}
"""By the beginning of the SQLSTATE, the first that fits."""
_CONNECTING = {
    "database system is": "57",
    "authentication failed": "28",
    "no password supplied": "28",
    "pg_hba.conf": "28",
    "role": "28",
    "database": "3D",
    "too many": "53",
}
"""While connecting there is only a message, in the server's language; the first that fits. The
database system starts up, shuts down, or is in recovery."""


class Patience:
    """The waits between tries to open a connection anew, which end after some time."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """The connection is there: the next that is lost has all the time again."""
        self._until, self._wait = 0.0, 0.1

    def wait(self) -> bool:
        """Whether there is to be another try, for which this waits."""
        now = time.monotonic()
        self._until = self._until or now + PATIENCE_SECONDS
        if now + self._wait > self._until:
            return False
        time.sleep(self._wait)
        self._wait = min(1.0, 2 * self._wait)
        return True


def is_lost(error: Exception, *, connected: bool, gone: bool) -> bool:
    """Whether an error tells that a server is away for a while. `connected`: there was a
    connection, and `gone`: it has ended."""
    state = error_state(error)
    if not connected:  # there is only a message, in the server's language
        return not state.startswith(_REFUSED)
    return gone or state.startswith(_LOST)


class PostgresDatabase:
    """A database of a PostgreSQL server, which other processes may use at the same time.

    `name`: its address without the password, for messages.
    """

    vectors = True

    def __init__(self, address: StoreAddress) -> None:
        """
        Raises:
            StoreError: it cannot be used; says why and what to do.
        """
        self.location = address
        self._url = _read_address(address)
        self.name = str(address)
        self._closed = False
        self._engine = _create_engine(self._url)
        self.driver_error: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        try:
            with self._explained(), _once_more_connected(self._engine) as connection:
                self._prepare(connection)
        except BaseException:
            self._engine.dispose()
            raise

    def connect(self) -> Connection:
        """A connection of its own, on which no transaction has begun.

        Raises:
            SQLAlchemyError: there can be none; `explain` says why.
        """
        return self._engine.connect()

    def read(self, query: Callable[[Connection], T]) -> T:
        with self._explained():
            return self._run(READING, query)

    def write(self, change: Callable[[Connection], T]) -> T:
        """`change` is called again where others' changes undid it, so it changes nothing but the
        database.

        Raises:
            ConflictError: others' changes undid it again and again.
        """
        with self._explained():
            for number in range(TRIES - 1):
                try:
                    return self._run(WRITING, change)
                except DBAPIError as error:
                    if error_state(error) not in _UNDONE:
                        raise
                time.sleep(random.uniform(0, min(0.5, 0.005 * 2**number)))
            return self._run(WRITING, change)

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()

    def _run(self, begin: str, work: Callable[[Connection], T]) -> T:
        """`work` is done again where the connection is lost, unless its changes may be kept."""
        patience = Patience()
        while True:
            if self._closed:
                raise StoreAwayError(f"store {self.name}: is closed")
            connected = ending = False
            try:
                with _once_more_connected(self._engine, begin) as connection:
                    connected = True
                    try:
                        done = work(connection)
                        ending = begin == WRITING
                        connection.exec_driver_sql("COMMIT")
                        return done
                    except self.driver_error as error:  # of the driver's own, which COPY needs
                        raise DBAPIError(None, None, error) from error
            except DBAPIError as error:
                lost = is_lost(error, connected=connected, gone=error.connection_invalidated)
                if ending or not lost or not patience.wait():
                    raise

    def _prepare(self, connection: Connection) -> None:
        """Bring the tables to the newest schema. Of several processes the first one does it."""
        if self._look(connection) == (tables.REVISION, True):
            return
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        revision, searched = self._look(connection)
        if revision is None:
            self._create_schema(connection)
        if revision != tables.REVISION:
            migrate(connection)
        if revision is None:
            connection.execute(tables.counters.insert().values(name="sweeps", value=0))
        if not searched:
            _create_vectors(connection)
        connection.exec_driver_sql("COMMIT")

    def _look(self, connection: Connection) -> tuple[str | None, bool]:
        """The schema that the database has, None where it has nothing of ours; and whether memories
        can be searched by meaning."""
        # In one statement, because others may be making the tables just now.
        asked = (
            "SELECT count(*), count(*) FILTER (WHERE tablename = 'alembic_version'),"
            " count(*) FILTER (WHERE tablename = 'memory_vectors')"
            f" FROM pg_tables WHERE schemaname = '{SCHEMA}'"
        )
        tables_found, marked, searched = connection.exec_driver_sql(asked).one()
        if marked:
            asked = f"SELECT version_num FROM {SCHEMA}.alembic_version"
            revision = str(connection.exec_driver_sql(asked).scalar_one_or_none())
            if not revision.isdecimal() or revision > tables.REVISION:
                raise StoreError(
                    f"store {self.name}: was written by a newer TextEvolve (schema {revision}, this"
                    f" one knows {tables.REVISION}); update TextEvolve or name another database"
                )
            return revision, bool(searched)
        if tables_found:
            raise StoreError(
                f"store {self.name}: its schema {SCHEMA} belongs to another program; name another"
                " database"
            )
        return None, False

    def _create_schema(self, connection: Connection) -> None:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise StoreError(
                f"store {self.name}: its encoding is {encoding}, which cannot hold every text; make"
                " a database with ENCODING 'UTF8'"
            )
        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.exec_driver_sql(_SEARCH_PATH)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self.explain(error) from error

    def explain(self, error: Exception) -> StoreError:
        """What an error means for the user, in one line without the password."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        said = _line(cause)
        if self._url.password:
            said = said.replace(str(self._url.password), "***")
        state = error_state(error)
        if state in _UNDONE:
            return ConflictError(
                f"the store: others change the same all the time; try again later ({said})"
            )
        for known, advice in _ADVICE.items():
            if state.startswith(known):
                return StoreAwayError(f"store {self.name}: {advice} ({said})")
        return StoreAwayError(f"store {self.name}: cannot be used ({type(cause).__name__}: {said})")


def _read_address(address: StoreAddress) -> URL:
    if find_spec("psycopg") is None or find_spec("pgvector") is None:
        raise StoreError(
            "a store in PostgreSQL needs packages that are not installed:"
            ' pip install "textevolve[postgres]"'
        )
    try:
        url = make_url(address.url)
    except (ArgumentError, ValueError):  # what is no address may hold a password
        raise StoreError(
            "the address of the store cannot be read; write it as"
            " postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %3A for :, %2F for / and %40 for"
            " @ in the password"
        ) from None
    return url.set(drivername="postgresql+psycopg")


def _create_vectors(connection: Connection) -> None:
    """What memories are searched by meaning with, where the server has pgvector: nothing but
    memories needs it."""
    connection.exec_driver_sql("SAVEPOINT vectors")
    try:
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
        asked = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        found = str(connection.exec_driver_sql(asked).scalar_one())
        if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_PGVECTOR:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT vectors")
            return
        connection.exec_driver_sql(_SEARCH_PATH)
        for statement in _VECTORS:
            connection.exec_driver_sql(statement)
    except DBAPIError:  # who adds memories is told
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT vectors")


def _create_engine(url: URL) -> Engine:
    defaults = {"connect_timeout": "10", "application_name": "textevolve"}
    # A network that is gone without a word is noticed in half a minute, not after hours.
    defaults |= {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "4"}
    defaults |= {"tcp_user_timeout": "30000"}
    engine = create_engine(
        url.update_query_dict({**defaults, **url.query}),
        isolation_level="AUTOCOMMIT",
        pool_size=4,
        max_overflow=CONNECTIONS - 4,
        pool_recycle=3600,
        hide_parameters=True,
    )

    def find_tables(raw: Any, _record: Any) -> None:
        with raw.cursor() as cursor:
            cursor.execute(_SEARCH_PATH)
            cursor.execute(_SETTINGS)
        raw.commit()

    event.listen(engine, "connect", find_tables)
    return engine


@contextmanager
def _once_more_connected(engine: Engine, begin: str = "SELECT 1") -> Generator[Connection]:
    """A connection on which a transaction has begun, with another one where a server that was
    started anew has ended the first: nothing was asked on it yet."""
    connection = engine.connect()
    try:
        try:
            connection.exec_driver_sql(begin)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            connection.close()
            connection = engine.connect()
            connection.exec_driver_sql(begin)
        yield connection
    finally:
        connection.close()


def error_state(error: Exception) -> str:
    """The SQLSTATE of an error, empty where there is none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if state := getattr(cause, "sqlstate", None):
        return str(state)
    said = str(cause)
    if "Is the server running" in said:
        return "08"
    if "connection failed" in said:
        parts = (code for words, code in _CONNECTING.items() if words in said.partition("FATAL")[2])
        return next(parts, "")
    return "08" if isinstance(error, DBAPIError) and error.connection_invalidated else ""


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:300]
