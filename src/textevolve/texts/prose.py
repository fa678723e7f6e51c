"""Words and sentences of prose."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+(?:['’.,-]\w+)*")


def split_words(text: str) -> list[str]:
    """Runs of letters and digits; `don't`, `mother-in-law` and `3.5` are one word each. A language
    that is written without spaces has too few of them to be counted."""
    return _WORD.findall(text)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, or its lines, with the marks that end them."""
    pieces = re.split(r"(?<=[.!?…])\s+|\s*\n\s*", text.strip())
    return [piece for piece in pieces if _WORD.search(piece)]
