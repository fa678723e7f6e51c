"""Quantising a GGUF file into another one whose tensors have fewer bits.

Tensor by tensor, in parts of bounded size, into a temporary file that takes its name when it is
whole. The choice of each tensor's type follows llama.cpp's `llama-quant.cpp`
(llama_tensor_get_type) for the types offered here, without an importance matrix and without its
exceptions for Falcon, for 70B models and for models of eight experts. Blocks are
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
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import FatalModelError, InputError, SettingsError
from textevolve.llm.gguf import NEEDS_GGUF, open_gguf, read_field
from textevolve.llm.hardware import free_cores
from textevolve.llm.weights import ReportProgress, Transfer, no_report
from textevolve.spec import suggest

VALUES_AT_ONCE = 2**21
"""Numbers that one thread works on: 8 MiB of them, and their source and result."""
QUANTIZATION_VERSION = 2
_UINT32 = 4
_SPLIT = ("split.no", "split.count", "split.tensors.count")
_SUFFIX = re.compile(r"[-._](f32|f16|bf16|fp16|i?q\d_\w+|q\d)$", re.IGNORECASE)
PLAIN = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
"""Types that the package `gguf` writes."""

Floats: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]
Native: TypeAlias = "Callable[[Floats, BlockType], Bytes]"
Lookup: TypeAlias = Callable[[str], Any]
"""The value under a key of a file's metadata; None where it has none."""


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


@dataclass(frozen=True, slots=True)
class FileType:
    """A type that a file can be quantised to: its number (`general.file_type`), and the type of
    most of its tensors."""

    name: str
    number: int
    main: BlockType


_BLOCKS = (
    ("f32", 0, 1, 4),
    ("f16", 1, 1, 2),
    ("bf16", 30, 1, 2),
    ("q4_0", 2, 32, 18),
    ("q4_1", 3, 32, 20),
    ("q5_0", 6, 32, 22),
    ("q5_1", 7, 32, 24),
    ("q8_0", 8, 32, 34),
    ("q2_k", 10, 256, 84),
    ("q3_k", 11, 256, 110),
    ("q4_k", 12, 256, 144),
    ("q5_k", 13, 256, 176),
    ("q6_k", 14, 256, 210),
)
BLOCK_TYPES: Mapping[str, BlockType] = {row[0]: BlockType(*row) for row in _BLOCKS}
_FILES = (
    ("f32", 0),
    ("f16", 1),
    ("bf16", 32),
    ("q8_0", 7),
    ("q5_1", 9),
    ("q5_0", 8),
    ("q4_1", 3),
    ("q4_0", 2),
    ("q6_k", 18),
    ("q5_k_m", 17),
    ("q5_k_s", 16),
    ("q4_k_m", 15),
    ("q4_k_s", 14),
    ("q3_k_l", 13),
    ("q3_k_m", 12),
    ("q3_k_s", 11),
    ("q2_k", 10),
)
FILE_TYPES: Mapping[str, FileType] = {
    name: FileType(name, number, BLOCK_TYPES[re.sub("_[lms]$", "", name)])
    for name, number in _FILES
}
_FALLBACKS = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""For rows that 256 does not divide."""
_KEPT_PARTS = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)
_KEPT_NAMES = ("position_embd.weight", "token_types.weight")
_ROLES = (
    ("per_layer_token_embd.weight", "embedding"),
    ("token_embd.weight", "embedding"),
    ("attn_qkv.weight", "value"),
    ("attn_kv_b.weight", "value"),
    ("attn_v.weight", "value"),
    ("attn_output.weight", "attention"),
    ("ffn_down", "down"),
)
"""Roles of tensors by parts of their names."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantised file. `bytes` is its size, `source_bytes` that of its source. `tensors`: how many
    have which type. `notes`: sentences for the user."""

    path: Path
    type: str
    bytes: int
    source_bytes: int
    sha256: str
    seconds: float
    tensors: Mapping[str, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    """A tensor of the source as `gguf` reads it, and the type that it will have; None where it is
    copied as it is."""

    tensor: Any
    target: BlockType | None

    @property
    def name(self) -> str:
        return self.target.name if self.target else self.tensor.tensor_type.name.lower()

    @property
    def number(self) -> int:
        return self.target.number if self.target else int(self.tensor.tensor_type)

    @property
    def size(self) -> int:
        if self.target is None:
            return self.tensor.n_bytes
        return self.tensor.n_elements // self.target.values * self.target.bytes


def quantized_name(source: Path, target: str) -> str:
    """Return the name of the new file: that of the source, with its type replaced."""
    kind = find_file_type(target).name
    suffix = _SUFFIX.search(source.stem)
    if suffix is None:
        return f"{source.stem}-{kind}.gguf"
    shown = kind.upper() if suffix[1].isupper() else kind
    return f"{source.stem[: suffix.start() + 1]}{shown}.gguf"


def quantize_file(
    source: Path | str,
    target: str,
    into: Path | str,
    *,
    allow_requantize: bool = False,
    force: bool = False,
    report: ReportProgress = no_report,
) -> Quantized:
    """Quantise the file `source` to the type `target`, as a new file `into`.

    Memory is bounded, whatever the size. An interrupted run leaves nothing behind, unless the
    process is killed; then a file `NAME.NUMBER.part` stays, which nothing else reads.

    Raises:
        InputError: there is no such type, or the file is there already, or would be lost twice.
        SettingsError: the source cannot be read, or a package is missing.
        FatalModelError: the disk is full, or cannot be written.
    """
    begun, file_type, kernels = time.monotonic(), find_file_type(target), open_kernels()
    source, into = Path(source), Path(into)
    reader = open_gguf(source)
    refuse_target(source, into, force=force)
    plan, notes = _plan(source, reader, file_type, kernels)
    notes += _refuse_requantizing(source, plan, file_type, allowed=allow_requantize)
    alignment = int(reader.alignment)
    _require_space(into, sum(_pad(step.size, alignment) for step in plan))
    part = into.with_name(f"{into.name}.{os.getpid()}.part")
    transfer = Transfer(into.name, "quantising", sum(step.size for step in plan), report)
    try:
        with part.open("wb") as stream:
            stream.write(_header(reader, plan, file_type, alignment))
            _write_tensors(stream, plan, alignment, kernels, transfer)
            stream.flush()
            os.fsync(stream.fileno())
        with part.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = part.stat().st_size
        part.replace(into)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise FatalModelError(
            f"{into}: cannot be written ({reason}); name another folder with --output"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return Quantized(
        path=into,
        type=file_type.name,
        bytes=size,
        source_bytes=source.stat().st_size,
        sha256=digest,
        seconds=time.monotonic() - begun,
        tensors=dict(Counter(step.name for step in plan).most_common()),
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
    source: Path, reader: Any, file_type: FileType, kernels: Kernels
) -> tuple[list[_Step], tuple[str, ...]]:
    """The types of all tensors, in the order of the file."""
    if (read_field(reader, "split.count") or 0) > 1:
        raise InputError(f"{source}: is one part of several; join them with llama.cpp's gguf-split")
    if not file_type.main.is_float and not kernels.writes(file_type.main):
        plain = ", ".join(name for name in FILE_TYPES if kernels.writes(FILE_TYPES[name].main))
        raise InputError(
            f"--to {file_type.name}: K-quants are written by llama.cpp's own code, which cannot be"
            f' called here (pip install "textevolve[local]"); without it there are: {plain}'
        )
    if not reader.tensors:
        raise SettingsError(f"{source}: not usable as weights: it has no tensors; fetch it again")
    types = choose_types(lambda key: read_field(reader, key), reader.tensors, file_type)
    plan, lower = list[_Step](), False
    for tensor in reader.tensors:
        target = types[tensor.name]
        if target is not None and not kernels.writes(target):
            target, lower = BLOCK_TYPES["q8_0"], True
        same = target is not None and target.number == int(tensor.tensor_type)
        plan.append(_Step(tensor, None if same else target))
    note = "the output is of q8_0, not q6_k as llama.cpp has it, since its code cannot be called"
    return plan, (note,) if lower else ()


def _refuse_requantizing(
    source: Path, plan: list[_Step], file_type: FileType, *, allowed: bool
) -> tuple[str, ...]:
    """The note on a source that is quantised itself."""
    changed = {step.tensor.tensor_type.name.lower() for step in plan if step.target}
    lossy = sorted(changed - {"f32", "f16", "bf16"})
    if not lossy or file_type.main.is_float:
        return ()
    note = f"{source.name} is quantised already ({', '.join(lossy)}): what that lost stays lost"
    if not allowed:
        raise InputError(
            f"{note}, and {file_type.name} loses more; take a file of f32, f16 or bf16, or allow it"
            " with --allow-requantize"
        )
    return (f"{note}, and {file_type.name} has lost more",)


def _require_space(into: Path, size: int) -> None:
    free = shutil.disk_usage(into.parent).free
    if size > free:
        raise FatalModelError(
            f"{into.name} needs {size / 1e9:.2f} GB in {into.parent}, where {free / 1e9:.2f} GB are"
            " free: make room, or name another folder with --output"
        )


def _pad(size: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // alignment) * alignment


def _header(reader: Any, plan: list[_Step], file_type: FileType, alignment: int) -> bytes:
    """The header of the new file. Metadata keep the bytes that they have, so that none is lost."""
    fields = {
        name: b"".join(part.tobytes() for part in field.parts)
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.") and name not in _SPLIT
    }
    changes = (
        ("general.quantization_version", QUANTIZATION_VERSION),
        ("general.file_type", file_type.number),
    )
    for key, number in changes:
        named = struct.pack("<Q", len(key)) + key.encode()
        fields[key] = named + struct.pack("<II", _UINT32, number)
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(plan), len(fields)), *fields.values()]
    offset = 0
    for step in plan:
        parts += [part.tobytes() for part in step.tensor.field.parts[:4]]  # its name and shape
        parts.append(struct.pack("<IQ", step.number, offset))
        offset += _pad(step.size, alignment)
    header = b"".join(parts)
    return header.ljust(_pad(len(header), alignment), b"\0")


def _write_tensors(
    stream: BinaryIO, plan: list[_Step], alignment: int, kernels: Kernels, transfer: Transfer
) -> None:
    done = 0
    transfer.tell(0)
    width = free_cores()
    with ThreadPoolExecutor(width) as pool:
        for step in plan:
            for block in _convert(step, kernels, pool, width):
                stream.write(block.data)
                done += block.nbytes
                transfer.tell(done)
            stream.write(bytes(_pad(step.size, alignment) - step.size))


def _convert(
    step: _Step, kernels: Kernels, pool: ThreadPoolExecutor, width: int
) -> Iterator[NDArray[Any]]:
    """The tensor's new bytes, part by part; as many parts at once as there are threads."""
    tensor, target = step.tensor, step.target
    rows = tensor.data.reshape(-1, tensor.data.shape[-1] or 1)
    at_once = max(1, VALUES_AT_ONCE // max(1, int(tensor.shape[0])))
    parts = [rows[first : first + at_once] for first in range(0, len(rows), at_once)]
    if target is None:
        yield from map(np.ascontiguousarray, parts)
        return

    def convert(part: NDArray[Any]) -> Bytes:
        numbers = kernels.dequantize(part, tensor.tensor_type)
        if not np.isfinite(numbers).all():
            raise SettingsError(
                f"the tensor {tensor.name} holds what is no number: the source is damaged"
            )
        return kernels.quantize(numbers, target)

    for first in range(0, len(parts), width):
        yield from pool.map(convert, parts[first : first + width])


def find_file_type(name: str) -> FileType:
    """
    Raises:
        InputError: there is no such type; says which there are.
    """
    name = name.strip().lower()
    if name not in FILE_TYPES:
        raise InputError(f"type {name}: no such type{suggest(name, [*FILE_TYPES])}")
    return FILE_TYPES[name]


def is_kept(tensor: Any) -> bool:
    """Whether a tensor stays as it is: norms, biases and whatever is small or has one dimension."""
    # Dimensions of 1 at the end are none, as ggml counts them.
    flat = all(length == 1 for length in tensor.shape[1:])
    name = tensor.name
    if flat or not name.endswith("weight") or name in _KEPT_NAMES:
        return True
    return any(part in name for part in _KEPT_PARTS)


def choose_types(
    metadata: Lookup, tensors: Sequence[Any], file_type: FileType
) -> dict[str, BlockType | None]:
    """For each tensor by its name the type that it is to have; None where it stays as it is.
    `tensors` have a name and a shape, the length of a row first."""
    name = metadata("general.architecture") or ""
    heads, kv_heads, layers = (
        metadata(f"{name}.{key}") or 1
        for key in ("attention.head_count", "attention.head_count_kv", "block_count")
    )
    facts = _Facts(
        layers=layers if isinstance(layers, int) else 1,
        is_tied=all(tensor.name != "output.weight" for tensor in tensors),
        shares_heads=isinstance(heads, int) and isinstance(kv_heads, int) and heads >= 4 * kv_heads,
    )
    values = sorted((t.name for t in tensors if _role_of(t.name) == "value"), key=_block_of)
    types: dict[str, BlockType | None] = {}
    for tensor in tensors:
        if is_kept(tensor):
            types[tensor.name] = None
        elif file_type.main.is_float:
            types[tensor.name] = file_type.main
        else:
            is_value = tensor.name in values
            place = values.index(tensor.name) if is_value else _block_of(tensor.name)
            count = len(values) if is_value else facts.layers
            chosen = BLOCK_TYPES[_choose(tensor, file_type, facts, place, count)]
            types[tensor.name] = _fit(chosen, int(tensor.shape[0]))
    return types


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts of a model that the rules depend on. `is_tied`: the embeddings of tokens are its
    output, too. `shares_heads`: four heads of attention or more share their keys and values."""

    layers: int
    is_tied: bool
    shares_heads: bool


def _role_of(name: str) -> str:
    if name == "output.weight":
        return "output"
    return next((role for part, role in _ROLES if part in name), "other")


def _block_of(name: str) -> int:
    number = name.split(".")[1] if name.startswith("blk.") else ""
    return int(number) if number.isdecimal() else 0


_MIXES: Mapping[tuple[str, str], str] = {
    ("q2_k", "value"): "q3_k",
    ("q3_k_m", "value"): "q4_k",
    ("q3_k_l", "value"): "q5_k",
    ("q2_k", "down"): "q3_k",
    ("q3_k_m", "down"): "q4_k",
    ("q3_k_l", "down"): "q5_k",
    ("q2_k", "attention"): "q3_k",
    ("q3_k_m", "attention"): "q4_k",
    ("q3_k_l", "attention"): "q5_k",
}
"""Types of tensors by file type and role, where they are not those of most."""


def _choose(tensor: Any, file_type: FileType, facts: _Facts, place: int, count: int) -> str:
    """The name of the block's type, before it is known whether the row can have it. `place`: which
    of the `count` tensors of its role it is."""
    role, main, file = _role_of(tensor.name), file_type.main.name, file_type.name
    if role == "output" or (role == "embedding" and facts.is_tied):
        is_plain = main == "q8_0" or tensor.shape[0] % file_type.main.values
        return "q8_0" if is_plain else "q6_k"
    if role in ("value", "down"):
        more = place < count // 8 or place >= 7 * count // 8 or (place - count // 8) % 3 == 2
        if file in ("q4_k_m", "q5_k_m") and more:
            return "q6_k"
        first = {
            ("q3_k_m", "value"): 2,
            ("q4_k_s", "value"): 4,
            ("q3_k_m", "down"): count // 16,
            ("q4_k_s", "down"): count // 8,
        }
        if place < first.get((file, role), 0):
            return "q5_k"
        if (file, role) == ("q2_k", "value") and facts.shares_heads:
            return "q4_k"
    return _MIXES.get((file, role), main)


def _fit(chosen: BlockType, length: int) -> BlockType:
    """The type, or the one in its place where its blocks do not fill rows of this length."""
    names = (chosen.name, _FALLBACKS.get(chosen.name, "f16"), "f16")
    return next(BLOCK_TYPES[name] for name in names if length % BLOCK_TYPES[name].values == 0)


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
            blocks = self.gguf.quants.quantize(rows, self.gguf.GGMLQuantizationType(kind.number))
        return np.ascontiguousarray(blocks).view(np.uint8).reshape(len(rows), -1)

    def dequantize(self, rows: NDArray[Any], kind: Any) -> Floats:
        """Rows as `gguf` reads them, of a type of its own, as rows of numbers."""
        values = self.gguf.quants.dequantize(rows, kind)
        return np.ascontiguousarray(values, dtype=np.float32).reshape(len(rows), -1)


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
        library = find_spec("xllamacpp.xllamacpp")
        function = ctypes.CDLL(library.origin or "").ggml_quantize_chunk if library else None
    except (ImportError, OSError, AttributeError):
        return None
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, count, count, count, pointer]

    def quantize(rows: Floats, kind: BlockType) -> Bytes:
        number, length = rows.shape
        values = np.ascontiguousarray(rows, dtype=np.float32)
        blocks = np.empty((number, kind.row_bytes(length)), dtype=np.uint8)
        written = function(
            kind.number, values.ctypes.data, blocks.ctypes.data, 0, number, length, None
        )
        assert written == blocks.nbytes, f"{kind.name}: {written} bytes, not {blocks.nbytes}"
        return blocks

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
