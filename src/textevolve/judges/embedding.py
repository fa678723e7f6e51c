"""A judge that calls an embedder instead of asking questions: it scores the cosine similarity of
embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import (
    EvaluationResult,
    reject_candidate_images,
)
from textevolve.judges.context import JudgeContext, Judgement, ModelJudge, require_field
from textevolve.llm.catalogue import PROVIDER, embedder_of
from textevolve.llm.embeddings import embed

DIGITS = 9
"""The number of digits to which a cosine is rounded, so that equal texts have exactly the cosine
1."""


@dataclass(frozen=True)
class EmbeddingSimilarity(ModelJudge):
    """A judge that scores each candidate by the cosine of its embedding and that of the case's
    reference; negative cosines count as 0. Each text takes one call of an endpoint's
    `/v1/embeddings` or of `local/minilm`.

    Raises:
        InputError: the model is a local one that generates text and has no embeddings.
    """

    def __post_init__(self) -> None:
        name = self.model.name
        if name.startswith(f"{PROVIDER}/") and embedder_of(name) is None:
            raise InputError(
                f"{name} gives no embeddings: name a model that does, as in embedding@local/minilm"
                " or embedding@openai/text-embedding-3-small"
            )

    async def judge(self, context: JudgeContext) -> Judgement:
        case = context.case
        reject_candidate_images(case, "a judge by embeddings")
        require_field(case, "reference")
        reference = await embed(context.model, case.reference or "")

        async def compare(text: str) -> EvaluationResult:
            near = cosine(await embed(context.model, text), reference)
            return context.result(max(0.0, near), ())

        return context.judgement(await context.each(case.candidates, compare))


def cosine(vector: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine similarity of two vectors, in [-1, 1].

    Raises:
        AnswerError: their lengths differ, or one of them has only zeros or too large numbers.
    """
    if len(vector) != len(other):
        raise AnswerError(f"the embeddings have {len(vector)} and {len(other)} numbers")
    size = math.hypot(*vector) * math.hypot(*other)
    if not size or not math.isfinite(size):
        raise AnswerError(
            "an embedding has only zeros or too large numbers, so it has no direction"
        )
    similarity = math.fsum(a * b for a, b in zip(vector, other, strict=True)) / size
    return min(1.0, max(-1.0, round(similarity, DIGITS)))
