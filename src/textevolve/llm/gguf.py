"""The header of a GGUF file: what kind of model it is and how much memory a token of context takes.

Here: reading and judging the header. Not here: where its tensors lie (`gguf_layout`), hashes
(`weights`) and running the model (`local`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from textevolve.errors import SettingsError

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_LONGEST_KEPT = 4096
_MOST_ENTRIES = 65536

T = TypeVar("T")
GgufValue = int | float | bool | str | tuple[int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class Header:
    """`trained_context` in tokens; `cache_bytes_per_token` is the KV cache in 16-bit floats.
    `decision_type`: of a decision model, as llama.cpp names them; empty for all others."""

    architecture: str
    trained_context: int | None
    cache_bytes_per_token: int
    decision_type: str = ""

    @property
    def decides(self) -> bool:
        return bool(self.decision_type)


class Damaged(Exception):
    """The bytes do not follow the format; becomes a SettingsError that names the file."""


class HeaderReader:
    """Reads values in order and never asks for more bytes than the file has."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = self._left = os.fstat(stream.fileno()).st_size

    @property
    def position(self) -> int:
        """Bytes from the beginning of the file."""
        return self._size - self._left

    def take(self, count: int) -> bytes:
        self._claim(count)
        data = self._stream.read(count)
        if len(data) != count:
            raise Damaged("it ends in the middle of its header")
        return data

    def skip(self, count: int) -> None:
        self._claim(count)
        self._stream.seek(count, os.SEEK_CUR)

    def _claim(self, count: int) -> None:
        if count > self._left:
            raise Damaged("it ends in the middle of its header")
        self._left -= count

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        length = self.number("<Q")
        if length > _LONGEST_KEPT:
            self.skip(length)
            return ""
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> GgufValue:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise Damaged(f"its header has a value of unknown kind {kind}")
        return self.number(_SCALARS[kind])

    def _array(self) -> GgufValue:
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _SCALARS:
            layout = _SCALARS[kind]
            size = struct.calcsize(layout)
            if count > _LONGEST_KEPT:
                self.skip(count * size)
                return None
            return struct.unpack(f"<{count}{layout[1]}", self.take(count * size))
        if kind != _STRING:
            raise Damaged(f"its header has an array of unknown kind {kind}")
        for _ in range(count):
            self.skip(self.number("<Q"))
        return None


def read_header(path: Path) -> Header:
    """What the file says about its model.

    Raises:
        SettingsError: no such file, not a GGUF, or a header that is cut or damaged.
    """
    return _judge(read_from(path, _read_entries))


def read_from(path: Path, read: Callable[[HeaderReader], T]) -> T:
    """What `read` finds in the file; what is wrong with that is a SettingsError."""
    try:
        with path.open("rb") as stream:
            return read(HeaderReader(stream))
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: there is no such file of weights") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
    except Damaged as error:
        raise SettingsError(f"{path}: not usable as weights: {error}; fetch it again") from error


def read_counts(reader: HeaderReader) -> tuple[int, int]:
    """How many tensors and how many entries there are, from the beginning of the file."""
    if reader.take(4) != MAGIC:
        raise Damaged("it is not a GGUF file")
    version = reader.number("<I")
    if version not in (2, 3):
        raise Damaged(f"GGUF version {version} is not one that can be read (2 or 3)")
    tensors, entries = reader.number("<Q"), reader.number("<Q")
    if max(tensors, entries) > _MOST_ENTRIES:
        raise Damaged(f"its header claims {tensors} tensors and {entries} entries")
    return tensors, entries


def _read_entries(reader: HeaderReader) -> dict[str, GgufValue]:
    _, count = read_counts(reader)
    entries: dict[str, GgufValue] = {}
    for _ in range(count):
        key = reader.string()
        # The vocabulary is large, and every writer puts it behind what is wanted here.
        if key.startswith("tokenizer.") and _complete(entries):
            break
        entries[key] = reader.value(reader.number("<I"))
    return entries


def _complete(entries: dict[str, GgufValue]) -> bool:
    architecture = entries.get("general.architecture")
    wanted = ("block_count", "context_length", "embedding_length", "attention.head_count")
    return all(f"{architecture}.{name}" in entries for name in wanted)


def _judge(entries: dict[str, GgufValue]) -> Header:
    architecture = str(entries.get("general.architecture", "unknown"))

    def number(name: str) -> int | None:
        value = entries.get(f"{architecture}.{name}")
        return value if isinstance(value, int) and value > 0 else None

    layers = number("block_count") or 0
    heads = _each_layer(entries.get(f"{architecture}.attention.head_count"), layers)
    kv_heads = _each_layer(entries.get(f"{architecture}.attention.head_count_kv"), layers) or heads
    widest = max(heads, default=0)
    head_size = (number("embedding_length") or 0) // widest if widest else 0
    key_size = number("attention.key_length") or head_size
    value_size = number("attention.value_length") or head_size
    return Header(
        architecture=architecture,
        trained_context=number("context_length"),
        cache_bytes_per_token=2 * sum(kv_heads) * (key_size + value_size),
        decision_type=str(entries.get(f"{architecture}.decision.type") or ""),
    )


def _each_layer(value: GgufValue, layers: int) -> Sequence[int]:
    if isinstance(value, tuple):
        return [int(item) for item in value]
    return [value] * layers if isinstance(value, int) else []
