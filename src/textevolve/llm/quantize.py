"""Quantising a GGUF file into another one whose tensors have fewer bits.

Tensor by tensor, in parts of bounded size, into a temporary file that takes its name when it is
whole. The choice of each tensor's type follows llama.cpp's `llama-quant.cpp`
(llama_tensor_get_type) for the types offered here, without an importance matrix. Blocks are
computed by the package `gguf`, which reads every type and writes the plain ones in numpy, or by
llama.cpp's own `ggml_quantize_chunk` where the library inside the installed `xllamacpp` lets it be
called: it writes the K-quants too, and is faster. Both write the same bytes, checked before use.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import FatalModelError, InputError, SettingsError
from textevolve.llm.gguf_layout import (
    Layout,
    TensorInfo,
    pad,
    read_layout,
    whole_number,
    write_header,
)
from textevolve.llm.hardware import free_cores
from textevolve.llm.weight_sources import ReportProgress, Transfer, no_report
from textevolve.spec import suggest

VALUES_AT_ONCE = 2**21
"""Numbers that one thread works on: 8 MiB of them, and what they are made of and into."""
QUANTIZATION_VERSION = 2
_SPLIT = ("split.no", "split.count", "split.tensors.count")
_SUFFIX = re.compile(r"[-._](f32|f16|bf16|fp16|i?q\d_\w+|q\d)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Quantized:
    """A file that was made. `bytes`: its size, and `source_bytes` that of what it was made of.
    `tensors`: how many have which type. `notes`: what a user should know of it."""

    path: Path
    type: str
    bytes: int
    source_bytes: int
    sha256: str
    seconds: float
    tensors: Mapping[str, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor on its way: as it lies in the source, and as it will in the new file."""

    old: TensorInfo
    new: TensorInfo
    source: BlockType
    target: BlockType

    @property
    def rows(self) -> int:
        return self.old.values // self.old.shape[0] if self.old.values else 0

    @property
    def size(self) -> int:
        return self.rows * self.target.row_bytes(self.old.shape[0])

    @property
    def source_size(self) -> int:
        return self.rows * self.source.row_bytes(self.old.shape[0])


def quantized_name(source: Path, target: str) -> str:
    """The name of the new file: that of the source, its type taken for the new one."""
    kind = find_file_type(target).name
    found = _SUFFIX.search(source.stem)
    if found is None:
        return f"{source.stem}-{kind}.gguf"
    shown = kind.upper() if found[1].isupper() else kind
    return f"{source.stem[: found.start() + 1]}{shown}.gguf"


def quantize_file(
    source: Path | str,
    target: str,
    into: Path | str,
    *,
    allow_requantize: bool = False,
    force: bool = False,
    report: ReportProgress = no_report,
) -> Quantized:
    """Make a file of the type `target` of the file `source`, and call it `into`.

    Memory is bounded, whatever the size. What breaks off leaves nothing behind, unless the process
    is killed; then a file `NAME.NUMBER.part` stays, which nothing else reads.

    Raises:
        InputError: there is no such type, or the file is there already, or would be lost twice.
        SettingsError: the source cannot be read, or a package is missing.
        FatalModelError: the disk is full, or cannot be written.
    """
    begun, wanted, kernels = time.monotonic(), find_file_type(target), open_kernels()
    source, into = Path(source), Path(into)
    layout = read_layout(source)
    refuse_target(source, into, force=force)
    plan, notes = _plan(source, layout, wanted, kernels)
    notes += _refuse_requantizing(source, plan, wanted, allowed=allow_requantize)
    _require_space(into, sum(pad(one.size, layout.alignment) for one in plan))
    part = into.with_name(f"{into.name}.{os.getpid()}.part")
    transfer = Transfer(into.name, "quantising", sum(one.size for one in plan), report)
    try:
        with part.open("wb") as stream:
            _write(stream, source, layout, plan, wanted, kernels, transfer)
            stream.flush()
            os.fsync(stream.fileno())
        with part.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = part.stat().st_size
        part.replace(into)
    except OSError as error:
        raise _disk_error(into, error) from error
    finally:
        part.unlink(missing_ok=True)
    counts = Counter(one.target.name for one in plan)
    seconds = time.monotonic() - begun
    return Quantized(
        *(into, wanted.name, size, source.stat().st_size, digest, seconds),
        tensors=dict(counts.most_common()),
        notes=notes,
    )


def refuse_target(source: Path, into: Path, *, force: bool) -> None:
    """Raises InputError where `into` cannot be written: it is there already, or is the source."""
    if into.exists() and into.samefile(source):
        raise InputError(f"{into}: is the source itself; name another folder with --output")
    if into.exists() and not force:
        raise InputError(f"{into}: is there already; --force writes it anew")
    if not into.parent.is_dir():
        raise InputError(f"{into.parent}: there is no such folder")


def _plan(
    source: Path, layout: Layout, wanted: FileType, kernels: Kernels
) -> tuple[list[_Tensor], tuple[str, ...]]:
    """What becomes of each tensor, in the order of the file."""
    if (layout.number("split.count") or 0) > 1:
        raise InputError(f"{source}: is one part of several; join them with llama.cpp's gguf-split")
    if not wanted.main.is_float and not kernels.writes(wanted.main):
        plain = ", ".join(name for name in FILE_TYPES if kernels.writes(FILE_TYPES[name].main))
        raise InputError(
            f"--to {wanted.name}: K-quants are written by llama.cpp's own code, which cannot be"
            f' called here (pip install "textevolve[local]"); without it there are: {plain}'
        )
    chosen, plan, offset, lower = choose_types(layout, wanted), list[_Tensor](), 0, False
    for old in layout.tensors:
        kind, target = kernels.block_type(old.type), chosen[old.name]
        if kind is None or (old.values and old.shape[0] % kind.values):
            raise SettingsError(
                f"{source}: its tensor {old.name} is of a type that is not known here ({old.type});"
                " a newer gguf package may know it"
            )
        if target is not None and not kernels.writes(target):
            target, lower = BLOCK_TYPES["q8_0"], True
        target = target or kind
        plan.append(_Tensor(old, replace(old, type=target.number, offset=offset), kind, target))
        offset += pad(plan[-1].size, layout.alignment)
    _refuse_cut(source, layout, plan)
    told = "the output is of q8_0, not q6_k as llama.cpp has it, since its code cannot be called"
    return plan, (told,) if lower else ()


def _refuse_cut(source: Path, layout: Layout, plan: list[_Tensor]) -> None:
    end = max((layout.begin + one.old.offset + one.source_size for one in plan), default=0)
    if not plan or end > source.stat().st_size:
        why = "it is cut off" if plan else "it has no tensors"
        raise SettingsError(f"{source}: not usable as weights: {why}; fetch it again")


def _refuse_requantizing(
    source: Path, plan: list[_Tensor], wanted: FileType, *, allowed: bool
) -> tuple[str, ...]:
    """What is said of a source that is quantised itself."""
    changed = (one.source.name for one in plan if one.source.number != one.target.number)
    lossy = sorted({name for name in changed if name not in ("f32", "f16", "bf16")})
    if not lossy or wanted.main.is_float:
        return ()
    told = f"{source.name} is quantised already ({', '.join(lossy)}): what that lost stays lost"
    if not allowed:
        raise InputError(
            f"{told}, and {wanted.name} loses more; take a file of f32, f16 or bf16, or allow it"
            " with --allow-requantize"
        )
    return (f"{told}, and {wanted.name} has lost more",)


def _require_space(into: Path, size: int) -> None:
    free = shutil.disk_usage(into.parent).free
    if size > free:
        raise FatalModelError(
            f"{into.name} needs {size / 1e9:.2f} GB in {into.parent}, where {free / 1e9:.2f} GB are"
            " free: make room, or name another folder with --output"
        )


def _write(
    stream: BinaryIO,
    source: Path,
    layout: Layout,
    plan: list[_Tensor],
    wanted: FileType,
    kernels: Kernels,
    transfer: Transfer,
) -> None:
    fields = {key: raw for key, raw in layout.fields.items() if key not in _SPLIT}
    fields["general.quantization_version"] = whole_number(QUANTIZATION_VERSION)
    fields["general.file_type"] = whole_number(wanted.number)
    write_header(stream, fields, [one.new for one in plan], layout.alignment)
    done, data = 0, np.memmap(source, dtype=np.uint8, mode="r")
    transfer.tell(0)
    width = free_cores()
    with ThreadPoolExecutor(width) as pool:
        for one in plan:
            begin = layout.begin + one.old.offset
            raw = data[begin : begin + one.source_size].reshape(one.rows, -1)
            for made in _convert(raw, one, kernels, pool, width):
                stream.write(made.data)
                done += made.nbytes
                transfer.tell(done)
            stream.write(bytes(pad(one.size, layout.alignment) - one.size))


def _convert(
    raw: Bytes, tensor: _Tensor, kernels: Kernels, pool: ThreadPoolExecutor, width: int
) -> Iterator[Bytes]:
    """The tensor's new bytes, part by part; as many parts at once as there are threads."""
    at_once = max(1, VALUES_AT_ONCE // max(1, tensor.old.shape[0]))
    parts = [raw[first : first + at_once] for first in range(0, tensor.rows, at_once)]
    if tensor.source.number == tensor.target.number:
        yield from map(np.ascontiguousarray, parts)
        return

    def convert(part: Bytes) -> Bytes:
        numbers = kernels.dequantize(part, tensor.source.number)
        if not np.isfinite(numbers).all():
            raise SettingsError(
                f"the tensor {tensor.old.name} holds what is no number: the source is damaged"
            )
        return kernels.quantize(numbers, tensor.target)

    for first in range(0, len(parts), width):
        yield from pool.map(convert, parts[first : first + width])


def _disk_error(into: Path, error: OSError) -> FatalModelError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = "the disk is full" if full else error.strerror or str(error)
    return FatalModelError(f"{into}: cannot be written ({why}); name another folder with --output")


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


Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]
Native: TypeAlias = Callable[[Floats, BlockType], Bytes]

PLAIN = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""What `gguf` writes."""
NEEDS_GGUF = (
    'quantising needs the package gguf, which is not installed: pip install "textevolve[quantize]"'
)


@dataclass(frozen=True, slots=True)
class Kernels:
    """`native`: llama.cpp's own, where it can be called."""

    gguf: Any
    native: Native | None

    def writes(self, kind: BlockType) -> bool:
        return kind.name in PLAIN or self.native is not None

    def quantize(self, rows: Floats, kind: BlockType) -> Bytes:
        """Rows of numbers (n, length) as rows of bytes (n, bytes); `writes` says of which types."""
        if self.native is not None and not kind.is_float:
            return self.native(rows, kind)
        with np.errstate(all="ignore"):  # a block of zeros is divided by 0, and comes out as zeros
            found = self.gguf.quants.quantize(rows, self._type(kind.number))
        return np.ascontiguousarray(found).view(np.uint8).reshape(len(rows), -1)

    def dequantize(self, rows: Bytes, number: int) -> Floats:
        """Rows of bytes of the type with this number in ggml, as rows of numbers."""
        kind, raw = self._type(number), rows
        if kind.name in ("F32", "F16"):
            raw = rows.view(np.float32 if kind.name == "F32" else np.float16)
        found = self.gguf.quants.dequantize(raw, kind)
        return np.ascontiguousarray(found, dtype=np.float32).reshape(len(rows), -1)

    def block_type(self, number: int) -> BlockType | None:
        """What is known of a type of ggml; None where it is none that can be read."""
        try:
            kind = self._type(number)
            values, size = self.gguf.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            return None
        return BlockType(kind.name.lower(), number, values, size)

    def _type(self, number: int) -> Any:
        return self.gguf.GGMLQuantizationType(number)


@lru_cache(maxsize=1)
def open_kernels() -> Kernels:
    """
    Raises:
        SettingsError: the package `gguf` is not installed.
    """
    try:
        gguf = import_module("gguf")
    except ModuleNotFoundError as error:
        raise SettingsError(NEEDS_GGUF) from error
    plain, native = Kernels(gguf, None), _find_native()
    return Kernels(gguf, native) if native and _agree(plain, native) else plain


def _find_native() -> Native | None:
    """llama.cpp's function, which is a public one of ggml, but which the wheel does not promise."""
    try:
        found = find_spec("xllamacpp.xllamacpp")
        function = ctypes.CDLL(found.origin or "").ggml_quantize_chunk if found else None
    except (ImportError, OSError, AttributeError):
        return None
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, count, count, count, pointer]

    def quantize(rows: Floats, kind: BlockType) -> Bytes:
        number, length = rows.shape
        given = np.ascontiguousarray(rows, dtype=np.float32)
        made = np.empty((number, kind.row_bytes(length)), dtype=np.uint8)
        written = function(
            *(kind.number, given.ctypes.data, made.ctypes.data, 0, number, length, None)
        )
        assert written == made.nbytes, f"{kind.name}: {written} bytes, not {made.nbytes}"
        return made

    return quantize


def _agree(plain: Kernels, native: Native) -> bool:
    """Whether both write the same of numbers with all signs and some zeros."""
    rows = np.sin(np.arange(512, dtype=np.float32) ** 1.5).reshape(2, 256)
    rows[1, :32] = 0
    kinds = [BLOCK_TYPES[name] for name in PLAIN if not BLOCK_TYPES[name].is_float]
    try:
        return all(np.array_equal(plain.quantize(rows, k), native(rows, k)) for k in kinds)
    except AssertionError:
        return False
