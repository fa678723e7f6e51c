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
from textevolve.llm.gguf import read_header
from textevolve.llm.quantize import quantize_file


def write(path, architecture="llama", part=None, quantized=False):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    if part is not None:
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", 3)
    data = np.ones((4, 256), np.float32)
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
    [({"part": 1}, "name the first one"), ({"architecture": "clip"}, "projector")],
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
