"""Read a choice between words from the log-probabilities of an answer's first token, and convert
between probabilities and log-odds.

The calling code defines the question, and what the log-odds mean for a score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from textevolve.errors import AnswerError, CapabilityError
from textevolve.llm.model import Response, TokenLogprobs
from textevolve.llm.reasoning import describe_missing_text
from textevolve.llm.refusals import NO_LOGPROBS

TOP_LOGPROBS = 20

UNSURE = 1e-6
"""The distance from 0 and 1 that a probability is moved to before it is converted into log-odds, so
that they stay finite."""


def read_log_odds(response: Response, label: str = "yes", other: str = "no") -> float:
    """Return the log-odds of `label` against `other` in the first token of an answer.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is empty, or neither label is among the alternatives.
    """
    log_probability, other_log_probability = read_labels(first_token(response), (label, other))
    return log_probability - other_log_probability


def first_token(response: Response) -> TokenLogprobs:
    """Return the first token of an answer, with its alternatives.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is empty.
    """
    if not response.text and not response.logprobs:
        raise AnswerError(
            describe_missing_text(response, "the answer to a question with given options")
        )
    if not response.logprobs:
        raise CapabilityError(
            f"{NO_LOGPROBS}, which the reading of a choice needs; use a model that has them"
        )
    return response.logprobs[0]


def read_labels(token: TokenLogprobs, labels: Sequence[str]) -> list[float]:
    """Return the log-probability of each label at the position of a token.

    Spellings ("Yes", " yes", "YES.") are added up. A label that is not among the alternatives is
    given the lowest probability listed, at most 0.001, which bounds it from above. The result is in
    the order of `labels` and not normalised.

    Raises:
        AnswerError: no label is among the alternatives.
    """
    listed = dict(token.top)
    listed.setdefault(token.token, token.logprob)
    shares = dict.fromkeys((label.lower() for label in labels), 0.0)
    for text, logprob in listed.items():
        word = text.strip().strip(".,:;!\"'*()").lower()
        if word in shares:
            shares[word] += math.exp(logprob)
    if not any(shares.values()):
        missing = (
            f"neither {labels[0]} nor {labels[1]}"
            if len(labels) == 2
            else "none of the given options"
        )
        raise AnswerError(f"the model answered {token.token!r}, which is {missing}")
    least = min(math.exp(p) for p in listed.values())
    return [math.log(max(share, min(least, 1e-3), 1e-12)) for share in shares.values()]


def probability(log_odds: float) -> float:
    """Convert log-odds into the probability of the first side, in (0, 1)."""
    if log_odds >= 0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    power = math.exp(log_odds)
    return power / (1.0 + power)


def log_odds(share: float) -> float:
    """Return the log-odds of a probability, or of a score in [0, 1]; they stay finite at 0 and
    1."""
    bounded = min(max(share, UNSURE), 1 - UNSURE)
    return math.log(bounded) - math.log1p(-bounded)


def softmax(logs: Sequence[float]) -> list[float]:
    """Return probabilities that are proportional to the exponentials of the values."""
    most = max(logs)
    powers = [math.exp(log - most) for log in logs]
    total = math.fsum(powers)
    return [power / total for power in powers]
