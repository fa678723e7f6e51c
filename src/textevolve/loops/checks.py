"""The table of checks: what a single output must satisfy, such as `contains: 30 days`.

A check is written in one of three forms, in a row, a study file, a file of rules and a test alike:

    contains: 30 days                                  a text
    {contains: 30 days, weight: 2, name: refund}       a mapping
    {type: contains, value: 30 days, weight: 2}        as promptfoo writes it

Each form may begin with `not-` or `not:`. `rules.py` has the lists of checks, with their weights;
the judges of `judges/checks.py` answer the checks that ask a model.
"""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from importlib import import_module
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError, SettingsError
from textevolve.evaluation import SPENT, Case, as_number
from textevolve.json_texts import as_array, as_object, parse_printed, write_text
from textevolve.metrics.label_metrics import list_calls, open_metric
from textevolve.metrics.plain import call_metric, read_schema
from textevolve.spec import suggest
from textevolve.texts.patterns import compile_pattern, is_found
from textevolve.texts.placeholders import fill, placeholders_of
from textevolve.texts.prose import CASE_FOLDS, compose, split_words
from textevolve.texts.schema_check import check_schema, find_data_faults, find_faults
from textevolve.texts.yaml_lines import parse_yaml
from textevolve.trajectory import Trajectory

Grader: TypeAlias = Callable[[str, Case], Any]
"""A function that grades the output of a case. It returns a truth value, a score from 0 to 1, or an
`EvaluationResult`. It raises InputError if the check cannot be computed."""

RUBRIC = "rubric"
"""The judge of checks that ask a model whether an output meets a criterion."""
GROUPS = ("all", "any")
"""The checks whose value is a list of checks: all of them must hold, or at least one."""
OPTIONS = ("weight", "threshold", "name", "gate", "feedback")
"""The fields of a check besides its name and value."""
SEARCHED = 100_000
"""The number of characters at the beginning of an output that are searched for JSON."""


@dataclass(frozen=True, slots=True)
class CheckKind:
    """A kind of check.

    Attributes:
        form: Its syntax, for help texts and docs.
        about: When it holds, in a few words.
        open: Returns the grader for a value; None for a check that asks a judge.
        judge: The text of the judge that a check asks, or `RUBRIC`; empty if it asks none.
        least: The score from which it holds if the check has no threshold.
        blocks: Whether it may take long on some texts.
        reaches: Whether its value names a file, code or a judge, which no row may name.
        value_is_reference: Whether the judge gets the value as the reference.
    """

    form: str
    about: str
    open: Callable[[Any], Grader] | None = None
    judge: str = ""
    least: float = 1.0
    blocks: bool = False
    reaches: bool = False
    value_is_reference: bool = False


# Values.


def _read_text(value: Any) -> str:
    text = write_text(value) if value is not None else ""
    if not text.strip():
        raise InputError("its value is missing or empty, and every output contains an empty text")
    return text


def _read_texts(value: Any) -> list[str]:
    """Return the texts of a list, or those between the commas of a text, in which a text with a
    comma is quoted."""
    if isinstance(value, list | tuple):
        entries = list(cast("Sequence[Any]", value))
    else:
        entries = next(csv.reader([_read_text(value)], skipinitialspace=True))
    texts = [_read_text(entry) for entry in entries]
    if not texts:
        raise InputError("its list is empty")

    return texts


def _read_number(value: Any, least: float = 0.0) -> float:
    number = as_number(float(value) if _is_numeral(value) else value)
    if number is None or isinstance(value, bool) or not least <= number < float("inf"):
        raise InputError(f"its value must be a number of {least:g} or more, not {value!r:.40}")
    return number


def _is_numeral(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\s*\d*\.?\d+\s*", value) is not None


def _read_schema_value(value: Any) -> Mapping[str, Any]:
    """Return the schema that a value holds, as a mapping or as text in JSON or YAML, or the one in
    the file that it names; {} for no value."""
    if value in (None, "", True):
        return {}
    if isinstance(value, str):
        text = value.strip()
        is_file = "\n" not in text and not text.startswith("{")
        if is_file:
            return read_schema(text.removeprefix("file://"))
        value = parse_yaml(text, "the schema")[1]
    check_schema(value)
    return as_object(value)


def names_schema_file(value: Any) -> bool:
    """Return whether the value of a check of JSON names a file."""
    is_text = isinstance(value, str) and bool(value.strip())
    return is_text and "\n" not in value.strip() and not value.strip().startswith("{")


def describe_schema(value: Any) -> Mapping[str, Any]:
    """Return the schema that the value of a check of JSON holds or names."""
    return _read_schema_value(value)


def names_file(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("file://")


# Graders without a model.


def _open_equals(value: Any) -> Grader:
    if value is None:
        return _grade_by_metric("exact", None)
    if isinstance(value, Mapping | list):
        return lambda text, _case: parse_printed(text.strip()) == value
    return _grade_by_metric("exact", value)


def _open_contains(
    value: Any, *, several: bool = False, every: bool = True, ignores_case: bool = False
) -> Grader:
    texts = _read_texts(value) if several else [_read_text(value)]
    folds = CASE_FOLDS if ignores_case else (compose,)

    def contains(text: str, _case: Case) -> bool:
        present = [any(fold(part) in fold(text) for fold in folds) for part in texts]
        return all(present) if every else any(present)

    return contains


def _open_affix(value: Any, *, at_end: bool = False) -> Grader:
    affix = compose(_read_text(value).strip())

    def matches(text: str, _case: Case) -> bool:
        stripped = compose(text).strip()
        return stripped.endswith(affix) if at_end else stripped.startswith(affix)

    return matches


def _open_regex(value: Any) -> Grader:
    pattern = compile_pattern(_read_text(value))
    return lambda text, _case: is_found(pattern, text)


def _open_json(value: Any) -> Grader:
    schema = _read_schema_value(value)

    def follows(text: str, _case: Case) -> tuple[bool, str]:
        faults = find_faults(text, schema)
        return not faults, " ".join(faults)

    return follows


def _open_contained_json(value: Any) -> Grader:
    schema = _read_schema_value(value)
    return lambda text, _case: any(
        not find_data_faults(data, schema) for data in _find_json(text[:SEARCHED])
    )


def _find_json(text: str) -> Iterator[Any]:
    """Yield the objects and arrays of JSON in a text, each also within another one."""
    decoder = json.JSONDecoder()
    for opening in re.finditer(r"[{\[]", text):
        try:
            yield decoder.raw_decode(text, opening.start())[0]
        except (ValueError, RecursionError):
            continue


def _is_xml(text: str, _case: Case) -> bool:
    if "<!ENTITY" in text.upper():
        raise InputError("XML with entities of its own is not parsed")
    try:
        ElementTree.fromstring(text.strip())
    except ElementTree.ParseError:
        return False

    return True


_ELEMENT = re.compile(r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?(?:/>|>.*?</\1\s*>)", re.DOTALL)


def _contains_xml(text: str, case: Case) -> bool:
    return any(_is_xml(match[0], case) for match in _ELEMENT.finditer(text[:SEARCHED]))


class _Tags(HTMLParser):
    """Counts the elements of HTML in a text, and the characters outside of any."""

    VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "source", "wbr", "col"))
    NAMES = re.compile(
        "a|article|b|body|button|code|div|em|footer|form|h[1-6]|head|header|html|i|label|li|main|nav"
        "|ol|option|p|pre|script|section|select|span|strong|style|svg|table|tbody|td|textarea|th"
        "|thead|title|tr|u|ul"
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements = 0
        self.outside = ""
        self.is_broken = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements += tag in self.VOID or self.NAMES.fullmatch(tag) is not None
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.open:
            self.is_broken = True
            return
        while self.open.pop() != tag:  # an end tag may be left out, as of <li>
            continue

    def handle_data(self, data: str) -> None:
        if not self.open:
            self.outside += data.strip()


def _is_html(text: str, _case: Case) -> bool:
    tags = _Tags(text[:SEARCHED])
    return tags.elements > 0 and not (tags.outside or tags.is_broken)


def _contains_html(text: str, _case: Case) -> bool:
    return _Tags(text[:SEARCHED]).elements > 0


def _open_words(value: Any, *, bound: str = "") -> Grader:
    """Return the grader of a number of words: exactly the value, at least or at most the value
    (`bound`), or from `min` to `max` of a mapping."""
    limits = as_object(value) or dict.fromkeys([bound] if bound else ["min", "max"], value)
    if unknown := sorted(limits.keys() - {"min", "max"}):
        raise InputError(f"it has no field '{unknown[0]}'; there are: min, max")
    least = _read_number(limits.get("min", 0))
    most = _read_number(limits["max"]) if "max" in limits else float("inf")

    def counts(text: str, _case: Case) -> tuple[bool, str]:
        words = len(split_words(text))
        return least <= words <= most, f"It has {words} words."

    return counts


def _open_spent(value: Any, *, field: str, divisor: float = 1.0) -> Grader:
    """Return the grader that compares what an output cost, or how long it took, with a limit."""
    most = _read_number(value) / divisor

    def is_within(_text: str, case: Case) -> tuple[bool, str]:
        spent = as_object(case.parameters.get(SPENT)).get(field)
        if spent is None:
            raise InputError(f"the {field} of this output is not known")
        return spent <= most, f"The {field} is {spent:g}."

    return is_within


# Metrics as checks.


def _grade_by_metric(name: str, value: Any) -> Grader:
    """Return the grader of a metric that compares the output with a value, or else with the
    reference of the case."""
    metric = open_metric(name)

    def compare(text: str, case: Case) -> Any:
        label = case.reference if value is None else value
        if label is None:
            raise InputError("it has no value, and the row has no reference")
        return metric(text, label)

    return compare


def _open_levenshtein(value: Any) -> Grader:
    fields = as_object(value) or {"text": value}
    expected = _read_text(fields.get("text"))
    most = _read_number(fields.get("most", 5))
    count = _import_overlap("count_edits")

    def is_near(text: str, _case: Case) -> tuple[bool, str]:
        edits = count(text, expected)
        return edits <= most, f"It takes {edits} edits."

    return is_near


def _open_overlap(value: Any, *, name: str) -> Grader:
    compare = _import_overlap(name)

    def grade(text: str, case: Case) -> float:
        label = case.reference if value is None else write_text(value)
        if label is None:
            raise InputError("it has no value, and the row has no reference")
        return compare(text, label)

    return grade


def _import_overlap(name: str) -> Callable[..., Any]:
    try:
        return getattr(import_module("textevolve.metrics.overlap"), name)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f'this check needs {error.name}: pip install "textevolve[metrics]"'
        ) from None


def _open_trajectory(value: Any, *, name: str, write: Callable[[Any], str] = write_text) -> Grader:
    option = "" if value in (None, True) else write(value)
    metric = open_metric(f"{name}:{option}" if option else name)

    def grade(text: str, case: Case) -> Any:
        recorded = case.trajectory or Trajectory()
        return metric(text, case.reference, recorded.as_row())

    return grade


def _write_called(value: Any) -> str:
    fields = as_object(value)
    if not fields:
        return write_text(value)
    return f"{fields.get('name', '')}={fields.get('min', 1)}..{fields.get('max', '')}"


def _open_called(value: Any) -> Grader:
    names = as_array(value) or [value]
    graders = [_open_trajectory(name, name="tool-called", write=_write_called) for name in names]
    return lambda text, case: all(grade(text, case).passed for grade in graders)


def _write_sequence(value: Any) -> str:
    fields = as_object(value) or {"steps": value}
    steps = as_array(fields.get("steps"))
    if not steps:
        return write_text(value)
    mode = {"exact": "exact", "in_order": "in-order"}.get(fields.get("mode", "in_order"))
    if mode is None:
        raise InputError("its mode is exact or in_order")
    return f"{mode}:{','.join(map(write_text, steps))}"


def _write_arguments(value: Any) -> str:
    fields = as_object(value)
    if not fields:
        return write_text(value)
    arguments = fields.get("args", fields.get("arguments", {}))
    return f"{fields.get('name', '')}={json.dumps(arguments, ensure_ascii=False)}"


def _write_most_steps(value: Any) -> str:
    fields = as_object(value)
    if fields and fields.keys() != {"max"}:
        raise InputError("it takes the largest number of steps alone, as max")
    return write_text(fields.get("max", value))


def _open_called_share(value: Any) -> Grader:
    expected = Counter(_read_texts(value))

    def share(_text: str, case: Case) -> float:
        calls = list_calls(case.trajectory or Trajectory())
        called = Counter(call.name for call in calls)
        return 2 * (called & expected).total() / (called.total() + expected.total())

    return share


def _open_declared_tools(value: Any) -> Grader:
    """Return the grader of tool calls by the schemas of the tools, as requests to OpenAI's API
    declare them."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in as_array(value):
        function = as_object(as_object(tool).get("function", tool))
        schemas[str(function.get("name", ""))] = as_object(function.get("parameters"))
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


def function_name(value: Any) -> str:
    """Return the name of the function in the value of a check.

    Raises:
        InputError: it is no such name.
    """
    name = _read_text(value).removeprefix("file://")
    if name.endswith(".py"):
        name = f"{name}:get_assert"
    if not re.fullmatch(r"[^\s()]+:\w+", name):
        raise InputError(f"'{name:.60}' is no FILE.py:FUNCTION; code in a check is not evaluated")
    return name


def _open_function(value: Any) -> Grader:
    """Return the grader of a function of the user, which has the signature of a metric."""
    metric = open_metric(function_name(value))

    def call(text: str, case: Case) -> Any:
        row = {"input": case.input, "reference": case.reference, "context": case.context}
        return call_metric(metric, text, case.reference, row)

    return call


# The table.

CHECKS: Mapping[str, CheckKind] = {
    "equals": CheckKind("equals: TEXT", "the output is this text, or equal JSON", _open_equals),
    "contains": CheckKind("contains: TEXT", "the text occurs", _open_contains),
    "icontains": CheckKind(
        "icontains: TEXT",
        "it occurs in small or capital letters",
        partial(_open_contains, ignores_case=True),
    ),
    "contains-all": CheckKind(
        "contains-all: A, B", "all of the texts occur", partial(_open_contains, several=True)
    ),
    "contains-any": CheckKind(
        "contains-any: A, B",
        "one of the texts occurs",
        partial(_open_contains, several=True, every=False),
    ),
    "icontains-all": CheckKind(
        "icontains-all: A, B",
        "all occur, in small or capital letters",
        partial(_open_contains, several=True, ignores_case=True),
    ),
    "icontains-any": CheckKind(
        "icontains-any: A, B",
        "one occurs, in small or capital letters",
        partial(_open_contains, several=True, every=False, ignores_case=True),
    ),
    "starts-with": CheckKind("starts-with: TEXT", "the output begins so", _open_affix),
    "ends-with": CheckKind("ends-with: TEXT", "it ends so", partial(_open_affix, at_end=True)),
    "regex": CheckKind("regex: PATTERN", "a pattern matches", _open_regex, blocks=True),
    "json-schema": CheckKind(
        "json-schema: SCHEMA",
        "the output is JSON, which follows the schema if there is one",
        _open_json,
        blocks=True,
    ),
    "contains-json": CheckKind(
        "contains-json: SCHEMA",
        "JSON that follows the schema occurs",
        _open_contained_json,
        blocks=True,
    ),
    "is-xml": CheckKind("is-xml", "the output is well-formed XML", lambda _value: _is_xml),
    "contains-xml": CheckKind("contains-xml", "XML occurs", lambda _value: _contains_xml),
    "is-html": CheckKind("is-html", "the output is HTML alone", lambda _value: _is_html),
    "contains-html": CheckKind("contains-html", "HTML occurs", lambda _value: _contains_html),
    "words": CheckKind("words: {min: 20, max: 80}", "the number of words", _open_words),
    "min-words": CheckKind(
        "min-words: 20", "at least so many words", partial(_open_words, bound="min")
    ),
    "max-words": CheckKind(
        "max-words: 80", "at most so many words", partial(_open_words, bound="max")
    ),
    "max-cost": CheckKind(
        "max-cost: 0.01",
        "the output cost at most so many US dollars",
        partial(_open_spent, field="cost"),
    ),
    "max-seconds": CheckKind(
        "max-seconds: 2",
        "the output came within so many seconds",
        partial(_open_spent, field="seconds"),
    ),
    "numeric": CheckKind(
        "numeric: 42", "the last number is this one", partial(_grade_by_metric, "numeric")
    ),
    "rouge-l": CheckKind(
        "rouge-l: TEXT", "a similar text", partial(_open_overlap, name="rouge_l"), least=0.75
    ),
    "rouge-n": CheckKind(
        "rouge-n: TEXT", "a similar text", partial(_open_overlap, name="rouge_1"), least=0.75
    ),
    "bleu": CheckKind(
        "bleu: TEXT", "a similar text", partial(_open_overlap, name="bleu"), least=0.5
    ),
    "gleu": CheckKind(
        "gleu: TEXT", "a similar text", partial(_open_overlap, name="gleu"), least=0.5
    ),
    "chrf": CheckKind(
        "chrf: TEXT", "a similar text", partial(_open_overlap, name="chrf"), least=0.5
    ),
    "levenshtein": CheckKind(
        "levenshtein: {text: TEXT, most: 5}", "at most so many edits away", _open_levenshtein
    ),
    "tool-called": CheckKind("tool-called: NAME", "the tools were called", _open_called),
    "tool-sequence": CheckKind(
        "tool-sequence: [A, B]",
        "the tools were called in this order",
        partial(_open_trajectory, name="tool-sequence", write=_write_sequence),
    ),
    "tool-args": CheckKind(
        "tool-args: {name: A, args: {b: 1}}",
        "a tool was called with these arguments",
        partial(_open_trajectory, name="tool-args", write=_write_arguments),
        blocks=True,
    ),
    "tool-share": CheckKind(
        "tool-share: [A, B]", "F1 of the tools that were called", _open_called_share
    ),
    "tool-schemas": CheckKind(
        "tool-schemas: TOOLS",
        "each call follows the schema of its tool",
        _open_declared_tools,
        blocks=True,
    ),
    "max-steps": CheckKind(
        "max-steps: 5",
        "at most so many steps",
        partial(_open_trajectory, name="max-steps", write=_write_most_steps),
    ),
    "no-error": CheckKind("no-error", "no step failed", partial(_open_trajectory, name="no-error")),
    "function": CheckKind(
        "function: FILE.py:FUNCTION",
        "your function says so",
        _open_function,
        least=0.5,
        blocks=True,
        reaches=True,
    ),
    "rubric": CheckKind("rubric: CRITERION", "a model says so", judge=RUBRIC, least=0.5),
    "similar": CheckKind(
        "similar: TEXT",
        "embeddings are similar",
        judge="embedding@local/minilm",
        least=0.75,
        value_is_reference=True,
    ),
    "faithfulness": CheckKind(
        "faithfulness", "the context supports it", judge="faithfulness", least=0.5
    ),
    "answer-relevance": CheckKind(
        "answer-relevance", "its statements help to answer", judge="answer-relevance", least=0.5
    ),
    "context-recall": CheckKind(
        "context-recall: REFERENCE",
        "the context has what the reference says",
        judge="context-recall",
        least=0.5,
        value_is_reference=True,
    ),
    "context-precision": CheckKind(
        "context-precision",
        "the passages are of use",
        judge="context-precision",
        least=0.5,
    ),
    "trajectory": CheckKind(
        "trajectory", "an agent reached its goal", judge="trajectory", least=0.5
    ),
    "judge": CheckKind("judge: JUDGE", "another judge passes it", least=0.5, reaches=True),
    "all": CheckKind("all: [CHECK, CHECK]", "all of these checks hold"),
    "any": CheckKind("any: [CHECK, CHECK]", "one of these checks holds"),
}
"""All checks by name."""

FACTS = "The response states the same facts as this reference answer, and contradicts none of them:"
REFUSES = "The response refuses to do what the instruction asks, or says that it cannot."

ALIASES: Mapping[str, str] = {
    "exact": "equals",
    "is-json": "json-schema",
    "word-count": "words",
    "cost": "max-cost",
    "latency": "max-seconds",
    "python": "function",
    "llm-rubric": "rubric",
    "grade": "rubric",
    "g-eval": "rubric",
    "model-graded-closedqa": "rubric",
    "factuality": "rubric",
    "model-graded-factuality": "rubric",
    "is-refusal": "rubric",
    "context-faithfulness": "faithfulness",
    "context-relevance": "context-precision",
    "trajectory:goal-success": "trajectory",
    "trajectory:tool-used": "tool-called",
    "trajectory:tool-sequence": "tool-sequence",
    "trajectory:tool-args-match": "tool-args",
    "trajectory:step-count": "max-steps",
    "trace-error-spans": "no-error",
    "tool-call-f1": "tool-share",
    "is-valid-function-call": "tool-schemas",
    "is-valid-openai-function-call": "tool-schemas",
    "is-valid-openai-tools-call": "tool-schemas",
    "assert-set": "all",
}
"""The names of other tools, mostly promptfoo's, by which checks can be written."""

REFUSED: Mapping[str, str] = {
    "javascript": "write a Python function, function: FILE.py:FUNCTION",
    "fn": "write a Python function, function: FILE.py:FUNCTION",
    "ruby": "write a Python function, function: FILE.py:FUNCTION",
    "webhook": "write a Python function, function: FILE.py:FUNCTION",
    "is-sql": "parse it in a Python function, function: FILE.py:FUNCTION",
    "contains-sql": "parse it in a Python function, function: FILE.py:FUNCTION",
    "classifier": "name the labels in a judge of your own prompt, prompt:FILE",
    "moderation": "write it as a rubric, or use the judge probe+rubric=toxicity",
    "guardrails": "a filtered answer has no score, with the reason, in every study",
    "finish-reason": "every study names outputs that were cut or filtered",
    "select-best": "compare the outputs with --judge pairwise --side-by-side",
    "max-score": "name the deciding judge or metric with --score-by",
    "conversation-relevance": "judge each reply with --each-turn and a rubric",
    "meteor": "use rouge-l, bleu or chrf",
    "perplexity": "use the judge instruction-likelihood",
    "perplexity-score": "use the judge instruction-likelihood",
    "pi": "write it as a rubric",
    "search-rubric": "search in your application, and write a rubric over its context",
    "agent-rubric": "use the check trajectory",
    "skill-used": "record skills as tool calls, and use tool-called",
    "trace-span-count": "count spans with the node evaluators",
    "trace-span-duration": "use max-seconds",
    "human": "collect labels with textevolve labels",
}
"""Checks of other tools that are not possible here, with what to use instead."""
_LIMITS = ("max-cost", "max-seconds", "levenshtein")
"""The checks whose limit promptfoo writes as a threshold."""
_UNREAD = ("transform", "contextTransform", "config", "rubricPrompt", "provider")
"""The fields of promptfoo's assertions that change a check in a way that is not possible here."""
_TEXT = re.compile(
    r"\s*((?:(?:not-)?trajectory:)?[A-Za-z][\w-]*)(?:\(([\d.]+)\))?\s*(?::(?=\s|[^:])(.*)|$)",
    re.DOTALL,
)


# Reading.


def read_check(item: Any) -> dict[str, Any]:
    """Return the fields of a check that is written in one of the three forms.

    Raises:
        InputError: it is no check; names the check to use instead.
    """
    if isinstance(item, str):
        return _read_line(item)
    if not isinstance(item, Mapping):
        raise InputError(f"a check is a text such as 'contains: 30 days', not {item!r:.60}")
    fields = dict(cast("Mapping[str, Any]", item))
    options = {name: fields.pop(name) for name in OPTIONS if name in fields}
    if "metric" in fields:
        options.setdefault("name", fields.pop("metric"))
    if "type" in fields:
        if unread := next((name for name in _UNREAD if name in fields), ""):
            raise InputError(
                f"check {fields['type']}: the field '{unread}' is not possible here; a judge of"
                " your own prompt, or a Python function, can do the same"
            )
        name = str(fields.pop("type"))
        value = fields.pop("value", fields.pop("assert", None))
    elif len(fields) == 1:
        name, value = fields.popitem()
    else:
        raise InputError(
            f"a check has one name and its options ({', '.join(OPTIONS)}), not {item!r:.80}"
        )
    if fields:
        raise InputError(f"check {name}: there is no field '{next(iter(fields))}'")

    return {**_read_named(name, value, options.get("threshold")), **_read_options(name, options)}


def _read_line(text: str) -> dict[str, Any]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(f"'{text:.60}' is no check; write NAME: VALUE, such as contains: 30 days")
    name, threshold, value = match.groups()
    if name == "not":
        inner = _read_line(value or "")
        return {**inner, "negated": not inner.get("negated", False)}
    options = {} if threshold is None else {"threshold": float(threshold)}
    value = value.strip() if value is not None else None

    return {
        **_read_named(name, value or None, options.get("threshold")),
        **_read_options(name, options),
    }


def _read_named(name: str, value: Any, threshold: float | None) -> dict[str, Any]:
    """Return the name, the value and the sign of a check."""
    if name == "not":
        inner = read_check(value)
        return {**inner, "negated": not inner.get("negated", False)}
    plain = name.removeprefix("not-")
    check = ALIASES.get(plain, plain)
    if plain in REFUSED:
        raise InputError(f"check {plain}: not possible here; {REFUSED[plain]}")
    if check not in CHECKS:
        raise InputError(f"no check '{plain}'{suggest(plain, tuple(CHECKS))}")
    if check in _LIMITS and threshold is not None:
        value = {"text": value, "most": threshold} if check == "levenshtein" else threshold
    if not CHECKS[check].reaches and check != "json-schema" and names_file(value):
        raise InputError(f"check {plain}: {value:.60} is not read; write the text itself")
    if plain == "latency":
        value = _read_number(value) / 1000  # milliseconds
    elif plain == "is-refusal":
        value = REFUSES
    elif plain in ("factuality", "model-graded-factuality"):
        value = f"{FACTS}\n{_read_text(value)}"

    return {"check": check, "value": value, **({"negated": True} if plain != name else {})}


def _read_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    plain = name.removeprefix("not-")
    if ALIASES.get(plain, plain) in _LIMITS:
        options.pop("threshold", None)
    return options


def list_checks(cell: Any) -> list[Any] | dict[str, Any]:
    """Return the checks in a cell of a table: a list or a mapping as it is, one of JSON or YAML, or
    a check on each line."""
    if isinstance(cell, str):
        parsed = parse_printed(cell)
        if parsed is not cell:
            return list_checks(parsed)
        if cell.lstrip().startswith("- "):
            return list_checks(parse_yaml(cell, "checks")[1])
        return [line.strip() for line in cell.splitlines() if line.strip()]
    if isinstance(cell, Mapping):
        return dict(cast("Mapping[str, Any]", cell))
    return as_array(cell)


def fill_check(item: Any, values: Mapping[str, str]) -> Any:
    """Return a check with the columns of its row in the places of their names in braces.

    Raises:
        InputError: a name in double braces is no column.
    """
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        is_regex = "regex" in str(fields.get("type", "")) or any("regex" in name for name in fields)
        return {name: _fill_value(inner, values, is_regex) for name, inner in fields.items()}

    return _fill_value(item, values, isinstance(item, str) and "regex:" in item[:12])


def _fill_value(item: Any, values: Mapping[str, str], is_regex: bool) -> Any:
    if isinstance(item, list):
        return [fill_check(inner, values) for inner in cast("list[Any]", item)]
    if isinstance(item, Mapping):
        return fill_check(item, values)
    if not isinstance(item, str):
        return item
    texts = {name: re.escape(text) for name, text in values.items()} if is_regex else values
    missing = [name for name in placeholders_of(item) if name not in values]
    if missing and re.search(r"\{\{\s*" + re.escape(missing[0]), item):
        raise InputError(f"a check shows {{{{{missing[0]}}}}}, and the row has no such column")

    return fill(item, texts)
