"""What models read and wrote for each namespace, day by day, beside what it may take.

Functions of a connection. Days are those of UTC.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from textevolve.store.tables import namespace_tokens, namespaces


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """`allowed`: tokens a day; None: as many as it likes."""

    allowed: int | None = None
    used: int = 0


def read_budget(connection: Connection, namespace: str) -> TokenBudget:
    """Of today; without a bound for a namespace that is not there."""
    table, spaces = namespace_tokens, namespaces
    row = connection.execute(select(spaces).where(spaces.c.name == namespace)).one_or_none()
    if row is None:
        return TokenBudget()
    today = (table.c.namespace_id == row.id) & (table.c.day == utc_day())
    used = connection.execute(select(table.c.tokens).where(today)).scalar()
    return TokenBudget(row.tokens_per_day, used or 0)


def add_tokens(connection: Connection, spent: Mapping[str, int]) -> None:
    """Add what was spent, by the namespaces' names; of one that is gone it is not kept."""
    table, spaces, day = namespace_tokens, namespaces, utc_day()
    for name, tokens in spent.items():
        id = connection.execute(select(spaces.c.id).where(spaces.c.name == name)).scalar()
        if id is None:
            continue
        today = (table.c.namespace_id == id) & (table.c.day == day)
        more = update(table).where(today).values(tokens=table.c.tokens + tokens)
        if connection.execute(more).rowcount == 0:
            row = {"namespace_id": id, "day": day, "tokens": tokens}
            connection.execute(insert(table).values(row))


def utc_day() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
