"""Chat templates out of the files of models, with the tokens that they write; and the format of
prompts for `/v1/completions`, which is named or read from such files.

A folder as transformers saves it (`chat_template.jinja`, `chat_templates/`,
`tokenizer_config.json`, `chat_template.json`), one of these files alone, or a GGUF file. Not here:
rendering them (`jinja_template`) and judging them (`checking`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from textevolve.errors import InputError, NotFoundError, SettingsError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import (
    CONTROL_TOKEN,
    ChatFormat,
    Messages,
    PromptFormat,
    break_up,
    render_chat,
)
from textevolve.llm.chat_formats.detection import infer_format
from textevolve.llm.chat_formats.jinja_template import DEFAULT, JinjaTemplate
from textevolve.llm.gguf import read_tokenizer

JINJA, CONFIG, PROCESSOR = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
_JINJA = (".jinja", ".jinja2", ".j2")


@dataclass(frozen=True, slots=True)
class ModelTemplate:
    """The chat template and the tokens of a model. `origin`: the file of the template.
    `adds_bos`: whether the tokenizer puts BOS before a prompt; None if the files do not say."""

    origin: str
    templates: Mapping[str, str]
    bos_token: str | None
    eos_token: str | None
    adds_bos: bool | None

    def open(self) -> JinjaTemplate:
        """The template, ready to render."""
        one = self.templates.get(DEFAULT) if len(self.templates) == 1 else None
        return JinjaTemplate(self.templates if one is None else one, self.bos_token, self.eos_token)


def is_model_file(path: Path | str) -> bool:
    """Whether a chat template is read from it, by its name alone."""
    place = Path(path).expanduser()
    return place.suffix in (".gguf", *_JINJA) or place.name in (CONFIG, PROCESSOR) or place.is_dir()


def read_chat_template(path: Path | str) -> ModelTemplate:
    """The chat template of a model: of its folder, of a GGUF file, or of one file of a folder.

    Raises:
        InputError: no such file, one that is damaged, or one without a chat template.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        return _read_folder(place)
    if not place.is_file():
        raise InputError(f"{place}: there is no such file or folder")
    if place.suffix == ".gguf":
        return _read_gguf(place)
    if place.suffix == ".json":
        sources = _by_name(_load(place).get("chat_template"), place)
        return _with_tokens(place.parent, str(place), sources)
    if place.suffix in _JINJA:
        return _with_tokens(place.parent, str(place), {DEFAULT: _read(place)})
    raise InputError(
        f"{place}: no file that a chat template is read from: give a folder, a GGUF file,"
        f" {CONFIG}, {PROCESSOR} or a file that ends in .jinja"
    )


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
    signs = (sign for source in found.templates.values() for sign in CONTROL_TOKEN.findall(source))
    markers = tuple(dict.fromkeys((*inferred.format.markers, *signs)))

    def render(messages: Messages) -> str:
        broken = [_broken(message, markers) for message in messages]
        text = template.render(broken, add_generation_prompt=True)
        return text.removeprefix(found.bos_token or "")

    return PromptFormat(named, render, stop, markers)


def _broken(message: Any, markers: tuple[str, ...]) -> dict[str, Any]:
    return {**message, "content": break_up(str(message.get("content") or ""), markers)}


def _read_folder(folder: Path) -> ModelTemplate:
    """Files of their own come before the configuration, as in transformers."""
    several = sorted((folder / "chat_templates").glob("*.jinja"))
    sources = {place.stem: _read(place) for place in several}
    if (folder / JINJA).is_file():
        sources = {DEFAULT: _read(folder / JINJA), **sources}
    if sources:
        return _with_tokens(folder, str(folder / JINJA), sources)
    for place in (folder / CONFIG, folder / PROCESSOR):
        if place.is_file() and (written := _load(place).get("chat_template")) is not None:
            return _with_tokens(folder, str(place), _by_name(written, place))
    weights = sorted(folder.glob("*.gguf"))
    if len(weights) == 1:
        return _read_gguf(weights[0])
    raise InputError(
        f"{folder}: no chat template here, neither {JINJA} nor one in {CONFIG} or {PROCESSOR},"
        f" and {len(weights) or 'no'} GGUF files"
    )


def _read_gguf(place: Path) -> ModelTemplate:
    try:
        read = read_tokenizer(place)
    except SettingsError as error:
        raise InputError(str(error)) from error
    if not read.templates:
        raise InputError(f"{place}: this GGUF file has no chat template in its metadata")
    return ModelTemplate(str(place), read.templates, read.bos_token, read.eos_token, read.adds_bos)


def _with_tokens(folder: Path, origin: str, sources: Mapping[str, str]) -> ModelTemplate:
    """Read the tokens from the files beside the template; without such files none are known."""
    known: dict[str, Any] = {}
    for name in ("special_tokens_map.json", CONFIG):
        if (folder / name).is_file():
            known |= _load(folder / name)
    tokens: list[str | None] = []
    for name in ("bos_token", "eos_token"):
        match known.get(name):
            case str(token) | {"content": str(token)}:
                tokens.append(token)
            case _:
                tokens.append(None)
    adds = known.get("add_bos_token")
    if (folder / "tokenizer.json").is_file():
        adds = tokens[0] is not None and _begins_with(_load(folder / "tokenizer.json"), tokens[0])
    adds = adds if isinstance(adds, bool) else None
    return ModelTemplate(origin, sources, tokens[0], tokens[1], adds)


def _begins_with(tokenizer: Mapping[str, Any], token: str) -> bool:
    """Whether the post-processor of a `tokenizer.json` puts the token first."""
    written: Any = tokenizer.get("post_processor") or {}
    for processor in written.get("processors", [written]):
        match processor:
            case {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": first}}, *_]}:
                return bool(first == token)
            case _:
                pass
    return False


def _by_name(written: object, place: Path) -> dict[str, str]:
    """A template, or a list of named ones."""
    if isinstance(written, str):
        return {DEFAULT: written}
    sources: dict[str, str] = {}
    for entry in cast("list[Any]", written) if isinstance(written, list) else []:
        match entry:
            case {"name": str(name), "template": str(source)}:
                sources[name] = source
            case _:
                raise InputError(f"{place}: chat_template holds one without name or template")
    if not sources:
        raise InputError(f"{place}: there is no chat_template in it")
    return sources


def _load(place: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read(place))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{place}: not a JSON object")
    return cast(dict[str, Any], data)


def _read(place: Path) -> str:
    """The file as text, with its line ends as they are written."""
    try:
        return place.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not text in UTF-8 ({error.reason})") from error
