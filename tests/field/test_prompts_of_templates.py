"""Situations of people who log prompts of models whose template nobody described here: the prompts
become conversations again, by the template alone.

The conversation that was rendered is the right value.
"""

import json

import pytest

from published import published_jinja
from textevolve.errors import InputError
from textevolve.llm.chat_formats.inference import parse_prompt
from textevolve.llm.chat_formats.sources import JinjaTemplate

XML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WORDS = (
    "{% if messages[0].role == 'system' %}Rules: {{ messages[0].content }}{% endif %}"
    "{% for m in messages if m.role != 'system' %}\n\n"
    "{{ 'Q: ' if m.role == 'user' else 'A: ' }}{{ m.content | trim }}{% endfor %}"
    "{% if add_generation_prompt %}\n\nA:{% endif %}"
)
DEFAULT = "{% if messages[0].role != 'system' %}<system>Be kind.</system>{% endif %}" + XML
USER = {"role": "user", "content": "What is\n\na tide? [x] {y}"}
ANSWER = {"role": "assistant", "content": "The sea\nthat rises."}
SYSTEM = {"role": "system", "content": "Be brief.\n\nAlways."}
FAMILIES = [
    *("alpaca", "chatml", "command-r", "deepseek-v2", "deepseek-v3", "exaone", "gemma", "glm-4"),
    *("gpt-oss", "granite-3.3", "kimi-k2", "lfm-2", "llama-2", "llama-3.1", "mistral-v7"),
    *("openchat-3.5", "orca-vicuna", "phi-3.5", "phi-4", "qwen-3", "smollm-3", "zephyr"),
]
NO_SYSTEM = {"gemma"}


def check_way_back(template, messages, asks):
    prompt = template.render(messages, add_generation_prompt=asks)
    parsed = parse_prompt(template, prompt)
    assert (list(parsed.messages), parsed.add_generation_prompt) == (messages, asks)
    without_bos = prompt.removeprefix(template.bos_token or "")
    assert parse_prompt(template, without_bos) == parsed


@pytest.mark.parametrize("name", FAMILIES)
def test_published_templates_parse(name):
    head = [] if name in NO_SYSTEM else [SYSTEM]
    check_way_back(published_jinja(name), [*head, USER, ANSWER, USER], True)
    check_way_back(published_jinja(name), [*head, USER, ANSWER], False)
    check_way_back(published_jinja(name), [USER], True)


@pytest.mark.parametrize("source", [XML, WORDS, DEFAULT])
def test_new_templates_parse(source):
    template = JinjaTemplate(source)
    check_way_back(template, [SYSTEM, USER, ANSWER, USER], True)
    check_way_back(template, [USER], True)
    check_way_back(template, [USER, ANSWER], False)


def test_reasoning_is_parsed():
    answer = {**ANSWER, "reasoning_content": "The moon pulls."}
    check_way_back(published_jinja("qwen-3"), [USER, answer], False)


def test_other_prompts_are_refused():
    template = published_jinja("qwen-3")
    prompt = template.render([USER, ANSWER, USER], add_generation_prompt=True)
    with pytest.raises(InputError, match="not written by this chat template"):
        parse_prompt(JinjaTemplate(XML), prompt)
    with pytest.raises(InputError, match="no speaker changes"):
        parse_prompt(template, prompt.replace("The sea", "<tool_call>"))
    with pytest.raises(InputError, match="cannot be told apart"):
        parse_prompt(JinjaTemplate("{{ messages[0].content }}"), "Hi")
    with pytest.raises(InputError, match="not today"):
        parse_prompt(JinjaTemplate("{{ raise_exception('not today') }}"), "Hi")


def test_command_takes_model_files(cli, home):
    (home / "new.jinja").write_text(DEFAULT)
    (home / "prompt.txt").write_text("<system>Be kind.</system><user>Hi</user><assistant>")
    command = ("models", "templates", "convert", "prompt.txt")
    result = cli(*command, "--from", "new.jinja")
    assert json.loads(result.out) == {"messages": [{"role": "user", "content": "Hi"}]}
    written = cli(*command, "--from", "new.jinja", "--to", "zephyr")
    assert written.out == "<|user|>\nHi</s>\n<|assistant|>\n"
    assert "the model's file, with --from" in cli(*command).err
