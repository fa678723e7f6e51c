"""What an optimisation or an innovation may take, before anything is spent: from one short answer
each to all rounds, with every answer as long as allowed and asked for twice.

What functions of the user's own take is not known, and not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from textevolve.estimates.debate import SHORT_ANSWER, PriceOf, UsageRange
from textevolve.estimates.judge import CHARACTERS_A_TOKEN, estimate_judge
from textevolve.evaluation import Case, Usage
from textevolve.judge_specs import split_rules
from textevolve.llm.reported_usage import cost_of
from textevolve.loops.generation import write_prompt
from textevolve.loops.innovation import InnovationPlan
from textevolve.loops.judged_outputs import REMARKS_SHOWN
from textevolve.loops.optimization import OptimizationPlan
from textevolve.loops.scoring import INSTRUCTION_SHOWN, MOST_INSTRUCTIONS
from textevolve.settings import Price

REFINING_CHARACTERS = 1800
REMARK_CHARACTERS = 300
SHORT, LONG = 5, 3
"""Characters of a token, where few and where many tokens are reckoned with."""


def count_calls(number: int, prompt: float, answer: int, price: Price | None) -> Usage:
    """What so many calls with so many tokens each use."""
    prompts, answers = round(number * prompt), number * answer
    cost = None if price is None else number * cost_of(price, math.ceil(prompt), 0, answer)
    return Usage(number, prompts, 0, answers, cost)


def _judged(
    times: int, input: str, tokens: int, judge: str, model: str, price_of: PriceOf, *, longest: bool
) -> Usage:
    """Judging a text of so many tokens so many times. Rules may spare the judge the work."""
    rules, asked = split_rules(judge)
    if asked is None or (rules is not None and not longest):
        return Usage()
    case = Case(input, ("x" * (tokens * CHARACTERS_A_TOKEN),), "1")
    found = estimate_judge([case], asked, model, price_of)
    return sum([found.most if longest else found.least] * times, Usage())


def estimate_optimization(
    tasks: Sequence[Case],
    plan: OptimizationPlan,
    judges: Sequence[str],
    model: str,
    price_of: PriceOf,
    *,
    writes: bool = True,
) -> UsageRange:
    """The range for all tasks. `writes`: the model writes the attempts. In the mode auto the most
    is that of revising, whose prompts are longer."""
    least, most = Usage(), Usage()
    price = price_of(model) if writes else None
    long = plan.max_answer_tokens
    told = ["x" * INSTRUCTION_SHOWN] * MOST_INSTRUCTIONS
    before = "x" * long * CHARACTERS_A_TOKEN
    for task in tasks:
        if writes:
            first = len(write_prompt(task.input, None, ())[1])
            again = len(write_prompt(task.input, before, told)[1])
            again = first if plan.way == "best-of-n" else again
            later = 2 * (plan.max_iterations - 1)
            least += count_calls(1, first / SHORT, SHORT_ANSWER, price)
            most += count_calls(2, first / LONG, long, price)
            most += count_calls(later, again / LONG, long, price)
        for n, judge in enumerate(judges):
            times = 1 if n else plan.samples
            asked = (task.input, SHORT_ANSWER, judge, model, price_of)
            least += _judged(times, *asked, longest=False)
            asked = (task.input, long, judge, model, price_of)
            most += _judged(times * plan.max_iterations, *asked, longest=True)
    return UsageRange(len(tasks), least, most)


def estimate_innovation(
    input: str, plan: InnovationPlan, judge: str, model: str, price_of: PriceOf
) -> UsageRange:
    """The least: one refinement that gains nothing."""
    price = price_of(model)
    long, refined, rounds = plan.max_answer_tokens, max(800, len(input)), min(plan.rounds, 1)
    outputs = plan.outputs * (1 + rounds)
    least = count_calls(outputs, len(input) / SHORT, SHORT_ANSWER, price)
    least += _judged(outputs, input, SHORT_ANSWER, judge, model, price_of, longest=False)
    shown = REFINING_CHARACTERS + len(input)
    least += count_calls(rounds, shown / SHORT, SHORT_ANSWER, price)
    outputs = plan.outputs * (1 + plan.rounds) + 2 * plan.fresh
    most = count_calls(2 * outputs, 4 * len(input) / LONG, long, price)
    most += _judged(outputs, input, long, judge, model, price_of, longest=True)
    remarks = REMARKS_SHOWN * REMARK_CHARACTERS
    shown = REFINING_CHARACTERS + remarks + 5 * len(input) + refined
    most += count_calls(4 * plan.rounds, shown / LONG, refined, price)
    return UsageRange(1, least, most)
