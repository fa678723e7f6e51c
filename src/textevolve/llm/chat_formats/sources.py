"""Chat templates out of the files of models, with the tokens that they write.

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

from textevolve.errors import InputError, SettingsError
from textevolve.llm.chat_formats.jinja_template import DEFAULT, JinjaTemplate
from textevolve.llm.gguf_tokenizer import read_tokenizer

JINJA, CONFIG, PROCESSOR = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
_JINJA = (".jinja", ".jinja2", ".j2")
_LARGEST = 128 << 20


@dataclass(frozen=True, slots=True)
class ModelTemplate:
    """What a model's files say. `origin`: where the template stood. `adds_bos`: whether the model's
    tokenizer puts BOS before a prompt; None where the files do not say."""

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
        named = _named(_load(place).get("chat_template"), place)
        return _with_tokens(place.parent, str(place), named)
    if place.suffix in _JINJA:
        return _with_tokens(place.parent, str(place), {DEFAULT: _read(place)})
    raise InputError(
        f"{place}: no file that a chat template is read from: give a folder, a GGUF file,"
        f" {CONFIG}, {PROCESSOR} or a file that ends in .jinja"
    )


def _read_folder(folder: Path) -> ModelTemplate:
    """Files of their own come before the configuration, as in transformers."""
    named: dict[str, str] = {}
    if (folder / JINJA).is_file():
        named[DEFAULT] = _read(folder / JINJA)
    for more in sorted((folder / "chat_templates").glob("*.jinja")):
        named[more.stem] = _read(more)
    if named:
        return _with_tokens(folder, str(folder / JINJA), named)
    for name in (CONFIG, PROCESSOR):
        place = folder / name
        if place.is_file() and (written := _load(place).get("chat_template")) is not None:
            return _with_tokens(folder, str(place), _named(written, place))
    weights = sorted(folder.glob("*.gguf"))
    if len(weights) == 1:
        return _read_gguf(weights[0])
    raise InputError(
        f"{folder}: no chat template here, neither {JINJA} nor one in {CONFIG} or {PROCESSOR},"
        f" and {len(weights) or 'no'} GGUF files"
    )


def _read_gguf(place: Path) -> ModelTemplate:
    try:
        found = read_tokenizer(place)
    except SettingsError as error:
        raise InputError(str(error)) from error
    if not found.templates:
        raise InputError(f"{place}: this GGUF file has no chat template in its metadata")
    return ModelTemplate(
        str(place), found.templates, found.bos_token, found.eos_token, found.adds_bos
    )


def _with_tokens(folder: Path, origin: str, named: Mapping[str, str]) -> ModelTemplate:
    """What the files beside the template say of tokens; without such files nothing is known."""
    known: dict[str, Any] = {}
    for name in ("special_tokens_map.json", CONFIG):
        if (folder / name).is_file():
            known |= _load(folder / name)
    bos, eos = _token(known.get("bos_token")), _token(known.get("eos_token"))
    adds = known.get("add_bos_token")
    if (folder / "tokenizer.json").is_file():
        adds = bos is not None and _begins_with(_load(folder / "tokenizer.json"), bos)
    return ModelTemplate(origin, named, bos, eos, adds if isinstance(adds, bool) else None)


def _begins_with(tokenizer: Mapping[str, Any], token: str) -> bool:
    """Whether the post-processor of a `tokenizer.json` puts the token first."""
    written: Any = tokenizer.get("post_processor")
    match written:
        case {"processors": [*several]}:
            processors = several
        case _:
            processors = [written]
    for processor in processors:
        match processor:
            case {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": first}}, *_]}:
                return bool(first == token)
            case _:
                pass
    return False


def _named(written: object, place: Path) -> dict[str, str]:
    """A template, or a list of named ones."""
    if isinstance(written, str):
        return {DEFAULT: written}
    found: dict[str, str] = {}
    if isinstance(written, list):
        for each in cast(list[Any], written):
            match each:
                case {"name": str(name), "template": str(source)}:
                    found[name] = source
                case _:
                    raise InputError(f"{place}: chat_template holds one without name or template")
    if not found:
        raise InputError(f"{place}: there is no chat_template in it")
    return found


def _token(written: object) -> str | None:
    if isinstance(written, dict):
        written = cast(dict[str, object], written).get("content")
    return written if isinstance(written, str) else None


def _load(place: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(place))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{place}: not a JSON object")
    return cast(dict[str, Any], found)


def _read(place: Path) -> str:
    """The file as text, with its line ends as they are written."""
    try:
        if place.stat().st_size > _LARGEST:
            raise InputError(f"{place}: too large for a file about a tokenizer")
        return place.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not text in UTF-8 ({error.reason})") from error
