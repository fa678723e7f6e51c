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
