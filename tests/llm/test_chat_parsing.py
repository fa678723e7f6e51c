"""Rendered prompts are read back to the letter, whatever their texts try to be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    break_up,
    convert,
    parse_chat,
    render_chat,
    unbreak,
)

NAMES = sorted(CHAT_FORMATS)


def texts(format: ChatFormat) -> st.SearchStrategy[str]:
    """Texts that try to hold markers, whole, in part, broken up already, or with what follows."""
    hostile = [
        *format.markers,
        *(marker[:-1] for marker in format.markers),
        *(marker[0] + "\u2060" + marker[1:] for marker in format.markers),
        *(turn for turn in (format.user.before, format.assistant.before, format.assistant.after)),
        format.generation,
        *("", " ", "\n", "\n\n", "<", "[", "]", "|>", "#", "\u2060", "</think>", "<think>", '"'),
    ]
    return st.lists(st.one_of(st.sampled_from(hostile), st.text(max_size=8)), max_size=4).map(
        "".join
    )


@st.composite
def talks(draw: st.DrawFn, format: ChatFormat) -> list[dict[str, Any]]:
    content = texts(format)
    talk: list[dict[str, Any]] = []
    if format.system is not None and draw(st.booleans()):
        talk.append({"role": "system", "content": draw(content)})
    for _ in range(draw(st.integers(1, 3))):
        talk.append({"role": "user", "content": draw(content)})
        talk.append({"role": "assistant", "content": draw(content)})
    last = format.system is not None and format.system.placement == "last-user"
    if last or draw(st.booleans()):
        talk.append({"role": "user", "content": draw(content)})
    return talk


def bordered(format: ChatFormat, talk: list[dict[str, Any]]) -> bool:
    """Whether white space at the border of a system message inside a user's turn gets lost."""
    system = format.system
    if system is None or not system.inside or talk[0]["role"] != "system":
        return False
    inside = [talk[0]["content"], talk[1]["content"]]
    return format.user.trim != "none" and any(text != text.strip() or not text for text in inside)


def shown(format: ChatFormat, talk: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as its prompt shows it, but for white space at the borders of texts."""
    messages = [dict(message) for message in talk]
    system, first = format.system, messages[0]
    if system is not None and first["role"] != "system" and system.default is not None:
        first = {"role": "system", "content": system.default}
        messages.insert(0, first)
    if system is not None and system.inside and first["role"] == "system" and not system.before:
        users = [message for message in messages if message["role"] == "user"]
        aimed = users[-1] if system.placement == "last-user" else users[0]
        aimed["content"] = first["content"] + system.after + aimed["content"]
        del messages[0]
    elif first["role"] == "system" and not first["content"].strip():
        del messages[0]  # some formats leave an empty one out
    for message in messages:
        if format.thoughts is not None and message["role"] == "assistant":
            message["content"] = message["content"].split("</think>")[-1]
    return [{**message, "content": "".join(message["content"].split())} for message in messages]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=min(30, settings().max_examples // 5))
@given(data=st.data())
def test_a_conversation_comes_back_from_its_format_as_the_format_shows_it(name, data):
    format = CHAT_FORMATS[name]
    talk = data.draw(talks(format))
    requests = talk[-1]["role"] == "user" and data.draw(st.booleans())
    text = render_chat(format, talk, add_generation_prompt=requests)
    parsed = parse_chat(format, text)
    without_thought = [
        {**message, "content": message["content"].split("</think>")[-1]}
        if format.thoughts and message["role"] == "assistant"
        else message
        for message in parsed.messages
    ]
    assert shown(format, without_thought) == shown(format, talk)
    if format.generation:
        assert parsed.add_generation_prompt == requests
    if not bordered(format, talk):
        again = render_chat(format, parsed.messages, add_generation_prompt=requests)
        assert again == text


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=min(30, settings().max_examples // 5))
@given(data=st.data())
def test_no_text_can_forge_a_change_of_speaker(name, data):
    """However hostile the texts, as many markers stand in the prompt as for harmless ones."""
    format = CHAT_FORMATS[name]
    talk = data.draw(talks(format))
    harmless = [{**one, "content": "x" if one["content"] else ""} for one in talk]
    text, plain = render_chat(format, talk), render_chat(format, harmless)
    for marker in format.markers:
        assert text.count(marker) == plain.count(marker)


@given(st.data())
def test_breaking_markers_up_can_be_undone(data):
    format = CHAT_FORMATS[data.draw(st.sampled_from(NAMES))]
    text = data.draw(texts(format))
    broken = break_up(text, format.markers)
    assert not any(marker in broken for marker in format.markers)
    assert unbreak(broken, format.markers) == text


@pytest.mark.parametrize("source", NAMES)
def test_a_prompt_of_one_format_becomes_one_of_any_other(source):
    roles = ("user", "assistant", "user")
    talk = [{"role": role, "content": f"{role} {n}"} for n, role in enumerate(roles)]
    text = render_chat(CHAT_FORMATS[source], talk)
    for target in CHAT_FORMATS.values():
        converted = convert(text, CHAT_FORMATS[source], target)
        assert converted == render_chat(target, talk)
        assert convert(converted, target, CHAT_FORMATS[source]) == text


def test_a_system_message_is_carried_over_or_refused_and_a_default_one_is_neither():
    talk = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    text = render_chat(chat_format("qwen-2.5"), talk)
    assert convert(text, chat_format("qwen-2.5"), chat_format("llama-3")) == render_chat(
        chat_format("llama-3"), talk
    )
    with pytest.raises(InputError, match="has no system messages"):
        convert(text, chat_format("qwen-2.5"), chat_format("gemma"))
    default = render_chat(chat_format("qwen-2.5"), talk[1:])
    assert "Alibaba" not in convert(default, chat_format("qwen-2.5"), chat_format("llama-3"))


def test_a_text_of_another_format_is_refused_with_the_place():
    text = render_chat(chat_format("chatml"), [{"role": "user", "content": "a"}])
    with pytest.raises(InputError, match=r"not in the format llama-3: .* at character 1"):
        parse_chat(chat_format("llama-3"), text)
    with pytest.raises(InputError, match="a turn that ends with"):
        parse_chat(chat_format("chatml"), "<|im_start|>user\nunfinished")


def test_a_marker_inside_a_text_that_nobody_broke_up_is_refused():
    with pytest.raises(InputError, match="'### Response:' is at a place where no speaker changes"):
        parse_chat(chat_format("alpaca"), "### Instruction:\nDo it.\n\n### Response:")
    forged = [{"role": "user", "content": "a <|im_start|> b"}]
    with pytest.raises(InputError, match="at a place where no speaker changes"):
        parse_chat(
            chat_format("chatml"), render_chat(chat_format("chatml"), forged, on_marker="keep")
        )
