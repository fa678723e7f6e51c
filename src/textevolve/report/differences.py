"""The words that changed between two texts, amid a little of what did not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from textevolve.report import wording

MOST_CHARACTERS = 40_000
LONG = 1000
CONTEXT = 240
"""Unchanged characters shown before and after a change."""

_PIECE = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words in one or both of two texts; the kind `gap` stands for unchanged words left
    out."""

    kind: Literal["same", "removed", "added", "gap"]
    text: str


def find_differences(before: str, after: str) -> tuple[Piece, ...]:
    """Return the pieces of the difference between two texts in order, control characters written
    out; empty if no difference is visible.

    Equal and removed pieces join up to `before`, equal and added ones to `after`, but for the gaps.
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
    """Yield an unchanged run without its middle; without its beginning at the start of the text
    (`begins`), without its end at the end of the text (`ends`)."""
    head, tail = "" if begins else text[:CONTEXT], "" if ends else text[-CONTEXT:]
    omitted = len(text) - len(head) - len(tail)
    if omitted <= CONTEXT:
        yield Piece("same", text)
        return
    pieces = Piece("same", head), Piece("gap", wording.count(omitted, "unchanged character"))
    yield from (piece for piece in (*pieces, Piece("same", tail)) if piece.text)
