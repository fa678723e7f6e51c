"""The checks of outputs: what a single output must satisfy, such as `contains: 30 days`.

A check is written in one of three forms, in a row, a study file, a file of rules and a test alike:

    contains: 30 days                                  a text
    {contains: 30 days, weight: 2, name: refund}       a mapping
    {type: contains, value: 30 days, weight: 2}        as promptfoo writes it

Each form may begin with `not-` or `not:`. The table of all checks is `checks.yaml`. `rules.py` has
the lists of checks, with their weights; `judges/checks.py` asks the judges of checks.
"""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import SPENT, Case, as_number
from textevolve.json_texts import (
    as_array,
    as_object,
    is_array,
    is_mapping,
    parse_printed,
    write_text,
)
from textevolve.ledger import leave_out
from textevolve.loading import late_re
from textevolve.metrics.label_metrics import AnswerMetric, list_calls, open_metric
from textevolve.metrics.plain import IGNORE_CASE, call_metric, read_schema
from textevolve.rows.columns import column_text
from textevolve.rows.exports import EXPECTED
from textevolve.spec import suggest
from textevolve.texts.patterns import compile_pattern, is_found
from textevolve.texts.placeholders import fill, placeholders_of
from textevolve.texts.prose import CASE_FOLDS, compose, split_words
from textevolve.texts.schema_check import check_schema, find_data_faults, find_faults
from textevolve.texts.yaml_lines import load_shipped, parse_yaml
from textevolve.trajectory import Trajectory

CheckGrader: TypeAlias = Callable[[str, Case], Any]
"""A function that grades the output of a case. It returns what a metric may return, and raises
InputError if the check cannot be computed."""

RUBRIC = "rubric"
"""The check, and its judge, that asks a model whether an output meets a criterion."""
GROUPS = ("all", "any")
"""The checks whose value is a list of checks: all of them must hold, or at least one."""
OPTIONS = ("weight", "threshold", "name", "gate", "feedback")
"""The fields of a check besides its name and value."""
SEARCHED = 100_000
MARKUP_SEARCHED = 20_000
"""The number of characters at the beginning of an output that are searched for JSON, and for XML
and HTML."""
MOST_OPENINGS = 1000
"""The number of opening brackets at which JSON may begin, since thousands without an end would take
minutes."""


@dataclass(frozen=True, slots=True)
class CheckKind:
    """A kind of check, as `checks.yaml` describes it."""

    form: str
    about: str
    open: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    judge: str = ""
    least: float = 1.0
    blocks: bool = False
    reaches: bool = False
    is_reference: bool = False
    reads: str = ""

    def open_grader(self, value: Any) -> CheckGrader:
        """Return the grader of a check with this value.

        Raises:
            InputError: the value cannot be used. SettingsError: a package is missing.
        """
        return _OPENERS[self.open](value, **self.options)


# Values.


def _read_text(value: Any) -> str:
    text = column_text(value)
    if not text.strip():
        raise InputError("its value is missing or empty")
    _refuse_metric(text)
    return text


def _refuse_metric(text: str) -> None:
    """Raise InputError for what follows the colon in `contains:ignore-case: TEXT`, which is how a
    metric is written: as a text it would occur nowhere, so that `not` holds."""
    if text.startswith(f"{IGNORE_CASE}:"):
        raise InputError("only metrics have ignore-case; the check for it is icontains")


def _read_texts(value: Any) -> list[str]:
    """Return the texts of a list, also of one in JSON, as a column's is written into a check; or
    those between the commas of a text, in which a text with a comma is quoted."""
    entries = as_array(parse_printed(value) if isinstance(value, str) else value)
    if not entries:
        text = _read_text("" if value == [] else value)
        entries = next(csv.reader([text], skipinitialspace=True))

    return list(map(_read_text, entries))


def _read_number(value: Any) -> float:
    try:
        number = as_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        number = None
    if number is None or isinstance(value, bool) or not 0 <= number < float("inf"):
        raise InputError(f"its value must be a number of 0 or more, not {value!r:.40}")
    return number


def read_schema_value(value: Any) -> Mapping[str, Any]:
    """Return the schema that a value holds, as a mapping or as text in JSON or YAML, or the one in
    the file that it names; {} for no value.

    Raises:
        InputError: there is no schema.
    """
    if value in (None, "", True):
        return {}
    if names_schema_file(value):
        return read_schema(value.strip().removeprefix("file://"))
    if isinstance(value, str):
        value = parse_yaml(value, "the schema")[1]
    check_schema(value)

    return as_object(value)


def names_schema_file(value: Any) -> bool:
    """Return whether the value of a check of JSON names a file."""
    text = value.strip() if isinstance(value, str) else ""
    return bool(text) and "\n" not in text and not text.startswith("{")


def function_name(value: Any) -> str:
    """Return the name of the function in the value of a check.

    Raises:
        InputError: it is no such name.
    """
    name = _read_text(value).removeprefix("file://")
    name = f"{name}:get_assert" if name.endswith(".py") else name
    if not re.fullmatch(r"[^\s()]+:\w+", name):
        raise InputError(f"'{name:.60}' is no FILE.py:FUNCTION; code in a check is not evaluated")
    return name


# Graders without a model.


def _open_equals(value: Any) -> CheckGrader:
    if isinstance(value, Mapping | list):
        return lambda text, _case: parse_printed(text.strip()) == value
    _refuse_metric(write_text(value))
    return _open_metric(value, "exact")


def _open_contains(
    value: Any, *, several: bool = False, every: bool = True, ignores_case: bool = False
) -> CheckGrader:
    texts = _read_texts(value) if several else [_read_text(value)]
    folds = CASE_FOLDS if ignores_case else (compose,)

    def contains(text: str, _case: Case) -> bool:
        present = [any(fold(part) in fold(text) for fold in folds) for part in texts]
        return all(present) if every else any(present)

    return contains


def _open_affix(value: Any, *, at_end: bool = False) -> CheckGrader:
    affix = compose(_read_text(value).strip())
    matches = str.endswith if at_end else str.startswith
    return lambda text, _case: matches(compose(text).strip(), affix)


def _open_regex(value: Any) -> CheckGrader:
    pattern = compile_pattern(_read_text(value))
    return lambda text, _case: is_found(pattern, text)


def _open_json(value: Any, *, anywhere: bool = False) -> CheckGrader:
    schema = read_schema_value(value)

    def follows(text: str, _case: Case) -> tuple[bool, str]:
        if anywhere:
            return any(not find_data_faults(data, schema) for data in _find_json(text)), ""
        faults = find_faults(text, schema)
        return not faults, " ".join(faults)

    return follows


def _find_json(text: str) -> list[Any]:
    """Return the objects and arrays of JSON in a text, each also within another one."""
    found: list[Any] = []
    decoder = json.JSONDecoder()
    for opening in islice(re.finditer(r"[{\[]", text[:SEARCHED]), MOST_OPENINGS):
        try:
            found.append(decoder.raw_decode(text, opening.start())[0])
        except (ValueError, RecursionError):
            continue

    return found


_XML = late_re(r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?(?:/>|>.*?</\1\s*>)", re.DOTALL)
_HTML = late_re(
    r"<(?:a|article|b|body|br|button|code|div|em|form|h[1-6]|head|header|hr|html|i|img|input|label"
    r"|li|link|main|meta|nav|ol|option|p|pre|script|section|select|span|strong|style|svg|table|td"
    r"|textarea|th|title|tr|u|ul)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)


def _open_markup(_value: Any, *, form: str, anywhere: bool = False) -> CheckGrader:
    def is_markup(text: str, _case: Case) -> bool:
        text = text[:MARKUP_SEARCHED].strip()
        if form == "html":
            is_whole = text.startswith("<") and text.endswith(">")
            return (anywhere or is_whole) and _HTML.search(text) is not None
        return any(map(_is_xml, (m[0] for m in _XML.finditer(text)) if anywhere else [text]))

    return is_markup


def _is_xml(text: str) -> bool:
    if "<!ENTITY" in text.upper():
        raise InputError("XML with entities of its own is not parsed")
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return False

    return True


def _open_words(value: Any, *, bound: str = "") -> CheckGrader:
    """Return the grader of a number of words: exactly the value, at least or at most the value
    (`bound`), or from `min` to `max` of a mapping."""
    limits = as_object(value) or dict.fromkeys([bound] if bound else ["min", "max"], value)
    if not limits.keys() <= {"min", "max"}:
        raise InputError("its fields are min and max")
    least = _read_number(limits.get("min", 0))
    most = _read_number(limits["max"]) if "max" in limits else float("inf")

    def counts(text: str, _case: Case) -> tuple[bool, str]:
        words = len(split_words(text))
        return least <= words <= most, f"It has {words} words."

    return counts


def _open_spent(value: Any, *, field: str) -> CheckGrader:
    """Return the grader that compares what an output cost, or how long it took, with a limit."""
    most = _read_number(value)

    def is_within(_text: str, case: Case) -> tuple[bool, str]:
        spent = as_object(case.parameters.get(SPENT)).get(field)
        if spent is None:
            raise InputError(f"the {field} of this output is not known")
        return spent <= most, f"The {field} is {spent:g}."

    return is_within


def _open_metric(value: Any, name: str) -> CheckGrader:
    """Return the grader of a metric that compares the output with a value, or else with the
    reference of the case."""
    of_answers = open_metric(name)
    # A value is one text, also where a reference would be a list of accepted answers.
    metric = of_answers.metric if isinstance(of_answers, AnswerMetric) else of_answers

    def compare(text: str, case: Case) -> Any:
        if value is not None:
            return metric(text, write_text(value))
        if case.reference is None:
            raise InputError("it has no value, and the row has no reference")
        return of_answers(text, case.reference)

    return compare


def _open_edits(value: Any) -> CheckGrader:
    """Return the grader of the number of edits from a text: 5 at most, or `most` of a mapping."""
    fields = as_object(value) or {"text": value}
    expected = compose(_read_text(fields.get("text"))).strip()
    most = _read_number(fields.get("most", 5))
    similarity = open_metric("edit-distance")

    def is_near(text: str, _case: Case) -> tuple[bool, str]:
        length = max(len(compose(text).strip()), len(expected))
        edits = round((1 - similarity(text, expected)) * length)
        return edits <= most, f"It takes {edits} edits."

    return is_near


# Graders of the steps of an agent.


def _open_trajectory(value: Any, *, name: str) -> CheckGrader:
    option = "" if value in (None, True) else _write_option(value)
    metric = open_metric(f"{name}:{option}" if option else name)

    def grade(text: str, case: Case) -> Any:
        return metric(text, case.reference, (case.trajectory or Trajectory()).as_row())

    return grade


_SIGNS = {"exact": "=", "partial": "~"}
"""The signs of the metric `tool-args` for the modes of the check."""


def _write_option(value: Any) -> str:
    """Return the option of a metric of trajectories, which promptfoo writes as a mapping."""
    fields = {"steps": value} if as_array(value) else dict(as_object(value))
    if not fields:
        return write_text(value)

    # Each form takes out the fields that it reads, so that none is dropped in silence.
    if "steps" in fields:
        mode = str(fields.pop("mode", "") or "in-order").replace("_", "-")
        steps = map(write_text, as_array(fields.pop("steps")))
        option = f"{mode}:{','.join(steps)}"
    elif "args" in fields:
        mode = str(fields.pop("mode", "") or "exact")
        if mode not in _SIGNS:
            raise InputError(f"its mode is {' or '.join(_SIGNS)}, not {mode!r:.40}")
        arguments = json.dumps(fields.pop("args"), ensure_ascii=False)
        option = f"{fields.pop('name', '')}{_SIGNS[mode]}{arguments}"
    elif "name" in fields:
        option = f"{fields.pop('name')}={fields.pop('min', 1)}..{fields.pop('max', '')}"
    else:
        option = write_text(fields.pop("max", ""))

    if "mode" in fields:
        raise InputError("it has no field 'mode' without `steps` or `args`, which it compares")
    if fields:
        raise InputError(f"it has no field '{next(iter(fields))}'")

    return option


def _open_tools(value: Any) -> CheckGrader:
    names = as_array(value) or [value]
    graders = [_open_trajectory(name, name="tool-called") for name in names]
    return lambda text, case: all(grade(text, case).passed for grade in graders)


def _open_tool_share(value: Any) -> CheckGrader:
    expected = Counter(_read_texts(value))

    def share(_text: str, case: Case) -> float:
        called = Counter(call.name for call in list_calls(case.trajectory or Trajectory()))
        return 2 * (called & expected).total() / (called.total() + expected.total())

    return share


def _open_tool_schemas(value: Any) -> CheckGrader:
    """Return the grader of tool calls by the schemas of the tools, as requests to OpenAI's API
    declare them."""
    tools = [as_object(as_object(tool).get("function", tool)) for tool in as_array(value)]
    schemas = {str(tool.get("name")): as_object(tool.get("parameters")) for tool in tools}
    if not schemas:
        raise InputError("its value is the list of the tools that may be called")
    for schema in schemas.values():
        check_schema(schema)

    def are_valid(_text: str, case: Case) -> tuple[bool, str]:
        calls = list_calls(case.trajectory or Trajectory())
        faults = [f"No tool is called {call.name}." for call in calls if call.name not in schemas]
        for call in calls:
            faults += find_data_faults(call.arguments or {}, schemas.get(call.name, {}))
        return bool(calls) and not faults, " ".join(faults) or "No tool was called."

    return are_valid


def _open_function(value: Any) -> CheckGrader:
    """Return the grader of a function of the user, which has the signature of a metric."""
    metric = open_metric(function_name(value))

    def call(text: str, case: Case) -> Any:
        row = {"input": case.input, "reference": case.reference, "context": case.context}
        return call_metric(metric, text, case.reference, row)

    return call


_OPENERS: Mapping[str, Callable[..., CheckGrader]] = {
    "equals": _open_equals,
    "contains": _open_contains,
    "affix": _open_affix,
    "regex": _open_regex,
    "json": _open_json,
    "markup": _open_markup,
    "words": _open_words,
    "spent": _open_spent,
    "metric": _open_metric,
    "edits": _open_edits,
    "trajectory": _open_trajectory,
    "tools": _open_tools,
    "tool_share": _open_tool_share,
    "tool_schemas": _open_tool_schemas,
    "function": _open_function,
}

_TABLE = load_shipped("textevolve.loops", "checks.yaml")
CHECKS: Mapping[str, CheckKind] = {
    name: CheckKind(**fields) for name, fields in _TABLE["checks"].items()
}
"""All checks by name."""
ALIASES: Mapping[str, Mapping[str, Any]] = _TABLE["aliases"]
"""The names of other tools by which checks can be written, mostly promptfoo's."""
REFUSED: Mapping[str, str] = _TABLE["refused"]
"""Checks of other tools that are not possible here, with what to use instead."""
_LIMITS = ("max-cost", "max-seconds", "levenshtein")
"""The checks whose limit promptfoo writes as a threshold."""
_UNREAD = ("transform", "contextTransform", "config", "rubricPrompt")
"""The fields of promptfoo's assertions that change a check in a way that is not possible here."""
_LINE = late_re(
    r"\s*((?:(?:not-)?trajectory:)?[A-Za-z][\w-]*)(?:\(([\d.]+)\))?\s*(?::(.*))?", re.DOTALL
)


# Reading.


def read_check(item: Any) -> dict[str, Any]:
    """Return the fields of a check that is written in one of the three forms.

    Raises:
        InputError: it is no check; names the check to use instead.
    """
    if isinstance(item, str):
        match = _LINE.fullmatch(item)
        if match is None:
            raise InputError(f"'{item:.60}' is no check; write NAME: VALUE, as in contains: yes")
        name, threshold, value = match.groups()
        options = {} if threshold is None else {"threshold": float(threshold)}
        return _read_named(name, (value or "").strip() or None, options)
    if not is_mapping(item):
        raise InputError(f"a check is a text such as 'contains: 30 days', not {item!r:.60}")

    fields = dict(item)
    options = {name: fields.pop(name) for name in OPTIONS if name in fields}
    if "type" in fields:
        if unread := next((name for name in _UNREAD if name in fields), ""):
            raise InputError(
                f"check {fields['type']}: the field '{unread}' is not possible here; a judge of"
                " your own prompt, or a Python function, can do the same"
            )
        options.setdefault("name", fields.pop("metric", ""))
        if fields.pop("provider", None) is not None:
            leave_out("field", "the provider of checks; they ask the judge's model, checks@MODEL")
        fields = {
            str(fields.pop("type")): fields.pop("value", fields.pop("assert", None)),
            **fields,
        }
    if EXPECTED in fields:
        text = _read_text(fields[EXPECTED])
        name = text.partition(":")[0].partition("(")[0].strip().removeprefix("not-")
        known = name in CHECKS or name in ALIASES or name in REFUSED
        return read_check(text if known else {"equals": text})
    if len(fields) != 1:
        raise InputError(
            f"a check has one name, and the options {', '.join(OPTIONS)}; not {', '.join(fields)}"
        )

    return _read_named(*fields.popitem(), options)


def _read_named(name: str, value: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a check by its name, which may be that of another tool."""
    if name == "not":
        inner = read_check(value)
        return {**inner, **options, "negated": not inner.get("negated", False)}
    plain = name.removeprefix("not-")
    alias = ALIASES.get(plain, {"check": plain})
    check = alias["check"]
    if plain in REFUSED:
        raise InputError(f"check {plain}: not possible here; {REFUSED[plain]}")
    if check not in CHECKS:
        raise InputError(f"no check '{plain}'{suggest(plain, tuple(CHECKS))}")
    if isinstance(value, str) and value.startswith("file://") and check not in _FILES:
        raise InputError(
            f"check {plain}: {value:.60} is not read; write the text itself, or name the function"
            " of a file of code: --check function:FILE.py:FUNCTION"
        )

    if ":" not in CHECKS[check].form and value not in (None, True):
        raise InputError(
            f"check {plain}: it takes no value; write the score from which it holds as"
            f" {plain}(0.8), or as its threshold"
        )
    if check in _LIMITS and "threshold" in options:
        most = options.pop("threshold")
        value = {"text": value, "most": most} if check == "levenshtein" else most
    if "divisor" in alias:
        value = _read_number(value) / alias["divisor"]
    if "fields" in alias and as_object(value):
        value = alias["fields"] | value
    if "rubric" in alias and (value or check == RUBRIC):
        value = alias["rubric"].replace("{value}", write_text(value))
    sign = {"negated": True} if plain != name else {}
    if sign and check == "tool-called" and as_array(value):
        # None of the tools may be called.
        value = [{check: tool} for tool in as_array(value)]
        check = "any"

    return {"check": check, "value": value, **sign, **options}


_FILES = ("function", "json-schema", "contains-json")
"""The checks whose value may be a file."""


def list_checks(cell: Any) -> list[Any] | dict[str, Any]:
    """Return the checks in a cell of a table: a list or a mapping as it is, one of JSON or YAML, or
    a check on each line."""
    if isinstance(cell, str):
        parsed = parse_printed(cell)
        if parsed is cell and cell.lstrip().startswith("- "):
            parsed = parse_yaml(cell, "checks")[1]
        if parsed is cell:
            return [line for line in cell.splitlines() if line.strip()]
        cell = parsed

    return as_object(cell) or as_array(cell)


def fill_check(item: Any, values: Mapping[str, str]) -> Any:
    """Return a check with the columns of its row in the places of their names in braces. In a
    pattern they stand for themselves.

    Raises:
        InputError: a name in double braces is no column.
    """
    escaped = {name: re.escape(text) for name, text in values.items()}

    def fill_in(value: Any, texts: Mapping[str, str]) -> Any:
        if is_mapping(value):
            is_pattern = "regex" in str(value.get("type", next(iter(value), "")))
            texts = escaped if is_pattern else texts
            return {name: fill_in(inner, texts) for name, inner in value.items()}
        if is_array(value):
            return [fill_in(inner, texts) for inner in value]
        if not isinstance(value, str):
            return value
        for name in placeholders_of(value):
            if name not in values and re.search(r"\{\{\s*" + re.escape(name), value):
                raise InputError(f"a check shows {{{{{name}}}}}, and the row has no such column")
        is_pattern = re.match(r"\s*(not[-:]\s*)?regex\s*:", value) is not None
        return fill(value, escaped if is_pattern else texts)

    return fill_in(item, values)
