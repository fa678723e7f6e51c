"""Operators make new templates of one: rewriting by what failed, labelled rows as demonstrations.

An operator sees what is known of the parent and gives proposals; what becomes of them is no
business of its.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from textevolve.evaluation import Failure
from textevolve.loops.calibration.examples import Example
from textevolve.loops.calibration.rewriting import (
    MOST_CHARACTERS,
    MOST_SHOWN,
    Rewritten,
    can_show,
    choose_part,
    fit_outcomes,
    front,
    rewrite,
    show_demo,
    template_fault,
    write_instructions,
    write_reflection,
)
from textevolve.loops.calibration.search import TemplateSearch
from textevolve.loops.calibration.selection import seeded, shuffle
from textevolve.loops.calibration.trial_runner import PROMPT, TrialOutcome, stop_if_skipped

SHOTS = (2, 4, 8)
"""Demonstrations in a set that is drawn anew."""
MOST_CLASSES = 12
"""Labels that come again and again, of which a set that is drawn anew shows each at least once."""
_PIECE = re.compile(r"(?:(?:[-*•]|\d+[.)])\s+)?\S.*?(?:[.!?]+(?:\s+|\Z)|\n\s*|\Z)", re.DOTALL)
"""A sentence or a line with the mark of its list and the white space behind it."""
FEWEST_LABELLED = 4
"""Training rows that can be shown, below which there are no demonstrations."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A text in place of one of the parent's, or why there is none. `shown`: the rows by which it
    was written. `demos`: the ids of the rows that stand in it."""

    new: Rewritten | Failure
    part: str | None = PROMPT
    shown: tuple[int, ...] = ()
    demos: tuple[str, ...] = ()


async def reflect(search: TemplateSearch, parent: int, width: int) -> list[Proposal]:
    """Rewrite by other failures of the parent each time, as many as fit in one prompt; in one call
    where there is one template, in two where there are several."""
    work: list[Callable[[], Awaitable[Rewritten]]] = []
    shown: list[tuple[str | None, tuple[int, ...]]] = []
    for k in range(width):
        rows = search.faults(parent)
        shuffle(rows, search.plan.seed, "reflect", search.rounds, k)
        known = await search.explain(parent, rows[:MOST_SHOWN])
        outcomes = fit_outcomes(known, search.context.shown)
        part = choose_part(search.nodes[parent].templates.names, search.rounds + k - 1 + parent)
        shown.append((part, tuple(rows[: len(outcomes)])))
        sample = search.rounds * 1000 + k
        work.append(partial(_reflect_once, search, parent, outcomes, part, sample))
    made = await search.rewrite_all("reflections", work)
    stop_if_skipped(made)
    demos = search.nodes[parent].demos
    return [Proposal(new, part, rows, demos) for new, (part, rows) in zip(made, shown, strict=True)]


async def _reflect_once(
    search: TemplateSearch,
    parent: int,
    outcomes: Sequence[TrialOutcome],
    part: str | None,
    sample: int,
) -> Rewritten:
    templates, editor = search.nodes[parent].templates, search.editor
    if part is None or len(templates.names) > 1 or not editor.rules[part].names:
        instructions = await write_instructions(editor, templates, outcomes, part)
        return await rewrite(editor, templates, instructions, part, sample)
    ahead = front(demos_of(search, parent))
    body = templates[part].removeprefix(ahead)
    new = await write_reflection(editor, body, outcomes, part, sample)
    return replace(new, text=ahead + new.text) if new.text else new


async def demonstrate(search: TemplateSearch, parent: int, width: int) -> list[Proposal]:
    """Sets of labelled rows: drawn anew, or the parent's with one row changed."""
    body = search.nodes[parent].text.removeprefix(front(demos_of(search, parent)))
    made: list[Proposal] = []
    for k in range(width):
        demos = draw_demos(search, parent, k)
        new = Rewritten(front(demos) + body, (f"{len(demos)} rows as demonstrations",))
        faults = search.faults(parent)
        shuffle(faults, search.plan.seed, "demos", search.rounds, k, "faults")
        ids = tuple(one.id for one in demos)
        made.append(Proposal(new, shown=tuple(faults), demos=ids))
    return made


def draw_demos(search: TemplateSearch, parent: int, k: int) -> list[Example]:
    """Draw the parent's demonstrations with one dropped, added or exchanged; or as many as one of
    `SHOTS` says, of different labels first; of as many as there are labels, where these are
    classes: no answer can have one that the prompt does not show. Rows that are not in play yet are
    taken first: those that are would be lost for comparing."""
    rng = seeded(search.plan.seed, "demos", search.rounds, k)
    training, rules = search.material.training, search.editor.rules[PROMPT]
    aside, played = list(search.order[search.count :]), list(search.order[: search.count])
    rng.shuffle(aside)
    rng.shuffle(played)
    usable = [training[row] for row in (*aside, *played) if can_show(training[row], rules)]
    had = demos_of(search, parent)
    if had and rng.random() < 0.5:
        others = [one for one in usable if one not in had]
        kept = list(had)
        if len(kept) > 1 and rng.random() < 2 / 3:
            kept.pop(rng.randrange(len(kept)))
        return _within_room([*kept, *others[:1]])
    labels = dict[str, int]()
    ranked: list[tuple[int, int, Example]] = []
    for place, one in enumerate(usable):
        seen = labels[str(one.label)] = labels.get(str(one.label), 0) + 1
        ranked.append((seen, place, one))
    classes = len(labels) if len(labels) <= min(MOST_CLASSES, len(usable) // 2) else 0
    shots = min(max(rng.choice(SHOTS), classes), max(1, len(training) // 3))
    ranked.sort(key=lambda entry: entry[:2])
    return _within_room([one for _, _, one in ranked[:shots]])


def demos_of(search: TemplateSearch, node: int) -> list[Example]:
    rows = {example.id: example for example in search.material.training}
    return [rows[name] for name in search.nodes[node].demos]


def can_demonstrate(search: TemplateSearch) -> bool:
    """Only a plain prompt whose rows have labels, by which they are scored: what the steps of a
    program should have said is not known."""
    if search.context.program is not None or search.context.metric is None:
        return False
    rules = search.editor.rules[PROMPT]
    return sum(can_show(one, rules) for one in search.material.training) >= FEWEST_LABELLED


async def remove(search: TemplateSearch, parent: int, width: int) -> list[Proposal]:
    """The parent's templates without something that the search has added."""
    return list(islice(list_removals(search, parent), width))


def list_removals(search: TemplateSearch, parent: int) -> Iterator[Proposal]:
    """The parent's templates each without some demonstrations, or without a sentence or line that
    the original does not have, the longest first. What was of use to another template is not
    removed again."""
    nodes, demos = search.nodes, demos_of(search, parent)
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
    """Without all demonstrations, each half, and each single one."""
    body, ids = search.nodes[parent].text.removeprefix(front(demos)), [one.id for one in demos]
    half = len(demos) // 2
    groups = [ids, ids[:half], ids[half:], *([one] for one in ids)]
    for group in filter(None, dict.fromkeys(map(tuple, groups))):
        left = [one for one in demos if one.id not in group]
        new = Rewritten(front(left) + body, (f"without the rows {', '.join(group)}",))
        yield Proposal(new, demos=tuple(one.id for one in left))


def _without_text(
    search: TemplateSearch, parent: int, demos: Sequence[Example]
) -> Iterator[Proposal]:
    ids = tuple(one.id for one in demos)
    for name, text in search.nodes[parent].templates.parts:
        body, rules = text.removeprefix(front(demos)), search.editor.rules[name]
        pieces = sorted(_PIECE.finditer(body), key=lambda piece: len(piece[0]), reverse=True)
        for piece in pieces:
            shorter = (body[: piece.start()] + body[piece.end() :]).strip()
            added = piece[0].strip() not in rules.seed_template
            if added and not template_fault(shorter, body, rules):
                new = Rewritten(front(demos) + shorter, (f"without: {piece[0].strip()}",))
                yield Proposal(new, name, demos=ids)


def _within_room(demos: list[Example]) -> list[Example]:
    while len(demos) > 1 and sum(len(show_demo(one)) for one in demos) > MOST_CHARACTERS:
        demos = demos[:-1]
    return demos


Operator = Callable[[TemplateSearch, int, int], Awaitable[list[Proposal]]]
"""Makes so many new templates of a node, by what is known of it."""
OPERATORS: Mapping[str, Operator] = {"reflect": reflect, "demos": demonstrate, "remove": remove}
