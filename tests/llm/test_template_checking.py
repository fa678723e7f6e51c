"""What is wrong with a template is found by rendering it, here and at a server."""

from __future__ import annotations

import pytest

from published import published_jinja
from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import (
    CHAT_FORMATS,
    CONVERSATIONS,
    check_chat_template,
    detect_prompt,
)
from textevolve.llm.chat_formats.chat_format import render_chat

PUBLISHED = {
    "chatml": "chatml",
    "alpaca": "alpaca",
    "zephyr": "zephyr",
    "llama-3-trl-training": "llama-3",
    "llama-3.1": "llama-3.1",
    "mistral-v1": "mistral-v1",
    "mistral-v7": "mistral-v7",
    "gemma-2": "gemma",
    "gemma-3": "gemma-3",
    "phi-3.5": "phi-3",
    "phi-4": "phi-4",
    "qwen-2.5": "qwen-2.5",
    "qwen-3": "qwen-3",
    "deepseek-v2": "deepseek-v2",
    "deepseek-v3": "deepseek-v3",
    "command-r": "command-r",
    "granite-3.3": None,
    "exaone": None,
}


@pytest.mark.parametrize(("name", "format"), PUBLISHED.items())
def test_published_templates_are_recognised(name: str, format: str | None) -> None:
    assert check_chat_template(published_jinja(name)).format == format


@pytest.mark.parametrize("name", CHAT_FORMATS)
def test_a_prompt_is_recognised(name: str) -> None:
    format = CHAT_FORMATS[name]
    rendered = 0
    for messages, requests in CONVERSATIONS:
        try:
            text = render_chat(format, messages, add_generation_prompt=requests)
        except InputError:
            continue
        rendered += 1
        assert name in detect_prompt(text)
    assert rendered
    assert detect_prompt("Nothing but words.") == ()
