"""Templates in the syntaxes of others, to ours and back: what is written reads as the same parts,
and renders as their own renderers do."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.api.templates import read_template, to_langchain_template
from textevolve.errors import InputError
from textevolve.llm.chains.chat_template import (
    ChatTemplate,
    Slot,
    TemplateMessage,
    merge,
    read_syntax,
    value_text,
    write_syntax,
)

plain = st.text(alphabet='ab {}%#"\n\\x!', max_size=12)
names = st.sampled_from(["x", "name", "a_b"])
parts = st.lists(plain | names.map(Slot), max_size=6).map(merge)
values = st.fixed_dictionaries(dict.fromkeys(["x", "name", "a_b"], plain))


def show(template_parts, given_values):
    return "".join(p if isinstance(p, str) else given_values[p.name] for p in template_parts)


@given(parts)
def test_what_is_written_reads_as_the_same_or_is_refused(given_parts):
    for syntax in ("text", "f-string", "jinja2"):
        try:
            text = write_syntax(given_parts, syntax)
        except InputError:
            assert syntax == "text"  # the others can write any plain text
            continue
        slots = {part.name for part in given_parts if isinstance(part, Slot)}
        if syntax != "text" or not set("{}") & set(show(given_parts, dict.fromkeys(slots, ""))):
            assert read_syntax(text, syntax) == given_parts


@given(parts, values)
def test_an_f_string_renders_as_python_renders_it(given_parts, given_values):
    text = write_syntax(given_parts, "f-string")
    assert string.Formatter().vformat(text, (), given_values) == show(given_parts, given_values)


@given(parts, values)
def test_langchain_renders_what_is_written_as_ours(given_parts, given_values):
    pytest.importorskip("langchain_core")
    template = ChatTemplate((TemplateMessage("user", given_parts),))
    for syntax in ("f-string", "jinja2"):
        theirs = to_langchain_template(template, syntax)
        (message,) = theirs.format_messages(**given_values)
        assert message.content == show(given_parts, given_values)
        assert read_template(theirs) == template


@given(st.text(alphabet="ax{} .\n", max_size=20))
def test_any_f_string_is_read_as_python_reads_it_or_refused(text):
    try:
        found = read_syntax(text, "f-string")
    except InputError:
        return
    filled = {part.name: "<1>" for part in found if isinstance(part, Slot)}
    assert string.Formatter().vformat(text, (), filled) == show(found, filled)


@given(st.text(alphabet="ax{}% .#\n", max_size=20))
def test_any_jinja_is_read_as_jinja_reads_it_or_refused(text):
    from jinja2 import Environment

    try:
        found = read_syntax(text, "jinja2")
    except InputError:
        return
    filled = {part.name: "<1>" for part in found if isinstance(part, Slot) and "." not in part.name}
    if all("." not in part.name for part in found if isinstance(part, Slot)):
        assert Environment().from_string(text).render(filled) == show(found, filled)


@pytest.mark.parametrize(
    ("text", "syntax", "told"),
    [
        ("{x:.2f}", "f-string", "a format cannot be converted"),
        ("{x!r}", "f-string", "a format cannot be converted"),
        ("{x.y}", "f-string", "only a plain name"),
        ("{0}", "f-string", "only a plain name"),
        ("{x", "f-string", "not an f-string template"),
        ("a\n{% if x %}b{% endif %}", "jinja2", "line 2: 'if' of Jinja"),
        ("{{ x | upper }}", "jinja2", "only names can be converted, and not this"),
        ("{{ f() }}", "jinja2", "only names"),
        ("{{ x", "jinja2", "not a Jinja template"),
        ("x", "velocity", "no syntax 'velocity'"),
    ],
)
def test_what_has_logic_is_refused_with_its_line(text, syntax, told):
    with pytest.raises(InputError, match=told):
        read_syntax(text, syntax)


def test_langchain_prompts_become_ours():
    prompts = pytest.importorskip("langchain_core.prompts")
    messages = pytest.importorskip("langchain_core.messages")
    chat = prompts.ChatPromptTemplate.from_messages(
        [("system", "Be {tone}."), messages.AIMessage("Hi {plain}"), ("human", "{{x}} {question}")]
    ).partial(tone="kind")
    found = read_template(chat)
    assert found.describe() == [
        ["system", ["Be kind."]],
        ["assistant", ["Hi {plain}"]],
        ["user", ["{x} ", ["question"]]],
    ]
    plain = prompts.PromptTemplate.from_template("Say {{ x }}", template_format="jinja2")
    assert read_template(plain).describe() == [["user", ["Say ", ["x"]]]]
    for theirs, told in (
        (
            prompts.ChatPromptTemplate.from_messages([prompts.MessagesPlaceholder("history")]),
            "a MessagesPlaceholder cannot be converted",
        ),
        (
            prompts.ChatPromptTemplate.from_messages(
                [
                    (
                        "human",
                        [{"type": "text", "text": "{x}"}, {"type": "image_url", "image_url": "u"}],
                    )
                ]
            ),
            "cannot be converted",
        ),
        (prompts.ChatPromptTemplate.from_messages([("human", "{x:d}")]), "a format cannot"),
        (
            prompts.PromptTemplate.from_template("{x}").partial(x=lambda: "now"),
            "the value that the template holds for 'x' is no text",
        ),
    ):
        with pytest.raises(InputError, match=told):
            read_template(theirs)


def test_values_are_filled_in_as_texts_and_never_read_again():
    template = read_template("{x} and {{ y }} {z}")
    (message,) = template.fill({"x": "{y}", "y": [1, "ü"], "z": {"a": None}})
    assert message.text == '{y} and [1, "ü"] {"a": null}'
    assert value_text("as it is") == "as it is"
    with pytest.raises(InputError, match="no value 'y'"):
        template.fill({"x": 1})


def test_nothing_of_an_object_but_its_fields_is_had_by_a_name():
    template = read_template("{x.__class__}{x.upper}")
    assert template.names == ("x.__class__", "x.upper")
    with pytest.raises(InputError, match="has no field '__class__'"):
        template.fill({"x": "text"})
