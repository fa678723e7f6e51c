"""Quantising a GGUF file: another one, whose tensors have fewer bits.

Tensor by tensor, in parts of bounded size, into a temporary file that takes its name when it is
whole. Here: what is refused, the order of things and the file. Not here: which type a tensor has
(`quant_types`) and how its blocks are made (`quant_kernels`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

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
from textevolve.llm.quant_kernels import Bytes, Kernels, open_kernels
from textevolve.llm.quant_types import (
    BLOCK_TYPES,
    FILE_TYPES,
    BlockType,
    FileType,
    choose_types,
    find_file_type,
)
from textevolve.llm.transfer import ReportProgress, Transfer, no_report

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
