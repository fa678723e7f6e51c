"""How alike two texts are, by their words: to notice copies, not to compare meanings."""

from __future__ import annotations

from difflib import SequenceMatcher

WORDS_COMPARED = 1000
"""Of longer texts only the first so many words are compared: the time grows with their product."""


def text_similarity(one: str, other: str) -> float:
    """Share in [0, 1] of the words of both that stand in the same order; 1 for the same words."""
    ours, theirs = (text.casefold().split()[:WORDS_COMPARED] for text in (one, other))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()
