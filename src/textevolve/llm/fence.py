"""Fences around texts that are data, so that nothing inside them can pass for an instruction of the
prompt.

The marks around a text contain a random code (nonce) that occurs in none of the texts, so a
candidate cannot close its own fence. A quotation needs no closing: every line of it begins with a
sign. Control tokens of the formats in `chat_formats.catalogue` inside a text are broken up, since
many servers would read them as a change of speaker; markers that are plain words, such as `USER:`,
stay. Attempts to forge a mark are counted and shown with the result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

NONCE_LENGTH = 12
EXAMPLE_NONCE = "0" * NONCE_LENGTH
"""The code in the marks of examples. It is the same in all prompts, so that servers keep them in
their cache. A text that contains it is broken up like any other forged mark."""
_FORGED = re.compile(
    # A mark like ours, whatever its nonce. In linear time: no part can match where another could.
    r"\[\[\s*(?:/\s*)?[0-9a-fA-F]{6,}\b[^\[\]\n]*\]\]"
    r"|<\|[^|\n]{1,40}\|>|</?s>|<</?SYS>>|\[/?INST\]"
    r"|<(?:start|end)_of_(?:turn|image)>|<｜[^｜\n]{1,40}｜>"
    r"|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<(?:bos|eos|BOS_TOKEN|EOS_TOKEN)>|</?tool_(?:call|response)>"
)
JOINER = "\u2060"
"""The word joiner, an invisible character that is no part of any marker. Inserted into a marker, it
breaks the marker up."""


def draw_nonce(texts: Iterable[str], seed: int) -> str:
    """Return a code (nonce) of 12 hexadecimal digits that is computed from the texts and the seed
    alone, and occurs in none of the texts."""
    all_texts = tuple(texts)
    digest = hashlib.sha256(str(seed).encode())
    for text in all_texts:
        digest.update(b"\0" + text.encode("utf-8", "surrogatepass"))
    while True:
        nonce = digest.hexdigest()[:NONCE_LENGTH]
        if not any(nonce in text.lower() for text in all_texts):
            return nonce
        digest.update(b"again")


@lru_cache(maxsize=256)
def literal_pattern(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Return a regular expression that matches any of the texts, preferring the longest."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


def sanitize(text: str, nonce: str) -> tuple[str, int]:
    """Return the text with forged marks, control tokens of chat formats and the nonce itself broken
    up by an invisible character, and the number of these places. Time is linear in the text."""
    text, count = _FORGED.subn(_break_up, text)
    # A model can be talked into repeating the nonce that it saw; candidates cannot know it.
    if nonce.lower() not in text.lower():  # nearly always, and a pattern costs more than this
        return text, count
    text, leaks = re.compile(re.escape(nonce), re.IGNORECASE).subn(_break_up, text)
    return text, count + leaks


def _break_up(match: re.Match[str]) -> str:
    return match[0][0] + JOINER + match[0][1:]


def fence(name: str, text: str, nonce: str) -> str:
    """Put a sanitized text between an opening and a closing mark, which hold the nonce."""
    return f"[[{nonce} {name}]]\n{text}\n[[/{nonce} {name}]]\n"


def fenced(name: str, text: str, nonce: str) -> str:
    """Sanitize a text, and put it between an opening and a closing mark."""
    return fence(name, sanitize(text, nonce)[0], nonce)


def number_lines(texts: Iterable[str]) -> str:
    """Number texts from 1, each on a line of its own."""
    return "\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))


def quote(text: str) -> str:
    """Put a quotation sign before each line of a sanitized text."""
    quoted = "".join(f"> {line}" for line in text.splitlines(keepends=True) or [""])
    return quoted if quoted.endswith("\n") else f"{quoted}\n"
