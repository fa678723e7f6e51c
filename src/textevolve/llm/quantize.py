"""Quantise a GGUF file: write another file whose tensors have fewer bits.

The conversion goes tensor by tensor into a temporary file, which is renamed when it is complete.
The choice of each tensor's type follows llama.cpp's `llama-quant.cpp` (llama_tensor_get_type) for
the types offered here, without an importance matrix and without its exceptions for Falcon, for 70B
models and for models of eight experts. The package `gguf` reads the source, writes the new file and
converts floats; blocks are computed by llama.cpp's own `ggml_quantize_chunk`, from the library
inside the installed `xllamacpp`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import FatalModelError, InputError, SettingsError
from textevolve.ledger import log
from textevolve.llm.gguf import open_gguf, read_field, validate_model
from textevolve.llm.hardware import free_cores
from textevolve.llm.weights import ReportProgress, Transfer, no_report
from textevolve.loading import late_module
from textevolve.spec import suggest

gguf: Any = late_module("gguf")

VALUES_AT_ONCE = 2**21
"""The number of values that one thread converts at a time: 8 MiB of floats, in addition to their
source and result."""
QUANTIZATION_VERSION = 2
_REPLACED = (
    "general.architecture",
    "general.file_type",
    "general.quantization_version",
    "split.no",
    "split.count",
    "split.tensors.count",
)
_SUFFIX = re.compile(r"[-._](f32|f16|bf16|fp16|i?q\d_\w+|q\d)$", re.IGNORECASE)
FLOATS = ("F32", "F16", "BF16")
FILE_TYPES: Mapping[str, str] = {
    "f16": "F16",
    "bf16": "BF16",
    "q8_0": "Q8_0",
    "q6_k": "Q6_K",
    "q5_k_m": "Q5_K",
    "q4_k_m": "Q4_K",
    "q4_0": "Q4_0",
    "q3_k_m": "Q3_K",
}
"""The types that a file can be quantised to, each with the type of most of its tensors."""
_FALLBACKS = {"Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""The type of a tensor instead of the chosen one if 256 does not divide the length of its rows."""
_KEPT = re.compile(
    r"^(position_embd|token_types)\.weight$|_norm\.weight|ffn_gate_(inp|tid2eid)\.weight|altup|laurel"
    r"|per_layer_model_proj|ssm_conv1d|shortconv\.conv\.weight|indexer\.[kq]_proj\.weight"
    r"|time_mix_(first|[wva][012]|g[12]|decay_w[12]|lerp_fused)\.weight|attn_rel_b\.weight"
    r"|\.position_embd|sam\.(pos_embd|neck\.|net_)|\.rel_pos|\.patch_(embd|merger)"
    r"|a\.rvq\.codebook|mm\.a\.code_embd"
)
"""The names of tensors that keep their type."""
_ROLES = (
    ("token_embd.weight", "embedding"),
    ("attn_qkv.weight", "value"),
    ("attn_kv_b.weight", "value"),
    ("attn_v.weight", "value"),
    ("attn_output.weight", "attention"),
    ("ffn_down", "down"),
)
"""The roles of tensors, which decide their types, by parts of the tensors' names."""

Bytes: TypeAlias = NDArray[np.uint8]
Lookup: TypeAlias = Callable[[str], Any]
"""A function that returns the value of a key in a file's metadata; None if the key is missing."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantised file.

    Attributes:
        type: The type that it was quantised to, such as "q4_k_m".
        bytes: Its size.
        source_bytes: The size of the source file.
        sha256: The hash of its content.
    """

    path: Path
    type: str
    bytes: int
    source_bytes: int
    sha256: str


def quantized_name(source: Path, target: str) -> str:
    """Return the name of the new file: the source's name with its type replaced."""
    return f"{_SUFFIX.sub('', source.stem)}-{find_file_type(target)}.gguf"


def quantize_file(
    source: Path | str,
    target: str,
    into: Path | str,
    *,
    force: bool = False,
    report: ReportProgress = no_report,
) -> Quantized:
    """Quantise the file `source` to the type `target`, as a new file `into`.

    It needs the memory of one new tensor. An interrupted run leaves nothing behind, unless the
    process is killed; then a file `NAME.NUMBER.part` stays, which nothing else reads.

    Raises:
        InputError: there is no such type, or the new file exists already and `force` is not set.
        SettingsError: the source cannot be read, or a package is missing.
        FatalModelError: the disk is full, or cannot be written.
    """
    kind = find_file_type(target)
    source = Path(source)
    into = Path(into)
    reader = open_gguf(source)
    check_copy(source, into, force=force)
    validate_model(reader, source, whole=True)
    if not reader.tensors:
        raise SettingsError(f"{source}: not usable as weights: it has no tensors; fetch it again")
    if {tensor.tensor_type.name for tensor in reader.tensors}.difference(FLOATS):
        log.warning(
            "%s is quantized already: its losses stay, and more are added; take the file with 16"
            " bits",
            source,
        )
    types = choose_types(lambda key: read_field(reader, key), reader.tensors, kind)
    values = _values_of(FILE_TYPES[kind])
    uneven = sum(not is_kept(t) and int(t.shape[0]) % values > 0 for t in reader.tensors)
    if uneven:
        log.warning(
            "%s: %s of %s tensors have rows that %s cannot hold; they get types with more bits",
            source,
            uneven,
            len(reader.tensors),
            kind,
        )
    part = into.with_name(f"{into.name}.{os.getpid()}.part")
    transfer = Transfer(into.name, "quantising", source.stat().st_size, report)

    try:
        _write(part, reader, types, kind, transfer)
        with part.open("r+b") as stream:
            os.fsync(stream.fileno())
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = part.stat().st_size
        part.replace(into)
    except OSError as error:
        raise FatalModelError(
            f"{into}: cannot be written ({error.strerror or error}); name another folder with"
            " --output"
        ) from error
    finally:
        part.unlink(missing_ok=True)

    return Quantized(into, kind, size, source.stat().st_size, digest)


def check_copy(source: Path, into: Path, *, force: bool) -> None:
    """Raise an InputError if `into` cannot be written: it is the source, exists already (unless
    `force` is set), or its folder is missing."""
    if into.exists() and into.samefile(source):
        raise InputError(f"{into}: is the source itself; name another folder with --output")
    if into.exists() and not force:
        raise InputError(f"{into}: exists already; --force overwrites it")
    if not into.parent.is_dir():
        raise InputError(f"{into.parent}: there is no such folder")


def _write(
    path: Path, reader: Any, types: Mapping[str, str | None], kind: str, transfer: Transfer
) -> None:
    writer = gguf.GGUFWriter(path, read_field(reader, "general.architecture") or "")
    writer.data_alignment = int(reader.alignment)
    for name, field in reader.fields.items():
        value = field.contents()
        if name in _REPLACED or name.startswith("GGUF.") or value == []:
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], inner)

    writer.add_quantization_version(QUANTIZATION_VERSION)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"])
    plan: list[tuple[Any, Any]] = []

    for tensor in reader.tensors:
        shape = list(map(int, reversed(tensor.shape)))
        target = gguf.GGMLQuantizationType[types[tensor.name] or tensor.tensor_type.name]
        values, size = gguf.GGML_QUANT_SIZES[target]
        bytes = int(tensor.n_elements) // values * size
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), bytes, target)
        plan.append((tensor, None if target == tensor.tensor_type else target))

    done = 0
    width = free_cores()

    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        with ThreadPoolExecutor(width) as pool:
            for tensor, target in plan:
                transfer.report_progress(done)
                new = tensor.data if target is None else _convert(tensor, target, pool)
                writer.write_tensor_data(new)
                done += tensor.n_bytes

        transfer.report_progress(transfer.total)
    finally:
        writer.close()


def _convert(tensor: Any, target: Any, pool: ThreadPoolExecutor) -> Bytes:
    """Convert a tensor in parts of bounded size; return its new bytes."""
    rows = tensor.data.reshape(-1, tensor.data.shape[-1] or 1)
    at_once = max(1, VALUES_AT_ONCE // max(1, int(tensor.shape[0])))

    def convert(start: int) -> Bytes:
        values = gguf.quants.dequantize(rows[start : start + at_once], tensor.tensor_type)
        numbers = np.ascontiguousarray(values, dtype=np.float32)
        if not np.isfinite(numbers).all():
            raise SettingsError(
                f"the tensor {tensor.name} has values that are not numbers: the source is"
                " damaged; fetch it again"
            )

        if target.name in FLOATS:
            blocks = np.ascontiguousarray(gguf.quants.quantize(numbers, target))
            return blocks.view(np.uint8).reshape(len(numbers), -1)

        return quantize_rows(numbers, target)

    return np.concatenate(list(pool.map(convert, range(0, len(rows), at_once))))


def find_file_type(name: str) -> str:
    """Return the name of a file type in lower case, if it exists.

    Raises:
        InputError: there is no such type; the message lists the types.
    """
    name = name.strip().lower()
    if name not in FILE_TYPES:
        raise InputError(f"type {name}: no such type{suggest(name, [*FILE_TYPES])}")

    return name


def is_kept(tensor: Any) -> bool:
    """Check whether a tensor keeps its type: norms, biases, small and one-dimensional tensors
    do."""
    # Dimensions of 1 at the end are none, as ggml counts them.
    flat = all(length == 1 for length in tensor.shape[1:])
    return flat or not tensor.name.endswith("weight") or _KEPT.search(tensor.name) is not None


def choose_types(metadata: Lookup, tensors: Sequence[Any], file_type: str) -> dict[str, str | None]:
    """Return the new type of each tensor by the tensor's name; None: the tensor keeps its type.
    `tensors` have a name and a shape that starts with the length of a row."""
    main = FILE_TYPES[file_type]
    layers = metadata(f"{metadata('general.architecture') or ''}.block_count") or 1
    is_tied = all(tensor.name != "output.weight" for tensor in tensors)
    values = sorted((t.name for t in tensors if _role_of(t.name) == "value"), key=_block_of)
    types: dict[str, str | None] = {}

    for tensor in tensors:
        if is_kept(tensor):
            types[tensor.name] = None
        elif main in FLOATS:
            types[tensor.name] = main
        else:
            is_value = tensor.name in values
            place = values.index(tensor.name) if is_value else _block_of(tensor.name)
            count = len(values) if is_value else layers
            role = _role_of(tensor.name)
            length = int(tensor.shape[0])
            if role == "output" or (role == "embedding" and is_tied):
                chosen = "Q8_0" if main == "Q8_0" or length % _values_of(main) else "Q6_K"
            else:
                chosen = _choose(role, file_type, place, count)

            names = (chosen, _FALLBACKS.get(chosen, "F16"), "F16")
            types[tensor.name] = next(name for name in names if length % _values_of(name) == 0)

    return types


def _values_of(kind: str) -> int:
    """Return how many numbers one block of a type holds."""
    return 256 if kind.endswith("_K") else 1 if kind in FLOATS else 32


def _role_of(name: str) -> str:
    if name == "output.weight":
        return "output"
    return next((role for part, role in _ROLES if part in name), "other")


def _block_of(name: str) -> int:
    number = name.split(".")[1] if name.startswith("blk.") else ""
    return int(number) if number.isdecimal() else 0


def _choose(role: str, file: str, place: int, count: int) -> str:
    """Choose the type of a tensor, before the check whether its row can have it. `place`: its
    number among the `count` tensors of its role."""
    if file in ("q4_k_m", "q5_k_m") and role in ("value", "down"):
        more = place < count // 8 or place >= 7 * count // 8 or (place - count // 8) % 3 == 2
        return "Q6_K" if more else FILE_TYPES[file]
    if file == "q3_k_m" and role in ("value", "down", "attention"):
        high_precision = {"value": 2, "down": count // 16}
        return "Q5_K" if place < high_precision.get(role, 0) else "Q4_K"

    return FILE_TYPES[file]


@cache
def _find_native() -> Callable[..., int]:
    """Return ggml's quantising function from the library in xllamacpp, a public function of ggml
    that the package itself does not document.

    Raises:
        SettingsError: the library has no such function, or it cannot be loaded.
    """
    try:
        library = find_spec("xllamacpp.xllamacpp")
        function = ctypes.CDLL((library and library.origin) or "no library").ggml_quantize_chunk
    except (ImportError, OSError, AttributeError) as error:
        raise SettingsError(
            "quantising needs llama.cpp's own code out of xllamacpp, which cannot be called here"
            f' ({error}): pip install "textevolve[local]"'
        ) from error

    function.restype = ctypes.c_size_t
    pointer = ctypes.c_void_p
    count = ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, count, count, count, pointer]

    return function


def quantize_rows(rows: NDArray[np.float32], kind: Any) -> Bytes:
    """Quantise rows of numbers (n, length) to rows of bytes; `kind`: the type as `gguf`
    names it."""
    number, length = rows.shape
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.empty((number, length // values * size), dtype=np.uint8)
    source = rows.ctypes.data
    target = blocks.ctypes.data
    written = _find_native()(int(kind), source, target, 0, number, length, None)
    assert written == blocks.nbytes, f"{kind.name}: {written} bytes, not {blocks.nbytes}"

    return blocks
