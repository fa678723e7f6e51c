"""An estimate of the tokens of a text without a tokeniser, by which budgets are kept.

The tokens that a call really used are in its `Usage`.
"""

from __future__ import annotations

CHARACTERS_A_TOKEN = 4


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: characters / 4, rounded up, which fits English prose."""
    return -(-len(text) // CHARACTERS_A_TOKEN)
