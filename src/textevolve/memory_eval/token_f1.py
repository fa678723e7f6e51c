"""The token F1 of answers to questions of LoCoMo, as its authors compute it (Maharana and others,
Evaluating Very Long-Term Conversational Memory of LLM Agents, ACL 2024; `task_eval/evaluation.py`).
It needs the extra `metrics`: nltk.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import import_module
from statistics import fmean
from typing import Any

from textevolve.memory_eval.dataset import ADVERSARIAL, LOCOMO_TYPES, UNKNOWN

_porter: Any = import_module("nltk.stem.porter")  # it has no types
_stem: Callable[[str], str] = cache(_porter.PorterStemmer().stem)
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_REFUSALS = ("no information available", "not mentioned")


def score_answer(kind: str, answer: str, reference: str) -> float:
    """Return the F1 in [0, 1] of the words that an answer and a reference share. `kind`: the type
    of the question. The parts of a multi-hop reference, between commas, are each compared with the
    best part of the answer. An adversarial question has 1 if the answer says that nothing is known,
    in the words of LoCoMo or ours, and otherwise 0."""
    if kind == LOCOMO_TYPES[ADVERSARIAL]:
        plain = answer.lower()
        return float(_words(plain) == [UNKNOWN] or any(each in plain for each in _REFUSALS))
    if kind != LOCOMO_TYPES[1]:
        return _compare(answer, reference)
    parts = answer.split(",")
    return fmean(
        max(_compare(part, expected) for part in parts) for expected in reference.split(",")
    )


def _compare(answer: str, reference: str) -> float:
    words = Counter(map(_stem, _words(answer)))
    expected = Counter(map(_stem, _words(reference)))
    shared = (words & expected).total()
    return 2 * shared / (words.total() + expected.total()) if shared else 0.0


def _words(text: str) -> list[str]:
    return re.sub(r"\b(?:a|an|the|and)\b", " ", text.lower().translate(_PUNCTUATION)).split()
