"""The loop of the strategies `auto`, `reflect` and `demos`: propose, gate, race, and go on from the
best.

A new template is first tried on a few rows, some that its parent failed on and some that it did
not, and goes on to all rows in play only if it does better there. Parents' scores are known, so
all comparisons are in pairs, and no row is asked for twice. Which operator makes the next templates
is drawn by what each has gained for a call so far (Thompson sampling).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from textevolve.errors import InputError
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.evidence import Evidence, extend, open_evidence
from textevolve.loops.calibration.operators import (
    REMOVE,
    Operator,
    Proposal,
    list_removals,
)
from textevolve.loops.calibration.rewriting import Rewritten
from textevolve.loops.calibration.search import ROUND, SEED, TemplateSearch
from textevolve.loops.calibration.selection import seeded, shuffle
from textevolve.loops.calibration.spending import SearchSpent
from textevolve.loops.calibration.tree import OperatorEarnings

UNPLANNED = 300
"""Outputs and rewrites that the search takes at most where no budget is given."""
FEWEST_FAULTS = 2
FEWEST_ROWS, CERTAINTY, KEPT = 15, 6.0, 0.75
"""Rows of validation for which calls stay set aside: `CERTAINTY` over the gain squared, as a test
needs them, and no fewer; nor less than the share `KEPT` of what was set aside at first."""
EQUAL = 1e-9
ABLATION_SHARE = 0.1
"""The share of the outputs that is kept for the ablation, in removals that are tried on all
rows in play: none of a small budget."""
FORGETTING = 0.85
"""What an operator's earlier rounds count for when it has another."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """`rows` on which templates race, `gate`: those they are tried on first, `width`: templates
    that are made at once."""

    rows: int
    gate: int
    width: int


def size_up(outputs: float, training: int) -> Sizes:
    """By what the search may ask for in all: with more of it, differences are told more surely."""
    rows = min(training, max(4, round(math.sqrt(outputs))))
    return Sizes(rows, max(2, min(6, round(rows / 3))), max(1, min(4, round(outputs / 200))))


@dataclass
class Climb:
    """Where the search stands; the leader has a score on every row in play that has one. `held`:
    outputs for the ablation. `equals`: by operators a longer template that is as good as the
    leader, from which they go on: two changes may help where each alone does not. Where nothing
    scores, an operator goes on only from what it made itself."""

    evidence: Evidence
    sizes: Sizes
    operators: Sequence[Operator]
    equals: dict[str, int] = field(default_factory=dict[str, int])
    idle: int = 0
    held: int = 0
    raced: list[int] = field(default_factory=lambda: [SEED])
    recent: dict[str, tuple[float, float, float]] = field(
        default_factory=dict[str, tuple[float, float, float]]
    )

    @property
    def search(self) -> TemplateSearch:
        return self.evidence.search

    @property
    def room(self) -> int:
        """Outputs that may still be asked for."""
        return int(self.search.spending.outputs_left - self.held + 1e-9)


async def improve(search: TemplateSearch, operators: Sequence[Operator]) -> StopReason:
    """Until the budget's share is used, no fault is left, or nothing new was better for long.

    Raises:
        InputError: no operator can do anything here. BudgetError: a limit was reached.
    """
    usable = [one for one in operators if one.usable(search)]
    if not usable:
        raise InputError(
            "the strategy demos needs labelled rows, at least four that can be shown, and a metric"
            " that scores a single prompt by them"
        )
    search.enter("original")
    spending, training = search.spending, len(search.material.training)
    spending.outputs = UNPLANNED
    evidence = await open_evidence(search)
    sizes = size_up(spending.outputs_left, training)
    climb = Climb(evidence, sizes, usable)
    await extend(evidence, SEED, min(sizes.rows, climb.room))
    climb.held = int(ABLATION_SHARE * spending.outputs_left // sizes.rows) * sizes.rows
    try:
        stopped = await go_on(climb)
    except SearchSpent:
        stopped = "max_iterations"
    await ablate(climb)
    return stopped if search.scored else "failed"


async def go_on(climb: Climb) -> StopReason:
    """Step by step, until the search's share is used, no fault is left, or patience is lost."""
    search = climb.search
    patience = search.plan.patience * search.plan.successors * len(climb.operators)
    while climb.idle < patience:
        if not await find_faults(climb):
            return end_without_faults(climb)
        operator = choose_operator(climb)
        parent = choose_parent(climb, operator)
        width = affordable_width(climb, operator)
        if width == 0 and reserve_least(climb):
            continue
        if width == 0:
            return "max_iterations"
        search.rounds += 1
        await take_step(climb, operator, parent, width)
        search.show()
    return "converged"


async def ablate(climb: Climb) -> None:
    """Remove what the search has added to the leader and what does not help on the rows in play, as
    far as the budget goes."""
    search, climb.held = climb.search, 0
    while climb.room >= climb.evidence.count and any(list_removals(search, search.leader)):
        search.rounds += 1
        await take_step(climb, REMOVE, search.leader, 1)
        search.show()


async def find_faults(climb: Climb) -> bool:
    """Whether the leader has faults on rows in play, into which more come while it has few."""
    evidence, search = climb.evidence, climb.search
    total = len(evidence.order)
    while len(evidence.faults(search.leader)) < FEWEST_FAULTS and evidence.count < total:
        more = min(max(4, climb.sizes.rows // 2), climb.room, total - evidence.count)
        if more < 1:
            break
        search.enter("original" if search.leader == SEED else "rows")
        await extend(evidence, search.leader, evidence.count + more)
        if is_perfect(climb):
            break
    return bool(evidence.faults(search.leader))


def is_perfect(climb: Climb) -> bool:
    """Whether the original leaves nothing to be gained. A judge's 1 is no proof of that."""
    search, known = climb.search, climb.evidence.statistics(SEED)
    fair = min(search.plan.final_minibatch, len(climb.evidence.order))
    perfect = search.leader == SEED and search.context.metric is not None
    return perfect and len(known.present) >= fair and not climb.evidence.faults(SEED)


def end_without_faults(climb: Climb) -> StopReason:
    search = climb.search
    if not search.scored:
        return "failed"
    if is_perfect(climb):
        search.perfect = len(climb.evidence.statistics(SEED).present)
        return "accepted"
    return "converged"


def choose_operator(climb: Climb) -> Operator:
    """The one with the highest gain for a call, drawn from what may be believed of each: as often
    as it won with so many calls (a Gamma distribution), times what a win brought. What is long ago
    counts less, since gains become rarer. One that was not tried yet comes first."""
    search = climb.search
    rng = seeded(search.plan.seed, "operator", search.rounds)

    def draw(operator: Operator) -> float:
        if operator.name not in climb.recent:
            return math.inf
        wins, gain, calls = climb.recent[operator.name]
        rate = rng.gammavariate(0.2 + wins, 1 / (climb.sizes.rows + calls))
        return rate * (0.1 + gain) / (1 + wins)

    return max(climb.operators, key=draw)


def affordable_width(climb: Climb, operator: Operator) -> int:
    """How many templates can be made and tried; 0 if not even one. A rewrite may take two calls."""
    spending, sizes = climb.search.spending, climb.sizes
    writing = 2 * spending.rewrite_cost / spending.output_cost if operator.writes else 0.0
    each = writing + sizes.gate
    return max(0, min(sizes.width, int((climb.room - 2) // each)))


async def take_step(climb: Climb, operator: Operator, parent: int, width: int) -> None:
    """New templates of one operator, which pass the gate or not, and race; the best may lead. What
    it took and brought is kept, also of a step that a limit ends."""
    search, number, old = climb.search, climb.search.rounds, climb.search.leader
    before, gain, equals = search.usage.calls, 0.0, dict(climb.equals)
    made, passed = dict[int, tuple[int, ...]](), list[int]()
    proposals: Sequence[Proposal] = ()
    try:
        search.enter("rewriting")
        proposals = await operator.propose(climb.evidence, parent, number, width)
        made = add_proposals(search, operator, parent, proposals)
        passed = await gate(climb, parent, made)
        gain = await race(climb, passed, operator)
    finally:
        won = OperatorEarnings(
            operator.name,
            len(proposals),
            len(passed),
            int(search.leader != old),
            search.usage.calls - before,
            gain,
        )
        keep_earnings(climb, won)
    moved = won.taken or climb.equals != equals
    climb.idle = 0 if moved else climb.idle + max(1, len(proposals))
    known = [climb.evidence.statistics(node) for node in (old, *made)]
    search.place(ROUND, number, [one for one in known if one.scores], [search.leader])


def add_proposals(
    search: TemplateSearch, operator: Operator, parent: int, proposals: Sequence[Proposal]
) -> dict[int, tuple[int, ...]]:
    """The numbers of those that can compete, with the rows by which they were written."""
    made = dict[int, tuple[int, ...]]()
    for one in proposals:
        said = one.new.instructions if isinstance(one.new, Rewritten) else ()
        node = search.add(parent, search.rounds, said, one.new, one.part, operator.name, one.demos)
        if node is not None:
            made[node] = one.shown
    return made


def keep_earnings(climb: Climb, won: OperatorEarnings) -> None:
    earnings = climb.search.earnings
    had = earnings.get(won.operator, OperatorEarnings(won.operator))
    earnings[won.operator] = OperatorEarnings(
        won.operator,
        had.proposals + won.proposals,
        had.passed + won.passed,
        had.taken + won.taken,
        had.calls + won.calls,
        had.gain + won.gain,
    )
    wins, gain, calls = climb.recent.get(won.operator, (0.0, 0.0, 0.0))
    climb.recent[won.operator] = (
        FORGETTING * wins + won.taken,
        FORGETTING * gain + won.gain,
        FORGETTING * calls + won.calls,
    )


def choose_parent(climb: Climb, operator: Operator) -> int:
    """The leader or its equal, or one drawn by the scores of all that raced."""
    search, plan = climb.search, climb.search.plan
    raced = climb.raced
    if plan.choice == "argmax" or len(raced) == 1:
        return climb.equals.get(operator.name, search.leader)
    means = [climb.evidence.statistics(node).mean or 0.0 for node in raced]
    odds = [math.exp((mean - max(means)) / plan.choice_temperature) for mean in means]
    return seeded(plan.seed, "parent", search.rounds).choices(raced, odds)[0]


async def gate(climb: Climb, parent: int, made: dict[int, tuple[int, ...]]) -> list[int]:
    """Those that do better than the parent on a few rows, the best first. One that does as well is
    tried on as many rows more, and then is good enough."""
    climb.search.enter("gate")
    evidence = climb.evidence
    rows = {node: gate_rows(climb, parent, node, shown) for node, shown in made.items()}
    gains = dict[int, float]()
    for part in (slice(climb.sizes.gate), slice(climb.sizes.gate, 2 * climb.sizes.gate)):
        open_ = [node for node in rows if abs(gains.get(node, 0.0)) <= EQUAL]
        trials = [(node, row) for node in open_ for row in rows[node][part]]
        await evidence.ask(evidence.new(trials)[: climb.room])
        gains |= {node: sum(evidence.gains(node, parent, rows[node])) for node in open_}
    return sorted((n for n, gain in gains.items() if gain >= -EQUAL), key=lambda n: (-gains[n], n))


def gate_rows(climb: Climb, parent: int, node: int, shown: Sequence[int]) -> list[int]:
    """Rows twice as many as a gate has: of each half most are such that the parent failed on, first
    those by which the template was written; the others it did not, so that losses show."""
    evidence, size = climb.evidence, climb.sizes.gate
    usable = evidence.in_play(parent, node)
    faults = evidence.faults(parent)
    bad = [row for row in (*shown, *faults) if row in usable]
    good = [row for row in usable if row not in faults]
    shuffle(good, climb.search.plan.seed, "gate", node)
    bad = list(dict.fromkeys(bad))
    ordered: list[int] = []
    while bad or good:
        kept = min(len(good), max(size // 4, size - len(bad)))
        ordered += [*bad[: size - kept], *good[:kept]]
        bad, good = bad[size - kept :], good[kept:]
    return ordered[: 2 * size]


async def race(climb: Climb, passed: Sequence[int], operator: Operator) -> float:
    """The best of those that passed leads if it is better on the rows in play, or as good and
    shorter. Gives its gain."""
    search, evidence = climb.search, climb.evidence
    search.enter("race")
    trials = evidence.new((node, row) for node in passed for row in evidence.in_play(node))
    await evidence.ask(trials[: climb.room])
    climb.raced += passed
    old, means = search.leader, {search.leader: 0.0}
    for node in passed:
        gains = evidence.gains(node, old, evidence.in_play(node, old))
        means[node] = round(sum(gains) / len(gains), 9) if gains else -1.0
    best = max(means, key=lambda node: (means[node], -search.length_of(node)))
    if best != old:
        climb.equals.clear()
    equal = [node for node in passed if node != best and means[node] == means[best]]
    if equal:
        scores = evidence.statistics(best).mean or 0.0
        sharing = climb.operators if scores > EQUAL else (operator,)
        climb.equals |= {one.name: equal[0] for one in sharing}
    search.leader = best
    search.beam = [best]
    if best != SEED:
        missing = evidence.new((best, row) for row in evidence.in_play(best))
        await evidence.ask(missing[: climb.room])
        reserve_less(climb)
    return means[best]


def reserve_least(climb: Climb) -> bool:
    """While the original leads there is nothing to decide: give the search what was set aside, but
    for what a large gain needs. Whether that is more than it had."""
    spending, before = climb.search.spending, climb.room
    if climb.search.leader == SEED and not climb.equals:
        spending.most_reserved = min(spending.most_reserved, 2 * FEWEST_ROWS)
    return climb.room > before


def reserve_less(climb: Climb) -> None:
    """Keep for the decision only the rows that the gain will need, by how many more rows gain than
    lose. The leader was chosen by these very rows, which makes its gain seem too large, so one
    standard error is taken off."""
    evidence, spending, leader = climb.evidence, climb.search.spending, climb.search.leader
    gains = evidence.gains(leader, SEED, evidence.in_play(leader))
    signs = [(gain > EQUAL) - (gain < -EQUAL) for gain in gains]
    net = sum(signs) / max(1, len(signs))
    error = math.sqrt(sum((sign - net) ** 2 for sign in signs)) / max(1, len(signs))
    sure = net - error
    rows = max(FEWEST_ROWS, CERTAINTY / sure**2) if sure > 0 else math.inf
    whole = spending.reserve(spending.output_cost) / spending.output_cost
    spending.most_reserved = max(2 * rows, KEPT * whole)
