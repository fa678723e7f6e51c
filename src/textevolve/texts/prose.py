"""Words and sentences of prose."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+(?:['’.,-]\w+)*")


def split_words(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits; `don't`, `mother-in-law` and `3.5`
    are one word each. Languages that are written without spaces give too few words."""
    return _WORD.findall(text)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text with their closing punctuation; a line break also ends a
    sentence. Pieces without a word are left out."""
    pieces = re.split(r"(?<=[.!?…])\s+|\s*\n\s*", text.strip())
    return [piece for piece in pieces if _WORD.search(piece)]
