"""The judge that is fitted to people's labels: its score is computed from a weighted sum of the
values of several judges.
`fitted_file.py` describes and reads its file.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import yaml
from pydantic import BaseModel, Field, model_validator

from textevolve.contents import digest_data
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
    reaches,
    share_scored,
)
from textevolve.json_texts import is_object
from textevolve.judges.context import CaseOptions, Judgement
from textevolve.judges.judge import Judge, describe_parts, judge, judge_argument, parse_judge
from textevolve.judges.opening import Judges, has_log_odds, ranks_of
from textevolve.judges.plain import LOOK
from textevolve.ledger import log
from textevolve.llm.decisions import probability
from textevolve.loading import np
from textevolve.rows import read_text
from textevolve.spec import Frozen
from textevolve.statistics.intervals import Array
from textevolve.texts.yaml_lines import build_at, parse_yaml

# The file of a fitted judge, in a form that people can read: signals, weights, and measured
# figures. `textevolve.bench` fits a judge to labels, and `fitted.py` judges with it.

ENDING = ".judge"
HEAD = """\
# A judge that was fitted to labels. Use it like any other: --judge FILE.judge
# utility = intercept + sum over the signals of weight * (value - mean) / scale
"""
"""The comment at the beginning of the file."""


class _Part(BaseModel):
    """The base of the parts of the file. Errors in a part are reported with their place in the
    whole file."""

    model_config = Frozen.model_config


class FittedSignal(_Part):
    """One signal of a fitted judge: another judge whose value is weighted. `judge`: its text.
    `model`: the model with which it was fitted, and is called again; null if the signal calls no
    model, or its text names one. `values`: whether its values are log-odds or scores. `weight`: its
    weight after standardising the values: (value - `mean`) / `scale`. `share`: its share of the
    agreement, only in files of earlier versions. `alone`: the agreement of this signal alone with
    the labels, with a confidence interval. `content`: the digest of the rubric, rules or code that
    it read for the fit; left out if it reads none."""

    judge: Annotated[str, Field(min_length=1)]
    model: str | None = None
    values: Literal["log-odds", "scores"] = "log-odds"
    weight: float
    mean: float
    scale: Annotated[float, Field(gt=0)]
    share: float | None = None
    alone: dict[str, float | None] = Field(default_factory=dict)
    content: Annotated[str, Field(exclude_if=operator.not_)] = ""


def digest_judge(judge: Judge) -> str:
    """Return the digest of the files that a judge reads; empty if it reads none."""
    content = judge.describe()
    return digest_data(content) if content else ""


class FittedThreshold(_Part):
    """The score from which a text passes (`value`), chosen for a required precision. `precision`:
    the required share of good texts among those that pass. `confidence`: the required probability
    that this precision is reached. `holds`: whether any threshold reaches it; if none does, `value`
    is 0.5. `guarantee`: the result as a sentence."""

    value: Annotated[float, Field(ge=0, le=1)]
    precision: float
    confidence: float
    holds: bool
    guarantee: str


class FittedFile(Frozen):
    """A fitted judge. `fitted_to`: pairs (which text is better) or ratings (how good a text is).
    `good`: the rating from which a text counts as good. `orders`: whether the signals see the
    candidates in both orders, or only in the given one, as for the fit. `ridge`: the strength of
    the ridge penalty on the weights. `intercept`: added to the weighted sum. For people to read:
    `labels`, the number and the hash of the labels of the fit; `cross_validated`, figures measured
    on items that were left out of the fit; `warnings`."""

    format: Literal[1] = 1
    fitted_to: Literal["pairs", "ratings"]
    date: datetime.date
    orders: Literal["both", "given"] = "both"
    signals: Annotated[tuple[FittedSignal, ...], Field(min_length=1)]
    ridge: float
    good: float | None = None
    intercept: float = 0.0
    threshold: FittedThreshold
    labels: dict[str, int | str]
    cross_validated: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> FittedFile:
        if (self.good is None) != (self.fitted_to == "pairs"):
            raise ValueError("good: only a judge that was fitted to ratings has this field")
        names = [signal.judge for signal in self.signals]
        if len(set(names)) < len(names):
            raise ValueError("a signal is listed twice; keep one")
        if nested := [name for name in names if ENDING in name]:
            raise ValueError(f"the signal {nested[0]} has a fitted judge: name its signals instead")
        return self

    @property
    def text(self) -> str:
        """Return the file as YAML."""
        data = self.model_dump(mode="json")
        return HEAD + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def load_fitted(path: str) -> FittedFile:
    """Read the file of a fitted judge.

    Raises:
        InputError: the file cannot be read or used; names it, the line and the reason.
    """
    return parse_fitted(read_text(path), path)


# A command asks for the parts of a judge twenty times.
@lru_cache
def parse_fitted(text: str, source: str) -> FittedFile:
    node, data = parse_yaml(text, source)
    if not is_object(data) or "signals" not in data:
        raise InputError(
            f"{source}: is not a fitted judge; make one with: textevolve judges fit LABELS -o"
            " NAME.judge"
        )

    return build_at(FittedFile, data, node, source)


def check_name(path: str | Path) -> None:
    """Raise InputError if a name does not end in .judge."""
    if not str(path).endswith(ENDING):
        raise InputError(f"{path}: the file name of a fitted judge must end in {ENDING}")


def save_fitted(file: FittedFile, path: str | Path) -> None:
    """Write the file of a fitted judge.

    Raises:
        InputError: the name does not end in .judge, or the file cannot be written.
    """
    check_name(path)
    try:
        Path(path).write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


@judge("FILE.judge", help="judges fitted to labels by `judges fit`", name="fitted")
@dataclass(frozen=True)
class FittedFileJudge(Judge):
    """A fitted judge by the path of its file. Its parts are the signals, each with the model of the
    fit. The file is read whenever it is asked for, since it may be written anew."""

    path: str = judge_argument()
    ending: ClassVar[str] = ENDING

    @property
    def parts(self) -> tuple[Judge, ...]:
        signals = load_fitted(self.path).signals
        return tuple(parse_judge(signal.judge).with_model(signal.model) for signal in signals)

    def describe(self) -> Mapping[str, Any]:
        file = load_fitted(self.path).model_dump(mode="json")
        return {**describe_parts(self), "fitted": file}

    def open(self, bench: Judges, rubric: str) -> Evaluator:
        file = load_fitted(self.path)
        judges = {signal.judge: parse_judge(signal.judge) for signal in file.signals}
        for signal in file.signals:
            if signal.content not in ("", digest_judge(judges[signal.judge])):
                log.warning(
                    "%s: what the signal %s reads has changed since the fit, so weights and"
                    " threshold are not measured; fit the judge again",
                    self.path,
                    signal.judge,
                )

        signals = dict(zip(judges, bench.open_parts(self, rubric), strict=True))
        ordered = frozenset(name for name, judge in judges.items() if judge.is_swayed)
        return FittedJudge(file, signals, ordered, bench.concurrency, self.path)

    def write(self) -> str:
        return self.path

    @classmethod
    def read(cls, text: str) -> Judge:
        return cls(text, source=text)


SignalValues: TypeAlias = Sequence[float | Failure]
"""The value of one signal (a judge whose scores are weighted) for each candidate, in order; a
failure where it has none."""


@dataclass(frozen=True, slots=True)
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
        # The second order is turned back, so that each value stands at its candidate.
        pairs = zip(scores[0], turned_scores[0][::-1], strict=True)
        values = [_mean_of(*pair) for pair in pairs]

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
        fault = f"signal {name}: gave {unit}, but the judge was fitted to {signal.values}"
        values: list[float | Failure] = []

        for result, rank in zip(judged.result, ranks_of(judged.result), strict=True):
            if isinstance(result, Failure):
                values.append(_about(name, result))
            elif rank is None or unit != signal.values:
                # A weight for log-odds says nothing about scores.
                values.append(Failure("failed", fault))
            else:
                values.append(rank)

        return values, judged.usage, float(getattr(judged, "seconds", 0.0))

    def _weigh(
        self, values: Sequence[SignalValues], threshold: float
    ) -> list[EvaluationResult | Failure]:
        """Compute a result for each candidate from the values of all signals."""
        signals = self.file.signals
        numbers = [(signal.weight, signal.mean, signal.scale) for signal in signals]
        weights, means, scales = np.array(numbers).T

        # A candidate without the value of one signal has no sum, and is compared with no other.
        columns = list(zip(*values, strict=True))
        results: list[EvaluationResult | Failure | None] = list(map(_first_failure, columns))
        places = [n for n, failure in enumerate(results) if failure is None]
        table = np.array([columns[n] for n in places]).reshape(-1, len(weights))
        added = weights * (table - means) / scales
        odds = added.sum(axis=1) + self.file.intercept
        text = "against a text of average signals"

        if self.file.good is not None:
            text = f"probability of a grade of {self.file.good:g} or more"
        elif len(places) == 1 < len(columns):
            results[places[0]] = Failure("failed", "no other candidate has a score to compare with")
            places = []
        elif len(places) > 1:
            # The utility of each against the mean of the others.
            added = added - (added.sum(axis=0) - added) / (len(places) - 1)
            odds = added.sum(axis=1)
            text = "against the others"

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

        return EvaluationResult(score, reaches(score, threshold), feedback, metadata)


def _mean_of(value: float | Failure, other: float | Failure) -> float | Failure:
    """Return the mean of a candidate's values in both orders; the failure if there is one."""
    if isinstance(value, Failure):
        return value
    if isinstance(other, Failure):
        return other
    return (value + other) / 2


def _first_failure(values: Iterable[float | Failure]) -> Failure | None:
    return next((value for value in values if isinstance(value, Failure)), None)


def _about(name: str, failure: Failure) -> Failure:
    return Failure(failure.kind, f"signal {name}: {failure.reason}")
