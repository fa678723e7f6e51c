"""The state of a search: the tree of templates, the outcomes of their trials on training rows, and
the usage so far.

A strategy decides how the tree grows (`optimizing.py`, `hill_climbing.py`). `trial_runner.py` tries
templates on rows, `rewriting.py` rewrites them, and `plan.py` has the result. `optimizing.py`
decides on the held-out rows.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, TypeAlias, TypeVar

from textevolve.evaluation import Failure, Usage, empty_default
from textevolve.events import StepFinished
from textevolve.llm.meter import UsageMeter
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.plan import (
    CalibrationContext,
    CalibrationPlan,
    CalibrationResult,
    Gain,
    Node,
    Placing,
    SearchBudget,
    Stage,
)
from textevolve.loops.calibration.rewriting import Editor, RewritingRules, Rewritten
from textevolve.loops.calibration.trial_runner import (
    PROMPT,
    Example,
    Material,
    PromptProgram,
    Templates,
    TrialOutcome,
    TrialRunner,
    count_groups,
)

T = TypeVar("T")
Trial: TypeAlias = tuple[int, int]
"""The number of a template (an arm, in the terms of bandits), and the number of the row on which it
is tried."""
TryAll = Callable[[Sequence[Trial]], Awaitable[Sequence[float | None]]]
"""A function that makes all trials as one batch, and returns the score of each in [0, 1], in order;
None for a missing one."""

LEAST_COVERED = 0.5
"""The least share of trials with a score with which a template can be chosen."""


@dataclass(frozen=True, slots=True)
class ArmStatistics:
    """The trials of one template (arm) in a selection. `scores`: by row number; None for a missing
    score."""

    arm: int
    scores: Mapping[int, float | None]

    @property
    def present(self) -> list[float]:
        return [score for score in self.scores.values() if score is not None]

    @property
    def mean(self) -> float | None:
        present = self.present
        return sum(present) / len(present) if present else None

    @property
    def eligible(self) -> bool:
        return bool(self.scores) and len(self.present) >= LEAST_COVERED * len(self.scores)


def draw_rows(count: int, size: int, seed: int, *labels: object) -> tuple[int, ...]:
    """Draw `size` of `count` row numbers without repetition; the seed and the labels decide
    which."""
    rows = list(range(count))
    shuffle(rows, seed, *labels)
    return tuple(rows[:size])


def shuffle(items: list[T], seed: int, *labels: object) -> None:
    """Shuffle a list in place; the same seed and labels give the same order on every machine."""
    seeded(seed, *labels).shuffle(items)


def seeded(seed: int, *labels: object) -> Random:
    """Return a random number generator for a seed and labels."""
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))


def choose_beam(
    tried: Sequence[ArmStatistics], width: int, length: Callable[[int], int] = lambda _: 0
) -> list[int]:
    """Choose the `width` eligible templates with the highest means, the best first; among equals
    the shorter one, then the older one."""
    eligible = [(s.mean, s.arm) for s in tried if s.eligible and s.mean is not None]
    ranked = sorted(eligible, key=lambda pair: (-round(pair[0], 9), length(pair[1]), pair[1]))
    return [arm for _, arm in ranked[:width]]


async def try_fast(
    arms: Sequence[int], rows: Sequence[int], try_all: TryAll
) -> list[ArmStatistics]:
    """Try every arm on all of the same rows, in one batch."""
    trials = [(arm, row) for arm in arms for row in rows]
    outcomes = dict(zip(trials, await try_all(trials), strict=True))
    return [ArmStatistics(arm, {row: outcomes[arm, row] for row in rows}) for arm in arms]


async def try_ucb(
    arms: Sequence[int], rows: Sequence[int], try_all: TryAll, *, width: int, pulls: int
) -> list[ArmStatistics]:
    """Try templates as the arms of a multi-armed bandit: first each arm once, then repeatedly the
    `width` arms with the highest UCB1 index.

    Every arm takes the rows in the same order, so compared arms share their first rows; an arm that
    has taken all rows is done. The arms of one step are tried as one batch. `pulls`: the maximum
    number of trials, except that each arm has at least one. ProTeGi (arXiv 2305.03495) also chooses
    its beam by such bandits, one arm at a time.
    """
    seen: dict[int, dict[int, float | None]] = {arm: {} for arm in arms}
    chosen = list(arms)
    remaining = max(pulls, len(arms))

    while chosen and remaining > 0:
        trials = [(arm, rows[len(seen[arm])]) for arm in chosen[:remaining]]
        for (arm, row), score in zip(trials, await try_all(trials), strict=True):
            seen[arm][row] = score
        remaining -= len(trials)
        chosen = _most_promising(seen, len(rows), width)

    return [ArmStatistics(arm, scores) for arm, scores in seen.items()]


def _most_promising(
    seen: Mapping[int, Mapping[int, float | None]], rows: int, width: int
) -> list[int]:
    """Return the arms to try next, by the UCB1 index of Auer, Cesa-Bianchi and Fischer (2002),
    "Finite-time analysis of the multiarmed bandit problem", Machine Learning 47, figure 1, for
    rewards in [0, 1]: mean + sqrt(2 ln(total) / pulled). An arm without a score counts with the
    mean of all scores."""
    tried = [ArmStatistics(arm, scores) for arm, scores in seen.items()]
    scored = [score for s in tried for score in s.present]
    usual = sum(scored) / len(scored) if scored else 0.5
    total = sum(len(s.scores) for s in tried)

    def index(arm: ArmStatistics) -> tuple[float, int]:
        mean = usual if arm.mean is None else arm.mean
        return -mean - math.sqrt(2 * math.log(total) / len(arm.scores)), arm.arm

    waiting = [s for s in tried if len(s.scores) < rows]

    return [arm.arm for arm in sorted(waiting, key=index)[:width]]


SEED = 0
"""The number of the original template."""
PERFECT = 1 - 1e-9
"""The score from which a row counts as solved."""
ROUND: Literal["round"] = "round"
FINALS: Literal["finals"] = "finals"
"""The stages at which templates compete."""


@dataclass
class TemplateSearch:
    """The state of a search for a template. `beam`: the numbers of the best templates, the best
    first. `leader`: the number of the best one. `gain`, `second`: the result of the validation by
    the judge, and by the second judge; None before it. `tried`, `scored`: the numbers of trials,
    and of those with a score.

    `tested`: the number of the template that was validated; it may precede the leader.

    `reason`: of the first failure; `missing`: the reasons of all trials without a score, which the
    outputs are not to blame for.

    `order`: the training rows in a random order. The first `count` of them are in play, that is,
    used so far; templates are compared in pairs on the same rows. `outcomes`: the outcomes of the
    trials so far. `is_cross_fitted`: whether every row is used for a search and for a test.
    """

    material: Material
    plan: CalibrationPlan
    context: CalibrationContext
    began: float = field(default_factory=time.monotonic)
    beam: list[int] = field(default_factory=lambda: [SEED])
    leader: int = SEED
    gain: Gain | None = None
    second: Gain | None = None
    rounds: int = 0
    tried: int = 0
    scored: int = 0
    reason: str = ""
    missing: list[str] = empty_default(list)
    perfect: int = 0
    count: int = 0
    outcomes: dict[Trial, TrialOutcome] = empty_default(dict)
    is_cross_fitted: bool = False
    tested: int = SEED

    def __post_init__(self) -> None:
        plan = self.plan
        context = self.context
        program = context.program or PromptProgram(
            Templates(((PROMPT, self.material.template),)),
            context.generator,
            plan.temperature,
            plan.max_output_tokens,
            plan.seed,
        )
        self.nodes = [Node(SEED, program.templates, None, 0)]
        self.order = draw_rows(len(self.material.training), 10**9, plan.seed, "rows")
        self.meter = UsageMeter(context.editor)
        self.spending = SearchBudget(plan.budget, lambda: self.usage)
        slots = dict(self.material.slots)
        columns = () if slots else self.material.columns
        rules = {
            name: RewritingRules(text, slots.get(name, self.material.names), columns)
            for name, text in program.templates.parts
        }
        self.editor = Editor(self.meter, rules, plan.seed, plan.gradient_depth, context.shown)
        self.runner = TrialRunner(
            program=program,
            evaluator=context.evaluator,
            metric=context.metric,
            concurrency=context.concurrency,
            listener=context.listener,
        )

    @property
    def learns_costs(self) -> bool:
        """Tell whether the calls for an output are unknown before the first outputs."""
        return self.context.metric is None or self.context.program is not None

    @property
    def usage(self) -> Usage:
        return self.meter.usage + self.runner.usage

    @property
    def judges(self) -> int:
        """Return the number of judges in validation; a second judge is assumed to cost as much as
        the first."""
        return 1 if self.context.second_judge is None else 2

    def join(self, other: TemplateSearch) -> int:
        """Add the templates and outcomes of a search on some of the same rows; return the number
        that its leader has here."""
        offset = len(self.nodes) - 1
        numbers = {example.id: row for row, example in enumerate(self.material.training)}

        def renumber(node: int) -> int:
            return node + offset if node else SEED

        for node in other.nodes[1:]:
            parent = renumber(node.parent or SEED)
            self.nodes.append(replace(node, number=renumber(node.number), parent=parent))
        for (node, _), outcome in other.outcomes.items():
            self.outcomes[renumber(node), numbers[outcome.example.id]] = outcome
        self.rounds += other.rounds
        self.tried += other.tried
        self.scored += other.scored
        self.reason = self.reason or other.reason
        self.missing += other.missing

        return renumber(other.leader)

    def time_left(self, share: float = 1.0) -> float | None:
        """Return the seconds that are left of a share of the time limit; None without a limit."""
        limit = self.context.time_limit
        if limit is None:
            return None
        return max(0.0, share * limit + self.began - time.monotonic())

    def add(
        self,
        parent: int,
        new: Rewritten | Failure,
        part: str = PROMPT,
        *,
        instructions: tuple[str, ...] = (),
        operator: str = "",
        demos: tuple[str, ...] = (),
    ) -> int | None:
        """Add a new text of the template `part` to the tree, as a child of `parent`; return the
        node's number, None if it cannot compete. `instructions`: the applied ones, if `new` does
        not name them."""
        if isinstance(new, Failure):
            new = Rewritten(None, instructions, new.reason)
        templates = self.nodes[parent].templates
        fault = new.fault
        templates = templates.with_text(part, new.text or "")
        for node in self.nodes:
            if not fault and not node.fault and node.templates.alike(templates):
                fault = f"the same text as template {node.number}"
        child = Node(
            len(self.nodes),
            templates,
            parent,
            self.rounds,
            instructions or new.instructions,
            fault,
            notes=(new.note,) if new.note else (),
            operator=operator,
            demos=demos,
        )
        self.nodes.append(child)

        return None if fault else child.number

    def length_of(self, node: int) -> int:
        return len(self.nodes[node].text)

    async def try_rows(self, trials: Sequence[Trial]) -> list[float | None]:
        return [outcome.score for outcome in await self._try_trials(trials)]

    async def _try_trials(self, trials: Sequence[Trial]) -> list[TrialOutcome]:
        training = self.material.training
        return await self.try_nodes([(n, training[row]) for n, row in trials])

    async def try_nodes(self, pairs: Sequence[tuple[int, Example]]) -> list[TrialOutcome]:
        """Try each pair of node and row, and return the outcomes.

        Raises:
            SearchSpent: there is no budget left for it.
        """
        trials = [(self.nodes[node].templates, example) for node, example in pairs]
        new = {(templates, example.id) for templates, example in trials}
        self.runner.round = max(1, self.rounds)
        with self.spending.paying("output", len(new - self.runner.outputs.keys())):
            outcomes = await self.runner.try_all(trials)
        for outcome in outcomes:
            self.tried += 1
            if outcome.failure is None:
                self.scored += 1
            elif not self.reason:
                self.reason = outcome.failure.reason
            # An output at fault scores 0; only what has no score at all is reported.
            if outcome.score is None and outcome.failure is not None:
                self.missing.append(outcome.failure.reason)

        return outcomes

    async def rewrite_all(
        self, name: str, work: Sequence[Callable[[], Awaitable[T]]]
    ) -> list[T | Failure]:
        """Run all the rewrites concurrently; return each result or failure.

        Raises:
            SearchSpent: there is no budget left for it.
        """
        self.runner.round = max(1, self.rounds)
        with self.spending.paying("rewrite", len(work)):
            return await self.runner.ask_all(name, work)

    def in_play(self, *nodes: int) -> list[int]:
        """Return the rows in play that are no demonstration in any of the nodes: a row that the
        prompt shows tests nothing."""
        training = self.material.training
        demo_rows = {row for node in nodes for row in self.nodes[node].demos}
        return [row for row in self.order[: self.count] if training[row].id not in demo_rows]

    def unknown(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials whose outcome is not known yet."""
        return [trial for trial in dict.fromkeys(trials) if trial not in self.outcomes]

    async def ask(self, trials: Iterable[Trial]) -> None:
        """Try the pairs whose outcome is not known yet, as one batch."""
        new = self.unknown(trials)
        self.outcomes.update(zip(new, await self._try_trials(new), strict=True))

    async def extend(self, node: int, count: int) -> None:
        """Bring `count` rows into play, and try one template on them."""
        self.count = min(count, len(self.order))
        await self.ask([(node, row) for row in self.in_play(node)])

    def score(self, node: int, row: int) -> float | None:
        outcome = self.outcomes.get((node, row))
        return None if outcome is None else outcome.score

    def faults(self, node: int) -> list[int]:
        """Return the rows in play on which the template scores less than 1."""
        scores = {row: self.score(node, row) for row in self.in_play(node)}
        return [row for row, score in scores.items() if score is not None and score < PERFECT]

    def unfinished_rows(self, node: int) -> list[int]:
        """Return the rows in play on which the output was cut, or a program broke off."""
        outcomes = {row: self.outcomes.get((node, row)) for row in self.in_play(node)}
        return [
            row
            for row, outcome in outcomes.items()
            if outcome is not None and outcome.is_unfinished
        ]

    def gains(self, child: int, parent: int, rows: Iterable[int]) -> list[float]:
        """Return the score differences, child minus parent, on the rows on which both have a
        score."""
        pairs = [(self.score(child, row), self.score(parent, row)) for row in rows]
        return [a - b for a, b in pairs if a is not None and b is not None]

    def statistics(self, node: int) -> ArmStatistics:
        rows = self.in_play(node)
        scores = {row: self.score(node, row) for row in rows if (node, row) in self.outcomes}
        return ArmStatistics(node, scores)

    def place(self, where: Stage, tried: Sequence[ArmStatistics], kept: Sequence[int]) -> None:
        """Record the results of templates in a selection, and which of them were `kept`."""
        for s in tried:
            counts = len(s.present), len(s.scores)
            placing = Placing(where, self.rounds, s.mean, *counts, s.arm in kept)
            node = self.nodes[s.arm]
            self.nodes[s.arm] = replace(node, placings=(*node.placings, placing))

    def show(self) -> None:
        """Report the progress of the search to the listener, at the end of each round."""
        self.context.listener(StepFinished("", ROUND, self.result("stopped")))

    def result(self, stopped: StopReason, reason: str = "") -> CalibrationResult:
        if stopped == "failed":
            reason = reason or self.reason

        rows = len(self.material.training), len(self.material.validation)
        groups = count_groups(self.material.training), count_groups(self.material.validation)
        if self.is_cross_fitted:
            rows = (rows[0], rows[0])
            groups = (groups[0], groups[0])

        return CalibrationResult(
            nodes=tuple(self.nodes),
            beam=tuple(self.beam),
            leader=self.leader,
            stopped=stopped,
            reason=reason,
            rounds=self.rounds,
            names=self.material.names,
            rows=rows,
            groups=groups if groups != rows else (0, 0),
            gain=self.gain,
            second=self.second,
            tried=self.tried,
            failed=self.tried - self.scored,
            usage=self.usage,
            seconds=time.monotonic() - self.began,
            perfect=self.perfect,
            missing=len(self.missing),
            missing_reason=next(iter(self.missing), ""),
            is_cross_fitted=self.is_cross_fitted,
            tested=self.tested,
        )
