"""The judge of a loop as it was asked for: by its spec, by a rules file, by both, or one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.evaluation import Evaluator
from textevolve.evaluators import parse_evaluator
from textevolve.loops.rules import Rules
from textevolve.runs.improving import Means
from textevolve.runs.optimization import Judge, choose_judges, open_judge
from textevolve.runs.spec import name_callable

RELATIVE = ("pairwise",)
"""Judges whose scores only compare candidates of one case with each other."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """`judge` is None where rules judge alone; `asked` is what was asked for, in words."""

    judge: Judge | None
    rules: Rules | None
    asked: str

    @property
    def specs(self) -> tuple[str, ...]:
        """The specs of the judges that models are asked for."""
        return (self.judge,) if isinstance(self.judge, str) else ()

    @property
    def parameters(self) -> dict[str, Any]:
        """What of it belongs to a run's identity beside the specs."""
        found: dict[str, Any] = {"evaluator": self.asked}
        if self.rules is not None:
            found["rules"] = self.rules.file.model_dump(mode="json", by_alias=True)
        return found

    def open(self, means: Means) -> Evaluator:
        return open_judge(self.judge, self.rules, means)


def choose_judge(evaluator: Judge, *, alone: bool = True) -> Chosen:
    """What is meant by a judge's spec, `rules:FILE`, `hybrid:FILE:JUDGE`, or an evaluator. `alone`:
    it has to judge a text by itself.

    Raises:
        InputError: there is no such judge or file, or it only compares texts.
    """
    if not isinstance(evaluator, str):
        return Chosen(evaluator, None, name_callable(evaluator))
    if evaluator.startswith(("rules:", "hybrid:")):
        judge, rules = choose_judges(evaluator, None)
        return Chosen(judge, rules, evaluator)
    name = parse_evaluator(evaluator).name
    if alone and name in RELATIVE:
        raise InputError(
            f"judge '{evaluator}': {name} compares candidates of one case with each other, so its"
            " scores of two cases cannot be compared; take another judge, such as probe+rules"
        )
    return Chosen(evaluator, None, evaluator)
