"""`textevolve models quantize`: what is made, said and refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest


@pytest.fixture
def weights(home: Path) -> Path:
    """A file of f16 in a folder of its own."""
    folder = home / "mine"
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "tiny-f16.gguf", "llama")
    rows = np.linspace(-1, 1, 1024, dtype=np.float16).reshape(4, 256)
    writer.add_tensor("blk.0.attn_q.weight", rows)
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "tiny-f16.gguf"


def test_several_types_at_once(cli, weights):
    done = cli("models", "quantize", str(weights), "--to", "q8_0,q4_0", "--to", "bf16")
    assert done.code == 0
    assert done.out.count("SHA-256 ") == 3
    assert f"used as local/{weights.with_name('tiny-q4_0.gguf')}" in done.out
    assert sorted(path.name for path in weights.parent.iterdir()) == [
        *("tiny-bf16.gguf", "tiny-f16.gguf", "tiny-q4_0.gguf", "tiny-q8_0.gguf")
    ]
    other = cli("models", "quantize", str(weights), "--to", "q9")
    assert "error: type q9: no such type; there are: f16" in other.err
