"""What a calibration may take, before anything is spent: calls by a formula, tokens as a range.

With a budget it is that. Without one the strategies but `protegi` end after a number of outputs and
rewrites, and validation. Of `protegi`, with b beams, d rounds, m and k rows of the two minibatches,
f rows of the finals, s successors and v rows of validation; B(1) = 1 and
B(r + 1) = min(b, B(r) (1 + s)):

    explored   sum over r of B(r) m              outputs, each generated and judged for reasons
    selected   sum over r of B(r) (1 + s) k      outputs, half of it with bandits
    finals     min(b + 1, all templates) f       outputs
    validated  2 v                               outputs, judged by the second judge, too
    rewritten  sum over r of B(r) (1 + s)        requests to the editor, each asked twice at most

A minibatch is never larger than the training rows. An output is a call, and a judge's calls on it;
with a metric the judge is asked only about what is explored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from textevolve.estimates.debate import SHORT_ANSWER, PriceOf, UsageRange
from textevolve.estimates.judge import CHARACTERS_A_TOKEN, estimate_judge
from textevolve.estimates.loops import LONG, SHORT, count_calls
from textevolve.evaluation import Case, Usage
from textevolve.loops.calibration.demonstrations import MOST_CHARACTERS
from textevolve.loops.calibration.examples import Material
from textevolve.loops.calibration.hill_climbing import UNPLANNED
from textevolve.loops.calibration.plan import CalibrationPlan
from textevolve.loops.calibration.rewriting import (
    ANSWER_SHOWN,
    INSTRUCTION_LENGTH,
    INSTRUCTIONS_TOKENS,
    LARGEST_CONTEXT,
    RewritingRules,
    characters_shown,
    example,
)
from textevolve.loops.calibration.selection import count_pulls
from textevolve.loops.calibration.spending import SearchBudget, read_budget
from textevolve.loops.calibration.validation import (
    DECISION_SHARE,
    least_for_decision,
    weigh_chances,
)
from textevolve.loops.placeholders import fill

PROMPT_CHARACTERS = 1400
MOST_OUTCOMES = 3 * characters_shown(LARGEST_CONTEXT) // 2
"""Characters of outcomes in a prompt at most: a first one is shown even if it alone is too long."""
USUAL_OUTCOME = 600
SLACK = 20
"""Calls by which a search without a budget may be longer: what was to be written again."""
FEWEST_TRIED = 4
"""Training rows on which an original without a fault is tried at least."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Outputs at each stage, `instructions` and `successors` that are asked for, and how many
    templates the first three stages have in all (what they are judged by, as `judged` may say)."""

    explored: int
    selected: int
    finals: int
    validated: int
    instructions: int
    successors: int
    finalists: int
    arms: int

    @property
    def outputs(self) -> int:
        return self.explored + self.selected + self.finals + self.validated


ONE_OUTPUT = Counts(0, 1, 0, 0, 0, 0, 0, 1)


def count_most(plan: CalibrationPlan, training: int, validation: int) -> Counts:
    """As many of everything as there can be."""
    m, k = min(plan.minibatch, training), min(plan.selection_minibatch, training)
    beams, explored, selected, instructions, all_arms, templates = 1, 0, 0, 0, 0, 1
    for _ in range(plan.depth):
        arms = beams * (1 + plan.successors)
        instructions += beams
        explored += beams * m
        pulls = min(count_pulls(arms, k), arms * training)
        selected += pulls if plan.selection == "ucb" else arms * k
        all_arms += arms
        templates += beams * plan.successors
        beams = min(plan.beam, arms)
    finalists = min(plan.beam + 1, templates)
    return Counts(
        explored=explored,
        selected=selected,
        finals=finalists * min(plan.final_minibatch, training),
        validated=2 * validation,
        instructions=instructions,
        successors=instructions * plan.successors,
        finalists=finalists,
        arms=all_arms,
    )


def count_least(plan: CalibrationPlan, training: int) -> Counts:
    """One round in which no template that differs from the others does better."""
    k, arms = min(plan.selection_minibatch, training), 1 + plan.successors
    selected = count_pulls(arms, k) if plan.selection == "ucb" else arms * k
    explored = min(plan.minibatch, training)
    return Counts(explored, min(selected, arms * training), 0, 0, 1, plan.successors, 0, arms)


@dataclass(frozen=True, slots=True)
class Judging:
    """Who scores: the judge, also where it only gives reasons, and the second one. `asked`: whether
    the judge gives the scores, too, for there is no metric. Judges that ask no model are left out.
    """

    first: str | None
    second: str | None
    asked: bool


def estimate_calibration(
    material: Material, plan: CalibrationPlan, judging: Judging, model: str, price_of: PriceOf
) -> UsageRange:
    """The range for the whole search. The calls of evaluators of the user's own are not known.

    Raises:
        InputError: the budget is too small for any search.
    """
    _check_budget(plan)
    rows = len(material.training), len(material.validation)
    parts = {
        "rows": f"{rows[0]:,} for training, {rows[1]:,} for validation",
        "smallest gain": weigh_chances(plan, material).sentence,
    }
    use = partial(_use, material, plan, judging, model, price_of)
    if plan.strategy != "protegi":
        fewest = min(FEWEST_TRIED, rows[0])
        least = use(Counts(fewest, 0, 0, 0, 0, 0, 1, 1), longest=False)
        most = _bound_calls(material, plan, judging, model, price_of)
        return UsageRange(sum(rows), least, most, parts | {"budget": tell_budget(plan, rows[1])})
    counts = count_most(plan, *rows)
    least = use(count_least(plan, rows[0]), longest=False)
    parts |= {
        "outputs": f"at most {counts.outputs:,}: {counts.explored:,} explored,"
        f" {counts.selected:,} in selection, {counts.finals:,} in the finals,"
        f" {counts.validated:,} in validation",
        "rewriting": f"at most {counts.instructions:,} lists of instructions and"
        f" {counts.successors:,} new templates",
    }
    most = use(counts, longest=True)
    if plan.budget is not None:
        parts["budget"] = tell_budget(plan, rows[1])
        most = _within(plan, most)
    return UsageRange(sum(rows), least, most, parts)


def _check_budget(plan: CalibrationPlan) -> None:
    limit = None if plan.budget is None else read_budget(plan.budget)
    if limit is not None and not limit.dollars:  # what dollars pay for is known only as it goes
        least = least_for_decision()
        SearchBudget(limit, Usage, lambda _: least, least_reserved=least).check()


def tell_budget(plan: CalibrationPlan, held_out: int) -> str:
    """What bounds a search, given or not."""
    if plan.budget is None:
        return (
            f"none is given: the search asks for {UNPLANNED} outputs and rewrites at most,"
            f" validation for {2 * held_out:,} outputs"
        )
    return (
        f"{read_budget(plan.budget)}, of which up to {DECISION_SHARE:.0%} are set aside for"
        " validation before the search begins"
    )


def _bound_calls(
    material: Material, plan: CalibrationPlan, judging: Judging, model: str, price_of: PriceOf
) -> Usage:
    """As many calls as there may be, each as long as one of the longest kind."""

    def use(counts: Counts, judging: Judging) -> Usage:
        return _use(material, plan, judging, model, price_of, counts, longest=True)

    unjudged = Judging(None, None, asked=False)
    output = use(ONE_OUTPUT, unjudged)
    written = use(Counts(0, 0, 0, 0, 1, 1, 0, 0), unjudged)
    judged = [use(ONE_OUTPUT, judging) - output]
    judged += [use(Counts(0, 0, 0, 1, 0, 0, 0, 0), judging) - output]
    searched, decided = (output.calls + one.calls for one in judged)
    calls = UNPLANNED * searched + 2 * len(material.validation) * decided + SLACK
    # One reflection is instructions and a template in one call; each of these is asked twice.
    kinds = [(1, output), (2, written), *((one.calls, one) for one in judged if one.calls)]
    more = MOST_CHARACTERS + MOST_OUTCOMES
    prompt = max(kind.prompt_tokens / number for number, kind in kinds) + more / LONG
    answer = max(math.ceil(kind.completion_tokens / number) for number, kind in kinds)
    limit = None if plan.budget is None else read_budget(plan.budget)
    calls = round(limit.most) if limit is not None and not limit.dollars else calls
    return _within(plan, count_calls(calls, prompt, answer, price_of(model)))


def _within(plan: CalibrationPlan, most: Usage) -> Usage:
    """No more than the budget."""
    if plan.budget is None:
        return most
    limit = read_budget(plan.budget)
    if limit.dollars:
        return replace(most, cost=None if most.cost is None else min(most.cost, limit.most))
    return replace(most, calls=min(most.calls, round(limit.most)))


def _use(
    material: Material,
    plan: CalibrationPlan,
    judging: Judging,
    model: str,
    price_of: PriceOf,
    counts: Counts,
    *,
    longest: bool,
) -> Usage:
    template = material.template
    rules = RewritingRules(template, material.names, material.columns)
    written = rules.longest if longest else len(template)
    filled = [len(fill(template, e.values)) - len(template) for e in material.examples]
    values = max(filled) if longest else round(sum(filled) / len(filled))
    answer = plan.max_output_tokens if longest else min(SHORT_ANSWER, plan.max_output_tokens)
    prompt = max(1, written + values)
    price = price_of(model)

    def calls(number: int, characters: int, tokens: int) -> Usage:
        return count_calls(number, characters / (LONG if longest else SHORT), tokens, price)

    times = 2 if longest else 1
    shown = written + PROMPT_CHARACTERS
    examples = MOST_OUTCOMES if longest else plan.minibatch * USUAL_OUTCOME
    listed = plan.gradient_depth * INSTRUCTION_LENGTH // (1 if longest else 10)
    again = ANSWER_SHOWN if longest else 0
    total = calls(counts.outputs, prompt, answer)
    instructed = INSTRUCTIONS_TOKENS if longest else INSTRUCTIONS_TOKENS // 10
    total += calls(times * counts.instructions, shown + examples + again, instructed)
    rewritten = rules.max_tokens if longest else len(template) // 4 + 1
    shots = sum(len(turn.text) for turn in example())
    total += calls(times * counts.successors, shots + shown + listed + again, rewritten)
    for judge, cases, candidates in _judged(plan, judging, counts):
        text = "x" * (answer * CHARACTERS_A_TOKEN)
        case = Case("x" * prompt, (text,) * candidates)
        found = estimate_judge([case], judge, model, price_of)
        total += sum([found.most if longest else found.least] * cases, Usage())
    return total


def _judged(plan: CalibrationPlan, judging: Judging, counts: Counts) -> list[tuple[str, int, int]]:
    """Each judge by its text, with a number of cases and of candidates in each."""
    together = plan.judged == "template"
    made: list[tuple[str, int, int]] = []

    def add(judge: str | None, outputs: int, templates: int) -> None:
        if judge is not None and outputs:
            one = -(-outputs // templates) if together else 1
            made.append((judge, templates if together else outputs, one))

    add(judging.first, counts.explored, counts.instructions)
    if judging.asked:
        bandits = plan.selection == "ucb"
        add(judging.first, counts.selected, counts.selected if bandits else counts.arms)
        add(judging.first, counts.finals, max(1, counts.finalists))
        add(judging.first, counts.validated, 2)
    add(judging.second, counts.validated, 2)
    return made
