"""The scores of records as annotations of the spans that the records come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.debate.result import DebateResult
from textevolve.evaluation import SPAN_IDS, EvaluationResult
from textevolve.judges.judged import JudgedCase
from textevolve.studies.node_records import JudgedNode

# The name of the evaluator of a run without another judge.
DEBATE = "debate"


@dataclass(frozen=True, slots=True)
class Annotation:
    """One evaluator's result for a span. `span` and `trace`: the ids of the span and of its trace,
    empty if they are unknown. `by_judge`: whether the evaluator is a judge; False for a check in
    code."""

    name: str
    span: str
    trace: str
    result: EvaluationResult
    by_judge: bool = True


def list_annotations(records: Iterable[Any], judges: Sequence[str]) -> Iterator[Annotation]:
    """Yield an annotation for each score of the records: of a node the score by each evaluator, of
    a case only the highest score of its outputs. `judges`: the run's judges; empty for a run of
    `evaluate` by a debate."""
    for record in records:
        if isinstance(record, JudgedNode):
            item = record.item
            ids = item.ids.get("span_id", ""), item.run_id or record.episode
            for name, result in item.evaluation_results.items():
                if isinstance(result, EvaluationResult):
                    yield Annotation(name, *ids, result, name in judges)
        elif isinstance(record, DebateResult | JudgedCase):
            results = [each for each in record.result if isinstance(each, EvaluationResult)]
            if results:
                best = max(results, key=lambda result: result.score)
                parameters = record.case.parameters
                span, trace = (str(parameters.get(name) or "") for name in SPAN_IDS)
                yield Annotation(judges[0] if judges else DEBATE, span, trace, best)
