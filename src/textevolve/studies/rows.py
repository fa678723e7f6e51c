"""Reading the user's rows as cases: the options for column names, and the parameters that a row may
set for its case.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from textevolve.debate.profile import Profile, build_profile, load_profile
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Case, Usage, mend_text
from textevolve.json_texts import as_object, find_path
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.prices import usage_of
from textevolve.llm.targets import EVENTS, Target
from textevolve.mappings import drop_empty, first_of, map_values
from textevolve.protocol.reported import ReportedUsage
from textevolve.report import wording
from textevolve.rows import cases
from textevolve.rows.cases import RowReading
from textevolve.rows.columns import IMAGES, column_text, join_passages
from textevolve.runs.study import StudySpec
from textevolve.spec import option
from textevolve.texts.placeholders import (
    Hidden,
    check_spelling,
    fill,
    require_placeholders,
    whole_placeholder,
)
from textevolve.trajectory import NO_ANSWER, Trajectory, read_trajectory

_ABOUT = ("name", "description")
# The parameters of a debate that a row may set for its case: the fields of a profile.
PARAMETERS = tuple(name for name in Profile.model_fields if name not in _ABOUT)
PROFILE = "profile"
"""The parameter with which a row names a whole profile; its other parameters override it."""


def fits_parameter(name: str, value: Any) -> bool:
    """Return whether a value has the type of a debate's parameter."""
    field = Profile.model_fields.get(name)
    kind: Any = str if field is None else field.annotation
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False

    return True


def with_profile(case: Case) -> Case:
    """Return the case with the fields of the profile that its row names, so that the run holds what
    the row meant, also if the profile's file changes.

    Raises:
        InputError: there is no such profile.
    """
    parameters = dict(case.parameters)
    named: Any = parameters.pop(PROFILE, None)
    if named is None:
        return case
    try:
        profile = load_profile(named) if isinstance(named, str) else build_profile(named)
    except InputError as error:
        raise InputError(f"case {case.id}: {error}") from None

    return replace(case, parameters={**profile.model_dump(mode="json"), **parameters})


class MappedSpec(StudySpec):
    """The base of specifications whose cases come from the user's rows."""

    map: Mapping[str, str] = option(
        {},
        "Rename a column: --map input=frage reads the column frage as input. Repeatable.",
        group="Data",
        identity=False,
        metavar="NEW=OLD",
    )


def read_cases(path: str) -> Iterator[Case]:
    """Read the cases of a file with their parameters.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    return cases.read_cases(path, reading=RowReading(parameters=PARAMETERS))


class RowNames:
    """The ids of the rows of a run. An id that is taken gets a number at its end which is free, so
    that no row takes another's place."""

    def __init__(self) -> None:
        self._taken = set[str]()
        self._counts = Counter[str]()
        self._names = dict[tuple[str, int], str]()

    def name(self, row: Mapping[str, Any], number: int) -> str:
        """Return the id of a row, or else its number."""
        id = row.get("id")
        return self._take(str(number if id is None else id))

    def separate(self, cases: Iterable[Case], has_repeats: Callable[[str], bool]) -> Iterator[Case]:
        """Yield cases so that two of one id have one input: they are repeats of one case, whose
        scores belong together. One with another input gets an id of its own, unless the rows
        themselves say that the item with this id has repeats."""
        for case in cases:
            if has_repeats(case.id):
                self._taken.add(case.id)
                yield case
                continue
            key = (case.id, hash(case.input))
            if key not in self._names:
                self._names[key] = self._take(case.id)
            name = self._names[key]
            yield case if name == case.id else replace(case, id=name)

    def _take(self, id: str) -> str:
        name = id
        while name in self._taken:
            self._counts[id] += 1
            name = f"{id} ({self._counts[id] + 1})"
        self._taken.add(name)

        return name


def keep_columns(case: Case, names: Collection[str] | None) -> Case:
    """Return a case, whose input is a row as JSON, with these columns of it alone (None: with all),
    in the order of their names."""
    row = as_object(json.loads(case.input))
    columns = {name: row[name] for name in sorted(row) if names is None or name in names}
    return replace(case, input=json.dumps(columns))


# Targets (the user's applications, which are tested by calls) in studies: their requests are
# written from rows, and fields are read from their responses.
#
# The journal stores complete responses, so that reading other fields needs no new call.

ANSWER_FIELDS = ("answer", "output")
"""The fields of a response that may hold the answer, unless the target names a field."""


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """The answer of a target, read from its response.

    Attributes:
        trajectory: The retrieved passages and tool calls, if the response has them.
        usage: The usage that the target reports; None if it reports none.
    """

    text: str
    trajectory: Trajectory | None = None
    usage: Usage | None = None

    @property
    def context(self) -> str | None:
        """The retrieved passages as the context that judges see."""
        passages = self.trajectory.contexts if self.trajectory else ()
        return join_passages(passages) or None


def write_request(target: Target, row: Mapping[str, Any], version: str, sample: int = 0) -> Request:
    """Write the request to a target for a row. The target's headers and version are part of the
    call's journal key."""
    texts = map_values(column_text, row)
    body = dict(row) if target.body is None else _fill_body(target.body, row, texts)
    about = {"version": version, "headers": dict(target.headers)}
    identity = drop_empty(about)
    header = (Message("system", (json.dumps(identity, sort_keys=True),)),) if identity else ()
    sent = Message("user", (mend_text(json.dumps(body, ensure_ascii=False)),))

    return Request(messages=(*header, sent), sample=sample)


def _fill_body(template: Any, row: Mapping[str, Any], texts: Mapping[str, str]) -> Any:
    """Fill the columns of a row into all texts of a request's body. A text that consists of one
    placeholder is replaced by the column's value itself, which may not be a text."""
    if isinstance(template, dict):
        fields = cast("dict[str, Any]", template)
        return {name: _fill_body(inner, row, texts) for name, inner in fields.items()}
    if isinstance(template, list):
        return [_fill_body(inner, row, texts) for inner in cast("list[Any]", template)]
    if not isinstance(template, str):
        return template
    full_text = whole_placeholder(template, row)
    if full_text is not None:
        return row[full_text]

    return fill(template, texts)


def check_body(target: Target, columns: Collection[str], hidden: Mapping[str, Hidden] = {}) -> None:
    """Check the placeholders in the body of a target's request. `hidden`: columns that it does not
    get.

    Raises:
        InputError: the body has no placeholder of a column, a misspelt one, or one that is hidden.
    """
    if target.body is not None:
        text = json.dumps(target.body, ensure_ascii=False)
        check_spelling(text, columns, f"target {target.label}", hidden)
        require_placeholders(text, columns)


async def ask_target(model: Model, target: Target, request: Request) -> TargetAnswer:
    """Call a target, and read its answer. The text of the answer may be empty only if tools were
    called.

    Raises:
        ModelError, BudgetError: there is no usable answer.
    """
    answer = read_target_answer(target, await model(request))
    if not answer.text.strip() and not (answer.trajectory and answer.trajectory.tool_calls):
        raise AnswerError(
            "the output is empty: the application answered without a text or a tool call"
        )

    return answer


async def answer_case(model: Model, target: Target, version: str, case: Case) -> Case:
    """Return the case with the target's answer as its candidate, and the retrieved passages, if
    there are any, as its context. It raises InputError if the case has a candidate already, and the
    errors of `ask_target`."""
    if case.candidates:
        raise InputError(
            "the row has an output, but the target gives the outputs: leave the column out, or"
            " read it as the expected answer with --map reference=COLUMN"
        )

    images = {IMAGES: list(case.images)} if case.images else {}
    request = write_request(target, {"input": case.input, **images}, version)
    answer = await ask_target(model, target, request)
    context = answer.context or case.context
    trajectory = answer.trajectory
    if case.trajectory is not None:
        expected = case.trajectory.expected_tools
        trajectory = replace(trajectory or Trajectory(), expected_tools=expected)
    text = answer.text if answer.text.strip() else NO_ANSWER

    return replace(case, candidates=(text,), context=context, trajectory=trajectory)


def read_target_answer(target: Target, response: Response) -> TargetAnswer:
    """Read the fields of a target's response. In a stream of server-sent events the texts of all
    events are joined; for other fields the last event counts.

    Raises:
        AnswerError: there is no text, or a field cannot be read.
    """
    try:
        value: object = from_json(response.text)
    except ValueError:  # made up by a rehearsal
        text = response.text
        return TargetAnswer(text, Trajectory((text, text, text), ()))

    streamed = response.finish_reason == EVENTS
    parts = cast("list[object]", value) if streamed else [value]
    texts = [text for part in parts if (text := _find_text(target, part)) is not None]

    if not texts:
        field_names = target.answer or " or ".join(ANSWER_FIELDS)
        answer_text = wording.shorten(json.dumps(value, ensure_ascii=False), 160)
        raise AnswerError(
            f"{target.label}: no field '{field_names}' in its answer: {answer_text}; name the field"
            " with `answer` in a file of the target"
        )

    paths = {name: getattr(target, name) for name in ("contexts", "tool_calls", "steps", "usage")}
    fields = {name: _find_last(parts, path) for name, path in paths.items()}
    try:
        trajectory = read_trajectory(fields, target.label)
    except InputError as error:
        raise AnswerError(str(error)) from None

    stated = fields["usage"]
    usage = ReportedUsage.model_validate(stated) if isinstance(stated, dict) else None

    return TargetAnswer("".join(texts), trajectory, usage and usage_of(usage, None))


def _find_text(target: Target, part: object) -> str | None:
    value = part
    if target.answer:
        value = find_path(part, target.answer)
    elif isinstance(part, dict):
        fields = cast("dict[str, object]", part)
        value = first_of(fields, ANSWER_FIELDS)

    return None if value is None else column_text(value)


def _find_last(parts: Sequence[object], path: str) -> object:
    values = (find_path(part, path) for part in reversed(parts))
    return next((value for value in values if value is not None), None)
