"""Read GGUF files (weights of llama.cpp) by the package `gguf`: a model's header, tokeniser and
tensors.

`weights` hashes the files, `local` runs the models, and `quantize` has the sizes of blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from textevolve.errors import SettingsError
from textevolve.mappings import drop_empty

NEEDS_GGUF = (
    "reading GGUF files needs the package gguf, which is not installed:"
    ' pip install "textevolve[local]"'
)
LONG_LIST = 4096
"""The number of entries from which a list, such as a vocabulary, is skipped if only the header is
read."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The properties of a model in the header of its GGUF file.

    Attributes:
        trained_context: The tokens of context that the model was trained with; None if unknown.
        cache_bytes_per_token: The size of the KV cache in 16-bit floats.
        decision_type: The type of a decision model, as llama.cpp names it; empty for other models.
    """

    trained_context: int | None
    cache_bytes_per_token: int
    decision_type: str

    @property
    def decides(self) -> bool:
        return bool(self.decision_type)


def open_gguf(path: Path, *, header_only: bool = False) -> Any:
    """Return a `gguf.GGUFReader` of the file. With `header_only` neither long lists nor tensors are
    read; a large vocabulary would take seconds.

    Raises:
        SettingsError: the package gguf is missing, there is no such file, or the file is cut off,
            damaged or not GGUF.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise ValueError("it is not a GGUF file")
        return _reader_class()(path, header_only)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, LookupError, OverflowError, struct.error) as error:
        raise SettingsError(
            f"{path}: not usable as weights: {error}; fetch it again, or update the package gguf"
        ) from error


@cache
def _reader_class() -> Any:
    try:
        package: Any = import_module("gguf")
    except ImportError as error:
        raise SettingsError(NEEDS_GGUF) from error

    base: Any = package.GGUFReader

    class Reader(base):
        """Refuse files that end within their header, which the package's reader takes for empty
        values, and skip long lists where only a header is read."""

        def __init__(self, path: Path, header_only: bool) -> None:
            self.header_only = header_only
            base.__init__(self, path)
            if self.byte_order != "I":
                raise ValueError("it is written for processors of the other byte order")

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            values = base._get(self, offset, dtype, count, override_order)
            if len(values) < count:
                raise ValueError("the file is cut off, or damaged")
            return values

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            kinds = package.GGUFValueType
            if self.header_only and raw_type == kinds.ARRAY:
                kind, length = struct.unpack_from("<IQ", self.data, orig_offs)
                end = orig_offs + 12
                scalar = self.gguf_scalar_to_np.get(kind)
                if length > LONG_LIST and scalar is not None:
                    return 12 + length * scalar().itemsize, [], [], []
                if length > LONG_LIST and kind == kinds.STRING:
                    for _ in range(length):
                        end += 8 + struct.unpack_from("<Q", self.data, end)[0]
                    return end - orig_offs, [], [], []

            return base._get_field_parts(self, orig_offs, raw_type)

        def _build_tensor_info(self, offs: int, count: int) -> Any:
            return (offs, []) if self.header_only else base._build_tensor_info(self, offs, count)

    return Reader


def read_field(reader: Any, key: str) -> Any:
    """Return the value of a key in the metadata; None if the file has no such key."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def validate_model(reader: Any, path: Path, *, whole: bool = False) -> None:
    """Raise SettingsError if a file is no model that can be loaded by its name: it is a later part
    of one, or the projector or an adapter of one. `whole`: whether it may not be the first part
    either."""
    kind = read_field(reader, "general.type")
    if read_field(reader, "general.architecture") == "clip":
        raise SettingsError(
            f"{path}: is the projector of images of a model (mmproj), which does not answer itself;"
            " name the model's own file"
        )
    if kind in ("adapter", "imatrix", "mmproj"):
        raise SettingsError(
            f"{path}: is no model by itself (its general.type is {kind}); name the model's own"
            " file, into which llama.cpp's llama-export-lora merges an adapter"
        )
    if read_field(reader, "split.no") or (whole and (read_field(reader, "split.count") or 0) > 1):
        raise SettingsError(
            f"{path}: is one part of several; join them with llama.cpp's gguf-split, or name the"
            " first one to load all"
        )


def read_header(path: Path) -> GgufHeader:
    """Read a model's properties from its file's header; cached while the file is unchanged.

    Raises:
        SettingsError: the package gguf or the file is missing, or the file is damaged, not GGUF, or
            no whole model.
    """
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    return _read_header(path, changed)


@lru_cache(maxsize=64)
def _read_header(path: Path, _changed: int) -> GgufHeader:
    reader = open_gguf(path, header_only=True)
    validate_model(reader, path)
    architecture = read_field(reader, "general.architecture") or "unknown"

    def number(name: str) -> int:
        value = read_field(reader, f"{architecture}.{name}")
        return value if isinstance(value, int) and value > 0 else 0

    def per_layer(name: str) -> Sequence[int]:
        value: Any = read_field(reader, f"{architecture}.{name}")
        return value if isinstance(value, list) else [value or 0] * number("block_count")  # pyright: ignore[reportUnknownVariableType]

    heads = per_layer("attention.head_count")
    kv_heads = per_layer("attention.head_count_kv")
    head_size = number("embedding_length") // (max(heads, default=0) or 1)
    key_size = number("attention.key_length") or head_size
    value_size = number("attention.value_length") or head_size

    return GgufHeader(
        trained_context=number("context_length") or None,
        cache_bytes_per_token=2 * (sum(kv_heads) or sum(heads)) * (key_size + value_size),
        decision_type=read_field(reader, f"{architecture}.decision.type") or "",
    )


NAMED_TEMPLATE = "tokenizer.chat_template."
TOKENS = {
    "unknown": "unk_token",
    "seperator": "sep_token",  # as llama.cpp writes it
    "separator": "sep_token",
    "padding": "pad_token",
    "cls": "cls_token",
    "mask": "mask_token",
}
"""The names of further special tokens in chat templates, by their names in the metadata."""


@dataclass(frozen=True, slots=True)
class TokenizerTexts:
    """The chat templates and special tokens of a model.

    Attributes:
        template: The default template; empty if there are only named ones.
        bos: The token at the beginning, and `eos`: at the end; None if the file names none.
        tokens: Further special tokens by their names in templates.
        named: Further templates by their names.
    """

    template: str
    bos: str | None
    eos: str | None
    tokens: dict[str, str]
    named: dict[str, str]


def read_tokenizer(path: Path) -> TokenizerTexts:
    """Return the chat templates and special tokens. The whole header is read, which takes some
    seconds for a large vocabulary.

    Raises:
        SettingsError: the file has no chat template, is missing or damaged, or the package gguf is
            missing.
    """
    reader = open_gguf(path)
    template = read_field(reader, "tokenizer.chat_template") or ""
    # By their keys, as llama.cpp finds them: not every writer lists their names, too.
    sources_by_name = drop_empty(
        {
            key.removeprefix(NAMED_TEMPLATE): read_field(reader, key)
            for key in reader.fields
            if key.startswith(NAMED_TEMPLATE)
        }
    )
    if not template and not sources_by_name:
        raise SettingsError(f"{path}: this GGUF file has no chat template in its metadata")

    def token(name: str) -> str | None:
        number = read_field(reader, f"tokenizer.ggml.{name}_token_id")
        vocabulary = reader.get_field("tokenizer.ggml.tokens")
        if number is None or vocabulary is None or number >= len(vocabulary.data):
            return None
        return vocabulary.contents(number)

    tokens = {name: text for key, name in TOKENS.items() if (text := token(key)) is not None}

    return TokenizerTexts(template, token("bos"), token("eos"), tokens, sources_by_name)
