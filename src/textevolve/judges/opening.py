"""Opening of judges: what a run gives to its judges, what is wrapped around each of them, and the
case with their results, as runs return it and files store it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.debate.profile import Profile
from textevolve.debate.result import DebateResult
from textevolve.errors import BudgetError
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    empty_default,
    failure_of,
    select_failure,
    select_scored,
    select_skipped,
)
from textevolve.events import Listener, silence
from textevolve.judges.judge import Judge
from textevolve.llm.model import Model
from textevolve.loops.attempt import as_evaluator
from textevolve.memory.cue import Recall, nothing
from textevolve.showing import Shown
from textevolve.spans import NO_SPAN, Span, span
from textevolve.user_code import FirstResults, UserCodeError


@dataclass(frozen=True, slots=True)
class Judges:
    """Opens the judges of one run. `model`: the model of judges that name none. `objects`: the
    user's own evaluators by name. `today`: the date in the prompts of debates, as YYYY-MM-DD; None:
    the current date. `recall`: recalls memories for debaters. `fill`: puts stored agents into a
    profile. `tracing`: the root of spans. `first_results`: returns those of a judge of the user's,
    by its name."""

    model: str
    model_of: Callable[[str], Model]
    listener: Listener = silence
    concurrency: int = 64
    today: str | None = None
    objects: Mapping[str, object] = empty_default(dict)
    recall: Recall = nothing
    fill: Callable[[Profile], Profile] = lambda profile: profile
    tracing: Span = NO_SPAN
    first_results: Callable[[str], FirstResults] = FirstResults

    def open(self, judge: Judge, rubric: str = "") -> Evaluator:
        """Return the evaluator of a judge. `rubric`: text that replaces the judge's own questions;
        empty: none.

        Raises:
            InputError: a file, a profile or an option cannot be used.
        """
        opened = judge.open(self, judge.find_rubric(rubric))
        if not type(judge).__module__.startswith(f"{__package__}."):
            opened = self.take_own(judge, opened)
        return trace_judge(judge.text, opened, self.tracing)

    def take_own(self, judge: Judge, evaluator: Callable[[Case], Any]) -> Evaluator:
        """Return the user's own evaluator, which may raise anything and give anything, as one that
        ends a run in which it fails from the beginning."""
        opened = as_evaluator(evaluator)
        first_results = self.first_results(f"judge {judge}")

        async def judge_watched(case: Case, /) -> Evaluation:
            try:
                evaluation = await opened(case)
            except UserCodeError as error:
                first_results.note(failure_of(error))
                raise
            for outcome in evaluation.result:
                first_results.note(outcome)

            return evaluation

        return judge_watched

    def open_parts(self, judge: Judge, rubric: str) -> list[Evaluator]:
        """Open the judges that a judge calls, and pass the rubric to each that takes one."""
        opened: list[Evaluator] = []
        for part in judge.parts:
            own_rubric = rubric if part.takes_rubric else ""
            opened.append(keep_whole(self.open(part, own_rubric)))

        return opened


def trace_judge(name: str, judge: Evaluator, root: Span = NO_SPAN) -> Evaluator:
    """Wrap a judge so that each call is traced as a span with an event for each judgement. `root`:
    the parent span if no span is open."""

    async def judge_traced(case: Case, /) -> Evaluation:
        with span("judge", name, root, input=case.input) as here:
            evaluation = await judge(case)
            if here is NO_SPAN:
                return evaluation
            for outcome in evaluation.result:
                here.judge(name, outcome)
            if len(evaluation.result) == 1:
                here.note(outcome=evaluation.result[0])
            return evaluation

    return judge_traced


def keep_whole(judge: Evaluator) -> Evaluator:
    """Wrap a judge so that a debate that a limit cut short raises BudgetError instead of returning
    preliminary scores: a resumed run completes the debate."""

    async def judge_whole(case: Case, /) -> Evaluation:
        evaluation = await judge(case)
        if isinstance(evaluation, DebateResult) and evaluation.stopped == "budget":
            raise BudgetError(describe_limit(evaluation))
        return evaluation

    return judge_whole


def describe_limit(result: DebateResult) -> str:
    """Return the reason why a limit forbade a debate, or else its first turn that was forbidden; a
    general sentence if neither has a reason."""
    skipped = result.failure or select_skipped(turn.failure for turn in result.turns)
    return skipped.reason if skipped else "a limit was reached within the debate"


@dataclass(frozen=True, slots=True, repr=False)
class JudgedCase(Shown):
    """A case with the judge's result or failure for each candidate, in the order of the candidates.
    `index`: the position of the case in the run, from 0. `usage`: of the judge's calls."""

    case: Case
    index: int
    result: tuple[EvaluationResult | Failure, ...]
    usage: Usage = Usage()

    def __repr__(self) -> str:
        text = str(self.failure)
        if self.failure is None:
            text = f"scores {[round(result.score, 3) for result in self.scores]}"
        return f"JudgedCase({self.case.id!r}, {text}, best={self.best})"

    @property
    def outcomes(self) -> tuple[EvaluationResult | Failure, ...]:
        """Return the results, as a debate's are called without their feedback."""
        return self.result

    @property
    def failure(self) -> Failure | None:
        """Return the first failure of a candidate without a score, those that a limit prevented
        (`skipped`) before others; None if all candidates have a score."""
        return select_failure(self.result)

    @property
    def scores(self) -> list[EvaluationResult]:
        return select_scored(self.result)

    @property
    def best(self) -> int | None:
        """Return the index of the best candidate; None if a candidate has no score, or several are
        best."""
        ranks = [rank for rank in ranks_of(self.result) if rank is not None]
        # Without the score of one candidate nobody knows which is best.
        if not ranks or len(ranks) < len(self.result):
            return None
        if ranks.count(max(ranks)) > 1:
            return None
        return ranks.index(max(ranks))


@dataclass(frozen=True, slots=True, repr=False)
class NamedJudgement(JudgedCase):
    """The judgement of a case by one of several judges. `judge`: the judge's text. `position`: the
    position of the judgement in the run, in which the judgements of a case follow each other."""

    judge: str = ""
    position: int = 0

    def __repr__(self) -> str:
        return f"{self.judge}: {JudgedCase.__repr__(self)}"


def ranks_of(results: Sequence[EvaluationResult | Failure]) -> tuple[float | None, ...]:
    """Return the values that candidates are ranked by: log-odds if all scored results have them,
    since they separate saturated scores, otherwise scores; None without a score."""
    by_odds = has_log_odds(results)
    ranks: list[float | None] = []

    for result in results:
        if isinstance(result, Failure):
            ranks.append(None)
        elif by_odds:
            ranks.append(float(result.metadata["log_odds"]))
        else:
            ranks.append(float(result.score))

    return tuple(ranks)


def has_log_odds(results: Sequence[EvaluationResult | Failure]) -> bool:
    """Tell whether all results with a score also have finite log-odds."""
    odds = [result.metadata.get("log_odds") for result in select_scored(results)]
    return bool(odds) and all(isinstance(entry, float) and math.isfinite(entry) for entry in odds)
