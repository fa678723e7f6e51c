"""Batch jobs of runs, as the ledger has them (`textevolve.llm.batches.ledger`).

Every function takes a connection; those that change something are called inside a transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection, Row

from textevolve.llm.batches.ledger import OPEN_STATES, KeptBatch
from textevolve.store.dialects import insert_into
from textevolve.store.tables import batches
from textevolve.store.writer import Writer

_KEY_BYTES = 32


class StoreLedger:
    """The batch jobs of one run; a `textevolve.llm.batches.ledger.BatchLedger`."""

    def __init__(
        self,
        run_id: str,
        writer: Writer,
        read: Callable[[Callable[[Connection], list[KeptBatch]]], list[KeptBatch]],
    ) -> None:
        self._run_id, self._writer, self._read = run_id, writer, read

    async def keep(self, batch: KeptBatch) -> None:
        """Note a job, or what is new of it; returns once that is durable."""
        change = asyncio.to_thread(
            self._writer.run,
            lambda connection: keep_batch(connection, self._run_id, batch),
            self._run_id,
        )
        await asyncio.shield(change)

    async def find_open(self, model: str) -> list[KeptBatch]:
        """The jobs of a model whose answers are not all kept, oldest first."""
        return [batch for batch in self.all_open() if batch.model == model]

    def all_open(self) -> list[KeptBatch]:
        """The open jobs of all models."""
        return self._read(lambda connection: open_batches(connection, self._run_id))


def keep_batch(connection: Connection, run_id: str, batch: KeptBatch) -> None:
    values: dict[str, Any] = {
        "mark": batch.mark,
        "run_id": run_id,
        "model": batch.model,
        "created": batch.created,
        "updated": time.time(),
        "state": batch.state,
        "file": batch.file,
        "remote_id": batch.id,
        "detail": batch.detail,
        "keys": b"".join(map(bytes.fromhex, batch.keys)),
    }
    made = insert_into(connection, batches).values(values)
    connection.execute(made.on_conflict_do_update(index_elements=["mark"], set_=values))


def open_batches(connection: Connection, run_id: str) -> list[KeptBatch]:
    query = select(batches).where(batches.c.run_id == run_id, batches.c.state.in_(OPEN_STATES))
    return [_batch(row) for row in connection.execute(query.order_by(batches.c.created))]


def _batch(row: Row[Any]) -> KeptBatch:
    return KeptBatch(
        mark=row.mark,
        model=row.model,
        created=row.created,
        keys=_split(row.keys),
        state=row.state,
        file=row.file,
        id=row.remote_id,
        detail=row.detail,
    )


def _split(keys: bytes) -> tuple[str, ...]:
    places = range(0, len(keys), _KEY_BYTES)
    return tuple(keys[place : place + _KEY_BYTES].hex() for place in places)
