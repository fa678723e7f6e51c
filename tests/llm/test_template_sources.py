"""Templates and their tokens are found wherever models keep them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from textevolve.errors import InputError
from textevolve.llm.chat_formats.sources import read_chat_template

ADDING = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
}


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        place = folder / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        place.write_bytes(text.encode())
    return folder


def entry(key: str, value: Any) -> bytes:
    """One of a GGUF header's entries."""

    def text(said: str) -> bytes:
        return struct.pack("<Q", len(said.encode())) + said.encode()

    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


def write_gguf(place: Path, **values: Any) -> Path:
    entries = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.{name.replace('__', '.')}": value for name, value in values.items()},
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    place.write_bytes(head + b"".join(entry(key, value) for key, value in entries.items()))
    return place


def test_a_file_of_its_own_comes_before_the_configuration(tmp_path: Path) -> None:
    config = {"chat_template": "old", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    folder = write(tmp_path, tokenizer_config_DOT_json=config | {"add_bos_token": True})
    found = read_chat_template(folder)
    assert dict(found.templates) == {"default": "old"}
    assert (found.bos_token, found.eos_token, found.adds_bos) == ("<s>", "</s>", True)
    write(folder, chat_template_DOT_jinja="new\r\n", chat_templates__rag_DOT_jinja="rag")
    found = read_chat_template(folder)
    assert dict(found.templates) == {"default": "new\r\n", "rag": "rag"}
    assert found.open().render([{"role": "user"}], chat_template="rag") == "rag"
    assert dict(read_chat_template(folder / "tokenizer_config.json").templates) == {
        "default": "old"
    }


def test_named_templates_of_the_configuration(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    folder = write(tmp_path, tokenizer_config_DOT_json={"chat_template": named})
    template = read_chat_template(folder).open()
    assert template.render([{"role": "user"}]) == "d"
    assert template.render([{"role": "user"}], tools=[]) == "t"


def test_a_processors_template_and_a_lone_file(tmp_path: Path) -> None:
    folder = write(tmp_path, chat_template_DOT_json={"chat_template": "p{{ bos_token }}"})
    found = read_chat_template(folder)
    assert (found.bos_token, found.adds_bos) == (None, None)
    assert found.open().render([{"role": "user"}]) == "p"
    write(
        tmp_path, special_tokens_map_DOT_json={"bos_token": "<b>"}, my_DOT_jinja="{{ bos_token }}"
    )
    assert read_chat_template(tmp_path / "my.jinja").open().render([{"role": "user"}]) == "<b>"


@pytest.mark.parametrize(
    ("processor", "adds"),
    [
        (ADDING, True),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, ADDING]}, True),
        (None, False),
        ({"type": "TemplateProcessing", "single": "odd"}, False),
    ],
)
def test_the_tokenizer_itself_tells_whether_it_adds_bos(
    tmp_path: Path, processor: Any, adds: bool
) -> None:
    config = {"chat_template": "x", "bos_token": "<s>", "add_bos_token": not adds}
    tokenizer = {"post_processor": processor}
    folder = write(tmp_path, tokenizer_config_DOT_json=config, tokenizer_DOT_json=tokenizer)
    assert read_chat_template(folder).adds_bos is adds


@pytest.mark.parametrize(
    ("values", "adds"),
    [
        ({}, True),
        ({"ggml__model": "gpt2", "ggml__pre": "qwen2"}, False),
        ({"ggml__model": "gpt2", "ggml__pre": "llama-bpe"}, True),
    ],
)
def test_gguf_metadata(tmp_path: Path, values: dict[str, Any], adds: bool) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}" + "{# long #}" * 1000
    place = write_gguf(tmp_path / "m.gguf", chat_template=source, **values)
    found = read_chat_template(place)
    assert found.adds_bos is adds
    assert found.open().render([{"role": "user", "content": "x"}]) == "<s>x</s>"
    assert read_chat_template(tmp_path).templates == found.templates


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    def told(place: Path) -> str:
        with pytest.raises(InputError) as found:
            read_chat_template(place)
        return str(found.value)

    assert "no such file or folder" in told(tmp_path / "none")
    assert "no chat template here" in told(tmp_path)
    write(
        tmp_path, tokenizer_config_DOT_json="{", x_DOT_json="[1]", y_DOT_json={"chat_template": 1}
    )
    assert "not JSON" in told(tmp_path / "tokenizer_config.json")
    assert "not a JSON object" in told(tmp_path / "x.json")
    assert "there is no chat_template" in told(tmp_path / "y.json")
    (tmp_path / "z.jinja").write_bytes(b"\xff")
    assert "not text in UTF-8" in told(tmp_path / "z.jinja")
    (tmp_path / "z.txt").write_text("x")
    assert "no file that a chat template is read from" in told(tmp_path / "z.txt")
    (tmp_path / "z.gguf").write_bytes(b"GGUF")
    assert "not usable as weights" in told(tmp_path / "z.gguf")
    assert "no chat template in its metadata" in told(write_gguf(tmp_path / "z.gguf"))
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    assert "not JSON" in told(tmp_path / "deep.json")
