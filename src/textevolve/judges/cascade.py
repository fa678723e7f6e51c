"""A cascade of two judges: the second is called only if the first is uncertain.

    cascade:BELOW:FIRST,SECOND        cascade:0.9:probe+rules@local/laya,debate:general

The module computes the certainty of a judgement, parses the text of a cascade, and has the judge.
`debate.result` computes the certainty of a debate. `bench.escalation` selects from labels the BELOW
at which the cascade keeps a required accuracy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError, TextEvolveError
from textevolve.evaluation import (
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    check_case,
    failure_of,
    reaches,
    select_scored,
    select_skipped,
    sum_usage,
)
from textevolve.judges.context import CaseOptions, Judgement
from textevolve.judges.judge import (
    CombinedJudge,
    Judge,
    begins_judge,
    describe_parts,
    judge,
    judge_argument,
    mask_quoted,
    parse_judge,
)
from textevolve.judges.opening import Judges, has_log_odds
from textevolve.llm.decisions import log_odds, probability, softmax


def certainty_of(evaluation: Evaluation, threshold: float = 0.5) -> float | None:
    """Return the probability in [0, 1] that a judgement is right, computed from its scores. None if
    a candidate has no score, or a question of the judge has no answer.

    If the evaluation has a `certainty` of its own, as a debate computes it from the votes of its
    first round, return that. Otherwise, with l the log-odds of the scores:

    - Of several candidates: the probability that the top one is best, exp(l_top) / sum of exp(l).
      For independent l it is the probability that the top candidate is the good one, if exactly
      one is; for the strengths of a pairwise judge it is Bradley and Terry's (1952), extended by
      Luce (1959).
    - Of one candidate, p = P(good): the probability that it rightly passes (p) or fails (1 - p),
      after the log-odds were shifted so that p is 1/2 at the `threshold`.
    """
    scored = select_scored(evaluation.result)
    if not scored or len(scored) < len(evaluation.result):
        return None
    # A debate knows more than its scores: the votes of its first round.
    stated: Any = getattr(evaluation, "certainty", None)
    if isinstance(stated, float) and math.isfinite(stated):
        return stated
    if evaluation.coverage < 1 or not all(math.isfinite(outcome.score) for outcome in scored):
        return None
    if len(scored) == 1:
        likely = probability(log_odds(scored[0].score) - log_odds(threshold))
        return likely if scored[0].passed else 1 - likely
    if has_log_odds(scored):
        return max(softmax([outcome.metadata["log_odds"] for outcome in scored]))

    return max(softmax([log_odds(outcome.score) for outcome in scored]))


FORM = "cascade:BELOW:FIRST,SECOND, such as cascade:0.9:probe,debate:general"
DECIDED_BY = "decided_by"
"""The key in a result's metadata that holds the name of the judge whose result it is."""


@judge(
    "cascade:BELOW:FIRST,SECOND", help="the first judge, or the second if the first is uncertain"
)
@dataclass(frozen=True)
class CascadeJudge(CombinedJudge):
    """Two judges. The second one judges if the certainty of the first is less than `below`, which
    is a number or its text."""

    below: float | str = judge_argument()
    first: Judge = judge_argument()
    second: Judge = judge_argument()
    usage: ClassVar[str] = FORM

    def describe(self) -> Mapping[str, Any]:
        return describe_parts(self)

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        cheap, strong = bench.open_parts(self, rubric)
        names = (self.first.text, self.second.text)
        return Cascade(cheap, strong, float(self.below), names)

    def write(self) -> str:
        return f"{self.name}:{self.below}:{self.first},{self.second}"

    @classmethod
    def read(cls, text: str) -> Judge:
        below, first, second = read_cascade(text, begins_judge)
        return cls(below, parse_judge(first), parse_judge(second), source=text)


def read_cascade(text: str, begins_judge: Callable[[str], bool]) -> tuple[str, str, str]:
    """Split the text of a cascade into BELOW, as it was written, and the two judges.
    `begins_judge`: a function that returns whether a text begins like a judge's text.

    File names may contain commas, too. The judges are split at the first comma after which a
    judge's text begins, so the second judge may be a cascade, and the first may not.

    Raises:
        InputError: the text is not of the form, or BELOW is not above 0 and at most 1.
    """
    _, _, tail = text.partition(":")
    below, _, judges = tail.partition(":")
    commas = [comma.start() for comma in re.finditer(",", mask_quoted(judges))]
    pairs = [(judges[:at].strip(), judges[at + 1 :].strip()) for at in commas]
    pairs = [(cheap, strong) for cheap, strong in pairs if cheap and strong]
    if not pairs:
        raise InputError(f"judge '{text}': it needs two judges; write {FORM}")
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(e-?[0-9]+)?", below) or not 0 < float(below) <= 1:
        raise InputError(
            f"judge '{text}': BELOW, the certainty below which the second judge decides, must be"
            f" above 0 and at most 1, not '{below}': write {FORM}"
        )

    fits = (pair for pair in pairs if begins_judge(pair[1]))

    return (below, *next(fits, pairs[0]))


@dataclass(frozen=True, slots=True)
class Cascade:
    """A judge that calls `first`, and calls `second` if the certainty of `first` is less than
    `below`, or if `first` fails. If a limit of the run forbade a call of `first`, `second` is not
    called either, since the same run with another limit would have another score.

    The result is that of the judge that decided. Its metadata has `decided_by`, the judge's name
    from `names`; the `certainty` of the first judge; and `first_failed`, the reason if the first
    judge failed. If a cascade is part of this cascade, `decided_by` names its inner judge. If
    `second` fails there is no score, even if `first` gave an uncertain one.
    """

    first: Evaluator
    second: Evaluator
    below: float
    names: tuple[str, str] = field(default=("first", "second"))

    async def __call__(self, case: Case, /) -> Judgement:
        """Call the first judge; call the second one if the first fails or is not certain enough.

        Raises:
            InputError: the second judge cannot use the case.
            BudgetError: a limit prevented a call of the first judge.
            FatalModelError: no call can succeed.
        """
        check_case(case)
        override = case.parameters.get("threshold")
        bar = float(override) if isinstance(override, int | float) else CaseOptions().threshold
        evaluations = [await _ask(self.first, case, InputError, ModelError)]
        sure = certainty_of(evaluations[0], bar)
        failures = [failure for failure in evaluations[0].result if isinstance(failure, Failure)]
        noted: dict[str, Any] = {} if sure is None else {"certainty": sure}
        is_sure = sure is not None and reaches(sure, self.below)

        # After a limit the second judge is not asked, or another limit would give another score.
        if not is_sure and not select_skipped(failures):
            if failures:
                noted["first_failed"] = failures[0].reason
            evaluations.append(await _ask(self.second, case, ModelError, BudgetError))
            sure = certainty_of(evaluations[1], bar)

        noted[DECIDED_BY] = self.names[len(evaluations) - 1]

        return Judgement(
            case,
            result=tuple(_note(outcome, noted) for outcome in evaluations[-1].result),
            usage=sum_usage(evaluations),
            seconds=sum(float(getattr(each, "seconds", 0.0)) for each in evaluations),
            coverage=evaluations[-1].coverage,
            certainty=sure,
            feedback=getattr(evaluations[-1], "feedback", ()),
        )


async def _ask(judge: Evaluator, case: Case, *failures: type[TextEvolveError]) -> Evaluation:
    """Return the judge's evaluation; if it raises one of these errors, a failure for each
    candidate."""
    try:
        return await judge(case)
    except FatalModelError:
        raise
    except failures as error:
        return Judgement(case, (failure_of(error),) * len(case.candidates), coverage=0.0)


def _note(outcome: EvaluationResult | Failure, noted: dict[str, Any]) -> EvaluationResult | Failure:
    if isinstance(outcome, Failure) or DECIDED_BY in outcome.metadata:
        return outcome
    return replace(outcome, metadata={**outcome.metadata, **noted})
