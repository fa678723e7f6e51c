"""The order in which the branches of a tree are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textevolve.report.blocks import Branch

DEEPEST = 24
"""Deeper branches are drawn at this depth: no page has room for more."""


def walk(roots: Sequence[Branch]) -> Iterator[tuple[int, Branch]]:
    """Every branch below the one that it grows from, with its depth; a tree of any depth."""
    waiting = [(0, root) for root in reversed(roots)]
    while waiting:
        depth, branch = waiting.pop()
        yield depth, branch
        below = min(depth + 1, DEEPEST)
        waiting += [(below, child) for child in reversed(branch.children)]
