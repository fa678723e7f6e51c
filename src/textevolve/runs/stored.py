"""Standing runs: runs without cases to finish. They store the calls of a server, a chat or a judge
in a Python program, so that these calls are journaled, priced and limited like all others.

Each opening is a new run, since only one process may work on a run. Answers that earlier runs have
stored in the journal are used.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from textevolve.errors import InputError, MismatchError, StoreError
from textevolve.evaluation import Case, empty_default
from textevolve.events import Listener, silence
from textevolve.json_texts import is_mapping
from textevolve.llm.providers import identify_address
from textevolve.mappings import drop_empty, drop_none, pick
from textevolve.report import wording
from textevolve.report.blocks import Block, Entry, MatrixRow, Table
from textevolve.runs.study import AnyStudy, Asks, Row, Study, StudySpec, find_study
from textevolve.settings import Settings
from textevolve.store.records import RecordFilter, StoredRecord
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord, all_specs
from textevolve.wiring import Limits, Setting, Workbench, open_workbench

StandingKind: TypeAlias = Literal["metric", "server", "memory", "chat", "chains", "doctor"]
"""The caller: a judge in a Python program (`metric`), a server, work on memories, a chat, or chains
in a Python program."""
# All values of `StandingKind`.
STANDING: tuple[str, ...] = ("metric", "server", "memory", "chat", "chains", "doctor")


@asynccontextmanager
async def open_standing_run(
    kind: StandingKind,
    spec: Mapping[str, Any],
    setting: Setting,
    settings: Settings,
    *,
    source: str,
    cases: Sequence[Case] = (),
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[Workbench]:
    """Open the workbench (models and judges) of a new run in the store of the settings, where all
    its calls are stored. `spec`: the description of the run; `source`: the caller. The run is
    marked finished at the end, even after an error.

    Raises:
        StoreError: the store cannot be used.
    """
    names = (setting.default_model, *setting.models)
    addresses = drop_empty({name: identify_address(name, settings) for name in names if name})
    with open_store(settings.store) as store:
        moved = find_moved(store, addresses)
        setting = replace(setting, described={**setting.described, "addresses": moved})
        stored = {"kind": kind, **spec, **({"addresses": addresses} if addresses else {})}
        run = store.create_run(stored, f"{kind}-{secrets.token_hex(16)}", "", source)
        store.add_cases(run.id, cases)

        with store.lease(run.id):
            try:
                async with open_workbench(
                    setting, settings, store.journal(run.id), limits, listener
                ) as bench:
                    yield bench
            finally:
                store.finish_run(run.id, "finished")


def find_moved(store: Store, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses that differ from the addresses that a store's first runs asked under the
    same names of models: stored answers of other addresses are not used."""
    if not addresses:
        return {}
    first_addresses: dict[str, str] = {}
    for run in store.read(all_specs):
        for model, address in run.get("addresses", {}).items():
            first_addresses.setdefault(model, address)

    return {model: a for model, a in addresses.items() if first_addresses.get(model, a) != a}


# The stored form of specifications and records: they are written to the store and read from it,
# and a run that was started with other inputs is rejected. `driver.py` runs studies.


SHOWN = 3
"""The number of differences that a message names."""


def list_differences(before: object, now: object, path: str = "") -> Iterator[str]:
    """Yield a sentence for each input of a stored run (`before`) that differs from the current one
    (`now`). `path`: the name of the input."""
    if is_mapping(before) and is_mapping(now):
        for name in sorted({*before, *now}):
            place = f"{path}.{name}" if path else name
            yield from list_differences(before.get(name), now.get(name), place)
    elif before != now:
        yield f"{path} was {_shorten(before)} and is now {_shorten(now)}"


def explain_differences(before: object, now: object) -> str:
    """Return the first differences between two descriptions; empty if they are equal."""
    differences = list(list_differences(before, now))
    return "; ".join(differences[:SHOWN]) + ("; ..." if len(differences) > SHOWN else "")


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


VERSION = 2
"""The version of the stored form. Specifications without a version are older than studies, and
cannot be read."""

S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")


class StoredSpec(BaseModel):
    """The stored form of a specification: everything that is needed to resume its run.

    Attributes:
        model: The requested or chosen model, and `why`: the reason for the choice.
        today: The date that prompts state.
        judges: The content of the judges' files.
        prompts: The versions of the prompts by their names.
        code: The content of the user's metrics and functions by their names, as digests.
        described: The result of `Study.describe`.
        prices: The sources of the models' prices.
        addresses: The digests of the addresses of models whose names do not say them.
        answers: Facts about the run's answers under the names of `Usage` (`estimated`, `models`,
            `cut_prompts`).
        left_out: A sentence for each part of the cases that the run does not use.
        fresh: A text that distinguishes a run from an otherwise equal one, so that all its calls
            are made anew; usually empty.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    kind: str
    spec: dict[str, Any]
    model: str
    why: str = ""
    today: str = ""
    judges: Mapping[str, Any] = {}
    prompts: Mapping[str, str] = {}
    code: Mapping[str, str] = {}
    described: Mapping[str, Any] = {}
    prices: tuple[str, ...] = ()
    addresses: Mapping[str, str] = {}
    answers: Mapping[str, Any] = {}
    left_out: tuple[str, ...] = ()
    fresh: str = ""

    @property
    def world(self) -> dict[str, Any]:
        """The description of the run, with the content of its code. It always has `collections`, so
        that a resumed run reads the recorded versions of its collections of memories; empty if none
        are recorded."""
        return {"collections": {}, "code": dict(self.code), **self.described}


def read_stored(run: RunRecord) -> StoredSpec:
    """Return the stored specification of a run.

    Raises:
        MismatchError: it was written by a version of this package that had no studies, or by a
            later version, or is damaged.
    """
    if run.spec == {"kind": "damaged"}:
        raise MismatchError(f"{run.source}; remove it with: textevolve runs delete {run.id}")
    try:
        stored = StoredSpec.model_validate(run.spec)
    except ValidationError:
        if (kind := run.spec.get("kind")) in STANDING:
            raise MismatchError(
                f"run {run.id}: has the calls of a {kind} and no results of its own; the same"
                " calls are answered from it"
            ) from None

        day = run.spec.get("today") or time.strftime("%Y-%m-%d", time.localtime(run.created))
        raise MismatchError(
            f"run {run.id}: was made by an earlier version of TextEvolve, which stored calls but"
            " no records; give its command again with the date in its prompts:"
            f" TEXTEVOLVE_TODAY={day} textevolve {kind or 'evaluate'} ...; calls with the same"
            " prompts are not repeated"
        ) from None

    if stored.version > VERSION:
        raise MismatchError(f"run {run.id}: was made by a later version of TextEvolve; update it")

    return stored


def read_spec(study: Study[S, R, Any], stored: StoredSpec) -> S:
    """Return the specification of a run; options that no longer exist are left out."""
    fields = pick(stored.spec, study.spec.model_fields)
    return study.spec.model_validate(fields)


def models_asked(asks: Asks, stored: StoredSpec) -> tuple[str, ...]:
    """Return every model that a run may call, without repetition; the run's own comes first."""
    chains: Mapping[str, Any] = stored.described.get("chains", {})
    agents: Mapping[str, Any] = stored.described.get("agents", {})
    models: list[str] = []
    if asks.writes or any(chain["default"] for chain in chains.values()):
        models.append(stored.model)
    for judge in asks.judges:
        # A judge that calls no model of its own leaves the run's, which may be none.
        models += filter(None, judge.models(stored.model))
    models += asks.models
    for chain in chains.values():
        models += chain["models"]
    models += [agent["model"] for agent in agents.values() if agent["model"]]

    return tuple(dict.fromkeys(models))


@dataclass
class StudyRun:
    """A stored run of a study, whose specification is read from it once.

    Attributes:
        record: The run as the store had it.
        stored: The stored form of its specification.
        is_new: Whether it was stored by whoever opened it.

    Raises:
        MismatchError: as `read_stored`.
    """

    record: RunRecord
    stored: StoredSpec = field(init=False)
    is_new: bool = False

    def __post_init__(self) -> None:
        self.stored = read_stored(self.record)

    @property
    def id(self) -> str:
        return self.record.id

    @cached_property
    def study(self) -> AnyStudy:
        """Its kind of study."""
        return find_study(self.stored.kind)

    @cached_property
    def spec(self) -> Any:
        """Its specification, as its study reads it."""
        return read_spec(self.study, self.stored)

    @cached_property
    def asks(self) -> Asks:
        """The judges, models and prompts that its study calls."""
        return self.study.asks(self.spec)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Every model that it may call."""
        return models_asked(self.asks, self.stored)

    def reload(self, store: Store) -> None:
        """Take the run from the store again, since a performed run has another status, and may
        know more about its answers."""
        before = self.record
        self.record = store.get_run(before.id)
        if self.record.spec != before.spec:
            self.stored = read_stored(self.record)


FLUSH_SECONDS = 0.5  # the longest time in seconds for which a record waits to be written
FLUSH_RECORDS = 500  # the number of waiting records that are written at once


@dataclass
class RecordKeeper:
    """A buffer of records, which are written to the store in groups. If the process is killed, no
    answers of models are lost, since the journal has them already. `skipped`: the keys of the
    records that are still skipped."""

    study: AnyStudy
    store: Store
    run_id: str
    skipped: set[str] = empty_default(set)
    _waiting: list[tuple[Any, Row]] = empty_default(list)
    _written: float = field(default_factory=time.monotonic)

    async def add(self, record: Any) -> None:
        row = self.study.row(record)
        self._waiting.append((record, row))
        # A record may come twice: first skipped at a limit, then with a result.
        if row.status == "skipped":
            self.skipped.add(row.key)
        else:
            self.skipped.discard(row.key)

        late = time.monotonic() - self._written >= FLUSH_SECONDS
        if late or len(self._waiting) >= FLUSH_RECORDS:
            await self.flush()

    async def flush(self) -> None:
        waiting = self._waiting
        self._waiting = []
        if waiting:
            await asyncio.shield(asyncio.to_thread(self._write, waiting))
        self._written = time.monotonic()

    def _write(self, pairs: Sequence[tuple[Any, Row]]) -> None:
        records = [keep_record(self.study, record, row) for record, row in pairs]
        self.store.keep_records(self.run_id, records)


def keep_record(study: AnyStudy, record: Any, row: Row) -> StoredRecord:
    """Return a record in its stored form, with the columns of its `row`; the body has the other
    fields."""
    return StoredRecord(
        row.key,
        row.position,
        row.case,
        row.score,
        row.status,
        row.reason,
        study.encode(record),
        row.variant,
        row.passed,
        row.cluster,
    )


Records: TypeAlias = Callable[[], Iterator[Any]]
"""A function that reads the records of a run from the store, in their order, at each call."""


def read_records(
    store: Store,
    run: StudyRun,
    selection: RecordFilter | None = None,
) -> Records:
    """Return a function that reads all stored records of a run, or a selection of them."""
    study = run.study  # found now, so that an unknown kind is refused at once

    def read() -> Iterator[Any]:
        for record in store.iterate_records(run.id, selection):
            yield decode_record(study, run.id, record)

    return read


def decode_record(study: AnyStudy, run_id: str, record: StoredRecord) -> Any:
    """Decode a stored record.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return study.decode(record.body)
    except (ValueError, InputError):
        raise StoreError(
            f"run {run_id}: its record '{record.key}' cannot be read: it is damaged, or of"
            " another version; start the run's command again, which makes it again"
        ) from None


# The records of a run as rows of a matrix. A kind of study converts its own records, or else the
# rows of its tables are used.

TEXT_SHOWN = 20_000
FACTS_SHOWN = 8
FACT_LENGTH = 120
SHOWN_ELSEWHERE = ("score", "passed", "status", "reason", "index", "id", "position")
"""The fields that an entry of the matrix does not list, since it shows them in other places."""


def show_rows(
    run: StudyRun, variants: Sequence[str], stored_records: Sequence[StoredRecord]
) -> list[MatrixRow]:
    """Return the records of a case, or a single record, as rows of a matrix. There are several rows
    if there are several samples. With variants, a row has an entry for each variant.

    Raises:
        StoreError: a record cannot be read.
    """
    study = run.study
    decoded = [decode_record(study, run.id, stored) for stored in stored_records]
    if study.rows is not None:
        return list(study.rows(decoded, variants))
    entries = [
        _entry(study, stored, record)
        for stored, record in zip(stored_records, decoded, strict=True)
    ]
    name = (
        stored_records[0].case
        if len(stored_records) > 1
        else stored_records[0].case or stored_records[0].key
    )
    if not variants:
        return [MatrixRow(name, "", [entry]) for entry in entries]

    return [
        MatrixRow(name, "", list(map(by_variant.get, variants)))
        for by_variant in _spread(stored_records, entries)
    ]


def show_alone(run: StudyRun, stored_records: Sequence[StoredRecord]) -> list[Block]:
    """Return the report on a record that is a result by itself. It is empty if records are only
    parts of a result, or if the rows of a matrix show everything already.

    Raises:
        StoreError: the record cannot be read.
    """
    study = run.study
    if study.rows is not None or len(stored_records) != 1 or not study.streams:
        return []
    record = decode_record(study, run.id, stored_records[0])

    return list(study.report(run.spec, study.summarise(run.spec, [record])).blocks)


def name_entries(rows: Iterable[MatrixRow], variants: Sequence[str]) -> Sequence[str]:
    """Return the headings of the matrix columns: the variants, or letters for the candidates of a
    case."""
    number = max((len(row.entries) for row in rows), default=1)
    if variants:
        return variants
    return ["Result"] if number == 1 else list(map(wording.letter, range(number)))


def _spread(
    stored_records: Sequence[StoredRecord], entries: Sequence[Entry]
) -> list[dict[str, Entry]]:
    """Distribute the entries over rows that have at most one entry for each variant, so that a
    variant's samples are in different rows."""
    rows: list[dict[str, Entry]] = []
    for stored, entry in zip(stored_records, entries, strict=True):
        free = next((row for row in rows if stored.variant not in row), None)
        if free is None:
            rows.append(free := {})
        free[stored.variant] = entry

    return rows


def _entry(study: AnyStudy, stored: StoredRecord, record: Any) -> Entry:
    table_rows = list(map(dict, study.flat(record)))
    facts: dict[str, str] = {}
    for name, value in (table_rows[0] if table_rows else {}).items():
        is_fact = isinstance(value, str | int | float) and value != ""
        if is_fact and name not in SHOWN_ELSEWHERE:
            facts[name] = wording.shorten(_format_value(value), FACT_LENGTH)

    # The reason of a scored record explains its score, and that of another why it has none.
    failure = ""
    reasons: dict[str, str] = {}
    if stored.status != "scored":
        failure = f"{stored.status}: {stored.reason}"
    elif stored.reason:
        reasons["reason"] = stored.reason

    return Entry(
        scores=drop_none({"score": stored.score}),
        passed=stored.passed,
        reasons=reasons,
        failure=failure,
        facts=dict(islice(facts.items(), FACTS_SHOWN)),
        details=list(map(_table, table_rows)),
    )


def _table(row: Mapping[str, Any]) -> Block:
    cells = [(name, _format_value(value)) for name, value in row.items() if value is not None]
    return Table("", ("field", "value"), cells)


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return wording.clip(value, TEXT_SHOWN)
    return wording.clip(json.dumps(value, ensure_ascii=False, default=str), TEXT_SHOWN)
