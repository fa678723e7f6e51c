"""A conversation's text is that of transformers' `apply_chat_template`, byte for byte."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.llm.chat_formats.sources import JinjaTemplate

FOLDER = Path(__file__).parent / "chat_templates"
TOKENS: dict[str, dict[str, str]] = json.loads((FOLDER / "tokens.json").read_text("utf-8"))
NAMES = sorted(TOKENS)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of "a place" <now> & später',
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Where: 東京"}},
            "required": ["place"],
        },
    },
}


def read(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_bytes().decode()


@cache
def tokenizer_class() -> Any:
    """Of transformers, whose import takes a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.tokenization_utils_base import PreTrainedTokenizerBase
    return PreTrainedTokenizerBase


def theirs(source: Any, tokens: dict[str, Any], messages: Any, **options: Any) -> str | None:
    """What transformers renders; None where it refuses."""
    tokenizer = tokenizer_class()(chat_template=source, **tokens)
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception:  # noqa: BLE001  a template may raise anything
        return None
    assert isinstance(text, str)
    return text


def ours(source: Any, tokens: dict[str, Any], messages: Any, **options: Any) -> str | None:
    try:
        return JinjaTemplate(source, **tokens).render(messages, **options)
    except InputError:
        return None


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            " ",
            "  padded \n",
            "<|im_end|>",
            "{{ 7 * 7 }}",
            "{% raw %}",
            "[/INST]",
            "\ud800",
            "</s>",
        ]
    ),
)
"""What people and models write, with markers and template text among it."""
CALLS = st.lists(
    st.builds(
        lambda name, place: {
            "id": "abcdefghi",
            "type": "function",
            "function": {"name": name, "arguments": {"place": place}},
        },
        st.sampled_from(["get_weather", "other"]),
        TEXTS,
    ),
    min_size=1,
    max_size=2,
)
MESSAGES = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXTS),
    st.builds(lambda text: {"role": "system", "content": text}, TEXTS),
    st.builds(lambda text: {"role": "assistant", "content": text}, TEXTS),
    st.builds(
        lambda text, why: {"role": "assistant", "content": text, "reasoning_content": why},
        TEXTS,
        TEXTS,
    ),
    st.builds(lambda calls: {"role": "assistant", "content": None, "tool_calls": calls}, CALLS),
    st.builds(
        lambda text: {
            "role": "tool",
            "content": text,
            "tool_call_id": "abcdefghi",
            "name": "get_weather",
        },
        TEXTS,
    ),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Those that alternate, as templates expect, and any order besides."""
    if draw(st.booleans()):
        return draw(st.lists(MESSAGES, min_size=1, max_size=5))
    texts = draw(st.lists(TEXTS, min_size=1, max_size=5))
    turns = [
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(texts)
    ]
    system = draw(st.one_of(st.none(), TEXTS))
    return turns if system is None else [{"role": "system", "content": system}, *turns]


OPTIONS = st.fixed_dictionaries(
    {"add_generation_prompt": st.booleans(), "tools": st.sampled_from([None, [WEATHER]])}
)


@pytest.fixture(autouse=True)
def real_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers knows no other date."""
    monkeypatch.delenv("TEXTEVOLVE_TODAY", raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_published_templates_render_as_in_transformers(name: str) -> None:
    source, tokens = read(name), TOKENS[name]

    @settings(max_examples=6)
    @given(conversations(), OPTIONS)
    def check(messages: list[dict[str, Any]], options: dict[str, Any]) -> None:
        assert ours(source, tokens, messages, **options) == theirs(
            source, tokens, messages, **options
        )

    check()
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there"}]
    tools = [WEATHER] if name.endswith("tool-use") else None
    assert ours(source, tokens, turns, tools=tools), "the comparison is not of refusals alone"


LANGUAGE = [
    "{{ tools | tojson }}|{{ tools | tojson(indent=2) }}|{{ 'ä<&>' | tojson }}",
    "{{ {'b': 1, 'a': [1.5, none, true]} | tojson(sort_keys=True, separators=(',', ':')) }}",
    "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}!",
    "  {% if true %}\n  x\n  {% endif %}\n  y\n",
    "{{ strftime_now('%Y-%m-%d') }}{{ strftime_now is defined }}",
    "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token is defined }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = 2 %}{{ ns.a }}{{ ns.b }}",
    "{{ dict(a=1)['a'] }}{{ dict.fromkeys('ab', 1) | tojson }}",
    "{% set ns = namespace(_a=1) %}",
    "{{ dict.__class__ }}",
    "{{ documents[0].title }}{{ documents | length }}",
    "{{ messages[0].thinking }}{{ messages[1].thinking }}{{ messages[1].reasoning_content }}",
    "{{ messages[1].content is defined }}{{ messages[9] }}{{ nothing }}",
    "{{ 'a' if add_generation_prompt else 'b' }}{{ extra }}{{ messages | length }}",
    "{{ raise_exception('no') }}",
    "{{ nothing.at.all }}",
    "{% include 'other' %}",
    "{{ messages.append(1) }}",
    "{{ '%s %05d' % ('a', 3) }}{{ '{0.x}'.format({'x': 1}) }}{{ 'a,b'.split(',') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}",
    "{{ messages | tojson }}{{ '\\n' in messages[0].content }}{{ messages[::-1][0].role }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller else '' }}{% endmacro %}"
    "{{ m(1) }}{% call m(3) %}c{% endcall %}",
    "{{ 1 / 3 }}{{ 7 // 2 }}{{ 2 ** 10 }}{{ 1e100 }}{{ 10 | string ~ 'x' }}{{ [1, 'a', none] }}",
    "{% set x %} in {% endset %}[{{ x | trim }}]{{ x.strip().upper() }}{{ 'ab' | e }}{{ '<' }}",
    "{% if x is not defined",
]


@pytest.mark.slow
@pytest.mark.parametrize("source", LANGUAGE)
def test_the_language_is_that_of_transformers(source: str) -> None:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    messages = [
        {"role": "user", "content": "Hello\n", "name": None},
        {"role": "assistant", "content": None, "thinking": "well"},
        {"role": "user", "content": "Bye"},
    ]
    options: dict[str, Any] = {
        "tools": [WEATHER],
        "documents": [{"title": "t", "text": "x"}],
        "extra": 3,
    }
    assert ours(source, tokens, messages, **options) == theirs(source, tokens, messages, **options)


def test_a_missing_token_is_not_an_empty_one() -> None:
    messages = [{"role": "user", "content": "x"}]
    source = "{{ bos_token is defined }}"
    assert ours(source, {"bos_token": None}, messages) == theirs(source, {}, messages) == "False"
    assert ours(source, {"bos_token": ""}, messages) == "True"


def test_the_date_that_is_named_is_the_date_of_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTEVOLVE_TODAY", "2025-03-09")
    template = JinjaTemplate("{{ strftime_now('%d %b %Y, %H:%M') }}")
    assert template.render([{"role": "user", "content": "x"}]) == "09 Mar 2025, 00:00"


@pytest.mark.parametrize(
    ("source", "messages", "said"),
    [
        ("x", [], "without a message"),
        ("x", [{"role": "user", "content": object()}], "made of JSON values"),
        ("{{ raise_exception('only\\nusers') }}", [{}], "refuses these messages: only users"),
        ("a\n{% if %}", [{}], "fails: line 2: TemplateSyntaxError"),
        ("a\n\n{{ x.y }}", [{}], "fails: UndefinedError: 'x' is undefined"),
        ("{{ messages[0].pop('role') }}", [{"role": "user"}], "SecurityError"),
    ],
)
def test_errors_say_what_is_wrong_and_where(source: str, messages: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        JinjaTemplate(source).render(messages)
