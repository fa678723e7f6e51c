"""A judge that asks no model: a metric, with the case's reference as the label."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Failure,
    check_case,
    refuse_candidate_images,
)
from textevolve.judges.context import Judgement, Options
from textevolve.metrics.label_metrics import grade_output, needs_label, open_metric
from textevolve.metrics.shapes import LabelMetric


@dataclass(frozen=True)
class MetricJudge:
    """Grades each candidate by itself. `metric`: its name, as `open_metric` takes it.

    Raises:
        InputError, SettingsError: there is no such metric, or a package of it is missing.
    """

    metric: str

    def __post_init__(self) -> None:
        _ = self._opened

    @cached_property
    def _opened(self) -> LabelMetric:
        return open_metric(self.metric)

    async def __call__(self, case: Case, /) -> Judgement:
        """
        Raises:
            InputError: the case or its parameters cannot be used.
        """
        check_case(case)
        refuse_candidate_images(case, f"the metric {self.metric}")
        threshold, started = Options().overridden(case.parameters).threshold, time.monotonic()
        row = {"input": case.input, "reference": case.reference, "context": case.context}
        outcomes: list[EvaluationResult | Failure] = []
        for text in case.candidates:
            if case.reference is None and needs_label(self.metric):
                missing = f"the metric {self.metric} needs the case's reference, and it has none"
                outcomes.append(Failure("failed", missing))
            else:
                graded = grade_output(self._opened, text, case.reference, threshold, row)
                outcomes.append(await graded)
        scored = sum(isinstance(one, EvaluationResult) for one in outcomes)
        return Judgement(
            case,
            tuple(outcomes),
            seconds=time.monotonic() - started,
            coverage=scored / len(outcomes),
        )
