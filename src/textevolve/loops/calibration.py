"""Calibrating a prompt template on rows of values: beam search by written gradients, after ProTeGi.

Pryzant and others (2023), "Automatic prompt optimization with 'gradient descent' and beam search",
arXiv 2305.03495. Added here: rows held out from the search decide whether a template is taken over
the original, and only if its gain is significant; a second judge, if there is one, is asked on
those alone. How templates are tried is in `trial_runner.py`, rewritten in `rewriting.py`, chosen in
`selection.py`; the tree that results is in `search_tree.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import EvaluationResult, Evaluator, Failure
from textevolve.events import Listener, StepFinished, silence
from textevolve.llm.model import Model
from textevolve.llm.usage_meter import UsageMeter
from textevolve.loops.attempt import StopReason
from textevolve.loops.examples import Example, Material
from textevolve.loops.rewriting import (
    RewritingRules,
    Rewritten,
    append_instructions,
    share_out,
    write_instructions,
    write_successor,
)
from textevolve.loops.search_tree import CalibrationResult, Gain, Node, Placing, Stage
from textevolve.loops.selection import (
    ArmStatistics,
    choose_beam,
    count_pulls,
    draw_rows,
    try_fast,
    try_ucb,
)
from textevolve.loops.trial_runner import (
    ChainedTemplate,
    CountFailures,
    JudgedInput,
    TrialOutcome,
    TrialRunner,
    stop_if_skipped,
)
from textevolve.metrics.label_metrics import LabelMetric
from textevolve.spec import Frozen, option

SEED = 0
ROUND: Literal["round"] = "round"
FINALS: Literal["finals"] = "finals"

Compare = Callable[[Sequence[float], Sequence[float]], Gain]
"""What a paired comparison of two lists of scores says, NaN for a missing one: first less second.
Handed in: how a gain is told from chance is for whoever runs the search to say."""


class CalibrationPlan(Frozen):
    """How to search."""

    beam: int = option(4, "Templates that are kept after each round.", group="Search", ge=1)
    depth: int = option(5, "Rounds at most.", group="Search", ge=1)
    successors: int = option(
        5, "New templates that are written for each one kept.", group="Search", ge=1
    )
    gradient_depth: int = option(
        10, "Instructions at most that are written for each template.", group="Search", ge=1
    )
    minibatch: int = option(
        5, "Training rows on which the faults of a template are looked for.", group="Search", ge=1
    )
    selection_minibatch: int = option(
        6, "Training rows on which all templates of a round compete.", group="Search", ge=1
    )
    final_minibatch: int = option(
        20, "Training rows that name the best template of the last beam.", group="Search", ge=1
    )
    selection: Literal["fast", "ucb"] = option(
        "fast",
        "How the beam is chosen: fast scores all templates on the same rows at once; ucb spends"
        " half of that on those that look best (bandits).",
        group="Search",
    )
    judged: JudgedInput = option(
        "seed",
        "What judges see as the input: the original template (seed), the prompt that was filled in"
        " (filled), or each template (template).",
        group="Judging",
    )
    failures: CountFailures = option(
        "zero",
        "What an output counts that is empty or refused, or that the metric cannot read: zero, or"
        " missing, which leaves it out of the means.",
        group="Judging",
    )
    grad_debate_rounds: int = option(
        1,
        "Rounds of a debate, counted from its end, whose arguments whoever writes the instructions"
        " is shown.",
        group="Judging",
        ge=0,
    )
    patience: int = option(
        3, "Rounds in a row in which no new template may enter the beam.", group="Search", ge=1
    )
    temperature: float | None = option(
        0.0, "Sampling temperature of the outputs.", group="Models", ge=0, le=2
    )
    max_output_tokens: int = option(
        512, "Tokens at most that an output may have.", group="Models", ge=1
    )
    seed: int = option(0, "Seed of the rows that are drawn.", group="Search")


@dataclass(frozen=True)
class CalibrationContext:
    """What the search works with. `generator` answers the prompts, `editor` writes instructions and
    templates. At least one of `evaluator` and `metric`; with both the metric gives the scores and
    the evaluator the reasons. `second_judge` is never optimised against. `time_limit`: in seconds.
    `chained`: the chain that the template is a part of, which is asked in the generator's place.
    """

    generator: Model
    editor: Model
    compare: Compare
    evaluator: Evaluator | None = None
    metric: LabelMetric | None = None
    second_judge: Evaluator | None = None
    concurrency: int = 64
    time_limit: float | None = None
    listener: Listener = silence
    chained: ChainedTemplate | None = None


async def search_template(
    material: Material, plan: CalibrationPlan, context: CalibrationContext
) -> CalibrationResult:
    """The best template that the search finds, and whether it may replace the original.

    Raises:
        InputError: there is neither an evaluator nor a metric.
        FatalModelError: no call can succeed; what was answered is in the journal.
    """
    if context.evaluator is None and context.metric is None:
        raise InputError("give an evaluator or a metric: without either nothing can be scored")
    search = _Search(material, plan, context)
    try:
        stopped = await search.climb()
        await search.decide()
    except BudgetError as error:
        return search.result("budget", str(error))
    return search.result(stopped)


@dataclass
class _Search:
    """The tree as it grows. `beam` holds numbers of nodes, the best first."""

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
    instructed: bool = False
    perfect: int = 0

    def __post_init__(self) -> None:
        plan, context = self.plan, self.context
        self.nodes = [Node(SEED, self.material.template, None, 0)]
        self.editor = UsageMeter(context.editor)
        seed = self.material.template
        self.rules = RewritingRules(seed, self.material.names, self.material.columns, plan.seed)
        self.runner = TrialRunner(
            seed_template=seed,
            generator=context.generator,
            evaluator=context.evaluator,
            metric=context.metric,
            judged=plan.judged,
            temperature=plan.temperature,
            max_output_tokens=plan.max_output_tokens,
            seed=plan.seed,
            concurrency=context.concurrency,
            failures=plan.failures,
            debate_rounds=plan.grad_debate_rounds,
            listener=context.listener,
            deadline=None if context.time_limit is None else self.began + context.time_limit,
            chained=context.chained,
        )

    async def climb(self) -> StopReason:
        """Rounds, until no new template enters the beam any more or there were enough of them. One
        without any instructions, because answers failed, has shown nothing, and does not count."""
        idle = 0
        for number in range(1, self.plan.depth + 1):
            self.rounds = number
            seen = await self.explore(number)
            if number == 1 and await self.is_perfect(seen[SEED]):
                return "accepted"
            fresh = await self.expand(number, seen)
            entered = await self.select(number, fresh) if fresh else False
            self.context.listener(StepFinished("", ROUND, self.result("stopped")))
            idle = 0 if entered else idle + self.instructed
            if idle >= self.plan.patience:
                return "converged"
        return "max_iterations" if self.scored else "failed"

    async def is_perfect(self, explored: Sequence[TrialOutcome]) -> bool:
        """Whether the original leaves nothing to be gained on the rows on which the last templates
        would compete. A judge is not asked: its 1 is no proof."""
        plan, training = self.plan, self.material.training
        if self.context.metric is None or any(outcome.score != 1 for outcome in explored):
            return False
        rows = draw_rows(len(training), plan.final_minibatch, plan.seed, FINALS)
        outcomes = await self.try_nodes([(SEED, training[row]) for row in rows])
        if any(outcome.score != 1 for outcome in outcomes):
            return False
        self.perfect = len({outcome.example.id for outcome in (*explored, *outcomes)})
        return True

    async def explore(self, number: int) -> dict[int, list[TrialOutcome]]:
        """What every template in the beam makes of a few rows, with reasons."""
        plan, training = self.plan, self.material.training
        pairs: list[tuple[int, Example]] = []
        for parent in self.beam:
            drawn = draw_rows(len(training), plan.minibatch, plan.seed, "explore", number, parent)
            pairs += [(parent, training[row]) for row in drawn]
        outcomes = await self.try_nodes(pairs, reasons=True)
        seen: dict[int, list[TrialOutcome]] = {parent: [] for parent in self.beam}
        for (parent, _), outcome in zip(pairs, outcomes, strict=True):
            seen[parent].append(outcome)
        return seen

    async def expand(self, number: int, seen: Mapping[int, Sequence[TrialOutcome]]) -> list[int]:
        """Find faults of every template by what it made, write its successors; gives the new
        nodes."""
        plan = self.plan
        criticised = await self.runner.ask_all(
            "instructions", [partial(self.criticise, p, o) for p, o in seen.items()]
        )
        stop_if_skipped(criticised)
        self.instructed = not all(isinstance(found, Failure) for found in criticised)
        orders: list[tuple[int, tuple[str, ...], int]] = []
        for parent, instructions in zip(seen, criticised, strict=True):
            if isinstance(instructions, Failure):
                note = f"round {number}: no instructions: {instructions.reason}"
                self.nodes[parent] = self.nodes[parent].noted(note)
                continue
            shares = share_out(instructions, plan.successors, plan.seed + number)
            orders += [(parent, share, number * 1000 + k) for k, share in enumerate(shares)]
        made = await self.runner.ask_all(
            "successors", [partial(self.rewrite, *order) for order in orders]
        )
        added = [
            self.add(parent, number, share, new)
            for (parent, share, _), new in zip(orders, made, strict=True)
        ]
        stop_if_skipped(made)
        return [node for node in added if node is not None]

    async def criticise(self, parent: int, outcomes: Sequence[TrialOutcome]) -> tuple[str, ...]:
        text, most = self.nodes[parent].text, self.plan.gradient_depth
        return await write_instructions(self.editor, text, outcomes, self.rules, most)

    async def rewrite(self, parent: int, instructions: tuple[str, ...], sample: int) -> Rewritten:
        text = self.nodes[parent].text
        made = await write_successor(self.editor, text, instructions, self.rules, sample)
        return made if made.text else append_instructions(text, made, self.rules)

    def add(
        self, parent: int, number: int, instructions: tuple[str, ...], new: Rewritten | Failure
    ) -> int | None:
        """Keep what was made as a node; gives its number if it can compete."""
        if isinstance(new, Failure):
            new = Rewritten(None, instructions, new.reason)
        text, fault = new.text or "", new.fault
        for node in self.nodes:
            if text and not fault and not node.fault and node.text.strip() == text.strip():
                fault = f"the same text as template {node.number}"
        made = Node(
            len(self.nodes),
            text,
            parent,
            number,
            instructions,
            fault,
            repaired=new.repaired,
            notes=(new.note,) if new.note else (),
        )
        self.nodes.append(made)
        return None if fault else made.number

    async def select(self, number: int, fresh: Sequence[int]) -> bool:
        """The best of old and new become the beam; whether a new one is among them."""
        plan, count = self.plan, len(self.material.training)
        arms = sorted([*self.beam, *fresh])
        if plan.selection == "ucb":
            rows = draw_rows(count, count, plan.seed, "select", number)
            pulls = count_pulls(len(arms), min(plan.selection_minibatch, count))
            tried = await try_ucb(arms, rows, self.try_rows, width=plan.beam, pulls=pulls)
        else:
            rows = draw_rows(count, plan.selection_minibatch, plan.seed, "select", number)
            tried = await try_fast(arms, rows, self.try_rows)
        self.beam = choose_beam(tried, plan.beam) or self.beam
        self.leader = self.beam[0]
        self.place(ROUND, number, tried, self.beam)
        return any(node in fresh for node in self.beam)

    async def decide(self) -> None:
        """Choose one template of the last beam, and weigh it against the original on rows that the
        search has not seen."""
        if self.beam == [SEED]:
            return
        plan, count = self.plan, len(self.material.training)
        rows = draw_rows(count, plan.final_minibatch, plan.seed, FINALS)
        finalists = sorted({SEED, *self.beam})
        tried = await try_fast(finalists, rows, self.try_rows)
        chosen = choose_beam(tried, 1)
        self.place(FINALS, self.rounds, tried, chosen)
        self.leader = chosen[0] if chosen else self.leader
        if self.leader != SEED:
            await self.validate()

    async def validate(self) -> None:
        rows = self.material.validation
        pairs = [(node, example) for node in (self.leader, SEED) for example in rows]
        outcomes = await self.try_nodes(pairs)
        scores = [_number(outcome.score) for outcome in outcomes]
        self.gain = self.context.compare(scores[: len(rows)], scores[len(rows) :])
        if self.context.second_judge is not None:
            texts = {n: o.output for n, o in enumerate(outcomes) if o.output is not None}
            found = await self.runner.judge(self.context.second_judge, self.named(pairs), texts)
            results = [found.get(n) for n in range(len(pairs))]
            scores = [r.score if isinstance(r, EvaluationResult) else math.nan for r in results]
            self.second = self.context.compare(scores[: len(rows)], scores[len(rows) :])

    async def try_rows(self, trials: Sequence[tuple[int, int]]) -> list[float | None]:
        training = self.material.training
        outcomes = await self.try_nodes([(node, training[row]) for node, row in trials])
        return [outcome.score for outcome in outcomes]

    async def try_nodes(
        self, pairs: Sequence[tuple[int, Example]], *, reasons: bool = False
    ) -> list[TrialOutcome]:
        outcomes = await self.runner.try_all(self.named(pairs), reasons=reasons)
        for outcome in outcomes:
            self.tried += 1
            if outcome.failure is None:
                self.scored += 1
            elif not self.reason:
                self.reason = outcome.failure.reason
        return outcomes

    def named(self, pairs: Sequence[tuple[int, Example]]) -> list[tuple[str, Example]]:
        return [(self.nodes[node].text, example) for node, example in pairs]

    def place(
        self, where: Stage, number: int, tried: Sequence[ArmStatistics], kept: Sequence[int]
    ) -> None:
        for s in tried:
            placing = Placing(where, number, s.mean, len(s.present), len(s.scores), s.arm in kept)
            node = self.nodes[s.arm]
            self.nodes[s.arm] = replace(node, placings=(*node.placings, placing))

    def result(self, stopped: StopReason, reason: str = "") -> CalibrationResult:
        if stopped == "failed":
            reason = reason or self.reason
        return CalibrationResult(
            nodes=tuple(self.nodes),
            beam=tuple(self.beam),
            leader=self.leader,
            stopped=stopped,
            reason=reason,
            rounds=self.rounds,
            names=self.material.names,
            rows=(len(self.material.training), len(self.material.validation)),
            gain=self.gain,
            second=self.second,
            tried=self.tried,
            failed=self.tried - self.scored,
            usage=self.editor.usage + self.runner.usage,
            seconds=time.monotonic() - self.began,
            perfect=self.perfect,
        )


def _number(score: float | None) -> float:
    return math.nan if score is None else score
