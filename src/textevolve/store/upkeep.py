"""What a store takes and how it is kept in order: sizes, room that is given back, and whether all
that is kept in PostgreSQL can be read. For files `salvage` reads even what SQLite cannot."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.settings import StoreAddress, StoreLocation
from textevolve.store import tables
from textevolve.store.copying import count_rows, read_rows
from textevolve.store.database import open_backend, open_database
from textevolve.store.dialects import file_bytes
from textevolve.store.documents import (
    DAMAGES,
    bytes_to_text,
    image_keys,
    load_case,
    load_response,
    split_hashes,
    unpack,
    unpack_json,
)
from textevolve.store.postgres import SCHEMA
from textevolve.store.runs import check_fields
from textevolve.store.salvage import Findings, check_store
from textevolve.store.schema import connect


@dataclass(frozen=True, slots=True)
class StoreStats:
    """`bytes`: on the disk, with indexes; `free`: of them those that are used again before the
    store grows. `revision`: of its tables."""

    engine: str
    revision: str
    bytes: int
    free: int
    rows: dict[str, int]
    runs: dict[str, int]


def read_stats(location: StoreLocation) -> StoreStats:
    """
    Raises:
        StoreError: the store cannot be read.
    """
    with closing(open_database(location)) as database:
        return database.read(_read_stats)


def _read_stats(connection: Connection) -> StoreStats:
    query = select(tables.runs.c.status, func.count()).group_by(tables.runs.c.status)
    states = {row[0]: row[1] for row in connection.execute(query)}
    size, free, engine = _sizes(connection)
    return StoreStats(engine, tables.REVISION, size, free, count_rows(connection), states)


def _sizes(connection: Connection) -> tuple[int, int, str]:
    if connection.dialect.name == "postgresql":
        asked = (
            "SELECT coalesce(sum(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)"
            f"::regclass)), 0)::int8, current_setting('server_version') FROM pg_tables"
            f" WHERE schemaname = '{SCHEMA}'"
        )
        size, version = connection.exec_driver_sql(asked).one()
        return size, 0, f"PostgreSQL {version.split()[0]}"
    size, free = file_bytes(connection)
    version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    return size, free, f"SQLite {version}"


def vacuum_store(location: StoreLocation) -> tuple[int, int]:
    """Give room back that nothing needs any more; how many bytes the store had, and has.

    Raises:
        StoreError: it is in use, or there is no room for a second copy of the file.
    """
    before = read_stats(location).bytes
    if isinstance(location, Path):
        _vacuum_file(location.expanduser().absolute())
    else:
        _vacuum_tables(location)
    return before, read_stats(location).bytes


def scrub_store(location: StoreLocation) -> None:
    """Write the store anew, so that no free page holds what was erased.

    Raises:
        StoreError: that cannot be done now; what was erased is in no row all the same.
    """
    try:
        if isinstance(location, StoreAddress):
            _vacuum_tables(location, "FULL")
        elif _vacuum_file(location.expanduser().absolute()):
            raise StoreError(f"store {location}: other processes read its write-ahead log")
    except StoreError as error:
        raise StoreError(
            f"{error}; the text is erased, but free pages may hold it still: when no other process"
            " uses the store, give the command: textevolve store vacuum"
        ) from error


def _vacuum_file(path: Path) -> bool:
    """Whether others hindered the write-ahead log from being emptied."""
    backend = open_backend(path)
    try:
        with closing(connect(path, writing=False)) as connection:
            connection.exec_driver_sql("PRAGMA query_only = OFF")
            connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            return bool(busy)
    except backend.errors as error:
        raise backend.explain(error) from error


def _vacuum_tables(address: StoreAddress, how: str = "ANALYZE") -> None:
    backend = open_backend(address)
    try:
        with closing(backend.open_reader()) as reader:
            names = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"
            for name in reader.read(lambda c: c.exec_driver_sql(names).scalars().all()):
                reader.read(lambda c, name=name: c.exec_driver_sql(f"VACUUM ({how}) {name}"))
    except backend.errors as error:
        raise backend.explain(error) from error
    finally:
        backend.close()


def check(location: StoreLocation, salvage: Path | None = None) -> Findings:
    """What of a store is whole. `salvage`: a new file, into which that is copied; of a database
    that has to be done with the server's own tools.

    Raises:
        StoreError: it cannot be read, or the new file cannot be written.
    """
    if isinstance(location, Path):
        return check_store(location, salvage)
    if salvage is not None:
        raise StoreError(
            f"store {location}: only a file is salvaged; what is whole is copied by: textevolve"
            " store copy, and backups are made with pg_dump"
        )
    with closing(open_database(location)) as database:
        return database.read(_check)


class _Findings:
    def __init__(self) -> None:
        self.whole: Counter[str] = Counter()
        self.lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.unread = 0

    def look(self, run_id: str, kind: str, read: Callable[..., object], *what: object) -> None:
        try:
            read(*what)
        except DAMAGES:
            self.lose(run_id, kind)
        else:
            self.whole[kind] += 1

    def lose(self, run_id: str, kind: str, number: int = 1) -> None:
        if run_id:
            self.lost[run_id][kind] += number
        else:
            self.unread += number


def _check(connection: Connection) -> Findings:
    found = _Findings()
    there = set[bytes]()
    for row in read_rows(connection, tables.texts):
        there.add(row["hash"])
        found.look("", "texts", _check_text, row)
    for row in read_rows(connection, tables.calls):
        found.look(row["run_id"], "calls", _check_call, row, there)
        if row["key"] == tables.ERASED_KEY:
            found.whole["erased calls"] += 1
    for row in read_rows(connection, tables.cases):
        found.look(row["run_id"], "cases", _check_case, row, there)
    for row in read_rows(connection, tables.records):
        found.look(row["run_id"], "records", unpack_json, row["body"])
    for row in read_rows(connection, tables.runs):
        found.look(row["id"], "runs", check_fields, row)
        own = select(func.count()).where(tables.cases.c.run_id == row["id"])
        missing = (row["n_cases"] or 0) - connection.execute(own).scalar_one()
        if missing > 0:
            found.lose(row["id"], "cases", missing)
    lost = {run: dict(kinds) for run, kinds in found.lost.items()}
    return Findings(dict(found.whole), lost, found.unread, "")


def _check_text(row: dict[str, Any]) -> None:
    body = unpack(row["body"], row["size"])
    bytes_to_text(body)
    if hashlib.sha256(body).digest() != row["hash"]:
        raise ValueError("not what was kept")


def _check_call(row: dict[str, Any], there: set[bytes]) -> None:
    if set(split_hashes(row["parts"])) - there:
        raise ValueError("a text is missing")
    if row["response"] is not None:
        used = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost", "saved")
        load_response(row["response"], *(row[name] for name in used))


def _check_case(row: dict[str, Any], there: set[bytes]) -> None:
    if set(image_keys(row["body"])) - there:
        raise ValueError("an image is missing")
    load_case(row["id"], row["body"])
