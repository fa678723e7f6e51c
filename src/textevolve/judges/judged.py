"""A case with the results of a judge, as runs return it and files store it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.evaluation import Case, EvaluationResult, Failure, Usage, select_failure
from textevolve.showing import Shown


@dataclass(frozen=True, slots=True, repr=False)
class JudgedCase(Shown):
    """A case with the judge's result or failure for each candidate, in the order of the candidates.
    `index`: the position of the case in the run, from 0. `usage`: of the judge's calls."""

    case: Case
    index: int
    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()

    def __repr__(self) -> str:
        text = str(self.failure)
        if self.failure is None:
            text = f"scores {[round(result.score, 3) for result in self.scores]}"
        return f"JudgedCase({self.case.id!r}, {text}, best={self.best})"

    @property
    def failure(self) -> Failure | None:
        """Return the first failure of a candidate without a score, those that a limit prevented
        (`skipped`) before others; None if all candidates have a score."""
        return select_failure(self.result)

    @property
    def scores(self) -> list[EvaluationResult]:
        return [result for result in self.result if isinstance(result, EvaluationResult)]

    @property
    def best(self) -> int | None:
        """Return the index of the best candidate; None if a candidate has no score, or several are
        best."""
        ranks = [rank for rank in ranks_of(self.result) if rank is not None]
        # Without the score of one candidate nobody knows which is best.
        if not ranks or len(ranks) < len(self.result):
            return None
        if ranks.count(max(ranks)) > 1:
            return None
        return ranks.index(max(ranks))


@dataclass(frozen=True, slots=True, repr=False)
class NamedJudgement(JudgedCase):
    """The judgement of a case by one of several judges. `judge`: the judge's text. `position`: the
    position of the judgement in the run, in which the judgements of a case follow each other."""

    judge: str = ""
    position: int = 0

    def __repr__(self) -> str:
        return f"{self.judge}: {JudgedCase.__repr__(self)}"


def ranks_of(results: Sequence[EvaluationResult | Failure]) -> tuple[float | None, ...]:
    """Return the values that candidates are ranked by: log-odds if all scored results have them,
    since they separate saturated scores, otherwise scores; None without a score."""
    by_odds = has_log_odds(results)
    ranks: list[float | None] = []

    for result in results:
        if isinstance(result, Failure):
            ranks.append(None)
        elif by_odds:
            ranks.append(float(result.metadata["log_odds"]))
        else:
            ranks.append(float(result.score))

    return tuple(ranks)


def has_log_odds(results: Sequence[EvaluationResult | Failure]) -> bool:
    """Tell whether all results with a score also have finite log-odds."""
    scored = [entry for entry in results if isinstance(entry, EvaluationResult)]
    odds = [r.metadata.get("log_odds") for r in scored]
    return bool(odds) and all(isinstance(entry, float) and math.isfinite(entry) for entry in odds)
