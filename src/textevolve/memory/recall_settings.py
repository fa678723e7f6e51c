"""How an agent recalls: from where, how memories are ranked, how much of them it is shown."""

from __future__ import annotations

from pydantic import model_validator

from textevolve.spec import Frozen, Several, option

TRUSTED_IN_DEBATES = 0.5
"""A judge is swayed by what it is shown, whatever it is told of its source: planted memories of
sources that were trusted 0.2 turned 40 of 44 right judgements of the local model
(docs/measurements.md), and none that were kept out."""


class RecallSettings(Frozen):
    """From where an agent recalls, how memories are ranked, and how much of them it is shown.

    The score of a memory is the mean of its relevance, importance and recency, each from 0 to 1
    among those that were found, weighted by `relevance`, `importance` and `recency`. By default
    relevance alone counts: with equal weights what is new comes before what is relevant
    (docs/measurements.md).
    """

    collections: Several = option(
        (), "The collections to recall from, as NAME or NAMESPACE/NAME.", flag="--collection"
    )
    limit: int = option(10, "The most memories that are recalled.", ge=1, le=1000)
    budget: int | None = option(
        None, "The most tokens that recalled memories may have together.", ge=16
    )
    summarize: bool = option(
        False, "Memories beyond the budget are summarised; else those without room are left out."
    )
    relevance: float = option(1.0, "The weight of relevance to the question.", ge=0, le=1)
    importance: float = option(0.0, "The weight of importance.", ge=0, le=1)
    recency: float = option(0.0, "The weight of how lately it was used.", ge=0, le=1)
    min_score: float = option(0.0, "Only memories with at least this score.", ge=0, le=1)
    min_similarity: float | None = option(
        None, "Only memories whose embeddings are at least so similar.", ge=-1, le=1
    )
    min_trust: float | None = option(
        None,
        f"Only memories whose source is trusted at least so far; {TRUSTED_IN_DEBATES:g} in debates"
        " and 0 elsewhere if it is not given.",
        ge=0,
        le=1,
    )
    associate: bool = option(
        False, "Memories that share entities with those found are considered, too."
    )

    @model_validator(mode="after")
    def _weighed(self) -> RecallSettings:
        if not (self.relevance or self.importance or self.recency):
            raise ValueError("relevance, importance and recency are all 0; one must be above 0")
        if self.summarize and self.budget is None:
            raise ValueError("summarize: needs a budget that the summary has to keep")
        return self

    @property
    def least_trust(self) -> float:
        return self.min_trust or 0.0

    @property
    def weights(self) -> dict[str, float]:
        """Those of the parts of a score, by their names."""
        return {
            "relevance": self.relevance,
            "importance": self.importance,
            "recency": self.recency,
        }
