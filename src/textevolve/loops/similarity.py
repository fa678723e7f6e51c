"""How alike two texts are, by their words: to notice copies, not to compare meanings.

Also whether a text that was written anew can be one at all.
"""

from __future__ import annotations

from difflib import SequenceMatcher

WORDS_COMPARED = 1000
"""Of longer texts only the first so many words are compared: the time grows with their product."""


def text_similarity(one: str, other: str) -> float:
    """Share in [0, 1] of the words of both that stand in the same order; 1 for the same words."""
    ours, theirs = (text.casefold().split()[:WORDS_COMPARED] for text in (one, other))
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


NEAR_COPY = 0.98
SHORTEST, LONGEST, LEEWAY = 0.2, 4.0, 1500
"""A refined input is degenerate when it is nearly the last one, or shorter or longer by these
factors (with so many characters more for a short one)."""


def tell_degenerate(text: str, before: str) -> str:
    """Why a refined input cannot be one; empty where it can."""
    if "\0" in text:
        return "it holds a NUL character"
    if len(text) < SHORTEST * len(before):
        return f"absurdly short: {len(text)} characters after {len(before)}"
    if len(text) > LONGEST * len(before) + LEEWAY:
        return f"absurdly long: {len(text)} characters after {len(before)}"
    if text_similarity(text, before) >= NEAR_COPY:
        return "nearly a copy of the input before"
    return ""
