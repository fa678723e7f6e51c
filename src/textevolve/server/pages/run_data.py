"""What the pages of runs show, read from the store: a run and what is known of its kind, its rows
as they are asked for, one case, and calls. All of it waits for the disk: call it in threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from textevolve.errors import (
    InputError,
    MismatchError,
    NotFoundError,
)
from textevolve.llm.model import Request as ModelRequest
from textevolve.report.blocks import Block, MatrixRow, Section
from textevolve.server.access import Caller
from textevolve.server.state import ServerState
from textevolve.server.studies.reading import find_seen
from textevolve.store import records
from textevolve.store.journal import StoredCall
from textevolve.store.records import By, Found, Kept, RecordOrder, Standing
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.kinds import find_study
from textevolve.studies.run_rows import name_entries, show_alone, show_rows
from textevolve.studies.stored import read_spec, read_stored
from textevolve.studies.study import AnyStudy

ROWS = 50
"""Rows of one page."""
CALLS = 20
MOST_SEARCHED_CALLS = 20_000
LEAST_TOLD = 8
"""Characters of an input that tell whose call it is; a shorter one stands in many prompts."""


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """`study` is None where its records cannot be read by their kind, and `why` says so. `by`: what
    makes a row of its page."""

    run: RunRecord
    namespace: str | None
    kind: str
    model: str
    study: AnyStudy | None
    spec: Any
    standing: Standing
    variants: Sequence[str]
    by: By
    why: str = ""

    @property
    def name(self) -> str:
        return self.run.name or self.run.id


def open_run(state: ServerState, caller: Caller, which: str) -> OpenedRun:
    """
    Raises:
        NotFoundError: as `find_seen`.
    """
    seen = find_seen(state.store, caller, which)
    run, whose = seen.run, seen.served and seen.served.namespace
    kind, model = str(run.spec.get("kind", "")), str(run.spec.get("model", ""))
    standing = state.store.read(records.count_standing, [run.id])[run.id]
    try:
        stored = read_stored(run)
        study = find_study(kind)
        spec = read_spec(study, stored)
        named = study.variants(spec, model)
    except (MismatchError, InputError, ValueError) as error:
        return OpenedRun(run, whose, kind, model, None, None, standing, (), "key", str(error))
    variants = tuple(dict.fromkeys([*named, *standing.variants]))
    by: By = "case" if len(variants) > 1 else "key"
    return OpenedRun(run, whose, kind, model, study, spec, standing, variants, by)


class RowsQuery(BaseModel):
    """The query of a run's page."""

    show: Literal["", "failed", "passed", "not-passed"] = ""
    below: float | None = None
    variant: str = ""
    sort: RecordOrder = "position"
    page: int = Field(1, ge=1, lt=2**62)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Drop the empty fields of a form."""
        return {name: value for name, value in fields.items() if value != ""}

    @property
    def wanted(self) -> Found:
        statuses = ("failed", "skipped") if self.show == "failed" else ()
        passed = {"passed": True, "not-passed": False}.get(self.show)
        return Found(statuses, self.below, variant=self.variant or None, passed=passed)

    @property
    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class ShownRow:
    """`number`: of its page, from 1 on."""

    number: int
    row: MatrixRow


@dataclass(frozen=True, slots=True)
class RowsPage:
    """`total`: rows that are like what is wanted."""

    heads: Sequence[str]
    rows: Sequence[ShownRow]
    total: int


def read_matrix(store: Store, opened: OpenedRun, query: RowsQuery) -> RowsPage:
    """One page of a run's rows.

    Raises:
        StoreError: a record cannot be read.
    """
    run, by, wanted = opened.run, opened.by, query.wanted
    start = (query.page - 1) * ROWS
    keys = store.read(records.find_rows, run.id, wanted, by, query.sort, start, ROWS)
    groups = store.read(records.read_rows, run.id, by, keys).values()
    rows = [shown for kept in groups for shown in _show(opened, kept)]
    total = store.read(records.count_rows, run.id, wanted, by)
    return RowsPage(name_entries([shown.row for shown in rows], opened.variants), rows, total)


def _show(opened: OpenedRun, kept: Sequence[Kept]) -> Iterator[ShownRow]:
    if opened.study is not None and kept:  # else it went away between two queries
        number = kept[0].position + 1
        for row in show_rows(opened.study, opened.run.id, opened.variants, kept):
            yield ShownRow(number, row)


@dataclass(frozen=True, slots=True)
class CaseView:
    """`records`: as they are kept; `details`: of each row, what is said of it at length. `before`
    and `after`: the numbers of the cases beside it."""

    number: int
    rows: Sequence[MatrixRow]
    details: Sequence[Sequence[Block]]
    heads: Sequence[str]
    records: Sequence[Kept]
    before: int | None
    after: int | None


def read_case(store: Store, opened: OpenedRun, number: int) -> CaseView:
    """
    Raises:
        ApiError: there is no record there. StoreError: one cannot be read.
    """
    run = opened.run
    kept = store.read(records.read_place, run.id, number - 1, opened.by)
    if not kept or opened.study is None:
        why = opened.why or f"run {run.id} has no record of case {number}, or none yet"
        raise NotFoundError(why)
    places = [one.position for one in kept]
    before, after = store.read(records.find_neighbours, run.id, min(places), max(places))
    groups = [kept] if opened.by == "case" else [[one] for one in kept]
    rows = [one.row for group in groups for one in _show(opened, group)]
    heads = name_entries(rows, opened.variants)
    told = show_alone(opened.study, opened.spec, run.id, kept)
    details = [told] if told else [_details(row, heads) for row in rows]
    return CaseView(
        number,
        rows,
        details,
        heads,
        kept,
        None if before is None else before + 1,
        None if after is None else after + 1,
    )


def _details(row: MatrixRow, heads: Sequence[str]) -> list[Block]:
    """What is said of a row as a whole, and of each of its entries."""
    named = zip(heads, row.entries, strict=False)
    told = [Section(name, entry.details) for name, entry in named if entry and entry.details]
    return [*row.details, *told]


@dataclass(frozen=True, slots=True)
class ShownCall:
    call: StoredCall
    request: ModelRequest


@dataclass(frozen=True, slots=True)
class CallsPage:
    """`of_case`: whether these are the calls of the case alone; `after`: the call after which the
    next page begins, None at the end."""

    calls: Sequence[ShownCall]
    of_case: bool
    after: int | None


def read_calls(store: Store, run_id: str, after: int, inputs: Sequence[str] = ()) -> CallsPage:
    """Read the next calls of a run, or of a case of it: those that were sent its input; if that is
    too short to tell them apart, those of the run."""
    texts = [text.strip() for text in inputs]
    long = bool(texts) and all(len(text) >= LEAST_TOLD for text in texts)
    of_case = store.find_calls(run_id, texts[0], MOST_SEARCHED_CALLS) if long else None
    calls = [call for call in of_case or store.page_calls(run_id, after) if call.id > after]
    shown = [ShownCall(call, store.read_request(call)) for call in calls[:CALLS]]
    following = calls[CALLS - 1].id if len(calls) > CALLS else None
    return CallsPage(shown, bool(of_case), following)
