"""Quantised files: llama.cpp's blocks, its rules for types, and nothing lost on the way."""

from types import SimpleNamespace

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, LlamaFileType, quants

from textevolve.errors import InputError, SettingsError
from textevolve.llm import quantize
from textevolve.llm.quantize import choose_types, quantize_file, quantize_rows

NAMES = (
    "token_embd.weight",
    "output_norm.weight",
    "blk.0.attn_norm.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_q.bias",
    "blk.0.attn_v.weight",
    "blk.0.ffn_down.weight",
)


def numbers(name, width=256, rows=6):
    draw = np.random.default_rng(len(name))
    shape = (width,) if "norm" in name or "bias" in name else (rows, width)
    return draw.normal(0, 0.1, shape).astype(np.float32)


@pytest.fixture
def make(tmp_path):
    """Writes a small file of a model with two layers' worth of names."""

    def write(name="model-f32.gguf", kind="F32", width=256, **keys):
        writer = gguf.GGUFWriter(tmp_path / name, "llama")
        writer.add_block_count(2)
        writer.add_string("general.name", "Größe")
        writer.add_array("tokenizer.ggml.tokens", ["a", "日本", "", "x" * 9000])
        writer.add_file_type(0)
        for key, value in keys.items():
            writer.add_uint32(key.replace("__", "."), value)
        for tensor in NAMES:
            data = numbers(tensor, width)
            if data.ndim == 2 and kind != "F32":
                chosen = GGMLQuantizationType[kind]
                writer.add_tensor(tensor, quants.quantize(data, chosen), raw_dtype=chosen)
            else:
                writer.add_tensor(tensor, data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / name

    return write


def read(path):
    """The tensors of a file as the gguf package reads them: type and values."""
    g_g_u_f_reader = gguf.GGUFReader(path)
    return {
        t.name: (t.tensor_type.name, quants.dequantize(t.data, t.tensor_type))
        for t in g_g_u_f_reader.tensors
    }


# The file


def test_metadata_is_copied_but_for_the_type(make):
    source = make()
    quantized = quantize_file(source, "q4_0", source.with_name("q4_0.gguf"))
    old, new = gguf.GGUFReader(source), gguf.GGUFReader(quantized.path)
    for name, field in old.fields.items():
        if name not in ("general.file_type", "GGUF.kv_count"):
            assert new.fields[name].contents() == field.contents(), name
    assert new.fields["general.file_type"].contents() == LlamaFileType.MOSTLY_Q4_0
    assert new.fields["general.quantization_version"].contents() == gguf.GGML_QUANT_VERSION
    assert [t.name for t in new.tensors] == [t.name for t in old.tensors]


def test_large_tensors_are_made_in_parts_and_come_out_the_same(make, monkeypatch):
    source, seen = make(), []
    full_quantized = quantize_file(source, "q4_k_m", source.with_name("a.gguf"))
    monkeypatch.setattr(quantize, "VALUES_AT_ONCE", 256)
    parts = quantize_file(source, "q4_k_m", source.with_name("b.gguf"), report=seen.append)
    assert parts.sha256 == full_quantized.sha256
    assert seen[-1].done == seen[-1].total
    assert len(seen) > 5


# Refusals


def test_nothing_is_overwritten_without_force(make):
    source = make()
    into = source.with_name("q8_0.gguf")
    into.write_text("precious")
    with pytest.raises(InputError, match="exists already; --force"):
        quantize_file(source, "q8_0", into)
    assert into.read_text() == "precious"
    quantize_file(source, "q8_0", into, force=True)
    assert read(into)
    with pytest.raises(InputError, match="the source itself"):
        quantize_file(source, "q8_0", source, force=True)


@pytest.mark.parametrize("end", [40, -3])
def test_a_file_that_is_cut_is_refused(make, end):
    source = make()
    source.write_bytes(source.read_bytes()[:end])
    with pytest.raises(SettingsError, match="fetch it again"):
        quantize_file(source, "q8_0", source.with_name("out.gguf"))
    assert not source.with_name("out.gguf").exists()


def test_what_is_interrupted_leaves_nothing(make, tmp_path):
    source = make()

    def interrupt(progress):
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_file(source, "q8_0", source.with_name("out.gguf"), report=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


# llama.cpp's own code


@pytest.mark.parametrize("to", ["Q8_0", "Q4_0"])
def test_llama_cpp_writes_the_bytes_of_the_reference(to):
    rows = np.random.default_rng(7).standard_t(2, (64, 512)).astype(np.float32)
    rows[3] = 0
    kind = GGMLQuantizationType[to]
    with np.errstate(all="ignore"):
        expected = quants.quantize(rows, kind)
    np.testing.assert_array_equal(quantize_rows(rows, kind), expected)


# Which type each tensor has


def layout_of(names, width=1536, layers=28, **keys):
    shapes = ((width,) if "norm" in name else (width, 64) for name in names)
    tensors = [SimpleNamespace(name=n, shape=shape) for n, shape in zip(names, shapes, strict=True)]
    fields = {"general.architecture": "qwen2"}
    message = {
        "block_count": layers,
        "attention.head_count": 12,
        "attention.head_count_kv": 2,
        **keys,
    }
    fields |= {f"qwen2.{key}": value for key, value in message.items()}
    return fields.get, tensors


def names_of(layout, to):
    return {name: kind and kind.lower() for name, kind in choose_types(*layout, to).items()}


def test_the_output_has_more_bits_and_so_have_embeddings_that_are_the_output():
    untied = names_of(layout_of(["token_embd.weight", "output.weight"]), "q4_0")
    assert untied == {"token_embd.weight": "q4_0", "output.weight": "q6_k"}
    assert names_of(layout_of(["token_embd.weight"]), "q4_0") == {"token_embd.weight": "q6_k"}
    assert names_of(layout_of(["token_embd.weight"]), "q8_0") == {"token_embd.weight": "q8_0"}
    assert names_of(layout_of(["output.weight"], width=576), "q4_0") == {"output.weight": "q8_0"}


def test_q4_k_m_gives_half_of_the_layers_more_bits_as_a_published_file_has_them():
    """Qwen2.5-Coder-1.5B-Instruct in Q4_K_M, as Qwen published it: 14 of 28 layers."""
    names = [
        f"blk.{n}.{part}.weight" for n in range(28) for part in ("attn_v", "ffn_down", "attn_q")
    ]
    found_names = names_of(layout_of([*names, "output.weight"]), "q4_k_m")
    for part, more in (("attn_v", 14), ("ffn_down", 14), ("attn_q", 0)):
        kinds = [found_names[f"blk.{n}.{part}.weight"] for n in range(28)]
        assert (kinds.count("q6_k"), kinds.count("q4_k")) == (more, 28 - more)
    assert [n for n in range(28) if found_names[f"blk.{n}.attn_v.weight"] == "q6_k"][:5] == [
        0,
        1,
        2,
        5,
        8,
    ]


# Names and layout
