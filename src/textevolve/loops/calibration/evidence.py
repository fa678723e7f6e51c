"""What is known of templates on training rows: a table that is asked for each score once.

Rows come into play in one drawn order, so that templates are compared in pairs on the same rows. A
row that stands in a template as a demonstration says nothing about it, and is left out there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from textevolve.loops.calibration.search import SEED, TemplateSearch
from textevolve.loops.calibration.selection import ArmStatistics, Trial, draw_rows
from textevolve.loops.calibration.trial_runner import TrialOutcome

PERFECT = 1 - 1e-9


@dataclass
class Evidence:
    """`order`: all training rows; the first `count` are in play."""

    search: TemplateSearch
    order: tuple[int, ...]
    count: int = 0
    outcomes: dict[Trial, TrialOutcome] = field(default_factory=dict[Trial, TrialOutcome])
    explained: set[Trial] = field(default_factory=set[Trial])

    def in_play(self, *nodes: int) -> list[int]:
        """Rows that are no demonstration in any of the templates."""
        training = self.search.material.training
        shown = {row for node in nodes for row in self.search.nodes[node].demos}
        return [row for row in self.order[: self.count] if training[row].id not in shown]

    def new(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those whose score is not known yet."""
        return [trial for trial in dict.fromkeys(trials) if trial not in self.outcomes]

    async def ask(self, trials: Iterable[Trial]) -> None:
        """What is not known yet, as one batch."""
        new = self.new(trials)
        training = self.search.material.training
        found = await self.search.try_nodes([(node, training[row]) for node, row in new])
        self.outcomes.update(zip(new, found, strict=True))

    async def explain(self, node: int, rows: Sequence[int]) -> list[TrialOutcome]:
        """The outcomes, with reasons where a judge gives some beside a metric, for as many as there
        is budget for."""
        context = self.search.context
        if context.evaluator is not None and context.metric is not None:
            new = [row for row in rows if (node, row) not in self.explained]
            if not self.explained:
                await self._ask_reasons(node, new[:1])
                new = new[1:]
            spending = self.search.spending
            spare = spending.left - 2 * spending.rewrite_cost - 4 * spending.output_cost
            fitting = max(0.0, spare) / spending.reasons_cost
            await self._ask_reasons(node, new[: int(min(fitting, len(new)))])
        return [self.outcomes[node, row] for row in rows]

    async def _ask_reasons(self, node: int, rows: Sequence[int]) -> None:
        """The outputs are known, so the judge alone is asked."""
        search, training = self.search, self.search.material.training
        before = search.spending.spent
        found = await search.try_nodes([(node, training[row]) for row in rows], reasons=True)
        search.spending.reasons.learn(search.spending.spent - before, len(rows))
        self.outcomes.update(zip([(node, row) for row in rows], found, strict=True))
        self.explained.update((node, row) for row in rows)

    def score(self, node: int, row: int) -> float | None:
        outcome = self.outcomes.get((node, row))
        return None if outcome is None else outcome.score

    def faults(self, node: int) -> list[int]:
        """Rows in play on which the template scores less than 1."""
        scores = {row: self.score(node, row) for row in self.in_play(node)}
        return [row for row, score in scores.items() if score is not None and score < PERFECT]

    def gains(self, child: int, parent: int, rows: Iterable[int]) -> list[float]:
        """Differences on those rows on which both have a score."""
        pairs = [(self.score(child, row), self.score(parent, row)) for row in rows]
        return [a - b for a, b in pairs if a is not None and b is not None]

    def statistics(self, node: int) -> ArmStatistics:
        rows = self.in_play(node)
        known = {row: self.score(node, row) for row in rows if (node, row) in self.outcomes}
        return ArmStatistics(node, known)


async def open_evidence(search: TemplateSearch) -> Evidence:
    """Where it is not known what an output takes, the original is tried on a first row.

    Raises:
        InputError: then, that the budget is too small.
    """
    order = draw_rows(len(search.material.training), 10**9, search.plan.seed, "rows")
    evidence = Evidence(search, order)
    if search.learns_costs:
        await evidence.ask([(SEED, order[0])])
        search.spending.check()
    return evidence


async def extend(evidence: Evidence, node: int, count: int) -> None:
    """Bring `count` rows into play, for one template."""
    evidence.count = min(count, len(evidence.order))
    await evidence.ask([(node, row) for row in evidence.in_play(node)])
