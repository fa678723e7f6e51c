"""What changed between two texts: line by line, and word by word within lines that changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from textevolve.report import wording

MOST_WORDS = 4000
"""Of longer texts the rest is compared as one piece: the time grows with the product of words."""

LONG = 1000
MOST_CHARACTERS = 40_000
CONTEXT = 3
"""Lines that did not change, shown around those that did."""

ALIKE = 0.3
"""Below this share of words in common a line is said to be another, not a changed one."""

_PIECE = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of words that both texts have, or one of them."""

    kind: Literal["same", "removed", "added"]
    text: str


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of one of the texts or of both; a `gap` says how many unchanged lines are left out."""

    kind: Literal["same", "removed", "added", "gap"]
    pieces: Sequence[Piece]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def find_differences(old: str, new: str) -> tuple[Piece, ...]:
    """The pieces in order; those that are the same or removed join up to `old`, those that are the
    same or added to `new`."""
    before, after = _split(old), _split(new)
    found: list[Piece] = []
    # In long texts words that stand there over and over are no anchors, else it takes seconds.
    matcher = SequenceMatcher(None, before, after, autojunk=len(after) > LONG)
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


def find_changed_lines(before: str, after: str) -> tuple[DiffLine, ...]:
    """The lines that changed amid a few that did not, control characters written out; empty where
    no difference can be seen."""
    old, new = (
        wording.visible(wording.clip(text, MOST_CHARACTERS)).split("\n") for text in (before, after)
    )
    if old == new:
        return ()
    found: list[DiffLine] = []
    done = 0
    # Lines that stand in a text over and over are no anchors, else the time grows quadratically.
    for group in SequenceMatcher(None, old, new, autojunk=True).get_grouped_opcodes(CONTEXT):
        found += _gap(old[done : group[0][1]])
        for kind, a, b, c, d in group:
            if kind == "equal":
                found += [DiffLine("same", (Piece("same", line),)) for line in old[a:b]]
            else:
                found += _changed(old[a:b], new[c:d])
        done = group[-1][2]
    return (*found, *_gap(old[done:]))


def _gap(skipped: Sequence[str]) -> list[DiffLine]:
    if len(skipped) < 2:
        return [DiffLine("same", (Piece("same", line),)) for line in skipped]
    return [DiffLine("gap", (Piece("same", wording.count(len(skipped), "unchanged line")),))]


def _changed(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    """Lines taken out, then lines put in, with the words that differ as pieces of their own."""
    pieces = find_differences("\n".join(old), "\n".join(new)) if old and new else ()
    alike = sum(len(p.text) for p in pieces if p.kind == "same")
    longest = max(sum(map(len, old)), sum(map(len, new)))
    if not pieces or alike < ALIKE * longest:
        yield from (DiffLine("removed", (Piece("same", line),)) for line in old)
        yield from (DiffLine("added", (Piece("same", line),)) for line in new)
        return
    for side in ("removed", "added"):
        yield from (DiffLine(side, line) for line in _lines_of(pieces, side))


def _lines_of(pieces: Sequence[Piece], side: Literal["removed", "added"]) -> list[list[Piece]]:
    lines: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.kind not in ("same", side):
            continue
        first, *rest = piece.text.split("\n")
        lines[-1].append(Piece(piece.kind, first))
        lines += [[Piece(piece.kind, part)] for part in rest]
    return [[piece for piece in line if piece.text] for line in lines]
