"""A judge that asks no chat model whether the context supports a text.

Late interaction (Khattab and Zaharia, ColBERT, SIGIR 2020) compares each token of a statement with
the nearest token of the context. A statement that adds something has tokens that nothing in the
context resembles, so its weakest tokens are what counts, and not the mean, in which a single wrong
word is lost. Numbers and names, whose vectors resemble each other, are also compared by their
letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import regex

from textevolve.engine.local import gather_bounded
from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import EvaluationResult, Evaluator, reject_candidate_images
from textevolve.judges.context import JudgeContext, Judgement, ModelJudge, require_field
from textevolve.judges.judge import judge
from textevolve.llm.catalogue import embedder_of
from textevolve.llm.decisions import probability
from textevolve.llm.embeddings import Vectors, embed_tokens, unpack_tokens
from textevolve.memory.ranking import LATE_MODEL
from textevolve.texts.prose import fold_case, split_sentences, split_text

if TYPE_CHECKING:
    from textevolve.judges.opening import Judges

PIECE = 300
"""The most characters of the context that are encoded together."""
WEAKEST = 4
"""The number of a statement's weakest tokens whose mean counts."""
FACTS = 0.1
"""The weight of the share of numbers and names that the context has."""
SLOPE = 16.0
MIDDLE = 0.73
"""The log-odds of support are SLOPE * (weakest + FACTS * share - MIDDLE). All five values were
chosen on one half of WiCE's claims and reported on the other (docs/measurements.md)."""

_NUMBER = regex.compile(r"\d+(?:[.,]\d+)*")
_NAME = regex.compile(r"(?<!^)(?<![.!?] )\b\p{Lu}\w+")


@judge("support", help="how well the context covers each word of the text; asks no chat model")
@dataclass(frozen=True)
class Support(ModelJudge):
    """A judge that scores each sentence of a text by the tokens of it that are least like any token
    of the context; the score of a text is the mean of its sentences. Each sentence, and each
    `PIECE` characters of the context, is one text for `local/colbert-small`, which is made for
    English. A sentence that denies what the context says has the same words, and passes."""

    model: str = field(default=LATE_MODEL, kw_only=True)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("context",)

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        entry = embedder_of(self.model)
        if entry is None or entry.output != "tokens":
            raise InputError(
                f"judge support: {self.model} gives no vectors of tokens; write support alone,"
                f" which uses {LATE_MODEL}"
            )

        return super().open(bench, rubric)

    async def judge(self, context: JudgeContext) -> Judgement:
        case = context.case
        reject_candidate_images(case, "a judge by the vectors of tokens")
        require_field(case, "context")
        passages = case.context or ""
        pieces = [piece.strip() for piece in split_text(passages, PIECE)]

        async def encode(texts: Sequence[str]) -> list[Vectors]:
            packed = await gather_bounded(
                [lambda text=text: embed_tokens(context.model, text) for text in texts],
                context.concurrency,
            )
            return [unpack_tokens(tokens) for tokens in packed]

        shown = await encode(list(dict.fromkeys(filter(None, pieces))))
        if not shown:
            raise AnswerError("the context is empty")
        context_tokens = np.concatenate(shown)

        async def check(text: str) -> EvaluationResult:
            statements = split_sentences(text)
            if not statements:
                raise AnswerError("the text has no statement that could be scored")
            shares: list[float] = []
            lines: list[str] = []
            for statement, tokens in zip(statements, await encode(statements), strict=True):
                strange = find_strange(statement, passages)
                share = _score(tokens, context_tokens, statement, strange)
                shares.append(share)
                named = f" (not in the context: {', '.join(strange)})" if strange else ""
                lines.append(f"{share:.0%} supported: {statement}{named}")

            return context.result(sum(shares) / len(shares), lines, parts=len(shares))

        return context.judgement(await context.each(case.candidates, check))


def _score(
    tokens: Vectors, context_tokens: Vectors, statement: str, strange: Sequence[str]
) -> float:
    """Return the probability that a statement is supported. `tokens`: its vectors, shape (tokens,
    dimension); `strange`: its numbers and names that the context lacks."""
    nearest = (tokens @ context_tokens.T).max(axis=1)
    weakest = float(np.sort(nearest)[:WEAKEST].mean())
    facts = len(find_facts(statement))
    share = 1 - len(strange) / facts if facts else 1.0

    return probability(SLOPE * (weakest + FACTS * share - MIDDLE))


def find_facts(statement: str) -> list[str]:
    """Return the numbers of a statement, and the words with a capital within it."""
    return [*_NUMBER.findall(statement), *_NAME.findall(statement)]


def find_strange(statement: str, context: str) -> list[str]:
    """Return the numbers and names of a statement that the context does not have. Commas within
    numbers do not count, and neither do capitals."""
    numbers = {number.replace(",", "") for number in _NUMBER.findall(context)}
    words = set(regex.findall(r"\w+", fold_case(context)))
    strange: list[str] = []
    for fact in find_facts(statement):
        plain = fact.replace(",", "")
        if plain not in numbers and fold_case(fact) not in words:
            strange.append(fact)

    return strange
