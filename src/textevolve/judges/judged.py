"""A case with what any judge made of it, as runs give it and files hold it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.showing import Shown


@dataclass(frozen=True, slots=True, repr=False)
class JudgedCase(Shown):
    """A case and what the judge made of each of its candidates, in their order."""

    case: Case
    index: int
    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()

    def __repr__(self) -> str:
        said = f"scores {[round(one.score, 3) for one in self.scores]}"
        said = said if self.failure is None else f"{self.failure}"
        return f"JudgedCase({self.case.id!r}, {said}, best={self.best})"

    @property
    def failure(self) -> Failure | None:
        """The first reason why a candidate has no score; one that was not asked goes first."""
        found = [one for one in self.result if isinstance(one, Failure)]
        return next((one for one in found if one.kind == "skipped"), found[0] if found else None)

    @property
    def scores(self) -> list[EvaluationResult]:
        return [one for one in self.result if isinstance(one, EvaluationResult)]

    @property
    def best(self) -> int | None:
        """The index of the one best candidate; None where one has no score, or two share it."""
        ranks = [rank for rank in ranks_of(self.result) if rank is not None]
        if not ranks or len(ranks) < len(self.result):
            return None
        return ranks.index(max(ranks)) if ranks.count(max(ranks)) == 1 else None


def ranks_of(results: Sequence[EvaluationResult | Failure]) -> tuple[float | None, ...]:
    """What candidates are ranked by: log-odds where all that have a score have them, for they tell
    apart what saturates, else scores; None where there is no score."""
    odds = has_log_odds(results)
    return tuple(
        None if isinstance(r, Failure) else float(r.metadata["log_odds"] if odds else r.score)
        for r in results
    )


def has_log_odds(results: Sequence[EvaluationResult | Failure]) -> bool:
    """Whether all that have a score have log-odds, too, which are finite."""
    scored = [one for one in results if isinstance(one, EvaluationResult)]
    odds = [r.metadata.get("log_odds") for r in scored]
    return bool(odds) and all(isinstance(one, float) and math.isfinite(one) for one in odds)
