"""Metrics of the similarity between an output and a reference text. They need the extra `metrics`:
rapidfuzz and sacrebleu.

Both texts are compared in Unicode's composed form. In scripts without spaces each sign is a word.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rapidfuzz.distance import LCSseq, Levenshtein
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from textevolve.texts.prose import compose, fold_case, space_out, split_words

_BLEU = BLEU(effective_order=True)
_CHINESE_BLEU = BLEU(effective_order=True, tokenize="zh")
_CHRF = CHRF(word_order=0)


def edit_distance(output: str, label: Any) -> float:
    """Return the similarity 1 - d / n, with d the Levenshtein distance in characters and n the
    length of the longer text: 1 for equal texts, 0 if no character is in common. White space around
    the texts is ignored."""
    return Levenshtein.normalized_similarity(compose(output).strip(), compose(str(label)).strip())


def rouge_l(output: str, label: Any) -> float:
    """Return ROUGE-L in [0, 1], the F1 of the longest common subsequence of words (C.-Y. Lin,
    "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, section 3.1, with beta = 1).

    Words are runs of letters and digits, without regard to case and without stemming.
    """
    ours = _list_words(fold_case(output))
    theirs = _list_words(fold_case(str(label)))
    common = LCSseq.similarity(ours, theirs)

    return 2 * common / (len(ours) + len(theirs))


def rouge_1(output: str, label: Any) -> float:
    """Return ROUGE-1 in [0, 1], the F1 of the words that two texts share, with words as in
    `rouge_l`."""
    ours = Counter(_list_words(fold_case(output)))
    theirs = Counter(_list_words(fold_case(str(label))))
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total())


def gleu(output: str, label: Any) -> float:
    """Return the GLEU of one sentence in [0, 1]: the smaller of precision and recall of its word
    sequences of up to four words (Wu et al., arXiv 1609.08144, section 3)."""
    ours = _sequences(output)
    theirs = _sequences(str(label))
    return (ours & theirs).total() / max(ours.total(), theirs.total())


def _sequences(text: str) -> Counter[tuple[str, ...]]:
    words = _list_words(compose(text))
    sequences: Counter[tuple[str, ...]] = Counter()
    for length in range(1, 5):
        shifted = (words[start:] for start in range(length))
        sequences.update(zip(*shifted, strict=False))

    return sequences


def _list_words(text: str) -> list[str]:
    """Return the words of a text. A text without words, such as an emoji, counts as one word, so
    that it equals itself alone."""
    return split_words(text, "parts") or [text.strip()]


def bleu(output: str, label: Any) -> float:
    """Return the BLEU of one sentence in [0, 1] (Papineni et al. 2002), by sacrebleu, with
    exponential smoothing; n-grams longer than the output are left out. The tokenizer is that for
    Chinese if the reference has signs of a script without spaces."""
    reference = compose(str(label))
    spaced_reference = space_out(reference)

    # The tokenizer for Chinese also parts marks of full width from a Latin word or a number beside
    # them. It does not part the signs of the other scripts without spaces.
    scorer = _BLEU if spaced_reference == reference else _CHINESE_BLEU
    return _share(scorer, space_out(output), spaced_reference)


def chrf(output: str, label: Any) -> float:
    """Return chrF2 in [0, 1], the F-score of character n-grams up to 6 (Popović 2015), by
    sacrebleu."""
    return _share(_CHRF, compose(output), compose(str(label)))


def _share(scorer: BLEU | CHRF, output: str, label: str) -> float:
    """Return sacrebleu's sentence score as a number in [0, 1]. The score is clipped, since its
    rounding may exceed 100."""
    return min(1.0, scorer.sentence_score(output, [label]).score / 100)
