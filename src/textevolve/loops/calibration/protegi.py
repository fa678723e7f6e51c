"""The strategy `protegi`: beam search by written gradients.

Pryzant and others (2023), "Automatic prompt optimization with 'gradient descent' and beam search",
arXiv 2305.03495, algorithms 1 and 2. In a round the faults of every template in the beam are
written down as instructions, successors are written by them, and old and new compete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from textevolve.evaluation import Failure
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.examples import Example
from textevolve.loops.calibration.rewriting import rewrite, write_instructions
from textevolve.loops.calibration.search import (
    ROUND,
    TemplateSearch,
    choose_beam,
    count_pulls,
    draw_rows,
    shuffle,
    try_fast,
    try_ucb,
)
from textevolve.loops.calibration.trial_runner import TrialOutcome, stop_if_skipped


async def climb(search: TemplateSearch) -> StopReason:
    """Rounds, until no new template enters the beam any more or there were enough of them. One
    without any instructions, because answers failed, has shown nothing, and does not count."""
    idle = 0
    for number in range(1, search.plan.depth + 1):
        search.rounds = number
        seen = await explore(search)
        instructed, fresh = await expand(search, seen)
        entered = await select(search, fresh) if fresh else False
        search.show()
        idle = 0 if entered else idle + instructed
        if idle >= search.plan.patience:
            return "converged"
    return "max_iterations" if search.scored else "failed"


async def explore(search: TemplateSearch) -> dict[int, list[TrialOutcome]]:
    """Try every template in the beam on a few rows."""
    plan, training = search.plan, search.material.training
    pairs: list[tuple[int, Example]] = []
    for parent in search.beam:
        drawn = draw_rows(
            len(training), plan.minibatch, plan.seed, "explore", search.rounds, parent
        )
        pairs += [(parent, training[row]) for row in drawn]
    outcomes = await search.try_nodes(pairs)
    seen: dict[int, list[TrialOutcome]] = {parent: [] for parent in search.beam}
    for (parent, _), outcome in zip(pairs, outcomes, strict=True):
        seen[parent].append(outcome)
    return seen


async def expand(
    search: TemplateSearch, seen: Mapping[int, Sequence[TrialOutcome]]
) -> tuple[bool, list[int]]:
    """Find faults of every template by what it made, write its successors; gives whether there were
    any instructions, and the new nodes."""
    plan, number, editor = search.plan, search.rounds, search.editor
    templates = {parent: search.nodes[parent].templates for parent in seen}
    parts = {n: own.names[(number - 1 + n) % len(own.names)] for n, own in templates.items()}
    written = await search.rewrite_all(
        "instructions",
        [partial(write_instructions, editor, templates[n], seen[n], parts[n]) for n in seen],
    )
    stop_if_skipped(written)
    orders: list[tuple[int, tuple[str, ...], int]] = []
    for parent, instructions in zip(seen, written, strict=True):
        if isinstance(instructions, Failure):
            node, note = search.nodes[parent], f"round {number}: no instructions: "
            search.nodes[parent] = replace(node, notes=(*node.notes, note + instructions.reason))
            continue
        shares = share_out(instructions, plan.successors, plan.seed + number)
        orders += [(parent, share, number * 1000 + k) for k, share in enumerate(shares)]
    made = await search.rewrite_all(
        "successors",
        [partial(rewrite, editor, templates[n], share, parts[n], k) for n, share, k in orders],
    )
    added = [
        search.add(parent, new, parts[parent], instructions=share)
        for (parent, share, _), new in zip(orders, made, strict=True)
    ]
    stop_if_skipped(made)
    return bool(orders), [node for node in added if node is not None]


def share_out(instructions: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """Which instructions each of `count` successors applies: the first all, the others seeded parts
    of them of every smaller size, so that what one instruction is worth can show."""
    made = [tuple(instructions)]
    for n in range(1, count):
        size = 1 + (n - 1) % max(1, len(instructions) - 1)
        order = list(range(len(instructions)))
        shuffle(order, seed, "instructions", n, *instructions)
        made.append(tuple(instructions[k] for k in sorted(order[:size])))
    return made[:count]


async def select(search: TemplateSearch, fresh: Sequence[int]) -> bool:
    """The best of old and new become the beam; whether a new one is among them."""
    plan, count = search.plan, len(search.material.training)
    arms = sorted([*search.beam, *fresh])
    rows = draw_rows(count, count, plan.seed, "select", search.rounds)
    size = min(plan.selection_minibatch, count)
    if plan.selection == "ucb":
        pulls = count_pulls(len(arms), size)
        tried = await try_ucb(arms, rows, search.try_rows, width=plan.beam, pulls=pulls)
    else:
        tried = await try_fast(arms, rows[:size], search.try_rows)
    search.beam = choose_beam(tried, plan.beam, search.length_of) or search.beam
    search.leader = search.beam[0]
    search.place(ROUND, tried, search.beam)
    return any(node in fresh for node in search.beam)
