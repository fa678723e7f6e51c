"""Opening a store's file: connections, tables, migrations, and what SQLite's errors mean.

A store that is current is opened without importing alembic.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlalchemy import ExecutableDDLElement, create_engine, create_mock_engine, event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from textevolve.errors import StoreAwayError, StoreError
from textevolve.store import memory_tables, server_tables, tables
from textevolve.store.documents import CHECK, DAMAGES
from textevolve.store.sqlite import sqlite3

BUSY_SECONDS = 30.0
"""How long a connection waits while another process writes."""

MIGRATIONS = Path(__file__).parent / "migrations"

PARTS = (tables, memory_tables, server_tables)
"""All files with tables of the schema have to be loaded before it is made."""

_ADVICE = {
    "SQLITE_FULL": "the disk is full: free some space and resume; what was kept before is intact",
    "SQLITE_IOERR": (
        "the disk refuses to read or write: check its free space and its health, then resume; "
        "what was kept before is intact"
    ),
    "SQLITE_BUSY": "another process keeps it locked; end that process and try again",
    "SQLITE_READONLY": "it may not be written; check the rights of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and may be written",
    "SQLITE_NOTADB": f"it is not a database; choose another file with --store ({CHECK})",
    "SQLITE_CORRUPT": f"the file is damaged; {CHECK}",
}


def explain(error: Exception, path: Path, run_id: str = "") -> StoreError:
    """What an error of the database means for the user, and what to do; `run_id`: whose data were
    read."""
    store = f"run {run_id}: store {path}" if run_id else f"store {path}"
    cause = error.orig if isinstance(error, DBAPIError) else error
    name = str(getattr(cause, "sqlite_errorname", ""))
    for known, advice in _ADVICE.items():
        if name.startswith(known):
            return StoreAwayError(f"{store}: {advice} ({_line(cause)})")
    said = f"{type(cause).__name__}: {_line(cause)}"
    return StoreAwayError(f"{store}: cannot be used ({said}); {CHECK}")


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:300]


def connect(path: Path, *, writing: bool) -> Connection:
    """A connection that any thread may use, one at a time. `begin()` takes the write lock."""

    def create() -> sqlite3.Connection:
        raw = sqlite3.connect(
            path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        with closing(raw.cursor()) as cursor:
            cursor.execute("PRAGMA synchronous = FULL")
            # Not all builds have it as their default, and what was deleted has to be gone.
            cursor.execute("PRAGMA secure_delete = ON")
            if not writing:
                cursor.execute("PRAGMA query_only = ON")
        return raw

    def take_write_lock(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    engine = create_engine("sqlite://", creator=create, poolclass=NullPool, module=sqlite3)
    if writing:
        event.listen(engine, "begin", take_write_lock)
    try:
        connection = engine.connect()
    except DBAPIError as error:
        raise explain(error, path) from error
    return connection if writing else connection.execution_options(isolation_level="AUTOCOMMIT")


def prepare(path: Path) -> None:
    """Make the file ready for use: created where it is missing, brought to the newest schema.

    Raises:
        StoreError: the file cannot be used, belongs to another program, or to a newer TextEvolve.
    """
    _create_file(path)
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as raw:
            _switch_to_wal(raw, path)
        with closing(connect(path, writing=True)) as connection, connection.begin():
            _bring_up_to_date(connection, path)
    except (SQLAlchemyError, sqlite3.Error, *DAMAGES) as error:
        raise explain(error, path) from error


def _create_file(path: Path) -> None:
    """Only its owner may read a new store: it holds the texts of its user."""
    if path.is_dir():
        raise StoreError(f"store {path}: is a folder; name a file in it with --store")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"store {path}: its folder cannot be made ({error.strerror}); choose another file "
            "with --store"
        ) from error
    try:
        # An existing file is never opened here: closing it would drop the locks that SQLite holds
        # for other connections of this process.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.is_file():
            raise StoreError(f"store {path}: is no plain file; name one with --store") from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreError(f"store {path}: {_ADVICE['SQLITE_READONLY']}") from None
    except OSError as error:
        raise StoreError(
            f"store {path}: cannot be created ({error.strerror}); choose another file with --store"
        ) from error


def _switch_to_wal(raw: sqlite3.Connection, path: Path) -> None:
    """SQLite does not wait for other processes here, so the waiting is ours."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = raw.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    if mode != "wal":
        raise StoreError(
            f"store {path}: this folder does not allow a write-ahead log (a network folder?); "
            "choose a local one with --store"
        )


def _bring_up_to_date(connection: Connection, path: Path) -> None:
    revision = _read_revision(connection, path)
    if revision == tables.REVISION:
        return
    if revision is None:
        _create_tables(connection)
    elif revision > tables.REVISION:
        raise StoreError(
            f"store {path}: was written by a newer TextEvolve (schema {revision}, this one knows "
            f"{tables.REVISION}); update TextEvolve or choose another file with --store"
        )
    else:
        migrate(connection)


def _read_revision(connection: Connection, path: Path) -> str | None:
    """The schema that the file has, None for an empty file."""
    found = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    if found == tables.APPLICATION_ID:
        query = "SELECT version_num FROM alembic_version"
        revision = str(connection.exec_driver_sql(query).scalar_one())
        if re.fullmatch(r"[0-9]{4}", revision) is None:
            raise ValueError(f"there is no schema {revision!r}")
        return revision
    if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
        raise StoreError(
            f"store {path}: is a database of another program, or damaged; choose another file with"
            f" --store ({CHECK})"
        )
    return None


@cache
def _statements() -> tuple[str, ...]:
    """What makes all tables and indexes in an empty file; written once for each process."""
    made: list[str] = []

    def note(statement: ExecutableDDLElement, *_: object) -> None:
        made.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine("sqlite://", note)
    tables.metadata.create_all(engine, checkfirst=False)
    return tuple(made)


def _create_tables(connection: Connection) -> None:
    for statement in _statements():
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"PRAGMA application_id = {tables.APPLICATION_ID}")
    connection.exec_driver_sql(
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (tables.REVISION,))
    connection.execute(tables.counters.insert().values(name="sweeps", value=0))


def migrate(connection: Connection, target: str = "head") -> None:
    """Run the migrations up to `target` inside the transaction that the connection is in."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    command.upgrade(config, target)
