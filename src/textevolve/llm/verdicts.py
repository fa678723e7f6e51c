"""Read verdicts out of the tokens of an answer: the log-probabilities of given words, and the
expected value of a number.

An endpoint may list more tokens than those of the answer, such as a thought, and a model may write
a line break or a mark before its first word. So the tokens are aligned with the answer's text
first, and marks at its beginning are passed over. Then the probabilities of all alternatives are
summed by their words. If the options have too little of the probability, there is no verdict.

The calling code defines the question, and what the verdict means for a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from textevolve.errors import AnswerError, CapabilityError
from textevolve.llm.model import Message, Request, Response, TokenLogprobs
from textevolve.llm.refusals import NO_LOGPROBS
from textevolve.llm.structured import describe_fault
from textevolve.protocol.contents import align_tokens

TOP_LOGPROBS = 20
"""The number of alternatives that are requested for each token."""

LEAST_MASS = 0.5
"""The least share of the probability that the options must have together. From a half on, what the
model says is more likely an option than anything else, and the rest cannot turn a verdict on which
all of the options' probability agrees."""

MOST_UNLISTED = 0.02
"""The most that the options which an endpoint does not list may have of the verdict. An endpoint
that lists the chosen token alone says nothing of the others, which may have all of the rest."""

LARGEST_EXCESS = 0.02
"""The largest amount by which rounding may raise the sum of all probabilities above 1."""

UNLIKELY = 1e-3
"""The highest probability that is assumed for an option which is not listed."""

LEAST = 1e-12
"""The lowest probability of an option, so that its logarithm is finite."""

BESIDE = 12
"""The number of characters after an option within which another one makes the answer unclear."""

_MARKS = " \t\r\n\ufeff.,:;!?\"'“”‘’`*_#()[]{}▁Ġ"
"""The characters around a word that do not belong to it: punctuation, Markdown, and the marks by
which some tokenisers write a space."""


def word_request(messages: tuple[Message, ...], seed: int | None, sample: int = 0) -> Request:
    """Return the request for an answer of one word, whose alternatives are read."""
    return Request(
        messages=messages,
        temperature=0.0,
        max_tokens=1,
        seed=seed,
        sample=sample,
        top_logprobs=TOP_LOGPROBS,
    )


def read_log_odds(response: Response, label: str = "yes", other: str = "no") -> float:
    """Return the log-odds of `label` against `other` in an answer that is one of the two words.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is no verdict; says why.
    """
    log_probability, other_log_probability = read_labels(response, (label, other))
    return log_probability - other_log_probability


def read_labels(response: Response, labels: Sequence[str]) -> list[float]:
    """Return the log-probability of each label in an answer that is one of them.

    Spellings ("Yes", " yes", "YES.") are added up. A label that is not among the alternatives is
    given the lowest probability listed, at most `UNLIKELY`, which bounds it from above. The result
    is in the order of `labels` and not normalised.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the answer is empty, failed or refused, the labels have less than `LEAST_MASS`
            of the probability, or labels that are not listed may have more than `MOST_UNLISTED`.
    """
    token = _find_word(response, labels)
    alternatives = list_alternatives(token)
    shares = dict.fromkeys((label.lower() for label in labels), 0.0)
    for text, share in alternatives:
        word = text.strip(_MARKS).lower()
        if word in shares:
            shares[word] += share

    mass = sum(shares.values())
    if mass < LEAST_MASS:
        raise AnswerError(f"{_describe_other(token.token, labels)}{_describe_mass(mass)}")
    least = min(share for _, share in alternatives)
    _require_listed(shares, alternatives, mass, least)
    _require_one_option(response.text, token.token.strip(_MARKS), labels)

    return [math.log(max(share, min(least, UNLIKELY), LEAST)) for share in shares.values()]


def _find_word(response: Response, labels: Sequence[str]) -> TokenLogprobs:
    """Return the first token of an answer's text that is a word."""
    # An answer of one token always ends at its limit, so it may be cut.
    subject = "the answer to a question with given options"
    if fault := describe_fault(response, subject, may_be_cut=True):
        raise AnswerError(fault)
    if not response.logprobs:
        raise CapabilityError(
            f"{NO_LOGPROBS}, which the reading of a choice needs; use a model that has them"
        )

    tokens = align_tokens(response.logprobs, response.text)
    if not tokens:
        raise AnswerError(
            f"the verdict cannot be read: the model answered {response.text[:40]!r}, and the"
            f" endpoint lists tokens of another text, such as {response.logprobs[0].token!r}"
        )

    words = (token for token in tokens if token.token.strip(_MARKS))
    word = next(words, None)
    if word is None:
        raise AnswerError(_describe_other(response.text[:40], labels))

    return word


def _require_listed(
    shares: Mapping[str, float],
    alternatives: Sequence[tuple[str, float]],
    mass: float,
    least: float,
) -> None:
    """Raise AnswerError if labels that the endpoint does not list could change the verdict. They
    have at most the probability that no alternative has, and each at most that of the least
    likely alternative."""
    missing = [label for label, share in shares.items() if not share]
    rest = max(0.0, 1 - sum(share for _, share in alternatives))
    possible = min(rest, len(missing) * least)
    if possible > MOST_UNLISTED * (mass + possible):
        raise AnswerError(
            f"the verdict cannot be read: the endpoint lists {len(alternatives)} of the likely"
            f" words, without {' and '.join(missing[:3])}, which may have {possible:.0%} of the"
            " probability; use a model whose endpoint lists more"
        )


def _require_one_option(text: str, word: str, labels: Sequence[str]) -> None:
    """Raise AnswerError if an answer begins with several options, as in "Yes or No? No". They count
    only if they are written like the first one, since "Yes, no doubt" is an answer."""
    place = text.find(word)
    following = text[place + len(word) : place + len(word) + BESIDE]
    others = {label.lower() for label in labels} - {word.lower()}

    for other in re.findall(r"\w+", following):
        if other.lower() in others and other.istitle() == word.istitle():
            raise AnswerError(
                f"the verdict cannot be read: the model answered {text[:40]!r}, which begins with"
                " several of the options"
            )


def _describe_other(answer: str, labels: Sequence[str]) -> str:
    options = "none of the given options"
    if len(labels) == 2:
        options = f"neither {labels[0]} nor {labels[1]}"
    return f"the model answered {answer!r}, which is {options}"


def _describe_mass(mass: float) -> str:
    if not mass:
        return ""
    return (
        f": they have only {mass:.2g} of the probability, and at least {LEAST_MASS:g} is needed for"
        " a verdict"
    )


def list_alternatives(token: TokenLogprobs) -> list[tuple[str, float]]:
    """Return the texts that a token could have been, itself included, each with its probability.

    Different tokens may have the same text, so a text may occur more than once. A server that
    lists the chosen token a second time is recognised by a sum above 1.

    Raises:
        AnswerError: the probabilities are no distribution.
    """
    alternatives = [(text, logprob) for text, logprob in token.top]
    if token.token not in dict(alternatives):
        alternatives.append((token.token, token.logprob))
    if _sum(alternatives) > 1 + LARGEST_EXCESS:
        alternatives = list(dict.fromkeys(alternatives))
    if _sum(alternatives) > 1 + LARGEST_EXCESS:
        raise AnswerError(
            f"the verdict cannot be read: the probabilities of the token {token.token!r} and its"
            f" alternatives add up to {_sum(alternatives):.2f}, so they are no distribution"
        )

    return [(text, math.exp(logprob)) for text, logprob in alternatives]


def _sum(alternatives: Sequence[tuple[str, float]]) -> float:
    # A number above 0 is no log-probability, however large.
    return math.fsum(math.exp(min(logprob, 1.0)) for _, logprob in alternatives)


_NUMBER = re.compile(r"[0-9]+")


def expect_number(tokens: Sequence[TokenLogprobs], place: int, highest: int) -> float | None:
    """Return the expected value of the whole number that begins at a token, in [0, highest].

    An alternative first digit counts as the whole number, except that "1" shares its probability
    with "10" if the answer continued with a 0. None if numbers have less than `LEAST_MASS` of the
    probability.

    Raises:
        AnswerError: the probabilities are no distribution.
    """
    numbers = _weigh_numbers(tokens[place], highest)

    if "1" in numbers and tokens[place].token.strip(_MARKS) == "1" and highest >= 10:
        following = tokens[place + 1 : place + 2]
        tenth = sum(_weigh_numbers(token, highest).get("0", 0.0) for token in following)
        tenth = min(1.0, tenth)
        numbers["10"] = numbers.get("10", 0.0) + numbers["1"] * tenth
        numbers["1"] *= 1.0 - tenth

    total = sum(numbers.values())
    if total < LEAST_MASS:
        return None

    return min(float(highest), sum(float(n) * p for n, p in numbers.items()) / total)


def _weigh_numbers(token: TokenLogprobs, highest: int) -> dict[str, float]:
    """Return the probability of each whole number up to `highest` that the token could have
    been."""
    numbers: dict[str, float] = {}
    for text, share in list_alternatives(token):
        digits = text.strip(_MARKS)
        if _NUMBER.fullmatch(digits) and int(digits) <= highest:
            numbers[digits] = numbers.get(digits, 0.0) + share

    return numbers
