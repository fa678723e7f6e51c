"""Where the tensors of a GGUF file lie, and the header of a new one.

The metadata is kept as the bytes that it has, so that a copy loses nothing of it. Here: layout and
headers, of any size. Not here: what the numbers mean (`quant_kernels`) and which type a tensor is
to have (`quant_types`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from textevolve.llm.gguf import MAGIC, Damaged, HeaderReader, read_counts, read_from

ALIGNMENT, ALIGNMENT_KEY = 32, "general.alignment"
_UINT32, _INT32, _STRING = 4, 5, 8
_VERSION = 3
_MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """`shape`: the length of a row first. `type`: by its number in ggml. `offset`: in bytes, from
    where the data of all tensors begins."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int

    @property
    def values(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """`fields`: of each key the bytes of its value, its kind first. `begin`: where the tensors'
    data begins, in bytes from the beginning of the file."""

    fields: Mapping[str, bytes]
    tensors: tuple[TensorInfo, ...]
    begin: int

    @property
    def alignment(self) -> int:
        return self.number(ALIGNMENT_KEY) or ALIGNMENT

    def number(self, key: str) -> int | None:
        """A whole number of 32 bits; None where the key has none."""
        raw = self.fields.get(key, b"")
        if len(raw) != 8 or raw[0] not in (_UINT32, _INT32):
            return None
        return struct.unpack("<i" if raw[0] == _INT32 else "<I", raw[4:])[0]

    def text(self, key: str) -> str:
        """A text; empty where the key has none."""
        raw = self.fields.get(key, b"")
        return raw[12:].decode("utf-8", "replace") if raw[:1] == bytes([_STRING]) else ""


def read_layout(path: Path) -> Layout:
    """
    Raises:
        SettingsError: no such file, not a GGUF, or a header that is cut or damaged.
    """
    spans, tensors, end = read_from(path, _read)
    with path.open("rb") as stream:
        header = stream.read(end)
    fields = {key: header[first:last] for key, (first, last) in spans.items()}
    layout = Layout(fields, tensors, 0)
    return Layout(fields, tensors, pad(end, layout.alignment))


def _read(
    reader: HeaderReader,
) -> tuple[dict[str, tuple[int, int]], tuple[TensorInfo, ...], int]:
    tensors, entries = read_counts(reader)
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(entries):
        key, first = reader.string(), reader.position
        reader.value(reader.number("<I"))
        spans[key] = (first, reader.position)
    found = tuple(_read_tensor(reader) for _ in range(tensors))
    return spans, found, reader.position


def _read_tensor(reader: HeaderReader) -> TensorInfo:
    name, dimensions = reader.string(), reader.number("<I")
    if dimensions > _MOST_DIMENSIONS:
        raise Damaged(f"its tensor {name:.100} claims {dimensions} dimensions")
    shape = tuple(reader.number("<Q") for _ in range(dimensions))
    return TensorInfo(name, shape, reader.number("<I"), reader.number("<Q"))


def pad(size: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // alignment) * alignment


def whole_number(value: int) -> bytes:
    """A whole number as the value of a key."""
    return struct.pack("<II", _UINT32, value)


def write_header(
    stream: BinaryIO, fields: Mapping[str, bytes], tensors: Sequence[TensorInfo], alignment: int
) -> int:
    """Write all that stands before the tensors' data, which begins where this returns, in bytes."""
    made = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(fields))]
    made += [_text(key) + value for key, value in fields.items()]
    for tensor in tensors:
        dimensions = len(tensor.shape)
        layout = f"<I{dimensions}QIQ"
        told = struct.pack(layout, dimensions, *tensor.shape, tensor.type, tensor.offset)
        made += [_text(tensor.name), told]
    header = b"".join(made)
    stream.write(header.ljust(pad(len(header), alignment), b"\0"))
    return pad(len(header), alignment)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
