"""Formats of the catalogue beside the published templates of their families, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError

from published import published, rendering
from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, CONVERSATIONS, chat_format
from textevolve.llm.chat_formats.chat_format import render_chat, to_jinja

TEMPLATES = {
    **{name: name for name in CHAT_FORMATS},
    "llama-2": "llama-2-transformers",
    "gemma": "gemma-2",
    "phi-3": "phi-3.5",
    "phi-4": "phi-4-unsloth",
}
NAMES = sorted(CHAT_FORMATS)
DEFAULT_OF_VICUNA = chat_format("vicuna").system.default

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "  a b ", "\n\nx\n", 'é "q" \\ \'s', "<think>t</think>\n\nz", "{{ a }} $content %s"]
    ),
)


def say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


@st.composite
def talks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Mostly in turns, with a system message or not; sometimes in any order."""
    system = [say("system", draw(TEXTS))] if draw(st.booleans()) else []
    count = draw(st.integers(1, 6))
    orderly = draw(st.integers(0, 4)) > 0
    roles = [("user", "assistant")[n % 2] for n in range(count)]
    if not orderly:
        roles = [draw(st.sampled_from(("user", "assistant", "system"))) for _ in range(count)]
    return system + [say(role, draw(TEXTS)) for role in roles]


def render_published(name: str, talk: Any, asked: bool) -> str | None:
    try:
        text = published(TEMPLATES[name])(talk, None, asked)
    except TemplateError:
        return None
    if name == "vicuna":  # the template leaves its default text to whoever installs it
        return text.replace("{system_message}", DEFAULT_OF_VICUNA, 1)
    return text


def comparable(name: str, talk: list[dict[str, Any]], asked: bool) -> bool:
    """Whether docs/models.md names no difference that this conversation shows."""
    if name == "llama-3":
        return asked
    return name != "mistral-v7-tekken" or talk[0]["role"] == "system"


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=min(30, settings().max_examples // 5))
@given(talk=talks(), asked=st.booleans())
def test_what_a_format_writes_is_byte_equal_to_the_published_template(name, talk, asked):
    expected = render_published(name, talk, asked)
    try:
        got = render_chat(CHAT_FORMATS[name], talk, add_generation_prompt=asked, on_marker="keep")
    except InputError:
        return  # what is refused is tested by itself
    if comparable(name, talk, asked):
        assert got == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_conversation_is_refused_by_no_format(name):
    format = CHAT_FORMATS[name]
    talk = [say("user", "a"), say("assistant", "b"), say("user", "c")]
    system = [say("system", "s")] if format.system is not None else []
    text = render_chat(format, system + talk)
    assert text == render_published(name, system + talk, True)
    assert all(content in text for content in ("a", "b", "c", "s"))


@pytest.mark.parametrize("name", NAMES)
def test_a_template_written_from_a_format_renders_and_refuses_as_the_format_does(name):
    """The template is the same; elsewhere it stands in the environment of transformers."""
    format = CHAT_FORMATS[name]
    render = rendering(to_jinja(format), {})
    for talk, requests in CONVERSATIONS:
        try:
            expected = render_chat(format, talk, add_generation_prompt=requests, on_marker="keep")
        except InputError:
            expected = None
        try:
            got = render(talk, None, requests)
        except TemplateError:
            got = None
        assert got == expected


def refuses(name: str, talk: Any) -> str:
    with pytest.raises(InputError) as error:
        render_chat(chat_format(name), talk)
    return str(error.value)


def test_what_a_format_cannot_express_is_refused_with_what_to_do():
    two = [say("user", "a"), say("user", "b")]
    assert "message 2" in refuses("gemma", two)
    assert "join" in refuses("gemma", two)
    assert "first message of the user" in refuses("gemma", [say("system", "s"), say("user", "a")])
    late = [say("user", "a"), say("system", "s")]
    assert "only system message" in refuses("vicuna", late)
    ends = [say("system", "s"), say("user", "a"), say("assistant", "b")]
    assert "end with a message of the user" in refuses("mistral-v3", ends)
    assert "role must be one of" in refuses("chatml", [say("robot", "a")])
    assert "not images" in refuses("chatml", [say("user", [{"type": "image_url"}])])
    assert "at least one" in refuses("chatml", [])
    calls = [say("user", "a"), {**say("assistant", ""), "tool_calls": [{"function": {}}]}]
    assert "no format can write the field 'tool_calls'" in refuses("qwen-3", calls)
    assert "must be a list of" in refuses("chatml", "hi")
    with pytest.raises(InputError, match="did you mean 'chatml'"):
        chat_format("chat-ml")
