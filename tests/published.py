"""Published chat templates, rendered with the sandbox, filters and globals of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from textevolve.llm.chat_formats.sources import JinjaTemplate

FOLDER = Path(__file__).parent / "llm" / "chat_templates"
TOKENS: dict[str, dict[str, str]] = json.loads((FOLDER / "tokens.json").read_text("utf-8"))

# transformers 4.43, Apache-2.0: LlamaTokenizer.default_chat_template, without a default text.
LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}"
    "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'system' %}"
    "{{ '<<SYS>>\\n' + content.strip() + '\\n<</SYS>>\\n\\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)
# unsloth 2026.10.9, Apache-2.0: unsloth/chat_templates.py, `phi4_template`.
PHI_4 = (
    "{% for message in messages %}{% if (message['role'] == 'system') %}"
    "{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'user') %}"
    "{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% elif (message['role'] == 'assistant') %}"
    "{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
)
MORE = {"llama-2-transformers": (LLAMA_2, "llama-2"), "phi-4-unsloth": (PHI_4, "phi-4")}
NAMES = sorted(path.stem for path in FOLDER.glob("*.jinja"))


class _Generation(Extension):
    """The tag that templates for training have, which renders what it holds."""

    tags = {"generation"}  # noqa: RUF012  as jinja wants it

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _refuse(told: str) -> None:
    raise TemplateError(told)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


@cache
def environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    made.globals |= {"raise_exception": _refuse, "strftime_now": lambda _: "26 Jul 2024"}
    made.filters["tojson"] = _tojson
    return made


@cache
def published(name: str) -> Callable[..., str]:
    """Renders messages by a published template; raises TemplateError where it refuses them."""
    source, tokens = MORE.get(name) or ((FOLDER / f"{name}.jinja").read_text("utf-8"), name)
    return rendering(source, TOKENS[tokens])


def published_jinja(name: str) -> JinjaTemplate:
    """The same template for the product's own renderer."""
    source = (FOLDER / f"{name}.jinja").read_bytes().decode()
    return JinjaTemplate(source, TOKENS[name]["bos_token"], TOKENS[name]["eos_token"])


def rendering(source: str, values: dict[str, str]) -> Callable[..., str]:
    template = environment().from_string(source)

    def render(messages: Any, tools: Any = None, add_generation_prompt: bool = False) -> str:
        request = {"tools": tools, "add_generation_prompt": add_generation_prompt}
        return template.render(messages=messages, **request, **values)

    return render
