"""The format of a template is read off by probes, and compared with what else it renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chat_tables import infer_published
from parameter_sets import slow_but_first
from published import NAMES, published, rendering
from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import render_chat, to_jinja
from textevolve.llm.chat_formats.detection import infer_format

PAGE = (Path(__file__).parents[2] / "docs" / "chat-formats.md").read_text("utf-8")
UNKNOWN = {
    "glm-4": "differences",
    "qwq": "differences",
    "kimi-k2": "differences",
    "smollm-3": "differences",
    "qwen-3-trl-training": "differences",
    "gpt-oss": "refused",
    "llama-2-vigogne": "refused",
}
"""Published templates that no description here covers, and how that is shown."""
NEEDS_TOOLS = {"command-r-plus-tool-use", "hermes-2-pro-tool-use"}
"""They fail where there is no list of tools, be it an empty one."""
WITHOUT_SYSTEM = {"deepseek-coder", "gemma", "gemma-2", "mistral-v0"}
WITHOUT_SYSTEM |= {"phi-3-mini", "phi-3-medium"}


def say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("name", slow_but_first(NAMES, 6))
def test_a_published_template_is_described_or_its_differences_are_shown(name):
    inference = infer_published(name)
    if isinstance(inference, InputError):
        assert UNKNOWN.get(name) == "refused"
        return
    assert inference.faithful == (name not in UNKNOWN)
    if name in UNKNOWN:
        shown = next(one for one in inference.differences if one.got is not None)
        talk, keep = shown.conversation, {"on_marker": "keep"}
        text = render_chat(
            inference.format, talk.messages, add_generation_prompt=talk.prompt, **keep
        )
        assert shown.expected != shown.got == text
        return
    assert inference.conversations - len(inference.differences) >= 12
    assert (inference.format.system is None) == (name in WITHOUT_SYSTEM)
    assert inference.format.stop
    render = published(name)
    talk = [say("user", " Hi\n"), say("assistant", "Ha"), say("user", "é")]
    expected = render(talk, [] if name in NEEDS_TOOLS else None, True)
    assert render_chat(inference.format, talk) == expected


def test_as_many_templates_are_described_as_the_page_says():
    assert f"{len(NAMES) - len(UNKNOWN)} are described faithfully" in PAGE
    assert all(name in PAGE for name in UNKNOWN)


@pytest.mark.parametrize("name", sorted(CHAT_FORMATS))
def test_a_format_of_the_catalogue_is_found_again_from_its_own_rendering(name):
    format = chat_format(name)

    def render(messages: Any, **given: Any) -> str:
        return render_chat(format, messages, on_marker="keep", **given)

    found = infer_format(render, bos=format.bos, eos=format.eos)
    assert found.faithful
    # Where a format ends with an empty prompt, the markers could be cut in several ways.
    if format.separator == "":
        assert (found.format.user, found.format.assistant) == (format.user, format.assistant)
    if format.system is None or not format.system.preamble:
        assert not found.differences


def test_a_template_that_renders_nothing_is_refused_with_its_own_words():
    with pytest.raises(InputError, match="not today"):
        infer_format(rendering("{{ raise_exception('not today') }}", {}))
    with pytest.raises(InputError, match="its text is not in what is rendered"):
        infer_format(rendering("hello", {}))
    with pytest.raises(InputError, match="no text"):
        infer_format(lambda messages, **_: 5)


def test_an_inferred_format_gives_a_template_that_renders_the_same():
    found = infer_format(published("granite-3.3"))
    template = rendering(to_jinja(found.format), {})
    talk = [say("system", "Be kind."), say("user", "Hi"), say("assistant", "Ha"), say("user", "é")]
    asked = {"add_generation_prompt": True}
    assert template(talk, **asked) == published("granite-3.3")(talk, **asked)
