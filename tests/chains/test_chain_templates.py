"""Templates of users and of LangChain's, to ours and back."""

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
    value_text,
)

plain = st.text(alphabet='ab {}%#"\n\\x!', max_size=12)
names = st.sampled_from(["x", "name", "a_b"])
parts = st.lists(plain | names.map(Slot), max_size=6).map(merge)
values = st.fixed_dictionaries(dict.fromkeys(["x", "name", "a_b"], plain))


@given(parts, values)
def test_langchain_renders_what_is_written_as_ours(given_parts, given_values):
    pytest.importorskip("langchain_core")
    template = ChatTemplate((TemplateMessage("user", given_parts),))
    theirs = to_langchain_template(template)
    (message,) = theirs.format_messages(**given_values)
    filled = (p if isinstance(p, str) else given_values[p.name] for p in given_parts)
    assert message.content == "".join(filled)
    assert read_template(theirs) == template


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
        (prompts.PromptTemplate.from_template("{{x}}", template_format="jinja2"), "jinja2 cannot"),
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
