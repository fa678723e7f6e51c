"""What changed between two texts, word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

MOST_WORDS = 4000
"""Of longer texts the rest is compared as one piece: the time grows with the product of words."""

_PIECE = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words that both texts have, or one of them."""

    kind: Literal["same", "removed", "added"]
    text: str


def find_differences(old: str, new: str) -> tuple[Piece, ...]:
    """The pieces in order; those that are the same or removed join up to `old`, those that are the
    same or added to `new`."""
    before, after = _split(old), _split(new)
    found: list[Piece] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            found.append(Piece("same", "".join(before[a:b])))
            continue
        if b > a:
            found.append(Piece("removed", "".join(before[a:b])))
        if d > c:
            found.append(Piece("added", "".join(after[c:d])))
    return tuple(found)


def _split(text: str) -> Sequence[str]:
    """Words with the space after them."""
    pieces = _PIECE.findall(text)
    if len(pieces) <= MOST_WORDS:
        return pieces
    return [*pieces[:MOST_WORDS], "".join(pieces[MOST_WORDS:])]
