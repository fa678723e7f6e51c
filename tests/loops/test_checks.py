"""The table of checks: when each holds, in which forms it is written, and what is refused."""

import re
from pathlib import Path

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import SPENT, Case, EvaluationResult, Failure
from textevolve.loops.checks import ALIASES, CHECKS, REFUSED, list_checks, read_check
from textevolve.loops.rules import (
    BROKEN,
    CheckedCase,
    Rules,
    RulesFile,
    is_checks,
    parse_rules,
    read_check_list,
    take_checks,
)
from textevolve.trajectory import ToolUse, Trajectory

PAGE = (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {"type": "object", "required": ["seats"]},
        },
    }
]
CALLED = Trajectory(
    tool_calls=(ToolUse("find", {"city": "Oslo"}), ToolUse("book", {"seats": 2})), steps=2
)
SPENDING = {SPENT: {"cost": 0.004, "seconds": 1.5}}


def grade(checks, text, **case):
    """Return the result of a list of checks for a text."""
    full_case = Case("Why?", (text,), **case)
    fields = {"rules": checks} if isinstance(checks, list) else checks
    return Rules(RulesFile(**fields)).grade(text, CheckedCase(full_case))


def open_check(check):
    (rule,) = read_check_list([check]).rules
    rule.load(Path())


# Each with a text for which it holds, and one for which it does not.
TEXTS = [
    ("equals: It is so.", " It is so.\n", "it is so."),
    ("equals: [1, 2]", "[1, 2]", "1"),
    ({"equals": {"a": [1]}}, '{ "a": [1] }', '{"a": [2]}'),
    ("contains: 30 days", "In 30 days.", "In 30  days."),
    ({"contains": 30}, "In 30 days.", "In 3 days."),
    ("icontains: STRASSE", "Die Straße.", "Der Weg."),
    ("contains-all: red, blue", "blue and red", "red alone"),
    ("contains-any: red, blue", "blue", "green"),
    ('contains-all:"1,000",in stock', "1,000 in stock", "1 000 in stock"),
    ({"icontains-all": ["A", "b"]}, "ab", "a"),
    ({"icontains-any": ["A", "b"]}, "xa", "x"),
    ("starts-with: Dear", "\nDear Ann", "O Dear"),
    ("ends-with: yours", "I am yours ", "yours, I am"),
    (r"regex: ^\d+ apples$", "So:\n12 apples", "12 apples and pears"),
    ("is-json", '{"a": 1}', "So: {}"),
    ({"json-schema": {"required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
    ({"json-schema": '{"required": ["a"]}'}, '{"a": 1}', '{"b": 1}'),
    ({"is-json": "type: object\nrequired: [a]"}, '{"a": 1}', "[]"),
    ({"contains-json": {"required": ["a"]}}, 'So: {"b": {"a": 1}} it is.', 'So: {"b": 1}'),
    ("is-xml", "<a><b/></a>", "<a><b></a>"),
    ("contains-xml", "So: <a>1</a>.", "a < b > c"),
    ("is-html", "<p>So.</p>", "So: <p>it is</p>"),
    ("contains-html", "So: <p>it is</p>", "1 < 2 and 3 > 2"),
    ({"words": {"min": 2, "max": 3}}, "one two", "one"),
    ("words: 2", "one two", "one two three"),
    ("min-words: 2", "one two", "one"),
    ("max-words: 2", "one two", "one two three"),
    ("numeric: 42", "It is 42.", "It is 43."),
    ("levenshtein(2): kitten", "mitten", "sitting"),
    ("rouge-n: the cat sat", "the cat sat", "a dog ran"),
    ("rouge-l: the cat sat", "the cat sat", "sat cat the"),
    ("bleu: the cat sat on the mat", "the cat sat on the mat", "dogs ran"),
    ("gleu: the cat sat", "the cat sat", "dogs ran off"),
    ("chrf: the cat sat", "the cat sat", "dogs"),
    ({"all": ["contains: a", "contains: b"]}, "ab", "a"),
    ({"any": ["contains: a", "contains: b"]}, "b", "c"),
]
STEPS = [
    ("tool-called: book", "tool-called: pay"),
    ({"tool-called": ["find", "book"]}, {"tool-called": ["find", "pay"]}),
    (
        {"type": "trajectory:tool-used", "value": {"name": "find", "max": 1}},
        {"type": "trajectory:tool-used", "value": {"name": "find", "min": 2}},
    ),
    ({"tool-sequence": ["find", "book"]}, {"tool-sequence": ["book", "find"]}),
    (
        {"type": "trajectory:tool-sequence", "value": {"mode": "exact", "steps": ["find", "book"]}},
        {"type": "trajectory:tool-sequence", "value": {"mode": "exact", "steps": ["find"]}},
    ),
    (
        {"type": "trajectory:tool-args-match", "value": {"name": "book", "args": {"seats": 2}}},
        {"type": "trajectory:tool-args-match", "value": {"name": "book", "args": {"seats": 3}}},
    ),
    ({"tool-share": ["find", "book"]}, {"tool-share": ["find", "book", "pay"]}),
    ({"tool-schemas": [*TOOLS, {"name": "find"}]}, {"tool-schemas": TOOLS}),
    ("max-steps: 2", "max-steps: 1"),
    ("no-error", "not-no-error"),
    ("max-cost: .005", "max-cost: .003"),
    ("max-seconds: 2", "latency: 1400"),
]
OF_MODELS = {name for name, kind in CHECKS.items() if kind.judge or name in ("judge", "function")}


@pytest.mark.parametrize(("check", "good", "bad"), TEXTS, ids=str)
def test_texts_pass_checks(check, good, bad):
    for text, holds in ((good, True), (bad, False)):
        result = grade([check], text)
        assert isinstance(result, EvaluationResult), result
        assert result.passed == holds
        turned = grade([{"not": check}], text)
        assert turned.passed != holds
        # The score turns with the sign, also that of a measure.
        assert turned.score == pytest.approx(1 - result.score)


@pytest.mark.parametrize(("good", "bad"), STEPS, ids=str)
def test_steps_pass_checks(good, bad):
    about = {"trajectory": CALLED, "parameters": SPENDING}
    assert grade([good], "x", **about).passed
    assert not grade([bad], "x", **about).passed


def test_every_check_is_tried():
    tried = {read_check(check)["check"] for check, *_ in (*TEXTS, *STEPS)}
    assert tried | OF_MODELS == set(CHECKS)


def test_every_check_is_described():
    for name in (*CHECKS, *ALIASES, *REFUSED):
        assert re.search(rf"`{re.escape(name)}[:`]", PAGE), name


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_checks_are_refused(name):
    for check in (f"{name}: x", {"type": f"not-{name}", "value": "x"}):
        with pytest.raises(InputError, match=re.escape(REFUSED[name][:30])):
            read_check(check)


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("contain: x", "did you mean 'contains'"),
        ("contains:", "missing or empty"),
        ({"contains-any": []}, "missing or empty"),
        ("regex: (", "cannot be used"),
        ("max-cost: cheap", "number of 0 or more"),
        ("max-cost: -1", "number of 0 or more"),
        ({"words": {"least": 1}}, "min and max"),
        ({"contains": "a", "regex": "b"}, "one name"),
        ({"contains": "a", "weight": -1}, "weight"),
        ({"contains": "a", "threshold": 2}, "threshold"),
        ({"type": "llm-rubric", "value": "x", "rubricPrompt": "p"}, "'rubricPrompt' is not"),
        ({"type": "contains", "value": "file://x.txt"}, "write the text itself"),
        ("rubric:", "value is missing"),
        ({"json-schema": {"type": "objekt"}}, "schema.type"),
        ("function: output.length > 3", "code in a check is not evaluated"),
        ("contains:ignore-case: Oslo", "the check for it is icontains"),
        ("not: contains-any:ignore-case: Oslo, Rome", "the check for it is icontains"),
        ("equals:ignore-case: Oslo", "the check for it is icontains"),
        ({"all": []}, "too_short|at least 1"),
        (7, "a check is a text"),
    ],
)
def test_unusable_checks_are_refused(check, reason):
    with pytest.raises(InputError, match=reason):
        open_check(check)


# Sums of checks.


def test_all_checks_must_hold():
    result = grade([{"contains": "a", "weight": 3}, "contains: b"], "a")
    assert (result.score, result.passed) == (0.75, False)
    assert result.metadata[BROKEN] == ["contains: b"]
    assert "contains: b" in result.feedback


@pytest.mark.parametrize(("threshold", "passed"), [(0.8, False), (0.75, True), (0, True)])
def test_a_threshold_decides_instead(threshold, passed):
    checks = [{"contains": "a", "weight": 3}, "contains: b"]
    assert grade({"threshold": threshold, "rules": checks}, "a").passed == passed
    gated = [*checks[:1], {"contains": "b", "gate": True}]
    assert not grade({"threshold": threshold, "rules": gated}, "a").passed


def test_weight_zero_never_fails():
    result = grade(["contains: a", {"contains": "b", "weight": 0}], "a")
    assert (result.score, result.passed) == (1, True)
    assert result.metadata[BROKEN] == ["contains: b"]


def test_groups_have_thresholds():
    half = {"type": "assert-set", "threshold": 0.5, "assert": ["contains: a", "contains: b"]}
    assert grade([half], "a").passed
    assert not grade([{**half, "threshold": 0.6}], "a").passed


def test_uncomputable_checks_are_missing():
    for check in ("max-cost: 1", "max-seconds: 1", "equals", "tool-called: x", "rubric: kind"):
        result = grade(["contains: x", check], "x")
        assert isinstance(result, Failure), check
        assert check.partition(":")[0] in result.reason


def test_references_stand_for_values():
    for check in ("equals", "rouge-l", "numeric"):
        assert grade([check], "It is 4", reference="It is 4").passed


def test_a_function_grades(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "def get_assert(output, label):\n    return {'score': 0.6, 'reason': f'of {label}'}\n"
    )
    for check in ("function: own.py:get_assert", {"type": "python", "value": "file://own.py"}):
        (rule,) = read_check_list([check]).rules
        assert rule.content
        result = grade([check], "x", reference="y")
        assert (result.score, result.passed) == (0.6, True)


# Cells of rows.


@pytest.mark.parametrize(
    "cell",
    [
        ["contains: a", {"regex": "b"}],
        '["contains: a", {"regex": "b"}]',
        "- 'contains: a'\n- regex: b",
        "contains: a\n\nregex: b\n",
        {"checks": ["contains: a", "regex: b"]},
        {"assert": ["contains: a", "regex: b"], "threshold": 1},
    ],
    ids=str,
)
def test_cells_hold_checks(cell):
    assert is_checks(cell)
    taken = take_checks((), cell, {}, "row 1")
    checks = RulesFile(**taken)
    assert Rules(checks).judge("ab").passed
    assert not Rules(checks).judge("a").passed


def test_other_cells_hold_none():
    for cell in ("Pay by check", "see: below", 7, {"a": 1}, ["x"]):
        assert not is_checks(cell)
    assert list_checks(None) == []


def test_columns_fill_checks():
    row = {"city": "Oslo (N)", "n": 3}
    taken = take_checks(["contains: {city}"], ["regex: ^{{ city }}$", "words: 2"], row, "row 1")
    assert taken["rules"] == ["contains: Oslo (N)", r"regex: ^Oslo\ \(N\)$", "words: 2"]
    with pytest.raises(InputError, match=r"row 1: checks: .*\{\{town\}\}"):
        take_checks((), ["contains: {{ town }}"], row, "row 1")


@pytest.mark.parametrize(
    "check",
    [
        "function: own.py:f",
        "judge: metric:own.py:f",
        "json-schema: /etc/passwd",
        {"contains-json": "file://x.json"},
        {"any": ["contains: a", "function: own.py:f"]},
        {"kind": "call", "function": "os:getcwd"},
        {"kind": "json_schema", "file": "x.json"},
    ],
    ids=str,
)
def test_rows_name_no_files(check):
    with pytest.raises(InputError, match="a row cannot name files, code or judges"):
        take_checks((), [check], {}, "row 1")


def test_columns_name_no_files(tmp_path):
    (tmp_path / "s.json").write_text("{}")
    row = {"path": str(tmp_path / "s.json"), "code": "os:getcwd"}
    with pytest.raises(InputError, match="a row cannot name files"):
        take_checks([], ["json-schema: {path}"], row, "row 1")
    # What a study names itself is not filled in.
    with pytest.raises(InputError, match=r"\{code\}"):
        take_checks(["function: {code}"], [], row, "row 1")


def test_rules_may_be_checks():
    rules = parse_rules("- 'contains: warm'\n- {kind: length, max: 2}\n")
    assert rules.judge("warm light").passed
    assert not rules.judge("warm light here").passed
    with pytest.raises(InputError, match=r"rules x\.yaml:2: .*javascript"):
        parse_rules("rules:\n  - 'javascript: x'\n", "x.yaml")
