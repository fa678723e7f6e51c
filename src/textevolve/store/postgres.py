"""A store in a PostgreSQL database, which several machines may use at once.

All tables are in a separate schema, so that other programs may have tables of the same names in the
database. A lost connection is reopened for up to a minute, and its transaction is repeated unless
it was committed after all, since a server may stop during a commit.

Changes of runs are ordered by advisory locks: changes of one run are made one after another, and a
change of all runs waits for all others. Other changes are serializable transactions on separate
connections, so that they delay neither the journal nor the heartbeat.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from textevolve.errors import ConflictError, StoreAwayError, StoreError, shorten_error
from textevolve.settings import StoreAddress
from textevolve.store import tables
from textevolve.store.dialects import (
    CALL_COLUMNS,
    SWEEPS,
    GroupRows,
    cause_of,
    create_tables,
    driver_of,
    explained,
    update_tables,
)
from textevolve.store.documents import DAMAGES

P = ParamSpec("P")
T = TypeVar("T")

SCHEMA = "textevolve"
"""The name of the schema with all tables."""
LOCK = 0x54457631
"""The number of the advisory lock for creating or changing tables, and for changing runs."""
CONNECTIONS = 16
"""The maximum number of open connections of one process."""
TRIES = 30
"""The number of times that a change is repeated if concurrent changes roll it back."""

PATIENCE_SECONDS = 60.0
"""The time for which a lost connection is reopened. A server that restarts or fails over takes
less."""

FIRST_WAIT = 0.1
"""The seconds before the second attempt; each further wait is twice as long, up to a second."""

_LOST = ("57P01", "57P02", "57P03", "08", "53300")
"""The SQLSTATEs, or their beginnings, for a server that is temporarily away: it shuts down, was
terminated, starts, is unreachable, or has no free connection."""
_REFUSED = ("28", "3D", "42")
"""The beginnings of the SQLSTATEs for errors that another attempt cannot solve: user, database,
rights."""

_NUMBER = "pg_current_xact_id()::text"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING = ("BEGIN ISOLATION LEVEL SERIALIZABLE", f"SELECT {_NUMBER}")
"""The statements that begin a serializable transaction, whose result is as if changes were made one
after another, as in SQLite."""
_SHARED = ("BEGIN", f"SELECT pg_advisory_xact_lock_shared({LOCK}, 0), {_NUMBER}")
_ALONE = ("BEGIN", f"SELECT pg_advisory_xact_lock({LOCK}, 0), {_NUMBER}")
"""The statements that begin a change of one run (`_SHARED`, with a lock of the run), and a change
of all runs."""
_OF_RUN = f"SELECT pg_advisory_xact_lock({LOCK + 1}, hashtext(%s))"

_TEXTS = """
INSERT INTO texts (hash, size, body) SELECT * FROM unnest(%b::bytea[], %b::int4[], %b::bytea[])
ON CONFLICT DO NOTHING
"""
_CALLS = f"COPY calls ({', '.join(CALL_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
_TYPES = [
    {str: "text", float: "float8", int: "int4", bytes: "bytea"}[
        tables.calls.c[name].type.python_type
    ]
    for name in CALL_COLUMNS
]
_REUSES = """
INSERT INTO reuses (run_id, call_id) SELECT * FROM unnest(%b::text[], %b::int8[])
ON CONFLICT DO NOTHING
"""
_FIND = """
SELECT key, id, prompt_tokens, cached_tokens, completion_tokens, cost, saved, response,
    run_id = %(run)s OR EXISTS (
        SELECT 1 FROM reuses WHERE run_id = %(run)s AND call_id = calls.id)
FROM calls WHERE key = ANY(%(keys)s) AND error IS NULL ORDER BY run_id = %(run)s, id DESC
"""
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
_EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public"
_SETTINGS = "SET max_parallel_workers_per_gather = 0; SET jit = off"
"""Settings of each connection: starting parallel workers and compiling queries take longer than
most searches."""
_WORDS = (
    "CREATE TABLE memory_words (seq bigint PRIMARY KEY, length integer NOT NULL,"
    " words tsvector NOT NULL)",
    "CREATE INDEX memory_words_by_word ON memory_words USING gin (words) WITH (fastupdate = off)",
)
_UNDONE = ("40001", "40P01")
"""The SQLSTATEs for a transaction that the server rolled back because of concurrent changes:
serialization failure, deadlock."""
_CREATED_TWICE = ("23505", "42P07")
"""The SQLSTATEs for two processes that created the same row or table at once; another attempt finds
it."""

_ADVICE = {
    "28": "the server refuses this user or password; correct them in the address or in ~/.pgpass",
    "3D": "there is no such database; make it with CREATE DATABASE, or name another one",
    "42501": "this user has no right to do that; grant the right, or name another user",
    "53": "the server is out of connections, memory or disk; try again when it has some",
    "57014": (
        "the server cancelled a statement, as at the end of its statement_timeout; for a longer"
        " one add ?options=-cstatement_timeout%3D10min to the address"
    ),
    "57": "the server is going down or has ended this connection; try again when it is back",
    "08": "there is no connection to the server; try again when it is back",
    "42P01": (
        "memories need the extension vector: install pgvector on the server, and let an"
        " administrator run CREATE EXTENSION vector in this database"
    ),
    "22P05": "its encoding cannot hold this text; it needs a database with ENCODING 'UTF8'",
    "25006": "the server is read-only (a standby?); name the primary server",
}
"""The advice for an error by the beginning of its SQLSTATE; the first one that fits is used."""
_CONNECTING = {
    "database system is": "57",
    "authentication failed": "28",
    "no password supplied": "28",
    "pg_hba.conf": "28",
    "role": "28",
    "database": "3D",
    "too many": "53",
}
"""The SQLSTATE of an error while connecting, which has only a message, by a part of the message;
the first one that fits is used. "database system is" precedes: starting up, shutting down, in
recovery."""


def is_lost(error: Exception, *, connected: bool, gone: bool) -> bool:
    """Check whether an error means that the server is temporarily away. `connected`: there was a
    connection; `gone`: the connection has ended."""
    state = error_state(error)
    if not connected:  # there is only a message, in the server's language
        return not state.startswith(_REFUSED)
    return gone or state.startswith(_LOST)


class PostgresDatabase:
    """A PostgreSQL database. Any thread may use it. Its methods are those of `SQLiteDatabase`."""

    remote = True

    def __init__(self, address: StoreAddress, *, patient: bool = False) -> None:
        """Open a database. `patient`: wait for a server that cannot be reached, for up to
        `PATIENCE_SECONDS`, instead of failing at once.

        Raises:
            StoreError: the store cannot be used; the message says why and what to do.
        """
        self.location = address
        self._url = _read_address(address)
        self.closed = False
        self.engine = _create_engine(self._url)
        self.driver_error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        self.errors = (SQLAlchemyError, self.driver_error, *DAMAGES)
        self._session = PostgresSession(self)
        self._finding = threading.Lock()
        self._finder = PostgresSession(self)

        try:
            with explained(self), closing(PostgresSession(self, patient=patient)) as session:
                session.run(self._prepare)
        except BaseException:
            self.engine.dispose()
            raise

    def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function of a connection, again if the connection is lost; it reads one consistent
        snapshot."""

        def attempt(connection: Connection) -> T:
            with _transaction(connection, _READING):
                return query(connection, *args, **kwargs)

        with explained(self), closing(PostgresSession(self)) as session:
            return session.run(attempt)

    def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a connection in a transaction; if it raises, nothing is stored. The
        function is called again if concurrent changes roll the transaction back, so it must change
        nothing but the database.

        Raises:
            ConflictError: concurrent changes rolled it back too often.
        """
        with explained(self), closing(PostgresSession(self)) as session:
            return session.transact(
                _WRITING,
                lambda connection: change(connection, *args, **kwargs),
                undone=_UNDONE + _CREATED_TWICE,
            )

    def change(
        self,
        run_id: str | None,
        change: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function that changes runs; only one thread at a time may do so. Changes of one
        run are made one after another; without `run_id`, no other process changes runs at the same
        time."""

        def work(connection: Connection) -> T:
            if run_id is not None:
                connection.exec_driver_sql(_OF_RUN, (run_id,))
            return change(connection, *args, **kwargs)

        with explained(self):
            return self._session.transact(_ALONE if run_id is None else _SHARED, work)

    def insert(self, fill: Callable[[int], GroupRows]) -> None:
        """Insert the rows that `fill` returns, from the number of the last sweep, in one
        transaction; `fill` may be called again."""

        def write(connection: Connection) -> None:
            raw = driver_of(connection)
            _insert_rows(raw, fill(raw.execute(SWEEPS).fetchone()[0]))

        self._session.transact(_SHARED, write)

    def find_answers(self, run_id: str, keys: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return the answers stored under the keys, in rows of the same columns and order as
        `SQLiteDatabase.find_answers`: of several under one key, the one for this run comes last."""

        def attempt(connection: Connection) -> Sequence[tuple[Any, ...]]:
            with driver_of(connection).cursor(binary=True) as cursor:
                return cursor.execute(_FIND, {"run": run_id, "keys": keys}).fetchall()

        with self._finding, explained(self):
            return self._finder.run(attempt)

    def vacuum(self, *, scrub: bool = False) -> None:
        """Make the space of deleted rows reusable; with `scrub` all tables are rewritten without
        the deleted rows."""
        how = "FULL" if scrub else "ANALYZE"
        names = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"
        with explained(self), self.engine.connect() as connection:
            for name in connection.exec_driver_sql(names).scalars().all():
                connection.exec_driver_sql(f"VACUUM ({how}) {name}")

    def is_row_fault(self, error: Exception) -> bool:
        """Return whether an error concerns one row that cannot be stored, and not the whole group
        of writes, as a lost connection does."""
        is_value = error_state(error).startswith(("22", "23"))
        return is_value or isinstance(error, (*DAMAGES, StoreError))

    def close(self) -> None:
        self.closed = True
        self._session.close()
        with self._finding:
            self._finder.close()
        self.engine.dispose()

    def _prepare(self, connection: Connection) -> None:
        """Update the tables to the newest schema; if several processes open the database, the first
        does it."""
        if self._read_state(connection) == (tables.REVISION, True):
            return
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        revision, searched = self._read_state(connection)
        if revision is None:
            self._create_schema(connection)
        else:
            update_tables(connection, revision, self.location)

        if not searched:
            _create_vectors(connection)
        connection.exec_driver_sql("COMMIT")

    def _read_state(self, connection: Connection) -> tuple[str | None, bool]:
        """Return the revision of the database's schema, None if it has none of our tables; and
        whether memories can be searched by embedding."""
        # In one statement, because others may be making the tables just now.
        query = (
            "SELECT count(*), count(*) FILTER (WHERE tablename = 'alembic_version'),"
            " count(*) FILTER (WHERE tablename = 'memory_vectors')"
            f" FROM pg_tables WHERE schemaname = '{SCHEMA}'"
        )
        number, marked, searched = connection.exec_driver_sql(query).one()
        if marked:
            query = f"SELECT version_num FROM {SCHEMA}.alembic_version"
            revision = str(connection.exec_driver_sql(query).scalar_one_or_none())
            return revision, bool(searched)

        if number:
            raise StoreError(
                f"store {self.location}: its schema {SCHEMA} belongs to another program; name"
                " another database"
            )

        return None, False

    def _create_schema(self, connection: Connection) -> None:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise StoreError(
                f"store {self.location}: its encoding is {encoding}, which cannot hold every text;"
                " make a database with ENCODING 'UTF8'"
            )

        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.exec_driver_sql(_SEARCH_PATH)
        create_tables(connection)
        for statement in _WORDS:
            connection.exec_driver_sql(statement)

    def explain(self, error: Exception) -> StoreError:
        """Explain an error to the user, in one line without the password."""
        cause = cause_of(error)
        text = shorten_error(cause)
        if self._url.password:
            text = text.replace(str(self._url.password), "***")
        state = error_state(error)
        if state in _UNDONE + _CREATED_TWICE:
            return ConflictError(
                f"the store: concurrent changes of the same rows; try again later ({text})"
            )

        for prefix, advice in _ADVICE.items():
            if state.startswith(prefix):
                return StoreAwayError(f"store {self.location}: {advice} ({text})")
        name = type(cause).__name__

        return StoreAwayError(f"store {self.location}: cannot be used ({name}: {text})")


class PostgresSession:
    """A connection that is opened on first use and reopened when it is lost. If reopening has
    failed for too long, each further use tries only once. Only one thread at a time may use it."""

    def __init__(self, database: PostgresDatabase, *, patient: bool = True) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._patient = patient
        self._until = 0.0
        self._wait = FIRST_WAIT

    def transact(
        self,
        begin: tuple[str, str],
        change: Callable[[Connection], T],
        undone: Collection[str] = _UNDONE,
    ) -> T:
        """Make a change in a transaction; `begin`: its first two statements. The second one selects
        the transaction's number, which tells after a lost connection whether the change was
        committed."""
        number = ""
        result: list[T] = []

        def attempt(connection: Connection) -> T:
            nonlocal number
            if result and _is_committed(connection, number):
                return result[0]
            result.clear()
            with _transaction(connection, begin[0]):
                number = str(connection.exec_driver_sql(begin[1]).one()[-1])
                result.append(change(connection))
            return result[0]

        return self.run(attempt, undone)

    def run(self, work: Callable[[Connection], T], undone: Collection[str] = ()) -> T:
        """Call a function of the connection; call it again if the connection is lost, or if a
        concurrent change rolled its transaction back."""
        tries = 0
        while True:
            if self._database.closed:
                raise StoreAwayError(f"store {self._database.location}: is closed; open it again")
            try:
                if self._connection is None:
                    self._connection = self._database.engine.connect()
                result = work(self._connection)
            except (DBAPIError, self._database.driver_error) as error:
                if error_state(error) in undone and tries < TRIES - 1:
                    time.sleep(random.uniform(0, min(0.5, 0.005 * 2**tries)))
                    tries += 1
                    continue

                connection = self._connection
                gone = connection is None or _is_gone(connection)
                if not is_lost(error, connected=connection is not None, gone=gone):
                    raise
                if connection is not None:
                    with suppress(SQLAlchemyError, self._database.driver_error):
                        connection.invalidate()
                    self.close()

                if not self._wait_for_server():
                    raise
            else:
                # The next connection that is lost has all the time again.
                self._until = 0.0
                self._wait = FIRST_WAIT
                return result

    def _wait_for_server(self) -> bool:
        """Wait before another attempt; return False if there is no time left for one."""
        now = time.monotonic()
        self._until = self._until or now + PATIENCE_SECONDS
        if not self._patient or now + self._wait > self._until:
            return False
        time.sleep(self._wait)
        self._wait = min(1.0, 2 * self._wait)
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(SQLAlchemyError, self._database.driver_error):
                self._connection.close()
            self._connection = None


@contextmanager
def _transaction(connection: Connection, begin: str) -> Generator[None]:
    """Run the block in a transaction; an error rolls it back if the server can still be reached."""
    connection.exec_driver_sql(begin)
    try:
        yield
    except BaseException:
        if not _is_gone(connection):
            with suppress(SQLAlchemyError):
                connection.exec_driver_sql("ROLLBACK")
        raise

    connection.exec_driver_sql("COMMIT")


def _is_gone(connection: Connection) -> bool:
    return connection.invalidated or driver_of(connection).closed


def _is_committed(connection: Connection, number: str) -> bool:
    """Check whether a transaction was committed although its connection was lost."""
    while True:
        try:
            query = "SELECT pg_xact_status(%s::xid8)"
            status = connection.exec_driver_sql(query, (number,)).scalar_one()
        except DBAPIError as error:
            if error_state(error).startswith("22"):  # the server does not know it any more
                return False
            raise

        if status != "in progress":
            return status == "committed"
        time.sleep(0.1)


def _insert_rows(raw: Any, rows: GroupRows) -> None:
    with raw.cursor() as cursor:
        if rows.texts:
            # In one order, so that two who write the same texts do not wait for each other.
            hashes, sizes, bodies = zip(*sorted(rows.texts), strict=True)
            cursor.execute(_TEXTS, (list(hashes), list(sizes), list(bodies)))

        if rows.calls:
            with cursor.copy(_CALLS) as copy:
                copy.set_types(_TYPES)
                for row in rows.calls:
                    copy.write_row(row)

        if rows.reuses:
            runs, calls = zip(*rows.reuses, strict=True)
            cursor.execute(_REUSES, (list(runs), list(calls)))


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
    """Create the tables for searching memories by embedding if the server has pgvector. Without it,
    adding memories raises an error; everything else works."""
    connection.exec_driver_sql("SAVEPOINT vectors")
    try:
        for statement in (_EXTENSION, _SEARCH_PATH, *_VECTORS):
            connection.exec_driver_sql(statement)
    except DBAPIError:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT vectors")


def _create_engine(url: URL) -> Engine:
    defaults = {
        "connect_timeout": "10",
        "application_name": "textevolve",
        # A network that is gone without a word is noticed in half a minute, not after hours.
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "4",
        "tcp_user_timeout": "30000",
    }
    engine = create_engine(
        url.update_query_dict({**defaults, **url.query}),
        isolation_level="AUTOCOMMIT",
        pool_size=4,
        max_overflow=CONNECTIONS - 4,
        pool_recycle=3600,
        hide_parameters=True,
    )

    def find_tables(raw: Any, _record: Any) -> None:
        raw.execute(_SEARCH_PATH)
        raw.execute(_SETTINGS)
        raw.commit()

    event.listen(engine, "connect", find_tables)

    return engine


def error_state(error: Exception) -> str:
    """Return the SQLSTATE of an error; empty if it has none."""
    cause = cause_of(error)
    if state := getattr(cause, "sqlstate", None):
        return str(state)
    message = str(cause)
    if "Is the server running" in message:
        return "08"
    if "connection failed" in message:
        parts = (
            code for words, code in _CONNECTING.items() if words in message.partition("FATAL")[2]
        )
        return next(parts, "")

    return "08" if isinstance(error, DBAPIError) and error.connection_invalidated else ""
