"""The requests and responses of the HTTP API for studies of all kinds, as pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from textevolve.settings import NAME_PATTERN
from textevolve.spec import Concurrency, Frozen
from textevolve.trajectory import Trajectory

StudyStatus: TypeAlias = Literal[
    "queued", "running", "finished", "interrupted", "cancelled", "failed"
]
"""The status of a run. `queued`: it waits to be started. `interrupted`: a limit was reached, or no
process performs it. `failed`: no call could succeed, for the reason in `reason`."""
ENDED: tuple[StudyStatus, ...] = ("finished", "interrupted", "cancelled", "failed")
"""The statuses after which nothing more comes, unless the run is resumed."""

MOST_FILES = 1000
MOST_NAME = 200


class WireLimits(Frozen):
    """The budget of a whole run, over all its sittings: US dollars, tokens, calls."""

    cost: NonNegativeFloat | None = None
    tokens: NonNegativeInt | None = None
    calls: NonNegativeInt | None = None


class Base64File(Frozen):
    """A file that is no text in UTF-8, such as Parquet."""

    base64: str


class CasePart(Frozen):
    """A case of the client's own, as `textevolve.Case` has it."""

    input: str
    candidates: tuple[str, ...]
    id: str = ""
    parameters: Mapping[str, Any] = {}
    reference: str | None = None
    context: str | None = None
    images: tuple[str, ...] = ()
    candidate_images: tuple[tuple[str, ...], ...] = ()
    trajectory: Trajectory | None = None


class RunPart(Frozen):
    """Launch options of a study: the field `run` in the body, next to the specification's fields.

    `files`: contents by the file names of the specification. `cases`: used instead of the rows that
    the specification names. `time_limit`: seconds of one sitting. `concurrency`: calls in flight.
    `batch`: send calls as batch jobs.
    """

    name: str = Field(default="", max_length=MOST_NAME)
    namespace: str | None = Field(default=None, pattern=NAME_PATTERN)
    limits: WireLimits = WireLimits()
    time_limit: NonNegativeFloat | None = None
    concurrency: Concurrency | None = None
    batch: bool = False
    files: Mapping[str, str | Base64File] = Field(default={}, max_length=MOST_FILES)
    cases: tuple[CasePart, ...] | None = None


class ResumePart(Frozen):
    """Options with which a run is resumed; omitted ones stay unchanged."""

    limits: WireLimits | None = None
    time_limit: NonNegativeFloat | None = None


class WireUsage(Frozen):
    """`cost` and `saved`, by prompt caching: US dollars; null where a part of it is not known."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float | None
    saved: float | None = None


class RunSummary(Frozen):
    """A run in a list. Times are Unix times. `cases`: null until all are taken in. `reason`: why it
    failed or was interrupted. `namespace`: null for runs that were made without the server."""

    id: str
    kind: str
    name: str
    namespace: str | None
    status: StudyStatus
    reason: str
    created: float
    updated: float
    cases: int | None
    model: str
    source: str


class RunDetail(RunSummary):
    """One run. `spec`: its fields that differ from the defaults. `records`: their number by status.
    `spent`: usage of new calls; `reused`: usage replayed from the journal; `failed_calls`: errors.
    `why`: how its model was chosen; `prices`: the source of its costs; `answers`: calls without
    reported tokens, and answers of other models."""

    spec: Mapping[str, Any]
    described: Mapping[str, Any]
    records: Mapping[str, int]
    spent: WireUsage
    reused: WireUsage
    failed_calls: int
    limits: WireLimits
    time_limit: float | None
    why: str = ""
    prices: tuple[str, ...] = ()
    answers: Mapping[str, Any] = {}


class WireRecord(Frozen):
    """`record`: the record itself, as its kind encodes it (`Study.decode` reads it)."""

    key: str
    position: int
    case: str
    variant: str
    score: float | None
    status: str
    passed: bool | None
    reason: str
    revision: int
    record: Any


class RunPage(Frozen):
    """`next`: the cursor of the next page; null at the end."""

    data: tuple[RunSummary, ...]
    next: str | None


class RecordPage(Frozen):
    """`next`: the cursor of the next page; null at the end."""

    data: tuple[WireRecord, ...]
    next: str | None


class RunProgress(Frozen):
    """How far a run is, as `progress` events tell it."""

    cases: int | None
    records: Mapping[str, int]
    spent: WireUsage
    reused: WireUsage


class WireStatus(Frozen):
    """The data of `status` events; the last one of a stream is one of `ENDED`."""

    status: StudyStatus
    reason: str
