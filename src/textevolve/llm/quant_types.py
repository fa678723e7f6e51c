"""Which type each tensor of a quantised file has: the rules of llama.cpp's own `llama-quantize`.

They were taken from its `llama-quant.cpp` (llama_tensor_get_type), for the types offered here and
without an importance matrix. Here: names, sizes of blocks and choices. Not here: how a block is
computed (`quant_kernels`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from textevolve.errors import InputError
from textevolve.llm.gguf_layout import Layout, TensorInfo
from textevolve.spec import suggest


@dataclass(frozen=True, slots=True)
class BlockType:
    """A type of tensors: its number in ggml, and the `bytes` in which `values` of a row lie."""

    name: str
    number: int
    values: int
    bytes: int

    @property
    def is_float(self) -> bool:
        return self.values == 1

    def row_bytes(self, length: int) -> int:
        return length // self.values * self.bytes


_BLOCKS = (
    *(("f32", 0, 1, 4), ("f16", 1, 1, 2), ("bf16", 30, 1, 2)),
    *(("q4_0", 2, 32, 18), ("q4_1", 3, 32, 20), ("q5_0", 6, 32, 22), ("q5_1", 7, 32, 24)),
    *(("q8_0", 8, 32, 34), ("q2_k", 10, 256, 84), ("q3_k", 11, 256, 110)),
    *(("q4_k", 12, 256, 144), ("q5_k", 13, 256, 176), ("q6_k", 14, 256, 210)),
)
BLOCK_TYPES: Mapping[str, BlockType] = {one[0]: BlockType(*one) for one in _BLOCKS}


@dataclass(frozen=True, slots=True)
class FileType:
    """What a file can be quantised to: its number (`general.file_type`), and the type of most of
    its tensors."""

    name: str
    number: int
    main: BlockType


_FILES = (
    *(("f32", 0, "f32"), ("f16", 1, "f16"), ("bf16", 32, "bf16")),
    *(("q8_0", 7, "q8_0"), ("q5_1", 9, "q5_1"), ("q5_0", 8, "q5_0")),
    *(("q4_1", 3, "q4_1"), ("q4_0", 2, "q4_0"), ("q6_k", 18, "q6_k")),
    *(("q5_k_m", 17, "q5_k"), ("q5_k_s", 16, "q5_k"), ("q4_k_m", 15, "q4_k")),
    *(("q4_k_s", 14, "q4_k"), ("q3_k_l", 13, "q3_k"), ("q3_k_m", 12, "q3_k")),
    *(("q3_k_s", 11, "q3_k"), ("q2_k", 10, "q2_k")),
)
FILE_TYPES: Mapping[str, FileType] = {
    n: FileType(n, number, BLOCK_TYPES[m]) for n, number, m in _FILES
}

_FALLBACKS = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""For rows that 256 does not divide."""

_KEPT_PARTS = (
    *("_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel"),
    *("per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight"),
    *("indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight"),
    *("time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"),
    *("time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight"),
    *("time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight"),
    *("time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd"),
    *("sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook"),
    "mm.a.code_embd",
)
_KEPT_NAMES = ("position_embd.weight", "token_types.weight")

TensorRole = Literal["output", "embedding", "value", "key", "attention", "down", "other"]


def find_file_type(name: str) -> FileType:
    """
    Raises:
        InputError: there is no such type; says which there are.
    """
    found = FILE_TYPES.get(name.strip().lower())
    if found is None:
        raise InputError(f"type {name}: no such type{suggest(name.strip().lower(), [*FILE_TYPES])}")
    return found


def is_kept(tensor: TensorInfo) -> bool:
    """Whether a tensor stays as it is: norms, biases and whatever is small or has one dimension."""
    # Dimensions of 1 at the end are none, as ggml counts them.
    flat = all(length == 1 for length in tensor.shape[1:])
    name = tensor.name
    if flat or not name.endswith("weight") or name in _KEPT_NAMES:
        return True
    return any(part in name for part in _KEPT_PARTS)


def choose_types(layout: Layout, wanted: FileType) -> dict[str, BlockType | None]:
    """For each tensor by its name the type that it is to have; None where it stays as it is."""
    model = _Model.of(layout)
    ranks = _rank(layout.tensors)
    found: dict[str, BlockType | None] = {}
    for tensor in layout.tensors:
        if is_kept(tensor):
            found[tensor.name] = None
        elif wanted.main.is_float:
            found[tensor.name] = wanted.main
        else:
            chosen = _choose(tensor, wanted, model, ranks.get(tensor.name, (0, 1)))
            found[tensor.name] = _fit(BLOCK_TYPES[chosen], tensor)
    return found


@dataclass(frozen=True, slots=True)
class _Model:
    """What of a model the rules look at. `tied`: the embeddings of tokens are its output, too.
    `shared`: how many heads of attention share their keys and values."""

    architecture: str
    layers: int
    tied: bool
    shared: int
    experts: int

    @classmethod
    def of(cls, layout: Layout) -> _Model:
        name = layout.text("general.architecture")
        heads = layout.number(f"{name}.attention.head_count") or 1
        return cls(
            name,
            layout.number(f"{name}.block_count") or 1,
            all(tensor.name != "output.weight" for tensor in layout.tensors),
            heads // (layout.number(f"{name}.attention.head_count_kv") or heads),
            layout.number(f"{name}.expert_count") or 0,
        )

    @property
    def is_70b(self) -> bool:
        return self.layers == 80 and self.shared > 1 and self.architecture in ("llama", "qwen2")


def _role_of(name: str) -> TensorRole:
    exact: dict[str, TensorRole] = {
        "output.weight": "output",
        "token_embd.weight": "embedding",
        "per_layer_token_embd.weight": "embedding",
    }
    within: dict[str, TensorRole] = {
        "attn_qkv.weight": "value",
        "attn_kv_b.weight": "value",
        "attn_v.weight": "value",
        "attn_k.weight": "key",
        "attn_output.weight": "attention",
        "ffn_down": "down",
    }
    if name in exact:
        return exact[name]
    for part, role in within.items():
        if part in name:
            return role
    return "other"


def _rank(tensors: Sequence[TensorInfo]) -> dict[str, tuple[int, int]]:
    """Of tensors that come once a block: the how manieth it is, and of how many."""
    values = sorted(
        (t.name for t in tensors if _role_of(t.name) in ("value", "qkv")), key=_block_of
    )
    return {name: (number, len(values)) for number, name in enumerate(values)}


def _block_of(name: str) -> int:
    number = name.split(".")[1] if name.startswith("blk.") else ""
    return int(number) if number.isdecimal() else 0


def _more_bits(rank: int, count: int) -> bool:
    return rank < count // 8 or rank >= 7 * count // 8 or (rank - count // 8) % 3 == 2


def _choose(tensor: TensorInfo, wanted: FileType, model: _Model, rank: tuple[int, int]) -> str:
    """The name of the block's type, before it is known whether the row can have it."""
    role, main = _role_of(tensor.name), wanted.main.name
    if role == "output" or (role == "embedding" and model.tied):
        plain = model.architecture == "falcon" or tensor.shape[0] % wanted.main.values
        return "q8_0" if plain or main == "q8_0" else "q6_k"
    if role == "value":
        return _choose_value(wanted.name, main, model, rank)
    if role == "key" and model.experts == 8:
        return "q8_0"
    if role == "down":
        return _choose_down(wanted.name, main, model, _block_of(tensor.name))
    if role == "attention":
        return _choose_attention(wanted.name, main, model)
    return main


def _choose_value(file: str, main: str, model: _Model, rank: tuple[int, int]) -> str:
    place, _ = rank
    chosen = main
    if file == "q2_k":
        chosen = "q4_k" if model.shared >= 4 else "q3_k"
    elif file == "q3_k_m":
        chosen = "q5_k" if place < 2 else "q4_k"
    elif file == "q3_k_l":
        chosen = "q5_k"
    elif file in ("q4_k_m", "q5_k_m") and _more_bits(*rank):
        chosen = "q6_k"
    elif file == "q4_k_s" and place < 4:
        chosen = "q5_k"
    if model.is_70b and chosen in ("q3_k", "q4_k"):
        chosen = "q5_k"
    return "q8_0" if model.experts == 8 else chosen


def _choose_down(file: str, main: str, model: _Model, block: int) -> str:
    falcon, count = model.architecture == "falcon", model.layers
    more = _more_bits(block, count)
    if file == "q2_k":
        return "q3_k"
    if file == "q3_k_m":
        less = "q4_k" if more or not falcon else "q3_k"
        return "q5_k" if block < count // 16 else less
    if file == "q3_k_l":
        return "q4_k" if falcon else "q5_k"
    if file == "q4_k_m" and falcon:
        return "q6_k" if block < count // 16 else "q5_k" if more else "q4_k"
    if file in ("q4_k_m", "q5_k_m") and more:
        return "q6_k"
    if file == "q4_k_s" and not falcon and block < count // 8:
        return "q5_k"
    return main


def _choose_attention(file: str, main: str, model: _Model) -> str:
    if model.architecture == "falcon":
        return "q4_k" if file == "q3_k_l" else main
    if model.experts == 8:
        return "q5_k" if file in ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m") else main
    return {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(file, main)


def _fit(chosen: BlockType, tensor: TensorInfo) -> BlockType:
    """The type, or the one in its place where its blocks do not fill the tensor's rows."""
    if tensor.shape[0] % chosen.values == 0:
        return chosen
    other = BLOCK_TYPES.get(_FALLBACKS.get(chosen.name, "f16"), BLOCK_TYPES["f16"])
    return other if tensor.shape[0] % other.values == 0 else BLOCK_TYPES["f16"]
