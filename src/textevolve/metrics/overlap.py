"""Metrics of how near a text comes to a reference text. They need the extra `metrics`: rapidfuzz
and sacrebleu.

Each function here opens a metric with what stands after its name, empty where nothing does.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rapidfuzz.distance import LCSseq, Levenshtein
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from textevolve.errors import InputError
from textevolve.metrics.plain import refuse_argument
from textevolve.metrics.shapes import PlainMetric

TOKENIZERS = ("13a", "intl", "char", "zh", "none")
"""Those of sacrebleu that need no further package."""
_WORD = re.compile(r"[^\W_]+")


def open_edit_distance(argument: str) -> PlainMetric:
    """1 - d / n, with d the Levenshtein distance in characters and n the length of the longer
    text: 1 for the same text, 0 where no character stays. White space around is left out."""
    refuse_argument("edit-distance", argument)
    return lambda output, label: Levenshtein.normalized_similarity(
        output.strip(), str(label).strip()
    )


def open_rouge_l(argument: str) -> PlainMetric:
    """See `rouge_l`."""
    refuse_argument("rouge-l", argument)
    return lambda output, label: rouge_l(output, str(label))


def rouge_l(output: str, label: str) -> float:
    """ROUGE-L, the F1 of the longest common subsequence of words (C.-Y. Lin, "ROUGE: A Package for
    Automatic Evaluation of Summaries", 2004, section 3.1, with beta = 1).

    Words are runs of letters and digits in lower case, without stemming. A text without words
    scores 1 against the same text and 0 against any other.
    """
    ours, theirs = (_WORD.findall(text.lower()) for text in (output, label))
    if not ours or not theirs:
        return float(output.strip() == label.strip())
    common = LCSseq.similarity(ours, theirs)
    return 2 * common / (len(ours) + len(theirs))


def open_bleu(tokenizer: str) -> PlainMetric:
    """BLEU of one sentence / 100 (Papineni et al. 2002), by sacrebleu: orders that are longer than
    the output are left out, and exponential smoothing."""
    if tokenizer and tokenizer not in TOKENIZERS:
        raise InputError(
            f"metric bleu:{tokenizer}: no tokenizer '{tokenizer}'; there are:"
            f" {', '.join(TOKENIZERS)}"
        )
    scorer = _bleu(tokenizer or TOKENIZERS[0])
    return lambda output, label: _share(scorer, output, label)


def open_chrf(argument: str) -> PlainMetric:
    """chrF2 / 100, the F-score of character n-grams up to 6 (Popović 2015), by sacrebleu."""
    refuse_argument("chrf", argument)
    return lambda output, label: _share(_chrf(0), output, label)


def open_chrf_words(argument: str) -> PlainMetric:
    """chrF++ / 100: chrF with words and pairs of words, too (Popović 2017), by sacrebleu."""
    refuse_argument("chrf++", argument)
    return lambda output, label: _share(_chrf(2), output, label)


@lru_cache
def _bleu(tokenizer: str) -> BLEU:
    return BLEU(tokenize=tokenizer, effective_order=True)


@lru_cache
def _chrf(words: int) -> CHRF:
    return CHRF(word_order=words)


def _share(scorer: BLEU | CHRF, output: str, label: Any) -> float:
    """From the scale of 0 to 100; rounding may bring a sentence score of sacrebleu above that."""
    return min(1.0, scorer.sentence_score(output, [str(label)]).score / 100)
