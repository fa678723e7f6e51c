"""The judge that a fit to people's labels gives: several judges' verdicts, weighted.

What is in its file, and how that is read, is in `fitted_file.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from textevolve.engine.local import gather_bounded
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_case,
    choose_candidates,
    failure_of,
)
from textevolve.judges.context import Judgement, Options
from textevolve.judges.fitted_file import FittedFile
from textevolve.judges.judged import has_log_odds, ranks_of
from textevolve.judges.looks import LOOK
from textevolve.llm.choice_logprobs import probability
from textevolve.statistics.regression import level_chances
from textevolve.statistics.resampling import Array


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one signal's judge said: a value or a failure for each candidate, and what it took."""

    values: tuple[float | Failure, ...]
    usage: Usage = Usage()
    seconds: float = 0.0


@dataclass(frozen=True)
class FittedJudge:
    """Asks the judges of its signals, and adds what they say by the fitted weights.

    Fitted to pairs: a candidate's score is logistic(its utility - the mean of the others'), with
    two candidates the probability of being the better one; alone, logistic(its utility), that of
    being better than a text of average signals among the labelled ones. Fitted to ratings: the
    expected grade, from 0 for the worst to 1 for the best, whatever stands beside it.

    `judges`: by the texts of the signals. `ordered`: those of them that the order of candidates may
    sway, which are asked in both orders where they were so for the fit.
    """

    file: FittedFile
    judges: Mapping[str, Evaluator]
    ordered: Collection[str] = ()
    concurrency: int = 64
    source: str = field(default="fitted judge", compare=False)

    async def __call__(self, case: Case, /) -> Judgement:
        """
        Raises:
            InputError: the case cannot be judged by one of the signals.
            FatalModelError: no call can succeed.
        """
        check_case(case)
        given = {n: v for n, v in case.parameters.items() if n == "threshold"}
        threshold = Options(threshold=self.file.threshold.value).overridden(given).threshold
        left = {n: v for n, v in case.parameters.items() if n != "threshold"}
        asked = replace(case, parameters=left)
        names = [signal.judge for signal in self.file.signals]
        answers = await gather_bounded(
            [lambda name=name: self._ask(name, asked) for name in names], self.concurrency
        )
        parts = self._weigh(answers, len(case.candidates))
        outcomes = self._conclude(parts, threshold)
        return Judgement(
            case=case,
            result=tuple(outcomes),
            usage=sum((answer.usage for answer in answers), Usage()),
            seconds=sum(answer.seconds for answer in answers),
            coverage=sum(isinstance(o, EvaluationResult) for o in outcomes) / len(outcomes),
        )

    async def _ask(self, name: str, case: Case) -> _Answer:
        both = self.file.orders == "both" and name in self.ordered and len(case.candidates) > 1
        first = await self._ask_once(name, case)
        if not both:
            return first
        turned = choose_candidates(case, range(len(case.candidates))[::-1])
        second = await self._ask_once(name, turned)
        pairs = zip(first.values, second.values[::-1], strict=True)
        values = tuple(
            next((v for v in pair if isinstance(v, Failure)), None) or _mean(pair) for pair in pairs
        )
        return _Answer(values, first.usage + second.usage, first.seconds + second.seconds)

    async def _ask_once(self, name: str, case: Case) -> _Answer:
        try:
            made = await self.judges[name](case)
        except FatalModelError:
            raise
        except InputError as error:
            raise InputError(f"{self.source}: its signal {name}: {error}") from error
        except (ModelError, BudgetError) as error:
            failure = failure_of(error)
            return _Answer((_about(name, failure),) * len(case.candidates))
        seconds = float(getattr(made, "seconds", 0.0))
        return _Answer(self._read(name, made.result), made.usage, seconds)

    def _read(
        self, name: str, results: Sequence[EvaluationResult | Failure]
    ) -> tuple[float | Failure, ...]:
        """A value for each candidate, in the unit that was fitted."""
        wanted = next(s.values for s in self.file.signals if s.judge == name)
        given = "log-odds" if has_log_odds(results) else "scores"
        other = Failure("failed", f"signal {name}: gave {given}, and was fitted to {wanted}")
        values: list[float | Failure] = []
        for result, rank in zip(results, ranks_of(results), strict=True):
            if isinstance(result, Failure):
                values.append(_about(name, result))
            else:
                values.append(other if rank is None or given != wanted else rank)
        return tuple(values)

    def _weigh(self, answers: Sequence[_Answer], candidates: int) -> list[Array | Failure]:
        """For each candidate what each signal adds to its utility, and its value."""
        signals = self.file.signals
        weighed: list[Array | Failure] = []
        for place in range(candidates):
            values = [answer.values[place] for answer in answers]
            missing = next((v for v in values if isinstance(v, Failure)), None)
            if missing is not None:
                weighed.append(missing)
                continue
            numbers = [v for v in values if not isinstance(v, Failure)]
            parts = [
                (s.weight * (value - s.mean) / s.scale, value)
                for s, value in zip(signals, numbers, strict=True)
            ]
            weighed.append(np.array(parts))
        return weighed

    def _conclude(
        self, parts: Sequence[Array | Failure], threshold: float
    ) -> list[EvaluationResult | Failure]:
        known = [one for one in parts if not isinstance(one, Failure)]
        outcomes: list[EvaluationResult | Failure] = []
        for one in parts:
            if isinstance(one, Failure):
                outcomes.append(one)
            elif self.file.grades is not None:
                outcomes.append(self._rate(one, threshold))
            elif len(known) == 1 < len(parts):
                outcomes.append(Failure("failed", "no other candidate has a score to compare with"))
            else:
                others = [other[:, 0] for other in known if other is not one]
                outcomes.append(self._compare(one, others, threshold))
        return outcomes

    def _compare(self, one: Array, others: Sequence[Array], threshold: float) -> EvaluationResult:
        """Against the mean of the others; against the average of the labelled texts without."""
        added = one[:, 0] - (np.mean(others, axis=0) if others else 0.0)
        odds = float(added.sum())
        against = "the others" if others else "a text of average signals"
        return self._result(one, added, probability(odds), odds, threshold, f"against {against}")

    def _rate(self, one: Array, threshold: float) -> EvaluationResult:
        grades = self.file.grades
        assert grades is not None
        utility = np.array([one[:, 0].sum()])
        chances = level_chances(utility, np.array(grades.cuts))[0]
        expected = float(chances @ np.array(grades.values))
        share = (expected - grades.values[0]) / (grades.values[-1] - grades.values[0])
        cut = next(
            c for v, c in zip(grades.values[1:], grades.cuts, strict=True) if v >= grades.good
        )
        said = f"expected grade {expected:.2f} of {grades.values[0]:g} to {grades.values[-1]:g}"
        score = min(1.0, max(0.0, share))
        return self._result(one, one[:, 0], score, float(utility[0]) - cut, threshold, said)

    def _result(
        self, one: Array, added: Array, score: float, odds: float, threshold: float, said: str
    ) -> EvaluationResult:
        names = [signal.judge for signal in self.file.signals]
        order = sorted(range(len(names)), key=lambda n: -abs(added[n]))
        told = ", ".join(f"{names[n]} {added[n]:+.2f}{_is_look(names[n])}" for n in order)
        signals = {
            name: {"value": float(value), "adds": float(more)}
            for name, value, more in zip(names, one[:, 1], added, strict=True)
        }
        metadata: dict[str, Any] = {"log_odds": odds, "signals": signals}
        return EvaluationResult(
            score=score,
            passed=score >= threshold,
            feedback=f"{said}; in log-odds: {told}",
            metadata=metadata,
        )


def _mean(pair: Sequence[float | Failure]) -> float:
    return sum(value for value in pair if not isinstance(value, Failure)) / len(pair)


def _about(name: str, failure: Failure) -> Failure:
    return Failure(failure.kind, f"signal {name}: {failure.reason}")


def _is_look(name: str) -> str:
    return " (a look)" if name.startswith(f"{LOOK}:") else ""
