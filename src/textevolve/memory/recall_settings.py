"""The settings of an agent's recall: the collections, the ranking of memories, and limits on what
prompts show."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import model_validator

from textevolve.json_texts import as_object
from textevolve.spec import Frozen, Several, Share, option
from textevolve.terms import ASSOCIATE_GONE

TRUSTED_IN_DEBATES = 0.5
"""The default minimum trust of memories in debates. False memories that an attacker planted sway
judges even if the prompt names their source: memories with a trust of 0.2 turned 40 of 44 right
judgements of the local model, and none when they were excluded (docs/measurements.md)."""


RecallScope: TypeAlias = Literal["user", "agent"]
"""The chats in which an agent recalls a user's memories: this user's alone (`user`), or all
(`agent`)."""


def is_usual_scope(scope: RecallScope) -> bool:
    """Tell whether a scope is the usual one, which is not written into files and runs."""
    return scope == "user"


class RecallSettings(Frozen):
    """Settings of recall: the collections, the ranking of memories, and limits.

    The score of a memory is the mean of its relevance, importance and recency, each scaled to [0,
    1] among the candidates, weighted by `relevance`, `importance` and `recency`. By default only
    relevance counts: with equal weights new memories rank before relevant ones
    (docs/measurements.md).
    """

    collections: Several = option(
        (),
        "A collection to recall from, as NAME or NAMESPACE/NAME. Repeatable.",
        flag="--collection",
    )
    limit: int = option(10, "The most memories that are recalled.", ge=1, le=1000)
    budget: int | None = option(
        None, "The most tokens that recalled memories may have together.", ge=16
    )
    summarize: bool = option(
        False, "Summarise memories beyond the budget instead of omitting them."
    )
    relevance: Share = option(
        1.0, "The weight in the ranking of a memory's relevance to the question."
    )
    importance: Share = option(0.0, "The weight in the ranking of a memory's importance.")
    recency: Share = option(
        0.0, "The weight in the ranking of recency: how lately a memory was used."
    )
    min_score: Share = option(0.0, "The least score of a recalled memory.")
    min_similarity: float | None = option(
        None, "The least similarity (cosine) of a recalled memory to the question.", ge=-1, le=1
    )
    min_trust: float | None = option(
        None,
        f"The least trust of a recalled memory; default: {TRUSTED_IN_DEBATES:g} in debates, 0"
        " elsewhere.",
        ge=0,
        le=1,
    )
    scope: RecallScope = option(
        "user",
        "What a user said in chats is recalled for this user alone (user), or for all users and in"
        " insights, personas and debates, too (agent).",
        exclude_if=is_usual_scope,
    )

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, values: Any) -> Any:
        """Leave out a field that earlier versions wrote into runs and files, if it says no."""
        fields = dict(as_object(values))
        if fields.pop("associate", False):
            raise ValueError(ASSOCIATE_GONE)
        return fields if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _weighed(self) -> RecallSettings:
        if not any(self.weights.values()):
            raise ValueError("relevance, importance and recency are all 0; one must be above 0")
        if self.summarize and self.budget is None:
            raise ValueError(
                "summarize: set budget, too: the most tokens of the memories with their summary"
            )

        return self

    @property
    def least_trust(self) -> float:
        return self.min_trust or 0.0

    @property
    def weights(self) -> dict[str, float]:
        """Return the weights of a score's parts by name."""
        return {name: getattr(self, name) for name in ("relevance", "importance", "recency")}
