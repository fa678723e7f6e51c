"""The difference between two texts, word by word, with a little of the unchanged text around each
change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from textevolve.report import wording

MOST_CHARACTERS = 40_000  # the length to which longer texts are cut before they are compared
# The number of pieces from which frequent pieces are ignored in the comparison, for speed.
LONG = 1000
CONTEXT = 240
"""The number of unchanged characters that are shown before and after a change."""

_PIECE = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words in the difference of two texts. `kind`: whether they are in both texts
    (`same`), only in the first (`removed`), or only in the second (`added`); `gap` stands for
    unchanged words that are left out."""

    kind: Literal["same", "removed", "added", "gap"]
    text: str


def find_differences(before: str, after: str) -> tuple[Piece, ...]:
    """Return the pieces of the difference between two texts, in order, with control characters
    replaced; empty if no difference is visible. Only the first `MOST_CHARACTERS` of each text are
    compared.

    Apart from gaps, the same and removed pieces form `before`, and the same and added ones form
    `after`.
    """
    old, new = (wording.visible(wording.clip(t, MOST_CHARACTERS)) for t in (before, after))
    return () if old == new else tuple(_compare(_PIECE.findall(old), _PIECE.findall(new)))


def _compare(old: list[str], new: list[str]) -> Iterator[Piece]:
    # In long texts words that stand there over and over are no anchors, else it takes seconds.
    matcher = SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > LONG)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from _shorten("".join(old[a:b]), begins=a == c == 0, ends=b == len(old))
            continue
        if b > a:
            yield Piece("removed", "".join(old[a:b]))
        if d > c:
            yield Piece("added", "".join(new[c:d]))


def _shorten(text: str, *, begins: bool, ends: bool) -> Iterator[Piece]:
    """Yield an unchanged run of words, without its middle if that has more than `CONTEXT`
    characters. `begins`: the run is at the start of the text, so that its beginning may be left
    out, too; `ends`: it is at the end of the text, so that its end may be left out."""
    head, tail = "" if begins else text[:CONTEXT], "" if ends else text[-CONTEXT:]
    omitted = len(text) - len(head) - len(tail)
    if omitted <= CONTEXT:
        yield Piece("same", text)
        return
    pieces = Piece("same", head), Piece("gap", wording.count(omitted, "unchanged character"))
    yield from (piece for piece in (*pieces, Piece("same", tail)) if piece.text)
