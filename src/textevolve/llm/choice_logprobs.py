"""Reading a choice between two words out of the log-probabilities of an answer's first token.

What is asked, and what a log-odds means for a score, is the business of whoever asks.
"""

from __future__ import annotations

import math

from textevolve.errors import AnswerError, CapabilityError
from textevolve.llm.model import Response

TOP_LOGPROBS = 20


def read_log_odds(response: Response, one: str = "yes", other: str = "no") -> float:
    """The log-odds of `one` against `other` in the first token of an answer.

    Spellings ("Yes", " yes", "YES.") are added up. A side that is not among the alternatives is
    given the probability of the last one listed, which bounds it from above.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is empty, or neither word is among the alternatives.
    """
    if not response.text and not response.logprobs:
        raise AnswerError("the answer to a yes / no question was empty")
    if not response.logprobs:
        raise CapabilityError(
            "the endpoint gives no log-probabilities, which reading a choice needs;"
            " use --readout verbalized, or a judge that states its scores"
        )
    token = response.logprobs[0]
    listed = dict(token.top)
    listed.setdefault(token.token, token.logprob)
    sides = {one.lower(): 0.0, other.lower(): 0.0}
    for text, logprob in listed.items():
        word = text.strip().strip(".,:;!\"'*()").lower()
        if word in sides:
            sides[word] += math.exp(logprob)
    if not any(sides.values()):
        raise AnswerError(f"answered neither {one} nor {other}, but {token.token!r}")
    least = min(math.exp(p) for p in listed.values())
    first, second = (max(share, min(least, 1e-3), 1e-12) for share in sides.values())
    return math.log(first) - math.log(second)


def probability(log_odds: float) -> float:
    """The probability of the first side, in (0, 1)."""
    if log_odds >= 0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    power = math.exp(log_odds)
    return power / (1.0 + power)
