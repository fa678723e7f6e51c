"""Rules from YAML, alone and before a judge: what holds, what is said, what is refused."""

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, PlainEvaluation, Usage
from textevolve.loops.rules import FAILED_GATES, Hybrid, load_rules, parse_rules
from textevolve.metrics.label_metrics import grade_output, open_metric
from textevolve.texts import patterns
from textevolve.texts.schema_check import check_schema, find_faults


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A pattern that may be slow starts a process, which takes its time on a busy machine."""
    monkeypatch.setattr(patterns, "SECONDS", 60)


def one_rule(text):
    return parse_rules(f"rules:\n  - {text}\n")


def judge(rule, text, input="?"):
    result = one_rule(rule).judge(text, input)
    assert isinstance(result, EvaluationResult), result
    return result


@pytest.mark.parametrize(
    ("rule", "good", "bad", "said"),
    [
        ("{kind: length, min: 3}", "one two three", "one two", "at least 3 words (now 2)"),
        ("{kind: length, max: 2}", "don't stop", "one two three", "at most 2 words (now 3)"),
        ("{kind: length, unit: tokens, max: 2}", "8 letter", "9 letters", "characters / 4, now 3"),
        ("{kind: must, pattern: '^Dear '}", "So:\nDear Ann", "O Dear ", "matches the pattern"),
        ("{kind: must_not, pattern: as an ai, ignore_case: true}", "As I", "As an AI", "Remove"),
        ("{kind: keywords, all: [moon, sea]}", "Moon and sea", "Moons at sea", "phrase 'moon'"),
        ("{kind: keywords, any: [a, b]}", "b!", "c", "at least one of: 'a', 'b'"),
        ("{kind: keywords, none: [C++]}", "C and C", "C++ it is", "Do not use 'C++'"),
        (
            "{kind: json_schema, schema: {type: object}}",
            "{}",
            "[]",
            "$: [] is not of type 'object'",
        ),
        ("{kind: must, pattern: x, feedback: Name the price.}", "x", "y", "Name the price."),
    ],
)
def test_a_rule_holds_or_says_what_to_change(rule, good, bad, said):
    result, broken = judge(rule, good), judge(rule, bad)
    assert (result.score, result.passed, result.feedback) == (1.0, True, "")
    assert result.metadata[FAILED_GATES] == []
    assert broken.score < 1
    assert not broken.passed
    assert said in broken.feedback
    assert len(broken.metadata[FAILED_GATES]) == 1


def test_scores_are_weighted_and_gates_hold_back():
    rules = parse_rules(
        """
        threshold: 0.6
        rules:
          - {kind: keywords, all: [a, b], weight: 1, gate: false, name: words}
          - {kind: must, pattern: x, weight: 3, name: x}
        """
    )
    half = rules.judge("a x")
    assert half.score == pytest.approx((0.5 + 3) / 4)
    assert half.passed
    assert half.metadata == {"rules": {"words": 0.5, "x": 1.0}, FAILED_GATES: []}
    none = rules.judge("a b")
    assert (none.score, none.passed, none.metadata[FAILED_GATES]) == (0.25, False, ["x"])
    both = rules.judge("c")
    assert both.feedback.splitlines()[0] == "Add what matches the pattern x."  # gates first


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 9)), min_size=1), st.text("abcx "))
def test_a_score_lies_in_the_unit_and_is_whole_only_where_all_hold(made, text):
    rows = "".join(
        f"  - {{kind: must, pattern: {letter}, weight: {weight}}}\n" for letter, weight in made
    )
    result = parse_rules(f"rules:\n{rows}").judge(text)
    assert 0 <= result.score <= 1
    assert result.passed == (result.score == 1) == all(letter in text for letter, _ in made)
    assert bool(result.feedback) != result.passed


# Files


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rules:\n- kind: length\n  max: 3\n  max: 5\n", "x.yaml:4: 'max' is there twice"),
        ("rules:\n- kind: length\n  mix: 3\n", "x.yaml:3: unknown field 'rules.0.length.mix'"),
        ("rules:\n- {kind: length, min: 3, max: 2}\n", "'max' 2 is below 'min' 3"),
        ("rules:\n- {kind: must, pattern: '('}\n", "cannot be used: missing"),
        ("rules:\n- &a {kind: must, pattern: a, name: n}\n- *a", "two rules have the name 'n'"),
        ("rules:\n- kind: json_schema\n  schema: {typ: a}", "x.yaml:2: schema: the keyword 'typ'"),
        ("rules:\n- {kind: json_schema, file: no.json}", "no.json: cannot be read"),
        ("rules:\n- {kind: call, function: 'asyncio:sleep'}", "is not a plain function"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text, reason):
    with pytest.raises(InputError) as caught:
        parse_rules(text, "x.yaml")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_brings_its_schema_and_its_own_functions(tmp_path):
    (tmp_path / "own.json").write_text(json.dumps({"required": ["a"]}))
    (tmp_path / "own.py").write_text(
        "def short(text):\n    return len(text) < 9\n"
        "def echo(text, input):\n    return '' if input in text else f'Repeat {input}.'\n"
        "def half(text, strict=True):\n    return 0.5\n"
        "def wrong(text):\n    raise ValueError('no idea')\n"
        "def odd(text):\n    return [text]\n"
        "def high(text):\n"
        "    from textevolve import EvaluationResult\n"
        "    return EvaluationResult(85.0, True)\n"
    )

    def load(*rules):
        (tmp_path / "r.yaml").write_text("rules:\n" + "".join(f"- {rule}\n" for rule in rules))
        return load_rules(tmp_path / "r.yaml")

    schema = load("{kind: json_schema, file: own.json}")
    assert schema.judge('{"a": 1}').passed
    assert schema.judge("{}").feedback == "$: 'a' is a required property."
    own_rules = load(
        *(f"{{kind: call, function: 'own.py:{f}'}}" for f in ("short", "echo", "half"))
    )
    result = own_rules.judge("long enough", "this")
    assert result.score == pytest.approx(0.5 / 3)
    assert result.feedback.splitlines() == [
        "Keep to the rule own.py:short.",
        "Repeat this.",
        "Keep to the rule own.py:half.",
    ]
    for name, reason in (
        ("wrong", "ValueError: no idea"),
        ("odd", "gave list for a candidate"),
        ("high", "the score 85.0 is outside 0 to 1"),
    ):
        broken = load(f"{{kind: call, function: 'own.py:{name}'}}").judge("x")
        assert isinstance(
            broken, Failure
        )  # a rule that cannot be applied is no rule that is broken
        assert reason in broken.reason
    with pytest.raises(InputError, match="cannot be read"):
        load_rules(tmp_path / "none.yaml")


# Patterns that may take for ever


@pytest.mark.parametrize(
    ("pattern", "slow"),
    [(r"\d+", 5_000), ("a+b", 5_000), (".*.*=", 500), (r"(a+)\1b", 500), ("(a+)+$", True)],
)
def test_patterns_that_may_be_slow_are_known(pattern, slow):
    """`slow`: on a text of any length, of none, or from so many characters on."""
    for length in (50, 500, 5_000):
        assert patterns.may_be_slow(pattern, length) == (slow and length >= int(slow))


@pytest.mark.slow
async def test_a_pattern_without_nested_repeats_is_ended_too(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.3)
    rules = one_rule("{kind: must_not, pattern: 'a+b'}")
    metric, text = open_metric("regex:a+b"), "a" * 99_000
    waiting = [asyncio.create_task(rules(Case("?", (text,)))) for _ in range(8)]
    waiting.append(asyncio.create_task(grade_output(metric, text, None)))
    began = time.monotonic()
    await asyncio.to_thread(str)  # neither the loop nor its threads are held up
    assert time.monotonic() - began < 0.3
    *judged, graded = await asyncio.gather(*waiting)
    for outcome in (graded, *(plain_evaluation.result[0] for plain_evaluation in judged)):
        assert "took more than 0.3 s" in outcome.reason


async def test_a_pattern_in_a_schema_is_ended_too(monkeypatch):
    rules = one_rule("{kind: json_schema, schema: {pattern: '^(a+)+$'}}")
    assert (await rules(Case("?", ('"aa"',)))).result[0].passed
    monkeypatch.setattr(patterns, "SECONDS", 0.3)
    (result,) = (await rules(Case("?", (json.dumps("a" * 40 + "!"),)))).result
    assert "took more than 0.3 s" in result.reason


# Schemas


def test_json_beside_a_schema():
    tags = {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2}
    schema = {"properties": {"tags": tags}, "$defs": {"tag": {"type": "string"}}}
    check_schema(schema)
    assert find_faults('{"tags": ["a", "b"]}', schema) == []
    first_text, second_text = find_faults('{"tags": ["a", 2, "c"]}', schema)
    assert "$.tags[1]: 2 is not of type" in first_text
    assert "is too long (maxItems: 2)" in second_text


@pytest.mark.parametrize("text", ["", "```json\n{}\n```", "[" * 100_000, "9" * 5000])
def test_what_is_not_json_is_said_to_be(text):
    (fault,) = find_faults(text, {})
    assert "JSON" in fault


@pytest.mark.parametrize(
    "schema", [5, {"fi": {}}, {"patternProperties": {"^(a+)+$": {}}}, {"pattern": "("}]
)
def test_a_schema_that_is_not_checked_in_full_is_refused(schema):
    with pytest.raises(InputError):
        check_schema(schema)


# Rules before a judge


class Counting:
    """A judge that gives each candidate its first number, in tenths."""

    def __init__(self):
        self.seen = []

    async def __call__(self, case):
        self.seen += case.candidates
        made = [
            EvaluationResult(int(t.split()[0]) / 10, True, "Be kinder.", {"of": t})
            if t[0].isdigit()
            else Failure("failed", "no number")
            for t in case.candidates
        ]
        return PlainEvaluation(tuple(made), Usage(calls=len(made)))


async def test_a_text_that_fails_a_gate_is_not_shown_to_the_judge():
    judge = Counting()
    rules = parse_rules(
        """
        rules:
          - {kind: must, pattern: x, name: x}
          - {kind: must, pattern: y, gate: false}
        """
    )
    hybrid = Hybrid(rules, judge, rules_weight=0.4)
    plain_evaluation = await hybrid(Case("?", ("9 x y", "8 x", "7 y", "no x")))
    assert judge.seen == ["9 x y", "8 x", "no x"]
    assert plain_evaluation.usage.calls == 3
    assert plain_evaluation.coverage == 0.75
    full_result, weighed, gated, failed = plain_evaluation.result
    assert full_result.score == pytest.approx(0.4 + 0.6 * 0.9)
    assert (
        full_result.passed,
        full_result.metadata["judge_score"],
        full_result.metadata["of"],
    ) == (
        True,
        0.9,
        "9 x y",
    )
    assert weighed.score == pytest.approx(0.4 * 0.5 + 0.6 * 0.8)
    assert weighed.metadata["instructions"] == ["Add what matches the pattern y.", "Be kinder."]
    assert gated.score == pytest.approx(0.4 * 0.5)
    assert (gated.passed, gated.metadata[FAILED_GATES]) == (False, ["x"])
    assert failed == Failure("failed", "no number")
    assert (await hybrid(Case("?", ("7",)))).usage == Usage()
