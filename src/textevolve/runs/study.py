"""The `Study` type, which describes how a kind of study turns a specification into cases, records,
figures and a report.

A kind of study is a module of plain functions with a `Study` at its end, which passes them to the
driver (`driver.py`). This module runs nothing.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections import ChainMap
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from importlib.metadata import entry_points
from itertools import chain
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure, Result, empty_default
from textevolve.events import Event, StepFinished, StepStarted
from textevolve.json_texts import as_object
from textevolve.judges.judge import Judge
from textevolve.loading import load_module
from textevolve.mappings import map_values, omit
from textevolve.messages import RawMessage
from textevolve.rows import mend_halves, read_text
from textevolve.spec import Frozen, option, option_properties
from textevolve.texts.yaml_lines import find_line, line_of, parse_yaml
from textevolve.user_code import load_point, names_chain

if TYPE_CHECKING:
    from textevolve.loops.attempt import Attempt
    from textevolve.report.blocks import MatrixRow, Report
    from textevolve.settings import Settings
    from textevolve.wiring import Workbench


# Whether a record is `scored`, has `failed`, or was `skipped` because the run was stopped before
# it.
RecordStatus: TypeAlias = Literal["scored", "failed", "skipped"]


class StudySpec(Frozen):
    """The base of all specifications of studies. `kind`: the name of the kind of study, the same on
    the command line, in Python and in files."""

    kind: ClassVar[str]
    indivisible: ClassVar[bool] = False
    """True if the study works on all cases together, so that the cost of a few cases does not
    predict the cost of all."""
    measures_judges: ClassVar[bool] = False
    """True if judges are what the study measures, so that another judge is no other ruler."""
    of_spans: ClassVar[bool] = False
    """True if records may come from spans of a trace, to which their scores can be sent."""
    scored: ClassVar[bool] = True
    """False if no record ever has a score, so that of all gates only `max_failed` can apply."""
    variants_are_judges: ClassVar[bool] = False
    """True if variants are judges of the same texts, so that none is better for a higher score."""

    model: str | None = option(
        None,
        "The model to ask, such as openai/gpt-6-luna; default: the model of the settings, or one"
        " that is available.",
        short="-m",
        group="Models",
        identity=False,
    )

    def salt(self, described: Mapping[str, Any]) -> str:
        """Return a text that becomes part of the run's journal keys. If it is not empty, answers to
        equal calls of other runs are not used. `described`: the result of `Study.describe`."""
        return ""

    @property
    def most_calls(self) -> int | None:
        """The largest number of model calls of a run; None if the specification has no limit."""
        return None

    @property
    def plain_model(self) -> str | None:
        """The requested model; None if it is a chain or no model was requested."""
        return None if self.model is None or names_chain(self.model) else self.model


@dataclass(frozen=True, slots=True)
class Asks:
    """The judges and models that a study calls; the driver needs them before it opens the run.

    Attributes:
        judges: The judges.
        models: Models besides the run's own.
        writes: Whether the study calls the run's model itself; if so, a model is required even if
            every judge names its own.
        prompts: The versions of the study's own prompts, which are part of the run's identity, as
            are those of its judges.
        had_all_prompts: Whether earlier versions identified the study's runs by the prompts of all
            judges and debates instead of the study's own prompts alone.
        collections: The collections of memories from which the agents of the study's own debate
            recall. The driver records their versions, as it does for debates that are judges.
        agents: The stored agents in the study's own debate, whose versions are recorded as well.
        chains: The chains that are called instead of a model. The driver opens them; their content
            is part of the run's identity.
        decides: The text of the judge, or the metric, whose score counts; empty: all of them.
        metrics: The metrics that score, by their names. What they hold is part of the run's
            identity, as is that of `code`.
        code: The user's functions and objects that are called otherwise, such as a generator.
        rubric: The rubric of the study for its judges, or for its own debate.
    """

    judges: tuple[Judge, ...] = ()
    models: tuple[str, ...] = ()
    writes: bool = False
    prompts: Mapping[str, str] = empty_default(dict)
    had_all_prompts: bool = False
    collections: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    decides: str = ""
    metrics: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    rubric: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The columns by which the store finds, sorts and compares a record.

    Attributes:
        key: The name of the record within its run. A record with the same key replaces the earlier
            one.
        position: The position of the record in the run.
        case: The id of its case.
        score: The score in [0, 1], if the study has such a scale; None without a score.
        status: Whether it is scored, failed, or skipped because the run was stopped. A run is
            finished when no record is skipped.
        reason: The reason for a missing score.
        variant: The variant that the record belongs to, if the run compares several.
        passed: The judge's verdict; None if there is none.
        cluster: The name that the records share which are no independent observations; empty if
            only those of one case are.
        trials: Of a record that many trials make up: how many have no score, and how many there
            are.
        missing: Why those have none; empty if all have a score.
        title: The name by which people know the case of a record without a score, if it has no id.
            The store has it in the record alone.
    """

    key: str
    position: int = 0
    case: str = ""
    score: float | None = None
    status: RecordStatus = "scored"
    reason: str = ""
    variant: str = ""
    passed: bool | None = None
    cluster: str = ""
    trials: tuple[int, int] = (0, 0)
    missing: str = ""
    title: str = ""

    @property
    def name(self) -> str:
        """The name of the record in messages: its case, or its key if that begins with the case."""
        return self.key if self.key.startswith(self.case) else self.case


S_contra = TypeVar("S_contra", bound=StudySpec, contravariant=True)
S = TypeVar("S", bound=StudySpec)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bound=Result)


class Run(Protocol[S_contra, R_co]):
    """The type of a study's `run` function: an async generator of records. It always starts from
    the beginning, since calls that are in the journal are not made again. A case that cannot be
    judged becomes a record with the reason; an error that ends the whole study is raised."""

    def __call__(
        self, spec: S_contra, cases: Iterable[Case], bench: Workbench, /
    ) -> AsyncGenerator[R_co]: ...


def no_note(_event: Event) -> str | None:
    """Return None: the progress of the study is shown by its records alone."""
    return None


def note_step(event: Event) -> str | None:
    """Describe a step that starts, by its name and details."""
    if not isinstance(event, StepStarted):
        return None
    details = {name: value for name, value in event.details.items() if isinstance(value, str | int)}
    return ", ".join([event.step, *(f"{name} {value}" for name, value in details.items())])[:120]


def note_attempt(event: Event) -> str | None:
    """Describe an attempt of a loop that has ended, with its score, or a step that starts."""
    if not isinstance(event, StepFinished) or event.step != "attempt":
        return note_step(event)
    attempt: Attempt = event.value
    failure = getattr(attempt.evaluation, "reason", "")
    score = f"no score ({failure})" if attempt.score is None else f"{attempt.score:.3f}"
    step = event.case.partition("/")[2]  # of a chain
    return f"{step} attempt {attempt.iteration}: {score}".lstrip()[:200]


def last_record(_spec: Any, records: Iterable[R]) -> R:
    """Return the last record: the `summarise` function of studies with a single record, or whose
    last record is the final state."""
    *_, last = records
    return last


def row_of(
    key: str, position: int, failure: Failure | None, case: str = "", score: float | None = None
) -> Row:
    """Return the store columns of a record: scored, or failed or skipped with the failure's
    reason."""
    if failure is None:
        return Row(key, position, case, score)
    return Row(key, position, case, score, failure.kind, failure.reason)


def remember_row(find_row: Callable[[R], Row]) -> Callable[[R], Row]:
    """Return a function that returns the row of a record. It computes a row once if it is asked
    several times in turn, as by a summary, a progress and a gate."""
    last: tuple[R | None, Row] = (None, Row(""))

    @wraps(find_row)
    def find(record: R) -> Row:
        nonlocal last
        known = last  # since other threads have records, too
        if known[0] is not record:
            last = known = record, find_row(record)
        return known[1]

    return find


def record_status(outcome: object) -> RecordStatus:
    """Return the status of a record by its outcome or its failure: that of a failure, otherwise
    scored."""
    return outcome.kind if isinstance(outcome, Failure) else "scored"


def record_reason(outcome: object) -> str | None:
    """Return the reason of an outcome that is a failure; None for any other."""
    return outcome.reason if isinstance(outcome, Failure) else None


_ENDINGS: Mapping[str, RecordStatus] = {"budget": "skipped", "failed": "failed"}


def row_status(ending: str) -> RecordStatus:
    """Return the status of a loop's record. `ending`: the word for how the loop ended: skipped for
    "budget", failed for "failed", scored for any other."""
    return _ENDINGS.get(ending, "scored")


def read_whole(_spec: object) -> Callable[[Case], Case]:
    """Return a function that keeps the whole of a case."""
    return lambda case: case


class DescribeWorld(Protocol[S_contra]):
    """The type of a study's `describe` function. It returns a description, as JSON, of what the run
    depends on outside the specification, such as the configuration of a measured system; the
    description is stored with the run. Objects that are opened for it may be left in `objects` for
    the run."""

    def __call__(
        self, spec: S_contra, settings: Settings, objects: dict[str, object], /
    ) -> Awaitable[Mapping[str, Any]]: ...


def write_json(value: Any, inf_nan_mode: Literal["constants", "null"] = "constants") -> bytes:
    """Write a record as JSON. Half a surrogate pair, which UTF-8 cannot express, becomes U+FFFD,
    since one text must not prevent a whole run from being stored."""
    try:
        return to_json(value, inf_nan_mode=inf_nan_mode, serialize_unknown=True)
    except ValueError:
        return mend_halves(json.dumps(value, default=_open_up)).encode()


def _open_up(value: Any) -> Any:
    """Convert a value that JSON cannot express to a mapping of its fields, or to a text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value.model_dump() if isinstance(value, BaseModel) else str(value)


def json_decoder(record: type[R]) -> Callable[[bytes], R]:
    """Return a function that reads a dataclass from the JSON of `write_json`. NaN and infinity are
    restored; other values that JSON cannot express, such as those of a user's judge, remain
    texts."""
    return TypeAdapter(record).validate_json


@dataclass(frozen=True)
class Study(Generic[S, R, T]):
    """One kind of study, as the functions that the driver calls.

    Attributes:
        spec: The class of specifications.
        cases: Reads the cases that a specification names, one after the other.
        asks: Returns the judges and models that a specification needs.
        run: Yields the records.
        row: Returns a record's columns in the store.
        encode: Writes a record as JSON, and `decode` reads it.
        summarise: Computes the result from records alone, which may come from the store.
        report: Returns the result for a reader, and `data` returns it for programs, as JSON-ready
            figures.
        flat: Yields a record's rows in a table.
        note: Describes an event in a line for display; None if it is not shown.
        texts: Functions for parts of the result that are files of their own, such as a template, by
            the file's ending. An empty text is not written.
        streams: Whether each record is a result by itself, and is shown as it comes.
        complete: Returns the specification with values from files and settings filled in. It is
            stored with the run, so that a resumed run uses the same values.
        line: Writes a record as a line of JSON, for .jsonl files and standard output. None: files
            have the record's table rows, and standard output has its encoding.
        describe: Describes further inputs that the run depends on.
        variants: Returns the values that `Row.variant` may have, from the specification and the
            model.
        aggregates: Whether mean and pass rate of all records are added to the
            report; False if the report has them, or if they would mean nothing.
        independent: Whether the study allows cases to be run one by one (each by a call of `run`
            with `Workbench.first` as its position), so that they may be spread over machines. Steps
            of a case then send no events.
        join: Converts records, in their order, to rows of a table; by default those of `flat`, one
            record after the other.
        take: Converts objects of a Python program, such as rows or texts, to cases. The mapping has
            the program's objects by name.
        rows: Converts records to rows of a matrix with these variants; records of the same case
            share a row.
        at_threshold: Returns a record with the verdicts that a threshold of the command gives it.
            None: records keep their own verdicts.
        chats: Converts records to chats, each with its id, for files of trajectories. None: such
            files have the outputs in `rows`.
        reads: Returns a function that keeps the part of a case that results depend on. The rest,
            such as a column that nothing reads, identifies no run.
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
    texts: Mapping[str, Callable[[S, T], str]] = empty_default(dict)
    streams: bool = False
    complete: Callable[[S, Settings], S] = lambda spec, _settings: spec
    line: Callable[[R], str] | None = None
    describe: DescribeWorld[S] | None = None
    variants: Callable[[S, str], Sequence[str]] = lambda _spec, _model: ()
    aggregates: bool = False
    independent: bool = False
    take: Callable[[S, Any, Mapping[str, object]], Iterable[Case]] | None = None
    rows: Callable[[Sequence[R], Sequence[str]], Iterable[MatrixRow]] | None = None
    reads: Callable[[S], Callable[[Case], Case]] = read_whole
    at_threshold: Callable[[R, float], R] | None = None
    join: Callable[[Iterable[R]], Iterable[Mapping[str, Any]]] | None = None
    chats: Callable[[Iterable[R]], Iterable[tuple[str, Sequence[RawMessage]]]] | None = None

    def table(self, records: Iterable[R]) -> Iterable[Mapping[str, Any]]:
        """Return the rows of all records in a table."""
        if self.join is not None:
            return self.join(records)
        return chain.from_iterable(map(self.flat, records))

    @property
    def kind(self) -> str:
        return self.spec.kind


AnyStudy: TypeAlias = Study[Any, Any, Any]


# The registry of all kinds of studies. Other packages add theirs by an entry point in the group
# `textevolve.studies` that names a `Study`.

# The group of the entry points by which other packages add kinds of studies.
GROUP = "textevolve.studies"

KINDS: Mapping[str, str] = {
    "evaluate": "textevolve.studies.evaluate",
    "compare": "textevolve.studies.compare",
    "compare-quants": "textevolve.studies.compare_quants",
    "calibrate": "textevolve.studies.calibrate",
    "chain": "textevolve.studies.chain",
    "agreement": "textevolve.studies.labels.agreement",
    "ablation": "textevolve.studies.labels.ablation",
    "escalation": "textevolve.studies.labels.escalation",
    "robustness": "textevolve.studies.labels.robustness",
    "fit": "textevolve.studies.labels.fit",
    "rates": "textevolve.studies.labels.rates",
    "assertions": "textevolve.studies.assertions",
    "nodes": "textevolve.studies.nodes",
    "memory-eval": "textevolve.studies.memory_eval",
    "optimize": "textevolve.studies.optimize",
    "innovate": "textevolve.studies.innovate",
    "guide": "textevolve.studies.guide",
    "profile": "textevolve.studies.profile",
    "summarize": "textevolve.studies.summarize",
    "create-memories": "textevolve.studies.memories.create",
    "integrate-memories": "textevolve.studies.memories.integrate",
    "read-corpus": "textevolve.studies.memories.read_corpus",
    "evolve-persona": "textevolve.studies.memories.evolve_persona",
}
"""The module that holds the `STUDY` of each kind. A module is loaded only when its kind is used."""


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds of studies, this package's own first."""
    external = {point.name for point in entry_points(group=GROUP)} - set(KINDS)
    return (*KINDS, *sorted(external))


def find_study(kind: str) -> AnyStudy:
    """Return the study of a kind.

    Raises:
        InputError: there is no such kind; lists the kinds.
    """
    if kind in KINDS:
        return cast(AnyStudy, load_module(KINDS[kind]).STUDY)
    for point in entry_points(group=GROUP):
        if point.name == kind:
            return cast(AnyStudy, load_point(point))
    raise InputError(f"no kind of study is named '{kind}'; there are: {', '.join(kinds())}")


# YAML files that describe studies: each has the kind of the study, then the fields of its
# specification.

KIND = "kind"
FILE = "file"
"""The key that replaces a text by a file: `{file: NAME}` stands for the content of the file."""


def read_study_file(path: str) -> tuple[AnyStudy, StudySpec]:
    """Read the study that a file describes.

    Raises:
        InputError: the file cannot be read, or something in it cannot be used; names the line.
    """
    node, data = parse_yaml(read_text(path), path)
    mapping = as_object(data)
    if not isinstance(mapping.get(KIND), str):
        reason = f"must name the kind of study: {', '.join(kinds())}"
        if "providers" in mapping:
            reason = (
                f"is a file of promptfoo; make a study of it: textevolve run init --from {path}"
            )
        raise InputError(f"{path}:1: {reason}")
    try:
        find_study(mapping[KIND])
    except InputError as error:
        raise InputError(f"{path}:{line_of(node, (KIND,))}: {error}") from None

    try:
        study, spec = read_study(mapping)
        for judge in _list_judges(spec):
            judge.check()  # a run that is stored has its judges anyway, and is shown without them
    except InputError as error:
        raise InputError(f"{path}:{find_line(node, error)}: {error}") from None

    return study, spec


def _list_judges(spec: StudySpec) -> Iterator[Judge]:
    """Yield the judges that the fields of a specification name."""
    for _, value in spec:
        judges = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        yield from (judge for judge in judges if isinstance(judge, Judge))


def read_study(mapping: Mapping[str, Any]) -> tuple[AnyStudy, StudySpec]:
    """Convert the parsed content of a study file to the study and its specification.

    Raises:
        InputError: there is no such kind, or a field cannot be used.
    """
    kind = mapping.get(KIND)
    if not isinstance(kind, str):
        raise InputError(f"{KIND}: must name the kind of study: {', '.join(kinds())}")
    study = find_study(kind)
    fields = {name: _read(value) for name, value in mapping.items() if name != KIND}

    return study, study.spec(**fields)


def _read(value: Any) -> Any:
    reference = as_object(value)
    return read_text(str(reference[FILE])) if set(reference) == {FILE} else value


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON schema of study files of one kind."""
    schema = find_study(kind).spec.model_json_schema()
    kind_schema = {KIND: {"const": kind, "description": "The kind of study."}}
    fields = cast("dict[str, Any]", schema["properties"])
    schema["properties"] = {**kind_schema, **map_values(_describe, fields)}
    schema["required"] = [KIND, *schema.get("required", [])]
    return schema


def _describe(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a field. A long text may also be written as {file: NAME}."""
    field_schema = omit(field, OURS)
    if field.get("text"):
        file_schema = {
            "type": "object",
            "properties": {FILE: {"type": "string"}},
            "required": [FILE],
        }
        return {
            "description": field_schema.get("description", ""),
            "anyOf": [field_schema, file_schema],
        }

    return field_schema


# The keys of a field's schema that only this package uses; they are removed.
OURS = ("short", "group", "argument", "text", "flag", "aside", "reads", "metavar", "hidden")


def schema_of_all() -> dict[str, Any]:
    """Return the JSON schema of all study files."""
    schemas = list(map(schema_of, kinds()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A TextEvolve study",
        "oneOf": schemas,
        "$defs": dict(ChainMap(*(schema.pop("$defs", {}) for schema in schemas))),
    }


def write_example(kind: str, path: str = "") -> str:
    """Write a commented study file of this kind: required fields are left to be filled in, and all
    others are comments with their defaults. `path`: the file's name for the command that runs
    it; by default that of the kind."""
    spec = find_study(kind).spec
    lines = [f"# {line}".rstrip() for line in inspect.cleandoc(spec.__doc__ or "").splitlines()]
    command = shlex.join(["textevolve", "run", path or f"{kind}.yaml"])
    lines += [f"# Run it with: {command}", "", f"{KIND}: {kind}", ""]

    for name, info in spec.model_fields.items():
        lines.append(f"# {info.description or name}")
        if info.is_required():
            text = option_properties(info).get("text") == "file"
            lines += [f"{name}: {{file: {name}.txt}}" if text else f"{name}: ...", ""]
            continue

        default = str(info.default) if info.annotation is Judge else info.default
        written = yaml.safe_dump({name: default}, default_flow_style=True, width=1000)
        lines += [f"# {written.strip()[1:-1]}", ""]

    return "\n".join(lines)
