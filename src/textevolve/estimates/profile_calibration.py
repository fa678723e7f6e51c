"""What the calibration of a debate profile may take: outputs are debates, of several calls each.

The bound has as many calls as there can be, each as long as the longest kind of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from textevolve.debate.profile import Profile
from textevolve.debate.profile_texts import profile_texts
from textevolve.estimates.calibration import (
    FEWEST_TRIED,
    MOST_OUTCOMES,
    SLACK,
    count_most,
    tell_budget,
)
from textevolve.estimates.debate import PriceOf, UsageRange, estimate_debates
from textevolve.estimates.loops import LONG, count_calls
from textevolve.evaluation import Case, Usage
from textevolve.loops.calibration.examples import Material
from textevolve.loops.calibration.hill_climbing import UNPLANNED
from textevolve.loops.calibration.plan import CalibrationPlan
from textevolve.loops.calibration.rewriting import INSTRUCTIONS_TOKENS, RewritingRules
from textevolve.loops.calibration.spending import LearnedCost, SearchBudget, read_budget
from textevolve.loops.calibration.validation import least_for_decision, weigh_chances


@dataclass(frozen=True, slots=True)
class DebatesOfRow:
    """What the debates about one row may use: on average the least, and at most."""

    least: Usage
    most: Usage
    rows: int

    @property
    def calls(self) -> tuple[float, float]:
        return self.least.calls / self.rows, self.most.calls / self.rows

    @property
    def usual_calls(self) -> float:
        """Of debates that ask no answer twice, between the shortest and the longest; 1 at least."""
        least, most = self.calls
        return max(1.0, (least + most / 2) / 2)


def count_debates(
    cases: Sequence[Case], profile: Profile, times: int, model: str, price_of: PriceOf
) -> DebatesOfRow:
    """Of rows that are debated about `times` times."""
    found = estimate_debates(
        [case for case in cases for _ in range(times)], profile, model, price_of
    )
    return DebatesOfRow(found.least, found.most, len(cases))


def check_profile_budget(plan: CalibrationPlan, debates: DebatesOfRow) -> None:
    """
    Raises:
        InputError: a budget in calls is too small even if all debates are as short as they can be.
    """
    limit = None if plan.budget is None else read_budget(plan.budget)
    if limit is not None and not limit.dollars:
        least = least_for_decision()
        each = LearnedCost(debates.calls[0])
        SearchBudget(limit, Usage, lambda cost: least * cost, each, least_reserved=least).check()


def estimate_profile_calibration(
    material: Material,
    plan: CalibrationPlan,
    profile: Profile,
    debates: DebatesOfRow,
    price: PriceOf,
    model: str,
) -> UsageRange:
    """The range for the whole search.

    Raises:
        InputError: the budget is too small for any search.
    """
    check_profile_budget(plan, debates)
    rows = len(material.training), len(material.validation)
    least, most = debates.calls
    parts = {
        "rows": f"{rows[0]:,} for training, {rows[1]:,} for validation",
        "a row": f"{least:,.0f} to {most:,.0f} calls for its debates",
        "smallest gain": weigh_chances(plan, material, debates.usual_calls).sentence,
        "budget": tell_budget(plan, rows[1]),
    }
    fewest = _scale(debates.least, min(FEWEST_TRIED, rows[0]) / debates.rows)
    limit = None if plan.budget is None else read_budget(plan.budget)
    calls = _most_calls(plan, rows, most)
    if limit is not None and not limit.dollars:
        calls = min(calls, round(limit.most))
    texts = profile_texts(profile)
    rules = [RewritingRules(text, (), ()) for text in texts.values()]
    written = sum(map(len, texts.values())) * 3 + MOST_OUTCOMES
    each = debates.most
    prompt = max(each.prompt_tokens / max(1, each.calls), written / LONG)
    answer = max(profile.max_answer_tokens, sum(r.max_tokens for r in rules), INSTRUCTIONS_TOKENS)
    bound = count_calls(calls, prompt, answer, price(model))
    if limit is not None and limit.dollars and bound.cost is not None:
        bound = replace(bound, cost=min(bound.cost, limit.most))
    return UsageRange(sum(rows), fewest, bound, parts)


def _most_calls(plan: CalibrationPlan, rows: tuple[int, int], most: float) -> int:
    if plan.strategy == "protegi":
        counts = count_most(plan, *rows)
        return math.ceil(counts.outputs * most) + 2 * (counts.instructions + counts.successors)
    return math.ceil((UNPLANNED + 2 * rows[1]) * most) + SLACK


def _scale(usage: Usage, share: float) -> Usage:
    return replace(
        usage,
        calls=round(usage.calls * share),
        prompt_tokens=round(usage.prompt_tokens * share),
        completion_tokens=round(usage.completion_tokens * share),
        cost=None if usage.cost is None else usage.cost * share,
    )
