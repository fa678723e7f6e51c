"""Records of a study on their way into the store, and out of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from textevolve.errors import InputError, StoreError
from textevolve.studies.kinds import find_study
from textevolve.studies.stored import read_stored
from textevolve.studies.study import AnyStudy, Row

if TYPE_CHECKING:
    from textevolve.store.records import Found, Kept, RecordOrder
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

FLUSH_SECONDS = 0.5
FLUSH_RECORDS = 200


class RecordKeeper:
    """Hands records to the store, some at once: the journal has what they are made from already."""

    def __init__(self, study: AnyStudy, store: Store, run_id: str) -> None:
        self._study, self._store, self._run_id = study, store, run_id
        self._waiting: list[tuple[Any, Row]] = []
        self._written = time.monotonic()
        self.skipped = set[str]()

    async def add(self, record: Any) -> None:
        row = self._study.row(record)
        self._waiting.append((record, row))
        (self.skipped.add if row.status == "skipped" else self.skipped.discard)(row.key)
        late = time.monotonic() - self._written >= FLUSH_SECONDS
        if late or len(self._waiting) >= FLUSH_RECORDS:
            await self.flush()

    async def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            await asyncio.shield(asyncio.to_thread(self._write, waiting))
        self._written = time.monotonic()

    def _write(self, found: Sequence[tuple[Any, Row]]) -> None:
        kept = [keep_record(self._study, record, row) for record, row in found]
        self._store.keep_records(self._run_id, kept)


def keep_record(study: AnyStudy, record: Any, row: Row) -> Kept:
    """A record as the store keeps it, under what its study says of it (`row`)."""
    from textevolve.store.records import Kept

    return Kept(
        key=row.key,
        position=row.position,
        case=row.case,
        score=row.score,
        status=row.status,
        reason=row.reason,
        body=study.encode(record),
        variant=row.variant,
        passed=row.passed,
    )


Records: TypeAlias = Callable[[], Iterator[Any]]
"""Gives the records of a run, in their order, anew each time."""


def read_records(
    store: Store,
    run: RunRecord,
    wanted: Found | None = None,
    order: RecordOrder = "position",
    change: Callable[[Any], Any] | None = None,
) -> Records:
    """The records of a run that the store holds, or those that are wanted of them; as `change`
    makes them anew, where it is given."""
    study = find_study(read_stored(run).kind)

    def read() -> Iterator[Any]:
        for kept in store.iterate_records(run.id, wanted, order):
            record = decode_record(study, run.id, kept)
            yield record if change is None else change(record)

    return read


def decode_record(study: AnyStudy, run_id: str, kept: Kept) -> Any:
    """
    Raises:
        StoreError: it cannot be read.
    """
    try:
        return study.decode(kept.body)
    except (ValueError, InputError):
        raise StoreError(
            f"run {run_id}: its record '{kept.key}' cannot be read: it is damaged, or of another"
            f" version; `textevolve runs resume {run_id}` makes it anew"
        ) from None
