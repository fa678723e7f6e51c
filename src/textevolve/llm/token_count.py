"""How many tokens a text is about, where no tokeniser is at hand: budgets are kept by it.

It is an estimate. What a call really took is in its `Usage`.
"""

from __future__ import annotations

CHARACTERS_A_TOKEN = 4


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: characters / 4, rounded up, which fits English prose."""
    return -(-len(text) // CHARACTERS_A_TOKEN)
