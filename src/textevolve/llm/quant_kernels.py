"""From numbers to the blocks of a quantised tensor, and back.

Two sources: the package `gguf`, which reads every type and writes the plain ones in numpy; and
llama.cpp's own `ggml_quantize_chunk`, where the library inside the installed `xllamacpp` lets it be
called, which writes the K-quants, too, and is faster. What both write is the same, byte by byte;
that is checked before the second is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import SettingsError
from textevolve.llm.quant_types import BLOCK_TYPES, BlockType

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
