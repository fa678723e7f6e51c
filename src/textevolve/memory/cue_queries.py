"""From what a memory is wanted for to the texts that are searched for.

Small embedders read 256 tokens and drop the rest, and one vector of several texts is near to none
of them. So a cue becomes some short queries whose ranks are fused: the input by its beginning and
its end, the beginning of each candidate, and the end of what was said last. What a query weighs is
shared within its group, so that many candidates do not outvote the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

QUERY_CHARACTERS = 800
"""Of a query: about 200 tokens of English."""
CANDIDATE_CHARACTERS = 400
MOST_CANDIDATES = 8
INPUT_WEIGHT, CANDIDATES_WEIGHT, HISTORY_WEIGHT = 1.0, 1.0, 0.25
"""Candidates weigh as much as the input: what they claim is what is to be checked, and an input may
name nothing that could be found (`benchmarks/recall_cue.py`)."""


@dataclass(frozen=True, slots=True)
class CueQuery:
    """A text to search by, and what its ranks weigh."""

    text: str
    weight: float


def make_queries(
    input: str, candidates: Sequence[str] = (), history: str = ""
) -> tuple[CueQuery, ...]:
    """The queries of a cue, none of them blank, each text once; of more than eight candidates the
    first eight, of the history its end."""
    last = history.strip()[-QUERY_CHARACTERS:]
    groups = (
        (INPUT_WEIGHT, _ends(input)),
        (CANDIDATES_WEIGHT, [_begin(text) for text in candidates[:MOST_CANDIDATES]]),
        (HISTORY_WEIGHT, [last if last == history.strip() else _from_word(last)]),
    )
    found: dict[str, float] = {}
    for weight, texts in groups:
        distinct = [text for text in dict.fromkeys(texts) if text]
        for text in distinct:
            found[text] = found.get(text, 0.0) + weight / len(distinct)
    return tuple(CueQuery(text, weight) for text, weight in found.items())


def _ends(text: str) -> list[str]:
    """A text as it is where it is short; else its beginning and its end, where questions stand."""
    text = text.strip()
    if len(text) <= QUERY_CHARACTERS:
        return [text]
    return [_to_word(text[:QUERY_CHARACTERS]), _from_word(text[-QUERY_CHARACTERS:])]


def _begin(text: str) -> str:
    text = text.strip()
    return text if len(text) <= CANDIDATE_CHARACTERS else _to_word(text[:CANDIDATE_CHARACTERS])


def _to_word(text: str) -> str:
    """Without the piece of a word at its end, where it has more than that one."""
    return text.rpartition(" ")[0].strip() or text.strip()


def _from_word(text: str) -> str:
    return text.partition(" ")[2].strip() or text.strip()
