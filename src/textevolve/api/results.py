"""The result of `evaluate`, the same for all judges, and what all results have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Failure,
    Figure,
    Result,
    Usage,
    select_failure,
)
from textevolve.runs.study import find_study
from textevolve.showing import TableRows

if TYPE_CHECKING:
    from textevolve.debate.result import DebateResult
    from textevolve.judges.judged import JudgedCase
    from textevolve.store.runs import RunRecord

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class CaseResult(Result):
    """The result of judging one case, with the judgement of each candidate.

    Attributes:
        record: The complete result, as it is stored.
        run: The id of the run.
        debate: The debate with its tensor of scores; None for other judges.
    """

    record: DebateResult | JudgedCase
    run: str
    debate: DebateResult | None = None

    def __repr__(self) -> str:
        return repr(self.record)

    @property
    def case(self) -> Case:
        return self.record.case

    @property
    def index(self) -> int:
        """The position of the case in its run, from 0."""
        return self.record.index

    @property
    def best(self) -> int | None:
        """The index of the best candidate; None if no candidate is best."""
        return self.record.best

    @property
    def result(self) -> tuple[EvaluationResult | Failure, ...]:
        """The judgement of each candidate, or the failure to judge it."""
        return self.record.result

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The score of each candidate, in [0, 1]; None for a candidate without a score."""
        return tuple(r.score if isinstance(r, EvaluationResult) else None for r in self.result)

    @property
    def feedback(self) -> tuple[str, ...]:
        """The judge's feedback on each candidate, or the reason for a missing score."""
        return tuple(
            r.feedback if isinstance(r, EvaluationResult) else r.reason for r in self.result
        )

    @property
    def failure(self) -> Failure | None:
        """The failure of the first candidate without a score, one that a limit caused (`skipped`)
        before others; None if all candidates have a score."""
        return select_failure(self.result)

    @property
    def usage(self) -> Usage:
        return self.record.usage

    def _repr_html_(self) -> str | None:
        return self.record._repr_html_()  # pyright: ignore[reportPrivateUsage]


def attach_run(result: T, run: RunRecord, records: Sequence[Any]) -> T:
    """Give a result the id of its run, and the functions that compute its table and its figures
    from the run's records; return the result."""
    if isinstance(result, Result):
        vars(result).update(
            run=run.id,
            _rows=partial(_read_rows, run, records),
            _figures=partial(_read_figures, run, records),
        )
    return result


def _read_rows(run: RunRecord, records: Sequence[Any]) -> TableRows:
    return chain.from_iterable(map(find_study(run.spec["kind"]).flat, records))


def _read_figures(run: RunRecord, records: Sequence[Any]) -> Mapping[str, Figure]:
    from textevolve.runs.report import make_data

    study = find_study(run.spec["kind"])
    # Of the records as the store has them, so that the figures are those of `runs show --json`.
    data = make_data(study, run, lambda: map(study.decode, map(study.encode, records)))
    return data["aggregates"]
