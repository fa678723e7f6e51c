"""Placeholders: found, filled once and without evaluation, kept by every successor."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.texts.placeholders import (
    check_spelling,
    fill,
    find_fault,
    find_placeholders,
    require_placeholders,
)

NAMES = st.sampled_from(["name", "topic", "first name", "a.b", "x"])
PIECES = [*"{} \n%ab7*:\"'.|", "{{", "}}", "name", "{name}", "{{ x }}", "{topic}", "{tone}"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def in_braces(text):
    """Every word that stands in single or double braces, spelt as a placeholder would be."""
    doubled = re.findall(r"\{\{\s*([a-z]\w*)\s*\}\}", text)
    single = re.findall(r"\{([a-z]\w*)\}", text)
    return {*doubled, *single}


def test_both_styles_are_found_in_order():
    text = "About {topic} for {{ name }}, again {topic}, {{x}}."
    assert find_placeholders(text, ["x", "name", "topic"]) == ("topic", "name", "x")


def test_braces_of_json_and_of_others_are_text():
    text = 'Answer as {"topic": "{topic}", "list": [{"n": 1}]}. {% if x %}{{ 7*7 }}{% endif %} {y}'
    assert find_placeholders(text, ["topic", "x"]) == ("topic",)
    filled = fill(text, {"topic": "tides", "x": "no"})
    assert filled == text.replace("{topic}", "tides")


def test_a_value_is_never_read_as_a_template():
    values = {"name": "{topic} {{ topic }} {% raw %}", "topic": "{name}"}
    assert fill("{name}|{{topic}}", values) == "{topic} {{ topic }} {% raw %}|{name}"


@given(st.lists(TEXTS), st.dictionaries(NAMES, TEXTS, min_size=1))
def test_filling_replaces_each_placeholder_and_nothing_else(parts, values):
    """What is filled equals the parts around the placeholders with the values between them."""
    names = list(values)
    plain = [part.replace("{", "(").replace("}", ")") for part in parts]
    marks = [("{%s}" if n % 2 else "{{ %s }}") % names[n % len(names)] for n in range(len(plain))]
    text = "".join(f"{p}{m}" for p, m in zip(plain, marks, strict=True))
    expected = "".join(f"{p}{values[names[n % len(names)]]}" for n, p in enumerate(plain))
    assert fill(text, values) == expected


@given(TEXTS)
def test_a_template_has_no_fault_beside_itself(text):
    columns = ["name", "topic", "x"]
    names = find_placeholders(text, columns)
    assert find_fault(text, text, names, columns) == ""


@given(TEXTS, TEXTS)
def test_a_successor_without_fault_has_the_same_placeholders(seed, text):
    columns = ["name", "topic", "x"]
    names = find_placeholders(seed, columns)
    texts = set(find_placeholders(text, columns))
    invented = in_braces(text) - in_braces(seed) - set(columns)
    faultless = find_fault(text, seed, names, columns) == ""
    assert faultless == (texts == set(names) and not invented)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Tell {name} nothing.", "{topic} is missing"),
        ("Tell {name} of {topic} in {tone}.", "no placeholder {tone}"),
        ("Tell {name} of {topic}: {answer column}.", "no placeholder {answer column}"),
    ],
)
def test_a_lost_or_invented_placeholder_is_named(text, said):
    columns = ["name", "topic", "answer column"]
    fault = find_fault(text, "Tell {name} of {topic}.", ("name", "topic"), columns)
    assert said in fault


def test_braces_that_the_original_has_may_stay():
    seed = "In {lang}, use {x} and {name}."
    assert find_fault("Use {x}, {name} and {lang}.", seed, ("name",), ["name"]) == ""


def test_a_template_must_show_something_of_the_data():
    with pytest.raises(InputError, match=r"\{a\}, \{b\}"):
        require_placeholders("Hello {c}", ["b", "a"])
    with pytest.raises(InputError, match="blank"):
        require_placeholders(" \n", ["a"])


MISSPELT = ["{contxt}", "{{ contxt }}", "{first_name}"]
TEXT = [
    '{"contxt": "a", "list": [{"n": 1}]}',
    "\\boxed{contxt} \\frac{a}{contxt}",
    "{contxt.a} {0} {}",
]


@pytest.mark.parametrize("written", MISSPELT)
def test_a_misspelt_placeholder_is_refused_with_the_column_that_it_resembles(written):
    with pytest.raises(InputError, match=r"write \{(context|first name)\}"):
        check_spelling(f"{{question}} {written}", ["question", "context", "first name"], "a.txt")


@pytest.mark.parametrize("written", TEXT)
def test_braces_that_are_no_placeholder_may_resemble_a_column(written, caplog):
    check_spelling(written, ["context"], "a.txt")
    assert not caplog.messages


def test_a_name_that_resembles_no_column_is_text_with_a_warning(caplog):
    check_spelling("{context}: {score}", ["context"], "a.txt")
    [message] = caplog.messages
    assert "a.txt: no column for {score}" in message
