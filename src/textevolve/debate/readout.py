"""How scores are read out of a model (spec: score readout).

`verbalized` takes the numbers in the answer. `logprob-weighted` weighs the alternatives of each
number's tokens by their probability. `after-argument` and `pointwise` ask yes / no questions,
see `deciding.py`; such a score is 10 x P(yes) / (P(yes) + P(no)). A readout that an endpoint cannot
give is a `CapabilityError`; none ever stands in for another.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from textevolve.debate.result import Points
from textevolve.errors import AnswerError, CapabilityError
from textevolve.llm.choice_logprobs import probability
from textevolve.llm.model import Response, TokenLogprobs
from textevolve.llm.refusals import NO_LOGPROBS
from textevolve.llm.structured import find_object
from textevolve.texts.numbers import take_decimal

HIGHEST = 10


def _plain_number(value: object) -> object:
    """A number, or a text that is one plain number, also of ten (8, 8.5, 8/10)."""
    if type(value) is int or type(value) is float:
        return value
    return take_decimal(_OF_TEN.sub("", value) if isinstance(value, str) else value)


_OF_TEN = re.compile(rf"\s*/\s*{HIGHEST}\s*$", re.ASCII)
_Score = Annotated[
    float, Field(ge=0, le=HIGHEST, allow_inf_nan=False), BeforeValidator(_plain_number)
]
_WholeScore = Annotated[int, Field(ge=0, le=HIGHEST), BeforeValidator(_plain_number)]
_NUMBER = r'\s*:\s*"?([0-9]+(?:\.[0-9]+)?)(?![\w.])'


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    argument: str


class _Bare(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class _Points(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    strengths: str
    weaknesses: str
    instructions: str


CHARACTERS_A_WORD = 7


def keep_words(text: str, most: int | None) -> str:
    """A text cut to so many words: after a whole sentence, if one ends beyond the first third."""
    words = text.split()
    limit = None if most is None else CHARACTERS_A_WORD * most
    if most is None or limit is None or (len(words) <= most and len(text) < limit):
        return text
    kept = " ".join(words[:most]) if len(words) > most else " ".join(words[:-1])
    end = max(kept.rfind(mark) for mark in ".!?")
    return kept[: end + 1] if end >= len(kept) // 3 else f"{kept} …"


@lru_cache(maxsize=512)
def answer_type(
    labels: tuple[int, ...], components: tuple[str, ...], readout: str, words: int | None = None
) -> type[BaseModel]:
    """The type of a turn's answer: the argument first, then each response under its label.

    With an argument of so many `words` there are no remarks; then responses have their scores, if
    those are stated, and nothing else.
    """
    points: type[BaseModel] = _Points
    base: type[BaseModel] = _Answer
    if words is not None:
        points = _Bare
        # For servers whose grammar keeps to it, as small models would not by themselves; a pattern
        # of so many words took llama.cpp minutes.
        longest: dict[str, Any] = {"maxLength": CHARACTERS_A_WORD * words}
        argument: Any = (str, Field(json_schema_extra=longest))
        base = create_model("Answer", __base__=_Answer, argument=argument)
    if readout in ("verbalized", "logprob-weighted"):
        kind: Any = _WholeScore if readout == "logprob-weighted" else _Score
        fields: dict[str, Any] = {
            f"c{k}": (kind, Field(alias=name)) for k, name in enumerate(components)
        }
        config = ConfigDict(extra="forbid")
        scores = create_model("Scores", __config__=config, **fields)
        points = create_model("Points", __base__=points, scores=(scores, ...))
    elif words is not None:
        return base
    responses: dict[str, Any] = {
        f"response_{n}": (points, Field(alias=f"Response {n}")) for n in labels
    }
    return create_model("Answer", __base__=base, **responses)


def read_points(answer: BaseModel, labels: tuple[int, ...]) -> tuple[Points, ...]:
    """What the answer says about each candidate, in the case's order; `labels` is in that order."""
    found = [getattr(answer, f"response_{n}") for n in labels]
    return tuple(Points(f.strengths, f.weaknesses, f.instructions) for f in found)


def read_verbalized(answer: BaseModel, labels: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    """The stated scores, j x k, in the case's order; a model's fields come in their own order."""
    given: list[BaseModel] = [getattr(answer, f"response_{n}").scores for n in labels]
    return tuple(tuple(map(float, vars(scores).values())) for scores in given)


def read_weighted(
    response: Response, labels: tuple[int, ...], shown: tuple[int, ...], components: tuple[str, ...]
) -> tuple[tuple[float, ...], ...]:
    """Each score as the expectation over its number's tokens, j x k, in the case's order.

    `shown` are the labels in the order of the answer. An alternative first digit counts as the
    whole number, except that "1" shares its probability with "10" where the answer took that way.

    Raises:
        CapabilityError: the endpoint gave no log-probabilities.
        AnswerError: the numbers cannot be found again among the tokens.
    """
    if not response.logprobs:
        raise CapabilityError(
            f"{NO_LOGPROBS}, which the readout 'logprob-weighted' needs; take a model that does"
        )
    starts: list[int] = []
    text = ""
    for token in response.logprobs:
        starts.append(len(text))
        text += token.token
    found: dict[int, tuple[float, ...]] = {}
    start = find_object(text) or 0  # a label may also stand in thoughts and prose before it
    for n in shown:
        place = re.compile(rf'"Response {n}"\s*:').search(text, start)
        begin = text.find('"scores"', place.end()) if place else -1
        end = text.find("}", begin)
        if begin < 0 or end < 0:
            raise AnswerError(f"the scores of Response {n} are not found among the tokens")
        found[n] = tuple(
            _expected_number(text, name, begin, end, starts, response.logprobs)
            for name in components
        )
    return tuple(found[n] for n in labels)


def _expected_number(
    text: str,
    name: str,
    begin: int,
    end: int,
    starts: list[int],
    tokens: tuple[TokenLogprobs, ...],
) -> float:
    key = re.escape(json.dumps(name, ensure_ascii=False))
    match = re.compile(key + _NUMBER).search(text, begin, end)
    if match is None:
        raise AnswerError(f"no number for {name} is found among the tokens")
    first = max(i for i, start in enumerate(starts) if start <= match.start(1))
    numbers = _alternatives(tokens[first])
    if "1" in numbers and tokens[first].token.strip().strip('":') == "1":
        follows = tokens[first + 1] if first + 1 < len(tokens) else None
        tenth = _share_of_zero(follows) if follows else 0.0
        numbers["10"] = numbers.get("10", 0.0) + numbers["1"] * tenth
        numbers["1"] *= 1.0 - tenth
    total = sum(numbers.values())
    if total <= 0:
        raise AnswerError(f"the number for {name} has no digits among its alternatives")
    return min(float(HIGHEST), sum(float(n) * p for n, p in numbers.items()) / total)


def _alternatives(token: TokenLogprobs) -> dict[str, float]:
    """Probability of each whole number from 0 to 10 that the token could have been."""
    listed = dict(token.top)
    listed.setdefault(token.token, token.logprob)
    numbers: dict[str, float] = {}
    for text, logprob in listed.items():
        digits = text.strip().strip('":')
        if digits.isascii() and digits.isdigit() and int(digits) <= HIGHEST:
            numbers[digits] = numbers.get(digits, 0.0) + math.exp(logprob)
    return numbers


def _share_of_zero(token: TokenLogprobs) -> float:
    listed = dict(token.top)
    listed.setdefault(token.token, token.logprob)
    return min(1.0, sum(math.exp(p) for text, p in listed.items() if text.strip() == "0"))


def probe_score(log_odds: float) -> float:
    """10 x P(yes) / (P(yes) + P(no))."""
    return HIGHEST * probability(log_odds)
