"""The format in which a conversation becomes the one text that `/v1/completions` continues.

By name from the catalogue of `chat_formats`, or by the Jinja template of a model's files. No text
of a message can hold a marker of the format, by which it could pass for another speaker: each is
broken up by an invisible character, and counted.
"""

from __future__ import annotations

import re
from typing import Any

from textevolve.errors import InputError, NotFoundError, SettingsError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import ChatFormat, render_chat
from textevolve.llm.chat_formats.conversation import break_up
from textevolve.llm.chat_formats.detection import infer_format
from textevolve.llm.chat_formats.sources import is_model_file, read_chat_template
from textevolve.llm.wire import Messages, PromptFormat

_SIGNS = re.compile(
    r"<\|[^|\s<>]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<</?\w{1,40}>>|</?[A-Za-z_]\w{0,40}>|\[/?[A-Z_]{2,40}\]"
)
"""What control tokens look like."""


def open_prompt_format(named: str) -> PromptFormat:
    """The format of a name, or of a model's files: a `.jinja` file, a folder with one or with
    `tokenizer_config.json`, a GGUF file.

    Raises:
        SettingsError: there is no such format or file, or the template cannot be used.
    """
    try:
        return _template_format(named) if is_model_file(named) else _known(chat_format(named))
    except (InputError, NotFoundError) as error:
        names = ", ".join(CHAT_FORMATS)
        told = f"chat_format: {error}; known are {names}, a .jinja file, and a model's files"
        raise SettingsError(told) from error


def _known(format: ChatFormat) -> PromptFormat:
    def render(messages: Messages) -> str:
        return render_chat(format, messages, add_generation_prompt=True).removeprefix(format.bos)

    return PromptFormat(format.name, render, format.stop, format.markers)


def _template_format(named: str) -> PromptFormat:
    """The template renders; its markers and where an answer ends are inferred, and control tokens
    that stand in its source are markers, too."""
    found = read_chat_template(named)
    template = found.open()
    inferred = infer_format(template.render, bos=found.bos_token or "", eos=found.eos_token or "")
    user = inferred.format.user.before.strip()
    stop = inferred.format.stop or ((user,) if user else ())
    signs = (sign for source in found.templates.values() for sign in _SIGNS.findall(source))
    markers = tuple(dict.fromkeys((*inferred.format.markers, *signs)))

    def render(messages: Messages) -> str:
        broken = [_broken(message, markers) for message in messages]
        text = template.render(broken, add_generation_prompt=True)
        return text.removeprefix(found.bos_token or "")

    return PromptFormat(named, render, stop, markers)


def _broken(message: Any, markers: tuple[str, ...]) -> dict[str, Any]:
    return {**message, "content": break_up(str(message.get("content") or ""), markers)}
