"""A judge that calls no model: it computes a metric, with the case's reference as the label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.judges.context import PlainJudge
from textevolve.metrics.label_metrics import grade_output, needs_label, open_metric
from textevolve.metrics.shapes import LabelMetric


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
