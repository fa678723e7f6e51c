"""The search as it grows: the tree of templates, what was tried of them, and what that took.

How the tree grows is for a strategy to say (`protegi.py`); how templates are tried is in
`trial_runner.py`, rewritten in `rewriting.py`, chosen in `selection.py`; the tree that results is
in `tree.py`. Rows held out from the search decide in `validation.py`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from textevolve.evaluation import Failure, Usage
from textevolve.events import StepFinished
from textevolve.llm.usage_meter import UsageMeter
from textevolve.loops.attempt import StopReason
from textevolve.loops.calibration.examples import Example, Material
from textevolve.loops.calibration.plan import CalibrationContext, CalibrationPlan
from textevolve.loops.calibration.program import PROMPT, PromptProgram, Templates, plain_prompt
from textevolve.loops.calibration.rewriting import (
    RewritingRules,
    Rewritten,
    find_shortened,
    fit_outcomes,
)
from textevolve.loops.calibration.selection import ArmStatistics
from textevolve.loops.calibration.spending import SearchBudget, read_budget
from textevolve.loops.calibration.tree import (
    CalibrationResult,
    Gain,
    Node,
    OperatorEarnings,
    Placing,
    Stage,
)
from textevolve.loops.calibration.trial_runner import TrialOutcome, TrialRunner

T = TypeVar("T")
SEED = 0
SEARCH_TIME = 0.8
"""The share of a time limit after which the search ends, so that there is time to decide."""
ROUND: Literal["round"] = "round"
FINALS: Literal["finals"] = "finals"


@dataclass
class TemplateSearch:
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
    earnings: dict[str, OperatorEarnings] = field(default_factory=dict[str, OperatorEarnings])
    phases: dict[str, int] = field(default_factory=dict[str, int])
    phase: str = ""
    shortened: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def __post_init__(self) -> None:
        plan, context = self.plan, self.context
        program = context.program or PromptProgram(
            plain_prompt(self.material.template),
            context.generator,
            plan.temperature,
            plan.max_output_tokens,
            plan.seed,
        )
        self.nodes = [Node(SEED, program.templates, None, 0)]
        self.editor = UsageMeter(context.editor)
        limit = None if plan.budget is None else read_budget(plan.budget)
        self.spending = SearchBudget(limit, lambda: self.usage)
        slots = dict(self.material.slots)
        columns = () if slots else self.material.columns
        self.rules = {
            name: RewritingRules(
                text, slots.get(name, self.material.names), columns, plan.seed, context.shown
            )
            for name, text in program.templates.parts
        }
        self.runner = TrialRunner(
            program=program,
            evaluator=context.evaluator,
            metric=context.metric,
            judged=plan.judged,
            concurrency=context.concurrency,
            failures=plan.failures,
            debate_rounds=plan.grad_debate_rounds,
            listener=context.listener,
        )
        self.limit_time(SEARCH_TIME)

    @property
    def learns_costs(self) -> bool:
        """Whether it is not known beforehand what an output takes."""
        limit, context = self.spending.limit, self.context
        judged = context.metric is None or context.program is not None
        return judged or (limit is not None and limit.dollars)

    @property
    def usage(self) -> Usage:
        return self.editor.usage + self.runner.usage

    def decision_cost(self, output: float) -> float:
        """What an output takes in validation, where a second judge sees it, too: what that takes is
        not known before it is asked, so it is taken for as much as the first, or a call."""
        if self.context.second_judge is None:
            return output
        return 2 * output

    def limit_time(self, share: float) -> None:
        """Nothing more is asked once this share of the time limit is over."""
        if self.context.time_limit is not None:
            self.runner.deadline = self.began + share * self.context.time_limit

    def enter(self, phase: str) -> None:
        """From here on calls are counted for `phase`."""
        calls = self.usage.calls - sum(self.phases.values())
        if calls:
            self.phases[self.phase] = self.phases.get(self.phase, 0) + calls
        self.phase = phase

    def add(
        self,
        parent: int,
        number: int,
        instructions: tuple[str, ...],
        new: Rewritten | Failure,
        part: str | None = PROMPT,
        operator: str = "",
        demos: tuple[str, ...] = (),
    ) -> int | None:
        """Keep what was made of the template `part` of a node as a node; gives its number if it can
        compete. `part` None: of several of its templates, which are `new.others`."""
        if isinstance(new, Failure):
            new = Rewritten(None, instructions, new.reason)
        templates, fault = self.nodes[parent].templates, new.fault
        changed = new.others if part is None else ((part, new.text or ""),)
        for name, text in changed:
            templates = templates.with_text(name, text)
        for node in self.nodes:
            if not fault and not node.fault and node.templates.alike(templates):
                fault = f"the same text as template {node.number}"
        made = Node(
            len(self.nodes),
            templates,
            parent,
            number,
            instructions,
            fault,
            repaired=new.repaired,
            notes=(new.note,) if new.note else (),
            operator=operator,
            demos=demos,
        )
        self.nodes.append(made)
        return None if fault else made.number

    def length_of(self, node: int) -> int:
        return len(self.nodes[node].text)

    def rules_of(self, part: str) -> RewritingRules:
        """What every rewrite of the template of this name has to respect."""
        return self.rules[part]

    def fit(self, outcomes: Sequence[TrialOutcome]) -> list[TrialOutcome]:
        """Those that the editor is shown; what it sees excerpts of is kept for the report."""
        shown = self.context.shown
        fitting = fit_outcomes(outcomes, shown)
        for name, length in find_shortened(fitting, shown):
            times, longest = self.shortened.get(name, (0, 0))
            self.shortened[name] = (times + 1, max(longest, length))
        return fitting

    async def try_rows(self, trials: Sequence[tuple[int, int]]) -> list[float | None]:
        training = self.material.training
        outcomes = await self.try_nodes([(node, training[row]) for node, row in trials])
        return [outcome.score for outcome in outcomes]

    async def try_nodes(
        self, pairs: Sequence[tuple[int, Example]], *, reasons: bool = False
    ) -> list[TrialOutcome]:
        named = self.named(pairs)
        new = len({(t, e.id) for t, e in named} - self.runner.outputs.keys())
        self.spending.require(new)
        before = self.spending.spent
        outcomes = await self.runner.try_all(named, reasons=reasons)
        if not self.spending.deciding:
            self.spending.output.learn(self.spending.spent - before, new)
        for outcome in outcomes:
            self.tried += 1
            if outcome.failure is None:
                self.scored += 1
            elif not self.reason:
                self.reason = outcome.failure.reason
        return outcomes

    async def rewrite_all(
        self, name: str, work: Sequence[Callable[[], Awaitable[T]]]
    ) -> list[T | Failure]:
        """All that is to be written at once.

        Raises:
            SearchSpent: there is no budget left for it.
        """
        self.spending.require(0, len(work))
        before = self.spending.spent
        made = await self.runner.ask_all(name, work)
        self.spending.rewrite.learn(self.spending.spent - before, len(work))
        return made

    def named(self, pairs: Sequence[tuple[int, Example]]) -> list[tuple[Templates, Example]]:
        return [(self.nodes[node].templates, example) for node, example in pairs]

    def place(
        self, where: Stage, number: int, tried: Sequence[ArmStatistics], kept: Sequence[int]
    ) -> None:
        for s in tried:
            placing = Placing(where, number, s.mean, len(s.present), len(s.scores), s.arm in kept)
            node = self.nodes[s.arm]
            self.nodes[s.arm] = replace(node, placings=(*node.placings, placing))

    def show(self) -> None:
        """Tell whoever listens how far the search is: at the end of each round."""
        self.context.listener(StepFinished("", ROUND, self.result("stopped")))

    def result(self, stopped: StopReason, reason: str = "") -> CalibrationResult:
        self.enter(self.phase)
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
            usage=self.usage,
            seconds=time.monotonic() - self.began,
            perfect=self.perfect,
            operators=tuple(self.earnings.values()),
            phases=tuple(self.phases.items()),
            shortened=tuple((name, *counts) for name, counts in self.shortened.items()),
        )
