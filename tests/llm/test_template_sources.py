"""Templates and their tokens are found wherever models keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from textevolve.errors import InputError
from textevolve.llm.chat_formats.sources import read_chat_template


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        place = folder / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        place.write_bytes(text.encode())
    return folder


def write_gguf(place: Path, template: str = "") -> Path:
    writer = gguf.GGUFWriter(place, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["<unk>", "<s>", "</s>"])
    writer.add_uint32("tokenizer.ggml.bos_token_id", 1)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    if template:
        writer.add_string("tokenizer.chat_template", template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return place


def test_a_file_of_its_own_comes_before_the_configuration(tmp_path: Path) -> None:
    config = {"chat_template": "old", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    folder = write(tmp_path, tokenizer_config_DOT_json=config)
    assert read_chat_template(folder).source == "old"
    write(folder, chat_template_DOT_jinja="new\r\n")
    jinja_template = read_chat_template(folder)
    assert (jinja_template.source, jinja_template.bos_token, jinja_template.eos_token) == (
        "new\r\n",
        "<s>",
        "</s>",
    )
    assert read_chat_template(folder / "tokenizer_config.json").source == "old"


def test_the_default_of_named_templates(tmp_path: Path) -> None:
    records = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    folder = write(tmp_path, tokenizer_config_DOT_json={"chat_template": records})
    assert read_chat_template(folder).render([{"role": "user"}]) == "d"


def test_gguf_metadata(tmp_path: Path) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}" + "{# long #}" * 1000
    jinja_template = read_chat_template(write_gguf(tmp_path / "m.gguf", source))
    assert jinja_template.render([{"role": "user", "content": "x"}]) == "<s>x</s>"
    assert read_chat_template(tmp_path).source == jinja_template.source


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    def told(place: Path) -> str:
        with pytest.raises(InputError) as exception_info:
            read_chat_template(place)
        return str(exception_info.value)

    assert "no such file or folder" in told(tmp_path / "none")
    write(
        tmp_path, tokenizer_config_DOT_json="{", x_DOT_json="[1]", y_DOT_json={"chat_template": 1}
    )
    assert "not JSON" in told(tmp_path / "tokenizer_config.json")
    assert "not a JSON object" in told(tmp_path / "x.json")
    assert "has no field chat_template" in told(tmp_path / "y.json")
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "z.jinja").write_bytes(b"\xff")
    assert "not text in UTF-8" in told(tmp_path / "z.jinja")
    (tmp_path / "z.txt").write_text("x")
    assert "a chat template cannot be read from this file" in told(tmp_path / "z.txt")
    (tmp_path / "z.gguf").write_bytes(b"GGUF")
    assert "not usable as weights" in told(tmp_path / "z.gguf")
    assert "no chat template in its metadata" in told(write_gguf(tmp_path / "z.gguf"))
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    assert "not JSON" in told(tmp_path / "deep.json")
