"""A judge that calls an embedder instead of asking questions: it scores the cosine similarity of
embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, reject_candidate_images
from textevolve.judges.context import JudgeContext, Judgement, ModelJudge, PlainJudge, require_field
from textevolve.llm.catalogue import PROVIDER, embedder_of
from textevolve.llm.decisions import probability
from textevolve.llm.embeddings import embed
from textevolve.metrics.label_metrics import grade_output, needs_label, open_metric
from textevolve.metrics.plain import LabelMetric

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


# The judge `look:length` scores a text by its number of words. It calls no model.
#
# Length says nothing about quality. It is a judge so that a fitted judge can have it among its
# signals, and so that judges can be compared with it.

LOOK = "look"
LENGTH = "length"
USUAL = 100
"""The number of words of a text with the score 0.5."""


@dataclass(frozen=True)
class LookJudge(PlainJudge):
    """A judge that scores each text by its number of words: words / (words + `USUAL`).

    Raises:
        InputError: `look` is not `length`, the only name there is.
    """

    title = f"{LOOK}:{LENGTH}"
    look: str = LENGTH

    def __post_init__(self) -> None:
        if self.look != LENGTH:
            raise InputError(f"no baseline judge '{self.look}'; there is: {LENGTH}")

    async def grade(self, case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
        odds = math.log(max(1, len(text.split())) / USUAL)
        score = probability(odds)
        feedback = f"{LENGTH}: how many words a text has; that says nothing of its quality"
        return EvaluationResult(score, score >= threshold, feedback, {"log_odds": odds})


# A judge that calls no model: it computes a metric, with the case's reference as the label.


@dataclass(frozen=True)
class MetricJudge(PlainJudge):
    """A judge that grades each candidate by a metric, such as exact match, without a model.
    `metric`: its name, as `open_metric` takes it.

    Raises:
        InputError, SettingsError: there is no such metric, or a package that it needs is missing.
    """

    title = "a metric"
    metric: str

    def __post_init__(self) -> None:
        _ = self._opened

    @cached_property
    def _opened(self) -> LabelMetric:
        return open_metric(self.metric)

    async def grade(self, case: Case, text: str, threshold: float) -> EvaluationResult | Failure:
        if case.reference is None and needs_label(self.metric):
            missing = f"the metric {self.metric} needs the case's reference, and it has none"
            return Failure("failed", missing)
        row = {"input": case.input, "reference": case.reference, "context": case.context}
        row |= case.trajectory.as_row() if case.trajectory else {}
        return await grade_output(self._opened, text, case.reference, threshold, row)
