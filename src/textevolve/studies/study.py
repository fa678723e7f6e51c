"""What a study is: a specification in, records as they come, figures, a report.

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
    """What all specifications have. `kind` is the name of the study everywhere."""

    kind: ClassVar[str]
    whole: ClassVar[bool] = False
    """All cases are one piece of work, of which a part tells nothing."""

    model: str | None = option(
        None,
        "The model to ask, such as openai/gpt-6-luna.",
        short="-m",
        group="Models",
        identity=False,
    )

    def salt(self, described: Mapping[str, Any]) -> str:
        """A text with which the same is asked anew. `described`: by `Study.describe`."""
        return ""

    @property
    def plain_model(self) -> str | None:
        """The model that is named, unless that is a chain."""
        return None if self.model is None or names_chain(self.model) else self.model


@dataclass(frozen=True, slots=True)
class Asks:
    """Whom a study asks: judges by their specs, and further models.

    `writes`: its own model is asked for more than judging, so one is needed even where every judge
    names its own. `prompts`: versions of its prompts, which are a part of the run's identity.
    `collections`: of memories, that debaters of its own recall from. The driver pins the versions
    of these, and of those that debaters of its judges recall from. `agents`: stored agents that
    its own profile names, which the driver pins like those of its judges. `chains`: the chains that
    are asked in a model's place; the driver opens them, and what they are is a part of the run's
    identity.
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
    """What the store finds, sorts and compares records by.

    `key` names the record within its run: one with the same key takes the place of the earlier.
    `position`: its place in the run. `case`: the id of the case that it is about. `score`: in
    [0, 1] where the study has such a scale; None where there is none. A run is finished when no
    record is `skipped`. `variant`: which of those compared gave it, where there are several.
    `passed`: the verdict of whoever scored it, if there is one.
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
        """What a person is told of: the case, or the place in it that the key names."""
        return self.key if self.key.startswith(self.case) else self.case


S_contra = TypeVar("S_contra", bound=StudySpec, contravariant=True)
S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Run(Protocol[S_contra, R_co]):
    """The work: a generator of records. What the journal knows is not asked again, so that it can
    always be started from the beginning. A case that cannot be judged is a record that says why;
    what ends the whole study is raised."""

    def __call__(
        self, spec: S_contra, cases: Iterable[Case], bench: Workbench, /
    ) -> AsyncGenerator[R_co]: ...


OUTLOOK = "outlook"
"""The step by which a study announces facts that an estimate reports, each with its heading."""


def no_note(_event: Event) -> str | None:
    """For studies whose progress is told by their records alone."""
    return None


def note_step(event: Event) -> str | None:
    """Describe a step that begins, by its name and what is known of it."""
    if not isinstance(event, StepStarted):
        return None
    known = {name: value for name, value in event.details.items() if isinstance(value, str | int)}
    return ", ".join([event.step, *(f"{name} {value}" for name, value in known.items())])[:120]


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
    """For studies whose result is their only record, or the last that was shown of it."""
    *_, last = records
    return last


def row_of(key: str, position: int, failure: Failure | None, case: str = "") -> Row:
    """The row of a record without a score: done, or the failure that it has."""
    if failure is None:
        return Row(key, position, case)
    return Row(key, position, case, status=failure.kind, reason=failure.reason)


def row_status(ending: str) -> RecordStatus:
    """The status of a loop's record by why the loop ended."""
    return "skipped" if ending == "budget" else "failed" if ending == "failed" else "scored"


@dataclass(frozen=True, slots=True)
class LoopSteps:
    """Which events of a loop begin a step of it and which tell what became of one, for traces.

    `begins`: whether a step generates or evaluates, by the name under which it starts, or by the
    `stage` among its details. `ends`: names under which the step under way finishes, with what it
    made. `round`: that of the end of a round, which
    numbers the steps that have no `iteration` among their details. `done`: that of the end of a
    case's own loop; where there is none, the whole run is one loop, and its events name no case.
    """

    begins: Mapping[str, Literal["generate", "evaluate"]]
    ends: frozenset[str] = frozenset()
    round: str = ""
    done: str = ""


class DescribeWorld(Protocol[S_contra]):
    """What lies outside the specification and makes a run what it is, such as the configuration of
    a system that is measured: as JSON, which is kept with the run. What is opened for that may be
    left in `objects`, for the run."""

    def __call__(
        self, spec: S_contra, settings: Settings, objects: dict[str, object], /
    ) -> Awaitable[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class Study(Generic[S, R, T]):
    """One kind of study.

    `cases`: read lazily from what the specification names. `row`: how a record is found.
    `encode` and `decode`: JSON of a record, and back. `summarise`: what was found, from records
    alone, which may come from the store. `report`: what a person is shown of that; `data`: the same
    for programs, as JSON-ready figures. `flat`: the rows that a record has in a table. `note`: a
    line to show for an event of the work. `texts`: what of the result is worth a file of its own,
    such as a template to use, by the file's ending; if it is empty, none is written. `streams`:
    records are results by themselves, to be shown as they come. `independent`: whether, by the
    specification, each case can be worked on alone, by a `run` over nothing else whose place is
    `Workbench.first`, so that cases may be spread over machines; their steps are not heard of then.

    Where a study has them: `complete`: the specification with what it leaves open to files and
    settings; a run is kept with that, so that it is gone on with as it was begun. `line`: a record
    as a line of JSON for others, in .jsonl files and on standard output; else its rows, or its
    encoding, stand there. `describe`: what else makes a run what it is. `variants`: the
    names that rows may have as their `variant`, from the specification and the model. `steps`: of
    a loop, what a trace shows of it. `aggregates`: whether mean, pass rate and lowest
    scores of all records are told beside the report; not where it tells them itself, or where they
    would mean nothing. `rows`: some of its records as rows of a matrix with these
    variants, of which the records of a case stand in one row. `take`: cases out
    of what a program gives instead of them, such as rows or texts, and its own objects by name.
    """

    spec: type[S]
    cases: Callable[[S], Iterable[Case]]
    asks: Callable[[S], Asks]
    run: Run[S, R]
    row: Callable[[R], Row]
    encode: Callable[[R], bytes]
    decode: Callable[[bytes], R]
    summarise: Callable[[S, Iterable[R]], T]
    report: Callable[[S, T], Report]
    data: Callable[[S, T], Mapping[str, Any]]
    flat: Callable[[R], Iterable[Mapping[str, Any]]]
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
    steps: LoopSteps | None = None
    take: Callable[[S, Any, Mapping[str, object]], Iterable[Case]] | None = None
    rows: Callable[[Sequence[R], Sequence[str]], Iterable[MatrixRow]] | None = None

    @property
    def kind(self) -> str:
        return self.spec.kind


def json_codec(record: type[R]) -> tuple[Callable[[R], bytes], Callable[[bytes], R]]:
    """From records of plain dataclasses to JSON and back; NaN and infinity come back as such, and
    what a judge of the user's own noted that JSON does not know comes back as its text."""
    return write_json, TypeAdapter(record).validate_json


def write_json(value: Any, inf_nan_mode: Literal["constants", "null"] = "constants") -> bytes:
    """A record as JSON. A half of a surrogate pair, which UTF-8 cannot express, is U+FFFD: one text
    must not keep a whole run from being kept."""
    try:
        return to_json(value, inf_nan_mode=inf_nan_mode, serialize_unknown=True)
    except ValueError:
        return mend_halves(json.dumps(value, default=_open_up)).encode()


def _open_up(value: Any) -> Any:
    """A value that JSON does not know, as one that it may know."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.model_dump() if isinstance(value, BaseModel) else str(value)


AnyStudy: TypeAlias = Study[Any, Any, Any]
