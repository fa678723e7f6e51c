"""Situations of people who keep their prompts as LangChain's templates: as objects, and saved as
JSON or YAML.

What LangChain's own template formats is the right value.
"""

import json
import warnings

import pytest

pytest.importorskip("langchain_core")

from langchain_core import prompts
from langchain_core.load import dumps
from langchain_core.messages import AIMessage

from textevolve import Chain, ask
from textevolve.errors import InputError
from textevolve.llm.chains.chat_template import read_text_template, write_text_template
from textevolve.llm.chains.langchain_prompts import find_langchain_prompt
from textevolve.studies.calibrate import CalibrateSpec
from textevolve.studies.compare_spec import CompareSpec

VALUES = {"word": "tide {x}", "answer": "42", "name": "Ada"}
F_STRINGS = [
    "Say {word}.",
    'As JSON: {{"word": "{word}"}}',
    "{{{word}}} and {answer}{answer}",
    r"\boxed{{{answer}}}",
    "{{word}} is {word}",
]
JINJA = [
    "Say {{ word }}.",
    '{"word": "{{word}}"}\n',
    "{% raw %}{{ word }}{% endraw %} is {{ word -}}  !",
    "{# a remark #}{word} is {{ word }}",
]


def template_of(text, form="f-string"):
    return prompts.PromptTemplate.from_template(text, template_format=form)


def save(template, place):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        template.save(place)
    return place


def fill(template):
    return [message.text for message in template.fill(VALUES)]


@pytest.mark.parametrize(
    ("text", "form"), [*((t, "f-string") for t in F_STRINGS), *((t, "jinja2") for t in JINJA)]
)
def test_prompts_in_every_form(tmp_path, text, form):
    template = template_of(text, form)
    expected = [template.format(**VALUES)]
    forms = [template, dumps(template), json.loads(dumps(template))]
    forms += [save(template, tmp_path / f"p.{ending}").read_text() for ending in ("json", "yaml")]
    for written in forms:
        assert fill(find_langchain_prompt(written)) == expected


def test_chats_with_held_values(tmp_path):
    chat = prompts.ChatPromptTemplate.from_messages(
        [("system", "Be {tone} to {name}."), AIMessage("Hi {plain}"), ("human", "Say {word}")]
    ).partial(tone="kind")
    expected = [message.content for message in chat.format_messages(**VALUES)]
    for written in (chat, dumps(chat)):
        template = find_langchain_prompt(written)
        assert [m.role for m in template.messages] == ["system", "assistant", "user"]
        assert fill(template) == expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (lambda: template_of("{% if x %}a{% endif %}", "jinja2"), "line 1: has logic"),
        (lambda: template_of("\n{{ x | upper }}", "jinja2"), "line 2: braces hold more"),
        (lambda: template_of("{{x}}", "mustache"), "the format mustache"),
        (lambda: template_of("{x:d}"), "braces of 'x' hold no plain name"),
        (lambda: template_of("{x}").partial(x=lambda: "now"), "holds for 'x' is no text"),
        (
            lambda: prompts.ChatPromptTemplate([prompts.MessagesPlaceholder("h")]),
            "MessagesPlaceholder has no text",
        ),
        (
            lambda: prompts.FewShotPromptTemplate(
                examples=[{"a": "b"}],
                example_prompt=template_of("{a}"),
                suffix="{x}",
                input_variables=["x"],
            ),
            "FewShotPromptTemplate is none of",
        ),
    ],
)
def test_what_is_refused(template, reason):
    with pytest.raises(InputError, match=reason):
        find_langchain_prompt(template())


def test_other_texts_are_texts():
    for text in ("Say {word}", '{"lc": 1', '{"_type": "x"}', "- _type: prompt", {"draft": "{x}"}):
        assert find_langchain_prompt(text) is None


@pytest.mark.parametrize(
    "parts", [("{", "word", "}"), ("a {", "word", "} b"), ('{"w": "', "word", '"}')]
)
def test_braces_around_slots(parts):
    template = read_text_template(f"{parts[0]}{{{{ {parts[1]} }}}}{parts[2]}", {"word"})
    assert read_text_template(write_text_template(template), {"word"}) == template


def test_prompts_of_specifications():
    template = template_of('Say {{ word }} as {"a": 1}', "jinja2")
    assert CalibrateSpec(template=template, data="x.jsonl").template == 'Say {word} as {"a": 1}'
    chat = prompts.ChatPromptTemplate.from_messages([("system", "Be {tone}."), ("human", "{word}")])
    (spoken,) = CompareSpec(prompts=[chat], data="x.jsonl").prompts
    assert spoken.templates == (("system", "Be {tone}."), ("user", "{word}"))
    with pytest.raises(InputError, match="several messages"):
        CalibrateSpec(template=dumps(chat), data="x.jsonl")
    chain = Chain("say", ask("answer", template))
    assert tuple(chain.inputs) == ("word",)


@pytest.mark.slow
def test_commands_read_saved_prompts(cli, home, model, server):
    save(template_of('Say {{ word }} as {"a": 1}', "jinja2"), home / "say.json")
    (home / "say.yaml").write_text("steps: [{ask: answer, file: say.json, system: Be kind.}]")
    ran = cli("run", "chains", "run", "say.yaml", "-i", "word=tide", "-m", model)
    assert ran.code == 0
    (home / "rows.jsonl").write_text('{"word": "tide", "a": "b"}\n')
    compared = cli("compare", "-p", "say.json", "--data", "rows.jsonl", "-m", model)
    assert compared.code == 0
    sent = [body["messages"] for body in server.requests]
    assert [message["content"] for message in sent[0]] == ["Be kind.", 'Say tide as {"a": 1}']
    assert sent[1] == [{"role": "user", "content": 'Say tide as {"a": 1}'}]
