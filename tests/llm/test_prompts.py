"""Prompt templates: their versions, and the tokens of what they make."""

from textevolve.llm.model import Message, Request
from textevolve.llm.prompts import find_cut, load_template, prompt_tokens, prompt_versions


def test_versions_compile_no_prompt():
    """A run names the versions of all prompts of a room, most of which it never sends."""
    load_template.cache_clear()
    versions = prompt_versions("debate")
    assert len(versions) > 15
    assert load_template.cache_info().currsize == 0


def test_a_version_is_the_hash_of_the_source(tmp_path):
    versions = prompt_versions("debate", "spoken")
    assert list(versions) == ["debate.spoken"]
    assert len(versions["debate.spoken"]) == 12


def test_bytes_are_counted_in_every_script():
    """By hand: 8 ASCII letters are 8 bytes, 2 Chinese signs 6, half a surrogate pair 3."""
    request = Request(messages=(Message("user", ("letters!", "\u6c49\u5b57", "\ud800")),))
    assert prompt_tokens(request) == 5
    assert find_cut(request, 100) == 0
