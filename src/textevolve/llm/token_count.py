"""How many tokens a text is about, where no tokeniser is at hand: budgets are kept by it.

It is an estimate. What a call really took is in its `Usage`.
"""

from __future__ import annotations

CHARACTERS_A_TOKEN = 4


def count_tokens(text: str) -> int:
    """Characters / 4, rounded up: about what tokenisers make of English prose."""
    return -(-len(text) // CHARACTERS_A_TOKEN)
