"""The one SQLite library of this process, which can load extensions where there is such a one.

All of the package takes `sqlite3` from here: two copies of SQLite in one process would take each
other's locks on a file away. Many builds of Python cannot load extensions; `sqlean`, of the extra
`memory`, is the same module with an SQLite that can.
"""

from __future__ import annotations

import sqlite3 as standard
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
else:

    def _choose() -> Any:
        if hasattr(standard.Connection, "enable_load_extension") or not find_spec("sqlean"):
            return standard
        return import_module("sqlean.dbapi2")

    sqlite3 = _choose()

__all__ = ["can_search_vectors", "load_vector_search", "sqlite3"]


def can_search_vectors() -> bool:
    """Whether a connection of this process can have sqlite-vec's search."""
    able = hasattr(sqlite3.Connection, "enable_load_extension")
    return able and find_spec("sqlite_vec") is not None


def load_vector_search(connection: sqlite3.Connection) -> bool:
    """Give a connection the tables `vec0` and the functions of sqlite-vec; False where it cannot be
    had."""
    if not can_search_vectors():
        return False
    import sqlite_vec

    connection.enable_load_extension(True)
    try:
        sqlite_vec.load(connection)
    finally:
        connection.enable_load_extension(False)
    return True
