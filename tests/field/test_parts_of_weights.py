"""Somebody names a file of weights that is no model by itself: the second part of a split one, a
projector of images, a file that broke off; or quantises a file a second time.

The header of each file, as the package gguf writes it, says what it is.
"""

import logging

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from textevolve.errors import SettingsError
from textevolve.llm.chat_formats.sources import read_chat_template
from textevolve.llm.gguf import read_header
from textevolve.llm.quantize import quantize_file

CHAT = [{"role": "user", "content": "Hi"}]


def write(path, architecture="llama", part=None, quantized=False, width=256, **texts):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    if part is not None:
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", 3)
    for key, text in texts.items():
        writer.add_string(key.replace("__", "."), text)
    data = np.ones((4, width), np.float32)
    if quantized:
        kind = GGMLQuantizationType.Q4_0
        writer.add_tensor("blk.0.attn_q.weight", quants.quantize(data, kind), raw_dtype=kind)
    else:
        writer.add_tensor("blk.0.attn_q.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"part": 1}, "name the first one"),
        ({"architecture": "clip"}, "projector"),
        ({"general__type": "adapter"}, "is adapter"),
        ({"general__type": "imatrix"}, "is imatrix"),
    ],
)
def test_files_that_are_no_model_are_refused(tmp_path, fields, reason):
    path = write(tmp_path / "other.gguf", **fields)
    with pytest.raises(SettingsError, match=reason):
        read_header(path)
    with pytest.raises(SettingsError, match=reason):
        quantize_file(path, "q8_0", tmp_path / "new.gguf")
    assert not (tmp_path / "new.gguf").exists()


def test_first_parts_are_loaded_and_not_quantised(tmp_path):
    path = write(tmp_path / "first.gguf", part=0)
    read_header(path)
    with pytest.raises(SettingsError, match="gguf-split"):
        quantize_file(path, "q8_0", tmp_path / "new.gguf")


@pytest.mark.parametrize("quantized", [True, False])
def test_second_losses_are_told(tmp_path, caplog, quantized):
    path = write(tmp_path / "model.gguf", quantized=quantized)
    with caplog.at_level(logging.WARNING, "textevolve"):
        quantize_file(path, "q8_0", tmp_path / "new.gguf")
    assert ("quantized already" in caplog.text) == quantized


@pytest.mark.parametrize(("width", "told"), [(256, False), (896, True)])
def test_rows_that_a_type_cannot_hold_are_told(tmp_path, caplog, width, told):
    path = write(tmp_path / "model.gguf", width=width)
    with caplog.at_level(logging.WARNING, "textevolve"):
        quantize_file(path, "q4_k_m", tmp_path / "new.gguf")
    kinds = [tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "new.gguf").tensors]
    assert kinds == ["Q5_0" if told else "Q4_K"]
    assert ("1 of 1 tensors have rows that q4_k_m cannot hold" in caplog.text) == told


def test_named_templates_need_no_list_of_names(tmp_path):
    texts = {"tokenizer__chat_template": "D", "tokenizer__chat_template__tool_use": "T"}
    path = write(tmp_path / "model.gguf", **texts)
    template = read_chat_template(path)
    assert template.render(CHAT) == "D"
    assert template.render(CHAT, tools=[]) == "T"
