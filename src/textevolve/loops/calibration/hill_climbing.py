"""The search loop of the strategies `auto`, `reflect` and `demos`: propose new templates, filter
them on a few rows (the gate), compare the others on all rows in play (the race), and continue from
the best.

The gate uses some rows on which the parent failed, and some on which it did not. Rows in play are
the training rows used so far. The parent's scores on them are known, so all comparisons are paired,
and no trial is repeated. Of the operators, which propose templates, the one that brought better
leaders in its latest steps has the next step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from textevolve.errors import InputError
from textevolve.evaluation import Failure, empty_default
from textevolve.loading import late_regex
from textevolve.loops.attempt import StopReason, draw_by_score, stop_if_skipped
from textevolve.loops.calibration.plan import SearchSpent
from textevolve.loops.calibration.rewriting import (
    MOST_CHARACTERS,
    MOST_SHOWN,
    Rewritten,
    can_show,
    fit_outcomes,
    front,
    rewrite,
    show_demo,
    template_fault,
    write_instructions,
    write_reflection,
)
from textevolve.loops.calibration.search import ROUND, SEED, TemplateSearch, seeded, shuffle
from textevolve.loops.calibration.trial_runner import MOST_CLASSES, PROMPT, Example, TrialOutcome
from textevolve.texts.prose import OTHER_STOPS

SHOTS = (2, 4, 8)
"""The possible numbers of demonstrations (few-shot examples) in a newly drawn set."""
_PIECE = late_regex(
    r"(?V1)(?s)(?:(?:[-*•]|\d+[.)])\s+)?\S.*?"
    rf"(?:[.!?]+(?:\s+|\Z)|{OTHER_STOPS}+[\"'”’»)\]」』】》〉]*\s*|\n\s*|\Z)",
)
"""A sentence or a line, with its bullet and the white space after it."""
FEWEST_LABELLED = 4
"""The least number of training rows usable as demonstrations; with fewer, demonstrations are not
tried."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed new template. `new`: its text, or the failure to write one. `part`: the name of
    the changed template in a program. `shown`: the numbers of the rows that the gate tries first:
    those that the writing model saw, or, for new demonstrations, rows on which the parent failed.
    `demos`: the ids of the rows that are demonstrations in it."""

    new: Rewritten | Failure
    part: str = PROMPT
    shown: tuple[int, ...] = ()
    demos: tuple[str, ...] = ()


async def reflect(search: TemplateSearch, parent: int, width: int) -> list[Proposal]:
    """Propose `width` templates that a model rewrites after seeing failures of the parent. Each
    rewrite is shown its own random choice of failed rows, as many as fit into a prompt. A single
    template takes one call, a program with several templates two."""
    work: list[Callable[[], Awaitable[Rewritten]]] = []
    names = search.nodes[parent].templates.names
    drawn: list[tuple[str, tuple[int, ...]]] = []

    for k in range(width):
        rows = search.faults(parent) + search.unfinished_rows(parent)
        shuffle(rows, search.plan.seed, "reflect", search.rounds, k)
        known_outcomes = [search.outcomes[parent, row] for row in rows[:MOST_SHOWN]]
        outcomes = fit_outcomes(known_outcomes, search.context.shown)
        part = names[(search.rounds + k - 1) % len(names)]
        drawn.append((part, tuple(rows[: len(outcomes)])))
        sample = search.rounds * 1000 + k
        work.append(partial(_reflect_once, search, parent, outcomes, part, sample))

    rewrites = await search.rewrite_all("reflections", work)
    stop_if_skipped(rewrites)
    demos = search.nodes[parent].demos

    return [
        Proposal(new, part, rows, demos) for new, (part, rows) in zip(rewrites, drawn, strict=True)
    ]


async def _reflect_once(
    search: TemplateSearch,
    parent: int,
    outcomes: Sequence[TrialOutcome],
    part: str,
    sample: int,
) -> Rewritten:
    templates = search.nodes[parent].templates
    editor = search.editor
    if len(templates.names) > 1 or not editor.rules[part].names:
        instructions = await write_instructions(editor, templates, outcomes, part)
        return await rewrite(editor, templates, instructions, part, sample)
    ahead = front(demos_of(search, parent))
    body = templates[part].removeprefix(ahead)
    new = await write_reflection(editor, body, outcomes, part, sample)

    return replace(new, text=ahead + new.text) if new.text else new


async def demonstrate(search: TemplateSearch, parent: int, width: int) -> list[Proposal]:
    """Propose templates with new demonstrations (few-shot examples): other labelled rows, or the
    parent's with one row changed."""
    body = search.nodes[parent].text.removeprefix(front(demos_of(search, parent)))
    proposals: list[Proposal] = []

    for k in range(width):
        demos = draw_demos(search, parent, k)
        new = Rewritten(front(demos) + body, (f"{len(demos)} rows as demonstrations",))
        faults = search.faults(parent)
        shuffle(faults, search.plan.seed, "demos", search.rounds, k, "faults")
        proposals.append(Proposal(new, shown=tuple(faults), demos=tuple(demo.id for demo in demos)))

    return proposals


def draw_demos(search: TemplateSearch, parent: int, k: int) -> list[Example]:
    """Draw a new set of demonstrations: the parent's with one dropped, added or exchanged, or a new
    set with a size from `SHOTS` and as many different labels as possible. If labels are classes, a
    new set has at least one row of each, since a model does not answer with a class that the prompt
    does not show. Rows that are not in play are preferred, since demonstrations cannot be used for
    comparisons."""
    rng = seeded(search.plan.seed, "demos", search.rounds, k)
    training = search.material.training
    rules = search.editor.rules[PROMPT]
    aside = list(search.order[search.count :])
    played = list(search.order[: search.count])
    rng.shuffle(aside)
    rng.shuffle(played)
    usable = [training[row] for row in (*aside, *played) if can_show(training[row], rules)]
    had = demos_of(search, parent)

    if had and rng.random() < 0.5:
        unused = [demo for demo in usable if demo not in had]
        demos = list(had)
        if len(demos) > 1 and rng.random() < 2 / 3:
            demos.pop(rng.randrange(len(demos)))
        return _within_room([*demos, *unused[:1]])

    labels = Counter[str]()
    repeats: list[int] = []
    for demo in usable:
        labels[str(demo.label)] += 1
        repeats.append(labels[str(demo.label)])
    classes = len(labels) if len(labels) <= min(MOST_CLASSES, len(usable) // 2) else 0
    shots = min(max(rng.choice(SHOTS), classes), max(1, len(training) // 3))
    ranked = sorted(zip(repeats, usable, strict=True), key=lambda pair: pair[0])

    return _within_room([demo for _, demo in ranked[:shots]])


def demos_of(search: TemplateSearch, node: int) -> list[Example]:
    rows = {example.id: example for example in search.material.training}
    return [rows[name] for name in search.nodes[node].demos]


def can_demonstrate(search: TemplateSearch) -> bool:
    """Tell whether demonstrations are possible: only for a plain prompt, scored by a metric, with
    enough labelled rows. For the steps of a program the right outputs are unknown."""
    if search.context.program is not None or search.context.metric is None:
        return False
    rules = search.editor.rules[PROMPT]
    return sum(can_show(example, rules) for example in search.material.training) >= FEWEST_LABELLED


async def remove(search: TemplateSearch, parent: int, width: int) -> list[Proposal]:
    """Propose up to `width` shorter versions of the parent, each without something that the search
    added."""
    return list(islice(list_removals(search, parent), width))


def list_removals(search: TemplateSearch, parent: int) -> Iterator[Proposal]:
    """Yield versions of the parent's templates without some demonstrations, or without a sentence
    or line that the original does not have, the longest first. A removal is not proposed again if
    it was tried before and is not part of how the parent came about."""
    nodes = search.nodes
    demos = demos_of(search, parent)
    lineage = {parent}
    while (ahead := nodes[min(lineage)].parent) is not None:
        lineage.add(ahead)
    useful = {
        node.instructions
        for node in nodes
        if node.operator == "remove" and node.number not in lineage
    }
    for new in (*_without_rows(search, parent, demos), *_without_text(search, parent, demos)):
        if isinstance(new.new, Rewritten) and new.new.instructions not in useful:
            yield new


def _without_rows(
    search: TemplateSearch, parent: int, demos: Sequence[Example]
) -> Iterator[Proposal]:
    """Yield the template without all its demonstrations, without each half, and without each
    one."""
    body = search.nodes[parent].text.removeprefix(front(demos))
    ids = [demo.id for demo in demos]
    half = len(demos) // 2
    groups = [ids, ids[:half], ids[half:], *([demo] for demo in ids)]
    for group in filter(None, dict.fromkeys(map(tuple, groups))):
        remaining = [demo for demo in demos if demo.id not in group]
        new = Rewritten(front(remaining) + body, (f"without the rows {', '.join(group)}",))
        yield Proposal(new, demos=tuple(demo.id for demo in remaining))


def _without_text(
    search: TemplateSearch, parent: int, demos: Sequence[Example]
) -> Iterator[Proposal]:
    ids = tuple(demo.id for demo in demos)
    for name, text in search.nodes[parent].templates.parts:
        body = text.removeprefix(front(demos))
        rules = search.editor.rules[name]
        pieces = sorted(_PIECE.finditer(body), key=lambda piece: len(piece[0]), reverse=True)
        for piece in pieces:
            shorter = (body[: piece.start()] + body[piece.end() :]).strip()
            added = piece[0].strip() not in rules.seed_template
            if added and not template_fault(shorter, body, rules):
                new = Rewritten(front(demos) + shorter, (f"without: {piece[0].strip()}",))
                yield Proposal(new, name, demos=ids)


def _within_room(demos: list[Example]) -> list[Example]:
    while len(demos) > 1 and sum(len(show_demo(demo)) for demo in demos) > MOST_CHARACTERS:
        demos = demos[:-1]
    return demos


OPERATORS: Mapping[str, Callable[[TemplateSearch, int, int], Awaitable[list[Proposal]]]] = {
    "reflect": reflect,
    "demos": demonstrate,
    "remove": remove,
}
"""The operators by their names: each proposes up to a number of new templates for a node of the
tree."""


UNPLANNED = 300
"""The maximum number of outputs and rewrites of a search without a budget."""
FEWEST_FAULTS = 2
"""The number of failed rows of the leader below which more rows are used."""
FIRST_RESERVE = 48
"""The outputs that are reserved for the decision while the original leads: enough to confirm a
large gain. Once a new template leads, all that the decision may need is reserved."""
PRIOR_WINS: Mapping[str, float] = {"reflect": 0.5, "demos": 0.2}
"""The wins with which an operator begins, as of one step each. Demonstrations win less often over
tasks: with many models they do nothing, or harm."""
CREDIT_KEPT = 0.85
"""The share of earlier credit that is left after one more step, because what helped the first
template need not help the latest one."""
EQUAL = 1e-9
"""The largest difference of scores that counts as equal."""
ABLATION_SHARE = 0.1
"""The share of the outputs that is reserved for the ablation (the final removal of additions that
do not help), rounded down to whole removals, each tried on all rows in play. A small budget
therefore has no ablation."""


@dataclass
class Climb:
    """The state of a hill climb. The leader, the best template so far, has a trial on every row in
    play.

    `operators`: the names of those that propose templates. `rows`: the number of rows of a race.
    `gate`: the number of rows of a gate. `width`: the number of templates proposed at once. `held`:
    the number of outputs reserved for the ablation. `idle`: the number of proposals since the last
    one that became the leader or one of the `equals`. `equals`: for each operator a longer template
    that is as good as the leader, from which the operator continues, since two changes may help
    together and not alone. While no template scores above 0, an operator continues only from its
    own. `credits`: the discounted wins and steps of each operator that had a step.
    """

    search: TemplateSearch
    operators: Sequence[str]
    rows: int
    gate: int
    width: int
    equals: dict[str, int] = empty_default(dict)
    credits: dict[str, tuple[float, float]] = empty_default(dict)
    idle: int = 0
    held: int = 0

    @property
    def room(self) -> int:
        """Return the number of outputs that may still be generated."""
        return int(self.search.spending.outputs_left - self.held + 1e-9)


async def improve(search: TemplateSearch, operators: Sequence[str]) -> StopReason:
    """Search until the search's share of the budget is used, the leader has no faults left, or no
    new template was better for long; then remove additions that do not help. Return the reason for
    the end.

    Raises:
        InputError: no operator can do anything here. BudgetError: a limit was reached.
    """
    usable = [name for name in operators if name != "demos" or can_demonstrate(search)]

    if not usable:
        raise InputError(
            "the strategy demos needs a label column, at least four labelled training rows that"
            " are short enough to show, and a metric; it improves a single prompt, not a program"
        )

    spending = search.spending
    spending.outputs = min(spending.outputs, UNPLANNED)
    spending.most_reserved = FIRST_RESERVE
    if search.learns_costs:
        await search.ask([(SEED, search.order[0])])
        spending.check()
    # With more outputs left, differences are told more surely.
    rows = min(len(search.order), max(4, round(math.sqrt(spending.outputs_left))))
    gate = max(2, min(6, round(rows / 3)))
    width = max(1, min(4, round(spending.outputs_left / 200)))
    climb = Climb(search, usable, rows, gate, width)
    await search.extend(search.leader, max(search.count, min(rows, climb.room)))
    climb.held = int(ABLATION_SHARE * spending.outputs_left // rows) * rows
    try:
        stopped = await go_on(climb)
    except SearchSpent:
        stopped = "max_iterations"

    await ablate(climb)

    return stopped if search.scored else "failed"


async def go_on(climb: Climb) -> StopReason:
    """Repeat search steps until the search's share of the budget is used, the leader has no failed
    rows left, or too many proposals in a row brought no better template; return the reason for the
    end."""
    patience = climb.search.plan.patience * climb.search.plan.successors * len(climb.operators)

    while climb.idle < patience:
        if not await find_faults(climb):
            return end_without_faults(climb)
        operator = choose_operator(climb)
        width = affordable_width(climb, operator)
        if width == 0:
            return "max_iterations"
        await take_step(climb, operator, choose_parent(climb, operator), width)

    return "converged"


def choose_operator(climb: Climb) -> str:
    """Return the operator with the highest rate of wins."""

    def rate(name: str) -> float:
        wins, steps = climb.credits.get(name, (0.0, 0.0))
        return (wins + PRIOR_WINS[name]) / (steps + 1)

    return max(climb.operators, key=rate)


def give_credit(climb: Climb, operator: str, won: bool) -> None:
    """Count a step of an operator, and whether it brought a better leader."""
    for name, (wins, steps) in climb.credits.items():
        climb.credits[name] = (CREDIT_KEPT * wins, CREDIT_KEPT * steps)
    wins, steps = climb.credits.get(operator, (0.0, 0.0))
    climb.credits[operator] = (wins + won, steps + 1)


def choose_parent(climb: Climb, operator: str) -> int:
    """Return the leader or its equal, or a template with faults that is drawn by its score from
    those with a trial on every row in play."""
    search = climb.search
    if search.plan.select == "argmax":
        return climb.equals.get(operator, search.leader)

    means = {search.leader: search.statistics(search.leader).mean or 0.0}
    for node in range(len(search.nodes)):
        mean = search.statistics(node).mean
        is_tried = not search.unknown((node, row) for row in search.in_play(node))
        if mean is not None and is_tried and search.faults(node):
            means[node] = mean

    return draw_by_score(means, 1, seeded(search.plan.seed, "parent", search.rounds))[0]


async def ablate(climb: Climb) -> None:
    """Remove additions from the leader that do not help on the rows in play, as far as the budget
    allows."""
    search = climb.search
    climb.held = 0
    while climb.room >= search.count and any(list_removals(search, search.leader)):
        await take_step(climb, "remove", search.leader, 1)


async def find_faults(climb: Climb) -> bool:
    """Return whether the leader has faults on the rows in play; add more rows while it has few."""
    search = climb.search
    total = len(climb.search.order)
    while len(search.faults(search.leader)) < FEWEST_FAULTS and search.count < total:
        more = min(max(4, climb.rows // 2), climb.room, total - search.count)
        if more < 1:
            break
        await search.extend(search.leader, search.count + more)
        if is_perfect(search):
            break

    return bool(search.faults(search.leader))


def is_perfect(search: TemplateSearch) -> bool:
    """Return whether the original template scores 1 on enough rows by a metric, so that it cannot
    be improved. A judge's score of 1 is no proof."""
    fair = min(search.plan.final_minibatch, len(search.order))
    perfect = search.leader == SEED and search.context.metric is not None
    return perfect and len(search.statistics(SEED).present) >= fair and not search.faults(SEED)


def end_without_faults(climb: Climb) -> StopReason:
    search = climb.search
    if not search.scored:
        return "failed"
    if is_perfect(search):
        search.perfect = len(search.statistics(SEED).present)
        return "accepted"
    return "converged"


def affordable_width(climb: Climb, operator: str) -> int:
    """Return the number of templates that the budget allows to write and try, 0 if none. A rewrite
    may take two calls."""
    spending = climb.search.spending
    rewriting = 2 * spending.cost("rewrite") / spending.cost("output")
    each = (rewriting if operator == "reflect" else 0.0) + climb.gate
    return max(0, min(climb.width, int((climb.room - 2) // each)))


async def take_step(climb: Climb, operator: str, parent: int, width: int) -> None:
    """Let one operator write templates; those that pass the gate race, and the best may become the
    leader."""
    search = climb.search
    old = climb.search.leader
    equals = dict(climb.equals)
    search.rounds += 1
    proposal_rows: dict[int, tuple[int, ...]] = {}
    proposals = await OPERATORS[operator](search, parent, width)

    for proposal in proposals:
        node = search.add(
            parent, proposal.new, proposal.part, operator=operator, demos=proposal.demos
        )
        if node is not None:
            proposal_rows[node] = proposal.shown

    await race(climb, await pass_gate(climb, parent, proposal_rows), operator)
    won = search.leader != old
    gains = search.gains(search.leader, old, search.in_play(search.leader, old))
    give_credit(climb, operator, sum(gains) > EQUAL)
    moved = won or climb.equals != equals
    climb.idle = 0 if moved else climb.idle + max(1, len(proposals))
    tried = [search.statistics(node) for node in (old, *proposal_rows)]
    search.place(ROUND, [proposal for proposal in tried if proposal.scores], [search.leader])
    search.show()


async def pass_gate(
    climb: Climb, parent: int, proposal_rows: dict[int, tuple[int, ...]]
) -> list[int]:
    """Return the numbers of the templates that are better than the parent on a few rows, the best
    first. A template that is equal is tried on as many rows again, and passes if it is at least
    equal over all of them. `proposal_rows`: the rows to try first, by the template's number."""
    search = climb.search
    size = climb.gate
    rows = {
        node: gate_rows(climb, parent, node, rows_read) for node, rows_read in proposal_rows.items()
    }
    gains: dict[int, float] = {}

    for part in (slice(size), slice(size, 2 * size)):
        undecided = [node for node in rows if abs(gains.get(node, 0.0)) <= EQUAL]
        trials = [(node, row) for node in undecided for row in rows[node][part]]
        await search.ask(search.unknown(trials)[: climb.room])
        gains |= {node: sum(search.gains(node, parent, rows[node])) for node in undecided}

    return sorted((n for n, gain in gains.items() if gain >= -EQUAL), key=lambda n: (-gains[n], n))


def gate_rows(climb: Climb, parent: int, node: int, rows_read: Sequence[int]) -> list[int]:
    """Choose the rows for a gate, twice as many as it needs. Most in each half are rows that the
    parent failed on, first those that the template was written from (`rows_read`); the others, on
    which the parent did not fail, show losses."""
    search = climb.search
    size = climb.gate
    usable = search.in_play(parent, node)
    faults = search.faults(parent)
    bad = list(dict.fromkeys(row for row in (*rows_read, *faults) if row in usable))
    good = [row for row in usable if row not in faults]
    shuffle(good, search.plan.seed, "gate", node)
    ordered: list[int] = []

    while bad or good:
        good_rows = min(len(good), max(size // 4, size - len(bad)))
        ordered += [*bad[: size - good_rows], *good[:good_rows]]
        bad = bad[size - good_rows :]
        good = good[good_rows:]

    return ordered[: 2 * size]


async def race(climb: Climb, passed: Sequence[int], operator: str) -> None:
    """Make the best passing template the leader if it is better on the rows in play, or as good and
    shorter. One that is worse on the first of these rows is not tried on the others."""
    search = climb.search
    old = search.leader
    means = {old: 0.0}

    for part in (slice(climb.rows), slice(None)):
        promising = [node for node in passed if means.get(node, 0.0) >= 0]
        trials = [(node, row) for node in promising for row in search.in_play(node)[part]]
        await search.ask(search.unknown(trials)[: climb.room])
        for node in promising:
            gains = search.gains(node, old, search.in_play(node, old))
            means[node] = round(sum(gains) / len(gains), 9) if gains else -1.0

    best = max(means, key=lambda node: (means[node], -search.length_of(node)))
    if best != old:
        climb.equals.clear()
    equal = [node for node in passed if node != best and means[node] == means[best]]
    if equal:
        scores = (search.statistics(best).mean or 0.0) > EQUAL
        climb.equals |= dict.fromkeys(climb.operators if scores else (operator,), equal[0])
    search.leader = best
    search.beam = [best]
    if best != SEED:
        missing = search.unknown((best, row) for row in search.in_play(best))
        await search.ask(missing[: climb.room])
        search.spending.most_reserved = math.inf
