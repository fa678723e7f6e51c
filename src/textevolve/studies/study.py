"""The `Study` type: how a kind of study turns a specification into records, figures and a report.

A kind of study is a module of plain functions with a `Study` at its end, which hands them to the
driver. Nothing here runs one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from textevolve.events import StepFinished, StepStarted
from textevolve.rows import mend_halves
from textevolve.spec import Frozen, option
from textevolve.user_code import names_chain

if TYPE_CHECKING:
    from textevolve.evaluation import Case, Failure
    from textevolve.events import Event
    from textevolve.loops.attempt import Attempt
    from textevolve.report.blocks import MatrixRow, Report
    from textevolve.settings import Settings
    from textevolve.wiring import Workbench

RecordStatus: TypeAlias = Literal["scored", "failed", "skipped"]


class StudySpec(Frozen):
    """The base of all specifications. `kind` is the name of the study everywhere."""

    kind: ClassVar[str]
    indivisible: ClassVar[bool] = False
    """True if the study works on all cases together, so that the cost of a few cases does not
    predict the cost of all."""

    model: str | None = option(
        None,
        "The model to ask, such as openai/gpt-6-luna.",
        short="-m",
        group="Models",
        identity=False,
    )

    def salt(self, described: Mapping[str, Any]) -> str:
        """Return a text that sets the run's calls apart from equal ones in the journal, so that
        they are made anew. `described`: the result of `Study.describe`."""
        return ""

    @property
    def plain_model(self) -> str | None:
        """The requested model, unless that is a chain."""
        return None if self.model is None or names_chain(self.model) else self.model


@dataclass(frozen=True, slots=True)
class Asks:
    """The judges and models that a study calls: judges by their specs, and further models.

    `writes`: the study's own model does more than judge, so one is needed even if every judge
    names its own. `prompts`: the versions of its prompts, which are part of the run's identity.
    `collections`: memories that the study's own debaters recall from; the driver pins their
    versions and those of the judges' debaters. `agents`: the stored agents of the study's own
    profile, which the driver pins like those of its judges. `chains`: chains that are called
    instead of a model; the driver opens them, and their content is part of the run's identity.
    """

    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    writes: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    collections: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """The columns by which the store finds, sorts and compares records.

    `key` names the record within its run; a record with the same key replaces the earlier one.
    `position`: its place in the run. `case`: the id of its case. `score`: in [0, 1] if the study
    has such a scale, None if there is no score. A run is finished when no record is `skipped`.
    `variant`: the compared variant that the record belongs to, if there are several. `passed`: the
    judge's verdict, if there is one.
    """

    key: str
    position: int = 0
    case: str = ""
    score: float | None = None
    status: RecordStatus = "scored"
    reason: str = ""
    variant: str = ""
    passed: bool | None = None

    @property
    def name(self) -> str:
        """The label of the record in messages: its case, or its key if the key begins with the
        case."""
        return self.key if self.key.startswith(self.case) else self.case


S_contra = TypeVar("S_contra", bound=StudySpec, contravariant=True)
S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Run(Protocol[S_contra, R_co]):
    """The type of a study's `run`: an async generator of records. Calls in the journal are not made
    again, so the work can always be started from the beginning. A case that cannot be judged
    becomes a record with the reason; an error that ends the whole study is raised."""

    def __call__(
        self, spec: S_contra, cases: Iterable[Case], bench: Workbench, /
    ) -> AsyncGenerator[R_co]: ...


OUTLOOK = "outlook"
"""The step by which a study announces facts that an estimate reports, each with its heading."""


def no_note(_event: Event) -> str | None:
    """Return None, for studies whose records alone show their progress."""
    return None


def note_step(event: Event) -> str | None:
    """Describe a step that begins, by its name and details."""
    if not isinstance(event, StepStarted):
        return None
    details = {name: value for name, value in event.details.items() if isinstance(value, str | int)}
    return ", ".join([event.step, *(f"{name} {value}" for name, value in details.items())])[:120]


def note_attempt(event: Event) -> str | None:
    """Describe an attempt of a loop that has ended by its score, or a step that begins."""
    if not isinstance(event, StepFinished) or event.step != "attempt":
        return note_step(event)
    attempt: Attempt = event.value
    failure = getattr(attempt.evaluation, "reason", "")
    score = f"no score ({failure})" if attempt.score is None else f"{attempt.score:.3f}"
    step = event.case.partition("/")[2]  # of a chain
    return f"{step} attempt {attempt.iteration}: {score}".lstrip()[:200]


def last_record(_spec: Any, records: Iterable[R]) -> R:
    """Return the last record, for studies whose result is their only record or its last state."""
    *_, last = records
    return last


def row_of(
    key: str, position: int, failure: Failure | None, case: str = "", score: float | None = None
) -> Row:
    """Return the row of a record: scored, or failed with the reason."""
    if failure is None:
        return Row(key, position, case, score)
    return Row(key, position, case, score, failure.kind, failure.reason)


def row_status(ending: str) -> RecordStatus:
    """Return the status of a loop's record by the reason for which the loop ended."""
    return "skipped" if ending == "budget" else "failed" if ending == "failed" else "scored"


class DescribeWorld(Protocol[S_contra]):
    """Describe what the specification refers to and the run depends on, such as the configuration
    of a measured system, as JSON that is stored with the run. Objects opened for that may be left
    in `objects` for the run."""

    def __call__(
        self, spec: S_contra, settings: Settings, objects: dict[str, object], /
    ) -> Awaitable[Mapping[str, Any]]: ...


def write_json(value: Any, inf_nan_mode: Literal["constants", "null"] = "constants") -> bytes:
    """Write a record as JSON. Half a surrogate pair, which UTF-8 cannot express, becomes U+FFFD:
    one text must not prevent a whole run from being stored."""
    try:
        return to_json(value, inf_nan_mode=inf_nan_mode, serialize_unknown=True)
    except ValueError:
        return mend_halves(json.dumps(value, default=_open_up)).encode()


def _open_up(value: Any) -> Any:
    """Convert a value that JSON lacks to a mapping of its fields, or to text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.model_dump() if isinstance(value, BaseModel) else str(value)


def json_decoder(record: type[R]) -> Callable[[bytes], R]:
    """Return a function that reads dataclasses as `write_json` writes them. NaN and
    infinity are preserved; other values that JSON lacks, as from a user's judge, became text."""
    return TypeAdapter(record).validate_json


@dataclass(frozen=True)
class Study(Generic[S, R, T]):
    """One kind of study.

    `cases`: read lazily from what the specification names. `row`: the columns of a record in the
    store. `encode` and `decode`: a record to JSON and back. `summarise`: the result, from records
    alone, which may come from the store. `report`: the result for a reader; `data`: the same for
    programs, as JSON-ready figures. `flat`: the rows of a record in a table. `note`: a line to show
    for an event. `texts`: parts of the result that get a file of their own, such as a template, by
    the file's ending; an empty text is not written. `streams`: records are results by themselves,
    to be shown as they come. `independent`: whether a specification allows to run each case alone
    (a `run` over that case, whose place is `Workbench.first`), so that cases may be spread over
    machines; their steps send no events then.

    Optional: `complete`: the specification with the values that it leaves to files and settings; it
    is stored with the run, so that a resumed run uses the same. `line`: a record as a line of JSON,
    for .jsonl files and standard output; the default is its rows, or its encoding. `describe`:
    further inputs that the run depends on. `variants`: the names that rows may have as their
    `variant`, from the specification and the model.
    `aggregates`: whether mean, pass rate and lowest scores of all records are reported next to the
    report; not if it has them itself, or if they would mean nothing. `rows`: some records as rows
    of a matrix with these variants; the records of a case share a row. `take`: cases from the
    objects of a Python program, such as rows or texts, and its own objects by name.
    """

    spec: type[S]
    cases: Callable[[S], Iterable[Case]]
    asks: Callable[[S], Asks]
    run: Run[S, R]
    row: Callable[[R], Row]
    decode: Callable[[bytes], R]
    summarise: Callable[[S, Iterable[R]], T]
    report: Callable[[S, T], Report]
    data: Callable[[S, T], Mapping[str, Any]]
    flat: Callable[[R], Iterable[Mapping[str, Any]]]
    encode: Callable[[R], bytes] = write_json
    note: Callable[[Event], str | None] = no_note
    texts: Mapping[str, Callable[[S, T], str]] = field(
        default_factory=dict[str, Callable[[S, T], str]]
    )
    streams: bool = False
    complete: Callable[[S, Settings], S] = lambda spec, _settings: spec
    line: Callable[[R], str] | None = None
    describe: DescribeWorld[S] | None = None
    variants: Callable[[S, str], Sequence[str]] = lambda _spec, _model: ()
    aggregates: bool = False
    independent: Callable[[S], bool] = lambda _spec: False
    take: Callable[[S, Any, Mapping[str, object]], Iterable[Case]] | None = None
    rows: Callable[[Sequence[R], Sequence[str]], Iterable[MatrixRow]] | None = None

    @property
    def kind(self) -> str:
        return self.spec.kind


AnyStudy: TypeAlias = Study[Any, Any, Any]
