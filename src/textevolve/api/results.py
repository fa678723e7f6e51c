"""The result of `evaluate`, in the same form for all judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textevolve.evaluation import Case, EvaluationResult, Failure, Usage

if TYPE_CHECKING:
    from textevolve.debate.result import DebateResult
    from textevolve.judges.judged import JudgedCase


@dataclass(frozen=True, slots=True, repr=False)
class CaseResult:
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
        """The failure of the first candidate without a score; None if all candidates have one."""
        return next((one for one in self.result if isinstance(one, Failure)), None)

    @property
    def usage(self) -> Usage:
        return self.record.usage

    def to_frame(self) -> Any:
        """Return a data frame of pandas, or of polars if pandas is not installed, with a row for
        each candidate."""
        return self.record.to_frame()

    def _repr_html_(self) -> str | None:
        return self.record._repr_html_()  # pyright: ignore[reportPrivateUsage]
