"""The format of a template is found out by probes, and proved by what else it renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chat_tables import infer_published, inference_row
from parameter_sets import slow_but_first
from published import NAMES, published, rendering
from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import render_chat
from textevolve.llm.chat_formats.inference import infer_format
from textevolve.llm.chat_formats.jinja_source import to_jinja
from textevolve.llm.chat_formats.parsing import parse_chat

PAGE = (Path(__file__).parents[2] / "docs" / "chat-formats.md").read_text("utf-8")
UNKNOWN = {
    "glm-4": "differences",
    "qwq": "differences",
    "smollm-3": "differences",
    "qwen-3-trl-training": "differences",
    "gpt-oss": "refused",
    "llama-2-vigogne": "refused",
}
"""Published templates that no description here covers, and how that is told."""
WITHOUT_SYSTEM = {"deepseek-coder", "gemma", "gemma-2", "mistral-v0"}
WITHOUT_SYSTEM |= {"phi-3-mini", "phi-3-medium"}


def say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("name", slow_but_first(NAMES, 6))
def test_the_format_of_a_published_template_is_proved_or_its_differences_are_shown(name):
    found = infer_published(name)
    assert f"{inference_row(name, found)}\n" in PAGE, "see tests/chat_tables.py"
    if isinstance(found, InputError):
        assert UNKNOWN.get(name) == "refused"
        return
    assert found.proved == (name not in UNKNOWN)
    assert found.proved == (not found.differences)
    assert found.accepted + len(found.refused) <= found.conversations
    if name in UNKNOWN:
        shown = found.differences[0]
        asked = {"add_generation_prompt": shown.add_generation_prompt}
        assert shown.expected != shown.got
        assert render_chat(found.format, shown.messages, on_marker="keep", **asked) == shown.got
        return
    assert found.accepted >= 30  # a proof on nothing would be none
    assert (found.format.system is None) == (name in WITHOUT_SYSTEM)
    assert found.format.stop
    render = published(name)
    talk = [say("user", " Hi\n"), say("assistant", "Ha"), say("user", "é")]
    without = [] if any("list of tools" in note for note in found.notes) else None
    assert render_chat(found.format, talk) == render(talk, without, True)


@pytest.mark.parametrize("name", sorted(CHAT_FORMATS))
def test_a_format_of_the_catalogue_is_found_again_from_its_own_rendering(name):
    format = chat_format(name)

    def render(messages: Any, **given: Any) -> str:
        return render_chat(format, messages, on_marker="keep", **given)

    found = infer_format(render, bos=format.bos, eos=format.eos)
    assert found.proved
    assert not found.refused
    # Where a format ends with an empty prompt, the markers could be cut in several ways.
    if format.separator == "":
        assert (found.format.user, found.format.assistant) == (format.user, format.assistant)
    assert found.format.tools == format.tools or format.tools is None


def test_what_is_odd_about_a_template_is_told():
    dropping = infer_format(published("phi-3-mini"))
    assert "The template drops the system message in silence." in dropping.notes
    assert "The template drops calls of tools in silence." in dropping.notes
    assert dropping.format.system is None


def test_a_template_that_renders_nothing_is_refused_with_its_own_words():
    with pytest.raises(InputError, match="not today"):
        infer_format(rendering("{{ raise_exception('not today') }}", {}))
    with pytest.raises(InputError, match="its text is not in what is rendered"):
        infer_format(rendering("hello", {}))
    with pytest.raises(InputError, match="no text"):
        infer_format(lambda messages, **_: 5)


def test_a_template_that_tells_no_speakers_apart_is_told():
    joined = infer_format(rendering("{% for m in messages %}{{ m.content }}{% endfor %}", {}))
    assert "Nothing in the text tells who speaks." in joined.notes


def test_an_inferred_format_gives_a_template_that_renders_the_same():
    found = infer_format(published("granite-3.3"))
    template = rendering(to_jinja(found.format), {})
    talk = [say("system", "Be kind."), say("user", "Hi"), say("assistant", "Ha"), say("user", "é")]
    asked = {"add_generation_prompt": True}
    assert template(talk, **asked) == published("granite-3.3")(talk, **asked)


def test_the_page_says_how_many_templates_are_proved():
    assert f"the description is proved for {PAGE.count('| proved |')};" in PAGE
    assert PAGE.count("| proved |") == len(NAMES) - len(UNKNOWN)


def test_what_stands_in_the_place_of_a_missing_system_message_is_found_and_read_back():
    found = infer_format(published("kimi-k2"))
    assert found.format.system.absent.startswith("<|im_system|>system<|im_middle|>You are Kimi")
    for talk in ([say("user", "Hi")], [say("system", "Be kind."), say("user", "Hi")]):
        text = render_chat(found.format, talk)
        assert text == published("kimi-k2")(talk, None, True)
        assert list(parse_chat(found.format, text).messages) == talk
        assert rendering(to_jinja(found.format), {})(talk, None, True) == text
