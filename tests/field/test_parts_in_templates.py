"""Chats are rendered by a model's own template that knows less than the chat: a content is a list
of text parts, which the template writes as it is (as Python does), or a template knows no system
message. The right prompt is that of the same chat with the parts joined; what has no place in it is
refused or named.
"""

import json

import pytest

from textevolve.llm.chat_formats.sources import JinjaTemplate

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
TEMPLATES = {
    "plain": PLAIN,
    "joined": "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\\n' }}{% endfor %}",
    "trimmed": "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}",
}
PARTS = [{"type": "text", "text": "Name a river"}, {"type": "text", "text": " of Peru."}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def convert(cli, home, source, messages):
    (home / "model.jinja").write_text(source, encoding="utf-8")
    (home / "chat.json").write_text(json.dumps(messages), encoding="utf-8")
    return cli("models", "templates", "convert", "chat.json", "-t", "model.jinja")


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_parts_are_joined(cli, home, name):
    source = TEMPLATES[name]
    text = "Name a river of Peru."
    right = JinjaTemplate(source).render([{"role": "user", "content": text}])
    written = convert(cli, home, source, [{"role": "user", "content": PARTS}])
    assert (written.code, written.out) == (0, right)


def test_templates_of_parts_get_parts(cli, home):
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    written = convert(cli, home, source, [{"role": "user", "content": PARTS}])
    assert written.out == "[Name a river][ of Peru.]"


def test_images_are_refused_by_texts(cli, home):
    refused = convert(cli, home, PLAIN, [{"role": "user", "content": [*PARTS, IMAGE]}])
    assert refused.code == 2
    assert "leave out images" in refused.err


@pytest.mark.parametrize("role", ["system", "developer"])
def test_left_out_instruction_is_named(cli, home, caplog, role):
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    chat = [{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    written = convert(cli, home, source, chat)
    assert (written.code, written.out) == (0, "Hi")
    assert "leaves out message 1" in caplog.text
    caplog.clear()
    convert(cli, home, PLAIN, chat)
    assert not caplog.records


KNOWN = (
    "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}"
    "<{{ m.role }}>{{ m.content | trim }}\n{% endif %}{% endfor %}"
)
CALL = {"type": "function", "id": "call_1", "function": {"name": "look", "arguments": "{}"}}
ASK = {"role": "user", "content": "Be brief. Where is it?"}


@pytest.mark.parametrize(
    ("messages", "number"),
    [
        ([{"role": "developer", "content": "Be brief."}, ASK], 1),  # its words are the user's, too
        ([{"role": "developer", "content": [{"type": "text", "text": "Be kind."}]}, ASK], 1),
        (
            [
                ASK,
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "In the north."},
            ],
            3,
        ),
        ([ASK, {"role": "critic", "content": "Too long."}], 2),
    ],
)
def test_left_out_message_of_any_role_is_named(cli, home, caplog, messages, number):
    assert convert(cli, home, KNOWN, messages).code == 0
    named = [record.getMessage() for record in caplog.records]
    assert named == [f"the chat template leaves out message {number}: the model never sees it"]


def test_changed_texts_are_not_left_out(cli, home, caplog):
    source = PLAIN.replace("m.content", "m.content | upper | replace(' ', '_')")
    chat = [{"role": "system", "content": "Be brief."}, ASK]
    assert "BE_BRIEF." in convert(cli, home, source, chat).out
    assert not caplog.records
