"""What a GGUF file says about text: its chat templates, its BOS and EOS tokens, what is added.

Not here: what kind of model it is (`gguf`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textevolve.llm.gguf import Damaged, HeaderReader, read_counts, read_from

TEMPLATE = "tokenizer.chat_template"
_KINDS = {"llama": True, "bert": True}
"""Tokenizers that add BOS where the file does not say; those of the other kinds do not."""
_SPLITTERS = frozenset(
    (
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        *("lfm2", "jina-v5-nano", "tekken", "chameleon"),
    )
)
"""The same of BPE tokenizers, which llama.cpp knows by how they split words."""
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """`templates`: the chat templates by their names, `default` for the one without a name.
    `adds_bos`: whether the tokenizer puts BOS before a prompt, as llama.cpp decides it."""

    templates: Mapping[str, str]
    bos_token: str | None
    eos_token: str | None
    adds_bos: bool


def read_tokenizer(path: Path) -> GgufTokenizer:
    """Reads the whole header, which takes about half a second for a large vocabulary.

    Raises:
        SettingsError: no such file, not a GGUF, or a header that is cut or damaged.
    """
    texts, numbers, tokens = read_from(path, _read)
    templates = {
        key.removeprefix(TEMPLATE).lstrip(".") or "default": text
        for key, text in texts.items()
        if key.startswith(TEMPLATE)
    }
    kind, splitter = texts.get("tokenizer.ggml.model", ""), texts.get("tokenizer.ggml.pre", "")
    adds = _KINDS.get(kind, kind == "gpt2" and splitter in _SPLITTERS)

    def token(name: str) -> str | None:
        number = numbers.get(f"tokenizer.ggml.{name}_token_id")
        return tokens[number] if number is not None and 0 <= number < len(tokens) else None

    said = numbers.get("tokenizer.ggml.add_bos_token")
    return GgufTokenizer(
        templates, token("bos"), token("eos"), adds_bos=adds if said is None else bool(said)
    )


def _read(reader: HeaderReader) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """Texts and whole numbers of the tokenizer, and its tokens."""
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    tokens: list[str] = []
    for _ in range(read_counts(reader)[1]):
        key, kind = reader.string(), reader.number("<I")
        if kind == _STRING:
            texts[key] = _text(reader)
        elif kind == _ARRAY and key == "tokenizer.ggml.tokens":
            if reader.number("<I") != _STRING:
                raise Damaged("its tokens are no texts")
            tokens = [_text(reader) for _ in range(reader.number("<Q"))]
        else:
            value = reader.value(kind)
            if isinstance(value, int):
                numbers[key] = value
    return texts, numbers, tokens


def _text(reader: HeaderReader) -> str:
    length = reader.number("<Q")
    if length > _LONGEST:
        raise Damaged(f"its header has a text of {length} bytes")
    return reader.take(length).decode("utf-8", "replace")
