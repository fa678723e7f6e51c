"""The whole of a calibration: search with a strategy, then decide on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from textevolve.errors import BudgetError, InputError
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.examples import Material
from textevolve.loops.calibration.hill_climbing import improve
from textevolve.loops.calibration.operators import DEMOS, REFLECT
from textevolve.loops.calibration.plan import CalibrationContext, CalibrationPlan, StrategyName
from textevolve.loops.calibration.protegi import climb
from textevolve.loops.calibration.search import TemplateSearch
from textevolve.loops.calibration.spending import SearchSpent
from textevolve.loops.calibration.tree import CalibrationResult
from textevolve.loops.calibration.validation import (
    decide_search,
    least_for_decision,
    needed_for_decision,
)

STRATEGIES: Mapping[StrategyName, Callable[[TemplateSearch], Awaitable[StopReason]]] = {
    "auto": partial(improve, operators=(DEMOS, REFLECT)),
    "reflect": partial(improve, operators=(REFLECT,)),
    "demos": partial(improve, operators=(DEMOS,)),
    "protegi": climb,
}


async def search_template(
    material: Material, plan: CalibrationPlan, context: CalibrationContext
) -> CalibrationResult:
    """The best template that the search finds, and whether it may replace the original. At whatever
    stop the best so far is validated.

    Raises:
        InputError: there is neither an evaluator nor a metric, or the budget is not enough for a
            decision.
        FatalModelError: no call can succeed; what was answered is in the journal.
    """
    if context.evaluator is None and context.metric is None:
        raise InputError("give an evaluator or a metric: without either nothing can be scored")
    search = TemplateSearch(material, plan, context)
    set_aside(search)
    spending = search.spending
    stopped, reason = await run_strategy(search)
    search.enter("decision")
    spending.deciding = True
    search.limit_time(1.0)
    try:
        await decide_search(search, spending.whole_left, search.decision_cost(spending.output_cost))
    except BudgetError as error:
        stopped, reason = "budget", reason or str(error)
    return search.result(stopped, reason)


def set_aside(search: TemplateSearch) -> None:
    """Keep what the decision needs from the search.

    Raises:
        InputError: nothing would be left.
    """
    plan, material, spending = search.plan, search.material, search.spending
    limit = spending.limit
    if limit is None:
        return

    def reserve(output: float) -> float:
        cost = search.decision_cost(output)
        return cost * needed_for_decision(plan, material, 1.0, limit.most / max(cost, 1e-12))

    spending.reserve = reserve
    spending.least_reserved = least_for_decision()
    if not limit.dollars:
        spending.check()


async def run_strategy(search: TemplateSearch) -> tuple[StopReason, str]:
    """Why the strategy ended; its share of the budget is an end as planned."""
    try:
        stopped = await STRATEGIES[search.plan.strategy](search)
        nothing = not search.scored and stopped != "stopped"  # as of a program that always fails
        return "failed" if nothing else stopped, ""
    except SearchSpent:
        return "max_iterations" if search.scored else "failed", ""
    except BudgetError as error:
        return "budget", str(error)
