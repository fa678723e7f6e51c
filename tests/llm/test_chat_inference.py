"""The format of a template is read off by probes."""

from __future__ import annotations

from typing import Any

import pytest

from published import NAMES, TOKENS, published, rendering
from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import render_chat
from textevolve.llm.chat_formats.detection import infer_format

NOT_READ = {
    *("kimi-k2", "deepseek-coder", "gpt-oss", "llama-2-vigogne"),
    *("command-r-plus-tool-use", "hermes-2-pro-tool-use"),
}
"""Templates with texts of their own, with markers that follow no rule, or for tools."""


def say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_a_published_template_is_described():
    talk = [say("user", " Hi\n"), say("assistant", "Ha"), say("user", "é")]
    for name in sorted(set(NAMES) - NOT_READ):
        render, tokens = published(name), TOKENS[name]
        found = infer_format(render, bos=tokens["bos_token"], eos=tokens["eos_token"])
        assert found.stop
        assert render_chat(found, talk) == render(talk, None, True), name


@pytest.mark.parametrize("name", sorted(CHAT_FORMATS.keys() - {"qwen-3", "llama-2"}))
def test_a_format_of_the_catalogue_is_found_again_from_its_own_rendering(name):
    format = chat_format(name)

    def render(messages: Any, tools: Any = None, add_generation_prompt: bool = False) -> str:
        asks = {"add_generation_prompt": add_generation_prompt}
        return render_chat(format, messages, on_marker="keep", **asks)

    found = infer_format(render, bos=format.bos, eos=format.eos)
    # Where a format ends with an empty prompt, the markers could be cut in several ways.
    if format.separator == "":
        assert (found.user, found.assistant) == (format.user, format.assistant)


def test_a_template_that_renders_nothing_is_refused_with_its_own_words():
    with pytest.raises(InputError, match="not today"):
        infer_format(rendering("{{ raise_exception('not today') }}", {}))
    with pytest.raises(InputError, match="not rendered once each"):
        infer_format(rendering("hello", {}))
    with pytest.raises(InputError, match="no text"):
        infer_format(lambda messages, **_: 5)
