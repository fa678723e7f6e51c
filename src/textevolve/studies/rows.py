"""Reading the user's rows as cases: the options for column names, and the parameters that a row may
set for its case.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain, pairwise
from typing import Annotated, Any, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import from_json

from textevolve.debate.profile import Profile, build_profile, load_profile
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import CHECKS, EQUAL_TO, SPENT, Case, Usage, empty_default, mend_text
from textevolve.json_texts import as_object, find_path, is_array, is_object, write_text
from textevolve.judges.judge import Judge, parse_judge
from textevolve.llm.model import Message, Model, Request, Response
from textevolve.llm.prices import usage_of
from textevolve.llm.refusals import error_object
from textevolve.llm.targets import COOKIES, DATA, EVENT, EVENTS, Target
from textevolve.loops.rules import read_check_list
from textevolve.mappings import drop_empty, drop_none, first_of, map_values, read_fields
from textevolve.protocol.contents import ReportedUsage
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
    find_placeholders,
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
    profile_name: Any = parameters.pop(PROFILE, None)
    if profile_name is None:
        return case
    try:
        profile = (
            load_profile(profile_name)
            if isinstance(profile_name, str)
            else build_profile(profile_name)
        )
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


def _use_checks(checks: tuple[Any, ...]) -> tuple[Any, ...]:
    if checks:
        read_check_list(checks)
    return checks


CheckList: TypeAlias = Annotated[
    tuple[Any, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str | Mapping) else value),
    AfterValidator(_use_checks),
    WithJsonSchema({"type": ["array", "string", "object"]}),
]
"""Checks in a study file or in Python: a list of texts and mappings, or a single one."""


def check_option() -> Any:
    """Declare the field of a specification with the checks of all rows."""
    return option(
        (),
        "A check of every output, such as 'contains: refund' or 'rubric: is polite'; rows have more"
        " in a column `checks`. Repeatable.",
        group="Judging",
        metavar="CHECK",
        # Runs without checks have the identity that they had before there were any.
        exclude_if=lambda checks: not checks,
    )


def with_checks_judge(judges: tuple[Judge, ...]) -> tuple[Judge, ...]:
    """Return the judges of a study with checks, with the one that applies them if no judge
    does."""
    if any(judge.reads_checks for judge in judges):
        return judges
    return (*judges, parse_judge("checks"))


def read_cases(path: str) -> Iterator[Case]:
    """Read the cases of a file with their parameters.

    Raises:
        InputError: the file cannot be read, or a line is not a case; names file and line.
    """
    return cases.read_cases(path, reading=RowReading(parameters=PARAMETERS))


@dataclass
class RowNames:
    """The ids of the rows of a run. An id that is taken gets a number at its end which is free, so
    that no row takes another's place."""

    _taken: set[str] = empty_default(set)
    _counts: Counter[str] = empty_default(Counter)
    _names: dict[tuple[str, int], str] = empty_default(dict)

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


@dataclass
class EqualRows:
    """The ids of the first rows with each content: rows that are equal are no independent
    observations, whatever their ids."""

    _first: dict[int, str] = empty_default(dict)

    def find(self, content: str, id: str) -> dict[str, str]:
        """Return the parameter that names the earlier row with this content; empty without one."""
        first = self._first.setdefault(hash(content), id) if content else id
        return {} if first == id else {EQUAL_TO: first}

    def mark(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Yield cases with the id of the earlier case that each one equals, if there is one,
        instead of the id in its row. If all cases have one input, it does not tell which row a case
        is, so that they count as equal only if all rows are."""
        remaining = iter(cases)
        first_cases: list[Case] = []
        contents: set[str] = set()
        for case in remaining:
            first_cases.append(case)
            contents.add(case.parameters.get(EQUAL_TO, ""))
            if case.input != first_cases[0].input:
                break
        else:
            contents = contents if len(contents) == 1 else set()

        for case in chain(first_cases, remaining):
            parameters = dict(case.parameters)
            content = parameters.pop(EQUAL_TO, "")
            if contents:
                parameters |= self.find(content, case.id)
            yield replace(case, parameters=parameters) if content else case


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
        session: The id of the conversation; None if the response has none.
        cookies: The cookies of the conversation after this answer; None if it changes none.
        seconds: The time that the application took; None if it is unknown.
    """

    text: str
    trajectory: Trajectory | None = None
    usage: Usage | None = None
    session: Any = None
    cookies: Mapping[str, str] | None = None
    seconds: float | None = None

    @property
    def context(self) -> str | None:
        """The retrieved passages as the context that judges see."""
        passages = self.trajectory.contexts if self.trajectory else ()
        return join_passages(passages) or None


def write_request(
    target: Target,
    row: Mapping[str, Any],
    version: str,
    sample: int = 0,
    cookies: Mapping[str, str] | None = None,
) -> Request:
    """Write the request to a target for a row. The target's headers and version, and the cookies of
    a conversation, are part of the call's journal key."""
    texts = map_values(column_text, row)
    body = dict(row) if target.body is None else _fill_body(target.body, row, texts)
    about = {"version": version, "headers": dict(target.headers), COOKIES: dict(cookies or {})}
    identity = drop_empty(about)
    header = (Message("system", (json.dumps(identity, sort_keys=True),)),) if identity else ()
    sent = Message("user", (mend_text(json.dumps(body, ensure_ascii=False)),))

    return Request(messages=(*header, sent), sample=sample)


def _fill_body(template: Any, row: Mapping[str, Any], texts: Mapping[str, str]) -> Any:
    """Fill the columns of a row into all texts of a request's body. A text that consists of one
    placeholder is replaced by the column's value itself, which may not be a text."""
    if is_object(template):
        return {name: _fill_body(inner, row, texts) for name, inner in template.items()}
    if is_array(template):
        return [_fill_body(inner, row, texts) for inner in template]
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
        InputError: the body has no placeholder of a column, a misspelt one, or one that is hidden;
            or there is a placeholder in the address, the command or a header.
    """
    for place in (target.target, *target.headers.values()):
        if names := find_placeholders(place, columns):
            raise InputError(
                f"target {target.label:.200}: {{{names[0]}}} would be sent as it stands, since only"
                " `body` in a file of the target is filled in"
            )

    if target.body is not None:
        text = write_text(target.body)
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
    parameters = case.parameters
    if CHECKS in parameters:
        cost = None if answer.usage is None else answer.usage.cost
        spent = drop_none({"cost": cost, "seconds": answer.seconds})
        parameters = {**parameters, SPENT: spent}

    return replace(
        case, candidates=(text,), context=context, trajectory=trajectory, parameters=parameters
    )


def read_target_answer(target: Target, response: Response) -> TargetAnswer:
    """Read the fields of a target's response. In a stream of server-sent events the texts of all
    events that belong to the answer are joined; for other fields the last event counts.

    Raises:
        AnswerError: the application reports an error, there is no text, or a field cannot be read.
    """
    try:
        value: object = from_json(response.text)
    except ValueError:  # made up by a rehearsal
        text = response.text
        return TargetAnswer(text, Trajectory((text, text, text), ()))

    cookies = as_object(value).get(COOKIES)
    if cookies is not None:
        value = as_object(value)[DATA]
    streamed = response.finish_reason == EVENTS
    events = [_read_event(part) for part in (cast("list[object]", value) if streamed else [value])]
    for event in events:
        if reason := _find_error(target, event):
            raise AnswerError(f"{target.label}: the application reports an error: {reason}")
    parts = [event.data for event in events]
    text = _join_texts(target, events)

    if text is None:
        field_names = target.answer or " or ".join(ANSWER_FIELDS)
        answer_text = wording.shorten(json.dumps(value, ensure_ascii=False), 160)
        raise AnswerError(
            f"{target.label}: no field '{field_names}' in its answer: {answer_text}; name the field"
            " with `answer` in a file of the target"
        )

    paths = read_fields(target, "contexts", "tool_calls", "steps", "usage")
    fields = {name: _find_last(parts, path) for name, path in paths.items()}
    fields["errors"] = _find_last(parts, "errors")
    try:
        trajectory = read_trajectory(fields, target.label)
    except InputError as error:
        raise AnswerError(str(error)) from None

    stated = fields["usage"]
    usage = ReportedUsage.model_validate(stated) if isinstance(stated, dict) else None

    session = _find_last(parts, target.session) if target.session else None

    return TargetAnswer(
        text, trajectory, usage and usage_of(usage, None), session, cookies, response.seconds
    )


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """An event of a stream, or a whole answer. `kind`: its name, or the type that its data states,
    in lower case; `data`: its data."""

    kind: str
    data: object


def _read_event(part: object) -> AnswerEvent:
    fields = as_object(part)
    if EVENT in fields:
        return AnswerEvent(str(fields[EVENT]).lower(), fields[DATA])
    kind = first_of(drop_none(fields), ("event", "type"))
    return AnswerEvent(kind.lower() if isinstance(kind, str) else "", part)


_ERROR_KIND = re.compile(
    r"^((run|stream|response|message|chat|agent|workflow)[._ -]?)?(error|failed|failure|aborted)$"
)
_ASIDE_KIND = re.compile(
    r"reason|think|thought|status|progress|ping|heartbeat|keep.?alive|debug|\blogs?\b|tool|meta"
    r"|source|citation|retriev|trace|\bstep\b|usage"
)
"""The kinds of events that tell of the work on an answer, and are no part of it."""
_WHOLE_KIND = re.compile(r"final|finish|complete|done|\bend\b|_end$|result|replace")
"""The kinds of events that may repeat the whole answer."""
COMPARED = 2000
"""The number of characters by which a text is compared with its parts."""


def _find_error(target: Target, event: AnswerEvent) -> str:
    """Return the reason if an application says that its answer failed, in an event or beside the
    answer; "" if it does not. An error of a tool is none of the answer."""
    if "tool" in event.kind or target.answer.split(".")[0] in ("error", "errors"):
        return ""
    fields = as_object(event.data)
    error = fields.get("error")
    is_failed = _ERROR_KIND.search(event.kind) or fields.get("status") in ("error", "failed")
    if not error and not is_failed:
        return ""

    # Most put the words under `error`; others beside the kind, or into the whole event.
    words = "" if error is True else error
    words = words or first_of(drop_none(fields), ("errorText", "reason", "data", "response"))
    reason = error_object(words or event.data).message

    return wording.shorten(reason, 300)


def _join_texts(target: Target, events: Sequence[AnswerEvent]) -> str | None:
    """Return the text of an answer; None without one. Events about the work on it are left out
    unless there are no others."""
    texts: list[tuple[AnswerEvent, str]] = []
    for event in events:
        text = _find_text(target, event.data)
        if text is not None and text.strip() != "[DONE]":
            texts.append((event, text))
    if len(texts) < 2:
        return texts[0][1] if texts else None
    texts = [pair for pair in texts if not _ASIDE_KIND.search(pair[0].kind)] or texts

    # A stream may send all of the text so far with each event, and the last one twice.
    steps = list(pairwise(text for _, text in texts))
    growing = [after for text, after in steps if after != text]
    if len(growing) > 1 and all(after.startswith(text) for text, after in steps):
        return texts[-1][1]
    joined = ""
    for number, (event, text) in enumerate(texts):
        before = texts[number - 1][0] if number else None
        if before is not None and _is_whole(event, text, joined, number, before):
            joined = text
        elif not (_WHOLE_KIND.search(event.kind) and isinstance(event.data, str)):
            joined += text

    return joined


def _is_whole(event: AnswerEvent, text: str, joined: str, number: int, before: AnswerEvent) -> bool:
    """Return whether the text of an event is the whole answer, which the `number` events before it
    have sent in parts, and no further part. Its kind and its fields are hints that the lengths and
    the text before have to agree with, since a stream may repeat a word."""
    if "replace" in event.kind:
        return True
    if _WHOLE_KIND.search(event.kind) and not _WHOLE_KIND.search(before.kind):
        return SequenceMatcher(None, joined[:COMPARED], text[:COMPARED]).ratio() >= 0.5
    has_other_fields = as_object(event.data).keys() != as_object(before.data).keys()
    differs = event.kind != before.kind or has_other_fields

    return text.strip() == joined.strip() and (number > 1 or differs)


def _find_text(target: Target, part: object) -> str | None:
    value = part
    if target.answer:
        value = find_path(part, target.answer)
    elif is_object(part):
        value = first_of(drop_none(part), ANSWER_FIELDS)

    return None if value is None else column_text(value)


def _find_last(parts: Sequence[object], path: str) -> object:
    values = (find_path(part, path) for part in reversed(parts))
    return next((value for value in values if value is not None), None)
