"""The judge that is fitted to people's labels: its score is computed from a weighted sum of the
values of several judges.
`fitted_file.py` describes and reads its file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from textevolve.engine.local import gather_bounded
from textevolve.errors import InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    attempt,
    check_case,
    choose_candidates,
    share_scored,
)
from textevolve.judges.context import CaseOptions, Judgement
from textevolve.judges.fitted_file import FittedFile, FittedSignal
from textevolve.judges.judged import has_log_odds, ranks_of
from textevolve.judges.looks import LOOK
from textevolve.llm.choice_logprobs import probability
from textevolve.statistics.resampling import Array

SignalValues: TypeAlias = Sequence[float | Failure]
"""The value of one signal (a judge whose scores are weighted) for each candidate, in order; a
failure where it has none."""


@dataclass(frozen=True)
class FittedJudge:
    """A judge that calls several judges (its signals), and adds their values with the fitted
    weights to a utility.

    If it was fitted to pairs, a candidate's score is logistic(its utility - the mean utility of the
    others); with two candidates this is the probability of being the better one. A single
    candidate's score is logistic(its utility): the probability of being better than a text whose
    signals are the averages of the labelled texts. If it was fitted to ratings, the score is the
    probability of being good, independent of the other candidates.

    `file`: signals and weights. `judges`: the opened judges by the texts of the signals. `ordered`:
    those signals that the order of the candidates may influence; they are called in both orders if
    they were for the fit. `source`: the name of the file in messages.
    """

    file: FittedFile
    judges: Mapping[str, Evaluator]
    ordered: Collection[str] = ()
    concurrency: int = 64
    source: str = field(default="fitted judge", compare=False)

    async def __call__(self, case: Case, /) -> Judgement:
        """Judge a case by the weighted signals.

        Raises:
            InputError: the case cannot be judged by one of the signals.
            FatalModelError: no call can succeed.
        """
        check_case(case)
        parameters = dict(case.parameters)
        threshold = parameters.pop("threshold", self.file.threshold.value)
        options = CaseOptions(threshold=threshold)
        case_of_signals = replace(case, parameters=parameters)
        work = [partial(self._ask, signal, case_of_signals) for signal in self.file.signals]
        answers = await gather_bounded(work, self.concurrency)
        results = self._weigh([values for values, _, _ in answers], options.threshold)
        return Judgement(
            case=case,
            result=tuple(results),
            usage=sum((usage for _, usage, _ in answers), Usage()),
            seconds=sum(seconds for _, _, seconds in answers),
            coverage=share_scored(results),
        )

    async def _ask(self, signal: FittedSignal, case: Case) -> tuple[SignalValues, Usage, float]:
        """Return a signal's values for the candidates, averaged over both orders if the fit did so,
        with its usage and seconds."""
        scores = await self._ask_once(signal, case)
        both = self.file.orders == "both" and signal.judge in self.ordered
        if not both or len(case.candidates) == 1:
            return scores
        turned = choose_candidates(case, range(len(case.candidates))[::-1])
        turned_scores = await self._ask_once(signal, turned)
        values = [
            forward
            if isinstance(forward, Failure)
            else other
            if isinstance(other, Failure)
            else (forward + other) / 2
            for forward, other in zip(scores[0], turned_scores[0][::-1], strict=True)
        ]
        return values, scores[1] + turned_scores[1], scores[2] + turned_scores[2]

    async def _ask_once(
        self, signal: FittedSignal, case: Case
    ) -> tuple[SignalValues, Usage, float]:
        name = signal.judge
        try:
            judged = await attempt(self.judges[name](case))
        except InputError as error:
            raise InputError(f"{self.source}: its signal {name}: {error}") from error
        if isinstance(judged, Failure):
            return [_about(name, judged)] * len(case.candidates), Usage(), 0.0
        unit = "log-odds" if has_log_odds(judged.result) else "scores"
        other = Failure(
            "failed", f"signal {name}: gave {unit}, but the judge was fitted to {signal.values}"
        )
        values = [
            _about(name, result)
            if isinstance(result, Failure)
            else other
            if rank is None or unit != signal.values
            else rank
            for result, rank in zip(judged.result, ranks_of(judged.result), strict=True)
        ]
        return values, judged.usage, float(getattr(judged, "seconds", 0.0))

    def _weigh(
        self, values: Sequence[SignalValues], threshold: float
    ) -> list[EvaluationResult | Failure]:
        """Compute a result for each candidate from the values of all signals."""
        weights, means, scales = (
            np.array([getattr(signal, name) for signal in self.file.signals])
            for name in ("weight", "mean", "scale")
        )
        columns = list(zip(*values, strict=True))
        results: list[EvaluationResult | Failure | None] = [
            next((value for value in column if isinstance(value, Failure)), None)
            for column in columns
        ]
        places = [n for n, failure in enumerate(results) if failure is None]
        table = np.array([columns[n] for n in places]).reshape(-1, len(weights))
        added = weights * (table - means) / scales
        odds, text = added.sum(axis=1) + self.file.intercept, "against a text of average signals"
        if self.file.good is not None:
            text = f"probability of a grade of {self.file.good:g} or more"
        elif len(places) == 1 < len(columns):
            results[places[0]] = Failure("failed", "no other candidate has a score to compare with")
            places = []
        elif len(places) > 1:
            added = added - (added.sum(axis=0) - added) / (len(places) - 1)
            odds, text = added.sum(axis=1), "against the others"
        for n, total, row, parts in zip(places, odds.tolist(), table, added, strict=False):
            results[n] = self._result(total, text, row, parts, threshold)
        return [result for result in results if result is not None]

    def _result(
        self,
        odds: float,
        text: str,
        values: Array,
        added: Array,
        threshold: float,
    ) -> EvaluationResult:
        score = probability(odds)
        names = [signal.judge for signal in self.file.signals]
        order = sorted(range(len(names)), key=lambda n: -abs(added[n]))
        looks = {name: " (a look)" for name in names if name.startswith(f"{LOOK}:")}
        parts = ", ".join(f"{names[n]} {added[n]:+.2f}{looks.get(names[n], '')}" for n in order)
        signals = {
            name: {"value": float(value), "adds": float(more)}
            for name, value, more in zip(names, values, added, strict=True)
        }
        feedback = f"{text}; in log-odds: {parts}"
        metadata = {"log_odds": odds, "signals": signals}
        return EvaluationResult(score, score >= threshold, feedback, metadata)


def _about(name: str, failure: Failure) -> Failure:
    return Failure(failure.kind, f"signal {name}: {failure.reason}")
