"""Specifications and records of studies in the store: writing them, reading them again, and
refusing a run that was begun otherwise. `driver.py` runs studies.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from textevolve.errors import InputError, MismatchError, StoreError
from textevolve.spec import identity_of
from textevolve.studies.kinds import find_study
from textevolve.studies.standing import STANDING
from textevolve.studies.study import AnyStudy, Row, Study, StudySpec

if TYPE_CHECKING:
    from textevolve.store.records import Found, Kept
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord


SHOWN = 3
"""Of how many differences it is said what they are."""


def refuse_differences(
    run_id: str, kept: Mapping[str, Any], wanted: Mapping[str, Any], what: str = "resumed"
) -> None:
    """Raises MismatchError, naming what differs, where a run cannot be gone on with as `wanted`."""
    differences = list(_differences(kept, wanted, ""))
    if differences:
        shown = "; ".join(differences[:SHOWN]) + ("; ..." if len(differences) > SHOWN else "")
        raise MismatchError(
            f"run {run_id} cannot be {what}: {shown}; start a new run instead, or resume it with"
            " the options, files and version of TextEvolve that it was begun with"
        )


def _differences(kept: object, wanted: object, path: str) -> Iterator[str]:
    if isinstance(kept, Mapping) and isinstance(wanted, Mapping):
        one, other = cast(Mapping[str, object], kept), cast(Mapping[str, object], wanted)
        for name in sorted({*one, *other}):
            place = f"{path}.{name}" if path else name
            yield from _differences(one.get(name), other.get(name), place)
    elif kept != wanted:
        yield f"{path} was {_shorten(kept)} and is now {_shorten(wanted)}"


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


VERSION = 2
"""Of what a run's specification looks like in the store; what has none is from before studies."""

S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
T = TypeVar("T")


class StoredSpec(BaseModel):
    """What the store keeps of a study: all that is needed to go on with it.

    `model` is the one that was named or found, and `why` says how; `judges` holds what was read
    from the files behind the judges' names; `described` what the study found of the world;
    `prices` where its costs come from; `answers` what its calls found beside the answers, as
    `Usage` has it (`estimated`, `models`); `fresh` sets a run apart from one that is the same
    otherwise, so that everything is asked anew.
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
    described: Mapping[str, Any] = {}
    prices: tuple[str, ...] = ()
    answers: Mapping[str, Any] = {}
    fresh: str = ""

    @property
    def world(self) -> dict[str, Any]:
        """What was described. Collections that are not among those here are not pinned, and so are
        not read."""
        return {"collections": {}, **self.described}

    def identity(self, study: AnyStudy) -> dict[str, Any]:
        """What makes the run what it is. The date in its prompts does not: the same command on
        another day finds the same run."""
        whole = self.model_dump(mode="json", include={"kind", "model", "judges", "prompts"})
        whole |= {"described": dict(self.described)} if self.described else {}
        whole |= {"fresh": self.fresh} if self.fresh else {}
        aside = read_spec(study, self)
        return {**whole, "spec": identity_of(aside)}


def read_stored(run: RunRecord) -> StoredSpec:
    """What a run was begun with.

    Raises:
        MismatchError: it was written by a version that had no studies, or by a later one, or is
            damaged.
    """
    if run.spec == {"kind": "damaged"}:
        raise MismatchError(f"{run.source}; remove it with: textevolve runs delete {run.id}")
    try:
        stored = StoredSpec.model_validate(run.spec)
    except ValidationError:
        if (kind := run.spec.get("kind")) in STANDING:
            raise MismatchError(
                f"run {run.id}: holds what a {kind} asked, and no results of its own; what is asked"
                " again finds its answers there"
            ) from None
        day = run.spec.get("today") or time.strftime("%Y-%m-%d", time.localtime(run.created))
        raise MismatchError(
            f"run {run.id}: was made by an earlier version of TextEvolve, which kept no records,"
            " but its calls are kept; give its command again with the date that its prompts name:"
            f" TEXTEVOLVE_TODAY={day} textevolve {kind or 'evaluate'} ...; what has the same"
            " prompts as then is not asked again"
        ) from None
    if stored.version > VERSION:
        raise MismatchError(f"run {run.id}: was made by a later version of TextEvolve; update it")
    return stored


def read_spec(study: Study[S, R, T], stored: StoredSpec) -> S:
    """The specification of a run, without options that there are no more."""
    known = {name: value for name, value in stored.spec.items() if name in study.spec.model_fields}
    return study.spec.model_validate(known)


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
) -> Records:
    """Return the records of a run that the store holds, or those that are wanted of them."""
    study = find_study(read_stored(run).kind)

    def read() -> Iterator[Any]:
        for kept in store.iterate_records(run.id, wanted):
            yield decode_record(study, run.id, kept)

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
