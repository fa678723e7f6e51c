"""A case with what any judge made of it, as runs give it and files hold it."""

from __future__ import annotations

from dataclasses import dataclass

from textevolve.evaluation import Case, EvaluationResult, Failure, Usage


@dataclass(frozen=True, slots=True)
class Judged:
    """A case and what the judge made of each of its candidates, in their order."""

    case: Case
    index: int
    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()

    @property
    def failure(self) -> Failure | None:
        """The first reason why a candidate has no score; one that was not asked goes first."""
        found = [one for one in self.result if isinstance(one, Failure)]
        return next((one for one in found if one.kind == "skipped"), found[0] if found else None)

    @property
    def ranks(self) -> tuple[float | None, ...]:
        """What candidates are ranked by: log-odds where all have them, else scores."""
        odds = [one.metadata.get("log_odds") for one in self.scores]
        whole = len(odds) == len(self.result) and None not in odds
        return tuple(
            None
            if isinstance(one, Failure)
            else float(one.metadata["log_odds"] if whole else one.score)
            for one in self.result
        )

    @property
    def scores(self) -> list[EvaluationResult]:
        return [one for one in self.result if isinstance(one, EvaluationResult)]

    @property
    def best(self) -> int | None:
        """The index of the one best candidate; None where one has no score, or two share it."""
        ranks = [rank for rank in self.ranks if rank is not None]
        if not ranks or len(ranks) < len(self.result):
            return None
        return ranks.index(max(ranks)) if ranks.count(max(ranks)) == 1 else None
