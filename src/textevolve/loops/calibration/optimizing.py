"""The complete calibration: search with a strategy, then decide on held-out rows whether the best
template may replace the original.

The strategy `protegi` is beam search by textual gradients: Pryzant and others (2023), "Automatic
prompt optimization with 'gradient descent' and beam search", arXiv 2305.03495, algorithms 1 and 2.
In each round a model writes instructions from the failures of every template in the beam (the best
templates so far), successors are written by these instructions, and old and new templates compete
for the next beam. The paraphrases that the paper adds to each successor are left out, and its UCB
bandits are the option `selection`; the default tries all templates of a round on the same rows.

`textevolve.statistics.comparisons` has the statistical test. If there is a budget, the calls for
the decision are reserved before the search begins, so that every search can be decided.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice, pairwise

from textevolve.errors import BudgetError
from textevolve.evaluation import Failure
from textevolve.loops.attempt import StopReason, draw_by_score, stop_if_skipped, within_time
from textevolve.loops.calibration.hill_climbing import UNPLANNED, improve
from textevolve.loops.calibration.plan import (
    LEAST_SEARCH,
    CalibrationContext,
    CalibrationPlan,
    CalibrationResult,
    Gain,
    SearchBudget,
    SearchSpent,
    StrategyName,
)
from textevolve.loops.calibration.rewriting import rewrite, write_instructions
from textevolve.loops.calibration.search import (
    FINALS,
    ROUND,
    SEED,
    TemplateSearch,
    choose_beam,
    draw_rows,
    seeded,
    shuffle,
    try_fast,
    try_ucb,
)
from textevolve.loops.calibration.trial_runner import (
    Example,
    Material,
    TrialOutcome,
    count_groups,
    hash_group,
    split_examples,
)
from textevolve.statistics.comparisons import (
    difference_interval,
    fewest_units,
    look_levels,
    sequential_test,
)


async def climb(search: TemplateSearch) -> StopReason:
    """Run rounds of beam search until no new template enters the beam for `patience` rounds, or
    `depth` rounds are done. A round without any instructions, because all answers failed, does not
    count."""
    idle = 0

    for number in range(1, search.plan.depth + 1):
        search.rounds = number
        instructed, fresh = await expand(search, await explore(search))
        entered = await select(search, fresh) if fresh else False
        search.show()
        idle = 0 if entered else idle + instructed
        if idle >= search.plan.patience:
            return "converged"

    return "max_iterations" if search.scored else "failed"


async def explore(search: TemplateSearch) -> dict[int, list[TrialOutcome]]:
    """Try every template in the beam on a few rows; return the outcomes by the template's
    number."""
    plan = search.plan
    training = search.material.training
    round = search.rounds
    pairs = [
        (parent, training[row])
        for parent in search.beam
        for row in draw_rows(len(training), plan.minibatch, plan.seed, "explore", round, parent)
    ]
    seen: dict[int, list[TrialOutcome]] = {parent: [] for parent in search.beam}
    for (parent, _), outcome in zip(pairs, await search.try_nodes(pairs), strict=True):
        seen[parent].append(outcome)

    return seen


async def expand(
    search: TemplateSearch, seen: Mapping[int, Sequence[TrialOutcome]]
) -> tuple[bool, list[int]]:
    """Find the faults of every template in the beam by its outcomes, and write successors. Return
    whether there were any instructions, and the numbers of the new nodes."""
    plan = search.plan
    number = search.rounds
    editor = search.editor
    templates = {parent: search.nodes[parent].templates for parent in seen}
    parts = {
        n: node_templates.names[(number - 1 + n) % len(node_templates.names)]
        for n, node_templates in templates.items()
    }
    written = await search.rewrite_all(
        "instructions",
        [partial(write_instructions, editor, templates[n], seen[n], parts[n]) for n in seen],
    )
    stop_if_skipped(written)
    orders: list[tuple[int, tuple[str, ...], int]] = []

    for parent, instructions in zip(seen, written, strict=True):
        if isinstance(instructions, Failure):
            node = search.nodes[parent]
            note = f"round {number}: no instructions: "
            search.nodes[parent] = replace(node, notes=(*node.notes, note + instructions.reason))
            continue

        shares = share_out(instructions, plan.successors, plan.seed + number)
        orders += [(parent, share, number * 1000 + k) for k, share in enumerate(shares)]

    rewrites = await search.rewrite_all(
        "successors",
        [partial(rewrite, editor, templates[n], share, parts[n], k) for n, share, k in orders],
    )
    added = [
        search.add(parent, new, parts[parent], instructions=share)
        for (parent, share, _), new in zip(orders, rewrites, strict=True)
    ]
    stop_if_skipped(rewrites)

    return bool(orders), [node for node in added if node is not None]


def share_out(instructions: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """Choose the instructions that each of `count` successors applies: all for the first, seeded
    subsets of every smaller size for the others, so that the effect of one instruction can show."""
    shares = [tuple(instructions)]
    for n in range(1, count):
        size = 1 + (n - 1) % max(1, len(instructions) - 1)
        order = list(range(len(instructions)))
        shuffle(order, seed, "instructions", n, *instructions)
        shares.append(tuple(instructions[k] for k in sorted(order[:size])))

    return shares[:count]


async def select(search: TemplateSearch, fresh: Sequence[int]) -> bool:
    """Choose the best of old and new templates as the beam, or draw it by their scores; return
    whether a new one is in it. The best one leads also if it was not drawn."""
    plan = search.plan
    count = len(search.material.training)
    arms = sorted([*search.beam, *fresh])
    rows = draw_rows(count, count, plan.seed, "select", search.rounds)
    size = min(plan.selection_minibatch, count)

    if plan.selection == "ucb":
        pulls = max(len(arms), math.ceil(len(arms) * size / 2))  # half of every arm on every row
        tried = await try_ucb(arms, rows, search.try_rows, width=plan.beam, pulls=pulls)
    else:
        tried = await try_fast(arms, rows[:size], search.try_rows)

    ranked = choose_beam(tried, len(tried), search.length_of)
    if ranked:
        search.leader = ranked[0]
        search.beam = ranked[: plan.beam]
    if ranked and plan.select == "sample":
        means = {arm.arm: arm.mean or 0.0 for arm in tried if arm.arm in ranked}
        generator = seeded(plan.seed, "beam", search.rounds)
        drawn = draw_by_score(means, plan.beam, generator)
        search.beam = [arm for arm in ranked if arm in drawn]
    search.place(ROUND, tried, search.beam)

    return any(node in fresh for node in search.beam)


SEARCH_TIME = 0.8
"""The share of a time limit after which the search ends, to leave time to decide."""
DECISION_SHARE = 0.55
"""The maximum share of a budget that is reserved for the decision."""
FIRST_ROWS = 20
"""The rows of validation that a budget covers first; they are enough to show a large gain."""
FIRST_SEARCH = 60
"""The outputs for the search that a budget covers next, before more rows of validation, since a
small budget cannot show a small gain anyway."""
LOOKS = (9, 16, 28, 50)
LAST_EARLY_LOOK = 0.7
"""The numbers of independent rows after which the decision looks at the scores before the last look
at all rows, and the largest share of all rows for an early look."""
FEWEST_CROSSED = 8
"""The least number of independent rows for cross-fitting."""
CROSSED_OUTPUTS = 60
CROSSED_ROUNDS = 5
"""The outputs that a budget must pay for, in all and for each independent row, to cross-fit: with
fewer of them two searches are too short."""
FOLD_SHARE = 0.25
"""The share of the budget for the search on each half of the rows."""
FEWEST_FINALS = 5
"""The least number of training rows for finals; with fewer they would decide nothing, and are left
out."""


STRATEGIES: Mapping[StrategyName, Callable[[TemplateSearch], Awaitable[StopReason]]] = {
    "auto": partial(improve, operators=("demos", "reflect")),
    "reflect": partial(improve, operators=("reflect",)),
    "demos": partial(improve, operators=("demos",)),
    "protegi": climb,
}
"""The search function of each strategy."""


async def search_template(
    material: Material, plan: CalibrationPlan, context: CalibrationContext
) -> CalibrationResult:
    """Search for the best template, and decide whether it may replace the original. If the search
    is stopped, the best template so far is validated.

    Raises:
        InputError: the budget is not enough for a decision.
        FatalModelError: no call can succeed; the answers so far are in the journal.
    """
    search = TemplateSearch(material, plan, context)
    set_aside(search)
    if await can_cross_fit(search):
        join_rows(search)
        stopped, reason = await cross_fit(search)
    else:
        stopped, reason = await run_strategy(search)
        stopped, reason = await conclude(search, decide_search(search), stopped, reason)
        if stopped == "max_iterations":
            stopped, reason = await continue_search(search, stopped, reason)

    return search.result(stopped, reason)


async def conclude(
    search: TemplateSearch, decision: Coroutine[None, None, None], stopped: StopReason, reason: str
) -> tuple[StopReason, str]:
    """Await a decision within the time that is left; return the reason why the search ended, or a
    limit that cut the decision short."""
    search.spending.deciding = True
    try:
        async with within_time(search.time_left()):
            await decision
    except BudgetError as error:
        return "budget", reason or str(error)

    return stopped, reason


def set_aside(search: TemplateSearch) -> None:
    """Reserve the part of the budget that the decision needs.

    Raises:
        InputError: the budget is too small for the shortest search and a decision.
    """
    plan = search.plan
    material = search.material
    spending = search.spending
    limit = spending.limit
    if limit is None:
        return

    def reserve(output: float) -> float:
        cost = search.judges * output
        return cost * needed_for_decision(plan, material, limit / cost)

    spending.reserve = reserve
    spending.least_reserved = 2 * fewest_units() * search.judges
    spending.check()


async def run_strategy(search: TemplateSearch) -> tuple[StopReason, str]:
    """Run the search strategy; return the reason why it ended, with the error's message if a limit
    was reached. Using up the search's share of the budget is a planned end."""
    try:
        async with within_time(search.time_left(SEARCH_TIME)):
            stopped = await STRATEGIES[search.plan.strategy](search)
        nothing = not search.scored and stopped != "stopped"  # as of a program that always fails
        return "failed" if nothing else stopped, ""
    except SearchSpent:
        return "max_iterations" if search.scored else "failed", ""
    except BudgetError as error:
        return "budget", str(error)


def needed_for_decision(
    plan: CalibrationPlan, material: Material, outputs_paid: float = math.inf
) -> int:
    """Return the number of outputs to reserve before a search begins: for validation on all
    held-out rows, and for the finals of the strategy `protegi`. `outputs_paid`: the outputs that
    the budget pays for, of which at most a share is reserved, and less of a small budget
    (`FIRST_ROWS`, `FIRST_SEARCH`), but always enough for the smallest decision."""
    outputs = 2 * len(material.validation)
    if plan.strategy == "protegi":
        outputs += (plan.beam + 1) * min(plan.final_minibatch, len(material.training))
    if outputs_paid == math.inf:
        return outputs
    most = min(DECISION_SHARE * outputs_paid, max(2 * FIRST_ROWS, outputs_paid - FIRST_SEARCH))
    most = min(most, outputs_paid - LEAST_SEARCH)

    return max(2 * fewest_units(), min(outputs, int(most)))


async def decide_search(search: TemplateSearch) -> None:
    """Compare the leading template with the original on rows that the search has not seen; for a
    beam, first choose the leader in finals.

    The budget is never exceeded: if its calls are not enough, fewer held-out rows are tried, and
    none if they are too few for a significant gain.

    Raises:
        BudgetError: a limit prevented some trials; the results of earlier looks are kept.
    """
    rivals = [node for node in dict.fromkeys((search.leader, *search.beam)) if node != SEED]
    if not rivals:
        return
    validation = search.material.validation
    spending = search.spending
    outputs = math.inf
    if spending.limit is not None:
        calls = max(0.0, spending.limit - spending.spent)
        outputs = calls / (search.judges * spending.cost("output"))
    rows = validation[: int(min(outputs / 2, len(validation)))]
    size = min(search.plan.final_minibatch, len(search.material.training))
    if outputs < math.inf:
        size = int(min(size, (outputs - 2 * len(rows)) // (len(rivals) + 1)))
        size = size if len(rivals) > 1 and size >= FEWEST_FINALS else 0
    if search.plan.strategy == "protegi" and size:
        await hold_finals(search, rivals, size)
    elif search.leader == SEED:
        search.leader = rivals[0]

    if search.leader != SEED and count_groups(rows) >= fewest_units():
        await validate(search, rows)


async def hold_finals(search: TemplateSearch, rivals: Sequence[int], size: int) -> None:
    """Try the rivals and the original on the same training rows; the best becomes the leader."""
    rows = draw_rows(len(search.material.training), size, search.plan.seed, FINALS)
    tried = await try_fast(sorted({SEED, *rivals}), rows, search.try_rows)
    chosen = choose_beam(tried, 1, search.length_of)
    search.place(FINALS, tried, chosen)
    search.leader = chosen[0] if chosen else search.leader


async def validate(search: TemplateSearch, rows: Sequence[Example]) -> None:
    """Compare the leader and the original on held-out rows in several looks (interim analyses):
    stop as soon as the gain is significant, or if half of the rows show no gain. The second judge,
    if there is one, then judges the same outputs. The gains by the two judges are stored in
    `search`."""
    blocks = cut_looks(rows)
    seed = search.plan.seed
    search.tested = search.leader
    ours: list[TrialOutcome] = []
    theirs: list[TrialOutcome] = []

    for number, block in enumerate(blocks, 1):
        pairs = [(node, example) for node in (search.leader, SEED) for example in block]
        tried = await search.try_nodes(pairs)
        ours += tried[: len(block)]
        theirs += tried[len(block) :]
        scores = [outcome.score for outcome in ours], [outcome.score for outcome in theirs]
        search.gain = _weigh(*scores, blocks, number, seed)
        hopeless = not search.gain.difference > 0 and len(ours) >= len(rows) / 2
        if search.gain.significant or hopeless:
            break

    await ask_second_judge(search, ours, theirs)


async def ask_second_judge(
    search: TemplateSearch, ours: Sequence[TrialOutcome], theirs: Sequence[TrialOutcome]
) -> None:
    """Store the gain by the second judge, if there is one, on the same outputs."""
    if search.context.second_judge is None:
        return
    judged = await search.runner.judge_outputs(search.context.second_judge, [*ours, *theirs])
    scores = judged[: len(ours)], judged[len(ours) :]
    rows = [[outcome.example for outcome in ours]]
    search.second = _weigh(*scores, rows, 1, search.plan.seed)


# Cross-fitting, if the budget is large for the rows: a search on each half of them, whose leader is
# tested on the other half, so that every row is used for both. One test over all rows decides; then
# the search continues on all rows.


async def can_cross_fit(search: TemplateSearch) -> bool:
    """Return whether the budget is enough for a search on each half of the rows and a test on all
    of them."""
    material = search.material
    groups = count_groups(material.examples)
    # Half of the rows may be too few to show, so a search by demonstrations alone holds rows out.
    is_excluded = search.plan.strategy in ("protegi", "demos") or material.is_share_set
    if is_excluded or groups < FEWEST_CROSSED:
        return False
    limit = search.spending.limit
    outputs = float(UNPLANNED + 2 * len(material.validation))
    if limit is not None:
        if search.learns_costs:
            await search.ask([(SEED, search.order[0])])
        outputs = (limit - search.spending.spent) / search.spending.cost("output")

    return outputs >= CROSSED_OUTPUTS + CROSSED_ROUNDS * groups


def join_rows(search: TemplateSearch) -> None:
    """Make all rows training rows, the former ones first, so that their numbers do not change."""
    material = search.material
    search.material = replace(material, training=material.examples, validation=())
    search.order = draw_rows(len(material.examples), 10**9, search.plan.seed, "rows")
    search.is_cross_fitted = True


async def cross_fit(search: TemplateSearch) -> tuple[StopReason, str]:
    """Run the strategy on each half of the rows, decide, and continue on all rows if the gain is
    significant; return the reason for the end."""
    halves = split_examples(search.material.training, 0.5)
    leaders: list[int] = []
    reasons: list[tuple[StopReason, str]] = []

    for half in halves:
        fold = begin_fold(search, half)
        reasons.append(await run_strategy(fold))
        leaders.append(search.join(fold))
        if reasons[-1][0] in ("budget", "stopped"):
            return reasons[-1]

    stopped, reason = min(reasons, key=lambda pair: pair[0] in ("failed", "accepted"))
    if stopped == "accepted":  # the original is perfect on both halves
        search.perfect = len(search.outcomes)
    decision = decide_folds(search, leaders, halves)
    stopped, reason = await conclude(search, decision, stopped, reason)

    return await continue_search(search, stopped, reason)


async def continue_search(
    search: TemplateSearch, stopped: StopReason, reason: str
) -> tuple[StopReason, str]:
    """Spend what is left of the budget on a search that begins with the leader, if its gain is
    significant: nothing has to be reserved any more. Return the reason for the end."""
    if search.gain is None or not search.gain.significant or search.plan.strategy == "protegi":
        return stopped, reason
    search.spending.deciding = False
    search.spending.reserve = lambda _: 0.0

    return await run_strategy(search)


def begin_fold(search: TemplateSearch, rows: Sequence[Example]) -> TemplateSearch:
    """Return a search on some of the rows, with a share of the budget."""
    material = replace(search.material, training=tuple(rows), validation=())
    fold = TemplateSearch(material, search.plan, search.context, began=search.began)
    before = search.usage
    fold.meter = search.meter
    fold.editor = search.editor
    fold.runner = search.runner
    limit = search.spending.limit
    share = None
    if limit is not None:
        test = 2 * len(search.material.training) * search.spending.cost("output")
        share = int(min(FOLD_SHARE * limit, (limit - test) / 3))
    fold.spending = SearchBudget(share, lambda: search.usage - before)
    fold.spending.outputs = FOLD_SHARE * UNPLANNED
    fold.spending.learned = search.spending.learned

    return fold


async def decide_folds(
    search: TemplateSearch, leaders: Sequence[int], halves: Sequence[Sequence[Example]]
) -> None:
    """Compare the leader of each half with the original on the other half, with one test over all
    rows. The leader with the higher mean gain becomes the search's, and the rows on which it was
    tested come into play.

    Raises:
        BudgetError: a limit prevented some trials.
    """
    ours: list[TrialOutcome] = []
    theirs: list[TrialOutcome] = []
    tested: list[tuple[float, int, list[int]]] = []
    numbers = {example.id: row for row, example in enumerate(search.material.training)}

    for leader, half in zip(leaders, reversed(halves), strict=True):
        if leader == SEED:
            continue
        rows = [numbers[example.id] for example in half]
        await search.ask([(node, row) for node in (leader, SEED) for row in rows])
        ours += [search.outcomes[leader, row] for row in rows]
        theirs += [search.outcomes[SEED, row] for row in rows]
        gains = search.gains(leader, SEED, rows)
        tested.append((sum(gains) / max(1, len(gains)), leader, rows))

    if tested:
        _, search.leader, rows = max(tested)
        search.beam = [search.leader]
        search.order = (*rows, *(row for row in search.order if row not in rows))
        search.count = len(rows)
    examples = [outcome.example for outcome in ours]
    if count_groups(examples) >= fewest_units():
        scores = [outcome.score for outcome in ours], [outcome.score for outcome in theirs]
        search.gain = _weigh(*scores, [examples], 1, search.plan.seed)
        await ask_second_judge(search, ours, theirs)


def cut_looks(rows: Sequence[Example]) -> list[list[Example]]:
    """Split the rows for the looks: half of them first, if these could be enough for a decision.
    Rows of one group, which are adjacent, stay together."""
    groups = [list(members) for _, members in groupby(rows, hash_group)]
    cuts = [cut for cut in LOOKS if cut <= LAST_EARLY_LOOK * len(groups)]
    looks = [groups[start:end] for start, end in pairwise([0, *cuts, len(groups)])]

    return [list(chain.from_iterable(look)) for look in looks]


def _weigh(
    ours: Sequence[float | None],
    theirs: Sequence[float | None],
    blocks: Sequence[Sequence[Example]],
    number: int,
    seed: int,
) -> Gain:
    """Return the gain of `ours` over `theirs` after the first `number` looks, with its test.
    `blocks`: the rows of all planned looks."""
    names = [hash_group(example) for block in blocks for example in block][: len(ours)]
    gain = compare_scores(ours, theirs, names, seed)
    gaps = (None if a is None or b is None else a - b for a, b in zip(ours, theirs, strict=True))
    sums: list[list[float]] = []

    for block in blocks[:number]:
        pairs = zip(block, islice(gaps, len(block)), strict=True)
        groups = groupby(pairs, lambda pair: hash_group(pair[0]))
        present = ([gap for _, gap in members if gap is not None] for _, members in groups)
        sums.append([sum(group_gaps) for group_gaps in present if group_gaps])

    levels = look_levels(len(blocks))
    looks = sequential_test(sums, levels[:number])
    p = looks[-1].p if gain.items else math.nan
    planned = sum(map(len, blocks))
    groups = sum(map(len, sums))
    groups = groups if groups < gain.items else 0

    return replace(gain, p=p, level=levels[len(looks) - 1], planned=planned, groups=groups)


def compare_scores(
    scores: Sequence[float | None],
    other_scores: Sequence[float | None],
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> Gain:
    """Return the mean of `scores` minus that of `other_scores` over rows that have both scores,
    with its paired interval by group (None: each row is one). No significance test is made: `p` is
    NaN."""
    sides = scores, other_scores
    names = [""] * len(scores) if groups is None else groups
    named = zip(*sides, names, strict=True)
    pairs = [(a, b, name) for a, b, name in named if a is not None and b is not None]
    none = math.nan
    rows = len(scores)
    scored = [sum(score is not None for score in side) for side in sides]
    if not pairs:
        return Gain(none, none, none, none, none, none, 0, rows, *scored)
    ours, theirs, of_pairs = zip(*pairs, strict=True)
    ends = difference_interval(ours, theirs, of_pairs, seed=seed)
    means = sum(ours) / len(ours), sum(theirs) / len(theirs)
    gap = means[0] - means[1]

    return Gain(*means, gap, ends.low, ends.high, none, len(pairs), rows, *scored)
