"""What the robustness card asks a judge, and what it answered.

Each pair is asked in both orders; an injection with and without its attack, a detail that decides
and one that does not matter each beside the good response. In one order are asked a case of the
family `consistency` under several seeds, and a criterion in its several wordings. The options of a
choice are turned, so that the right one stands in each place once. What follows from the answers
is in `card_checks.py`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np

from textevolve.bench.card_cases import CardCase, Family
from textevolve.bench.credit import TIED, winner_of
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    Usage,
    check_results,
    failure_of,
)
from textevolve.events import Listener, StepFinished
from textevolve.llm.usage_meter import DistinctCalls, NotedCall, note_calls
from textevolve.statistics.intervals import TIE, Interval, mean_interval, wilson_interval


@dataclass(frozen=True, slots=True)
class CardQuestion:
    """One judgement to be asked for. `seed`: None leaves the judge its own. `wording`: 0 for the
    input as it is, n for its nth paraphrase. `irrelevant`: beside the good response stands the one
    with the detail changed that does not matter. `place`: where the right one of all options
    stands, None where only two texts are asked about."""

    case: CardCase
    attacked: bool = False
    good_first: bool = True
    seed: int | None = None
    wording: int = 0
    irrelevant: bool = False
    place: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """What is asked about, the good response first."""
        if self.place is not None:
            return self.case.options
        bad = self.case.attacked if self.attacked else self.case.bad
        return (self.case.good, self.case.same if self.irrelevant else bad)

    @property
    def turn(self) -> int:
        """By how many places the texts are turned to stand as they are shown."""
        return self.place if self.place is not None else int(not self.good_first)

    def as_case(self) -> Case:
        texts, turn = self.texts, self.turn
        candidates = texts[len(texts) - turn :] + texts[: len(texts) - turn]
        asked = self.case.paraphrases[self.wording - 1] if self.wording else self.case.input
        parts = [self.case.id, "good-first" if self.good_first else "bad-first"]
        parts += ["attacked"] if self.attacked else []
        parts += [] if self.seed is None else [f"seed-{self.seed}"]
        parts += [f"wording-{self.wording}"] if self.wording else []
        parts += ["irrelevant"] if self.irrelevant else []
        parts += [] if self.place is None else [f"place-{self.place}"]
        parameters = {} if self.seed is None else {"seed": self.seed}
        return Case(asked, candidates, "/".join(parts), parameters)


@dataclass(frozen=True, slots=True)
class CardAnswer:
    """The scores in [0, 1] of the good and the bad response; of more than two, of the best of the
    others. `odds`: the difference of their log-odds, where the judge has them; it tells apart
    scores that are both near 0 or 1. `chosen`: which of all texts won, the good one being 0; None
    where none did."""

    good: float
    bad: float
    odds: float | None = None
    chosen: int | None = None

    @property
    def lead(self) -> float:
        """By how much the good response is ahead, in [-1, 1]."""
        return self.good - self.bad


@dataclass(frozen=True, slots=True)
class CardRefusal:
    """The judge does not take such a case at all; no fault, and no failure either."""

    reason: str


CardOutcome: TypeAlias = CardAnswer | CardRefusal | Failure
Answers: TypeAlias = Mapping[CardQuestion, CardOutcome]


def find_winner(answers: Sequence[CardAnswer]) -> int:
    """1: the good response, -1: the bad one, 0: a tie, by the mean over the answers."""
    margin = sum(a.lead for a in answers) / len(answers)
    if abs(margin) <= TIE:
        odds = [a.odds for a in answers if a.odds is not None]
        margin = sum(odds) / len(odds) if len(odds) == len(answers) else 0.0
    return 0 if abs(margin) <= TIE else int(math.copysign(1, margin))


def questions_of(
    case: CardCase, seeds: int, *, good_first: bool = True
) -> tuple[CardQuestion, ...]:
    """All that is asked about a case; `good_first` is the order of those asked in one order."""
    if case.family == "consistency":
        return tuple(CardQuestion(case, False, good_first, seed) for seed in range(seeds))
    if case.family == "criterion-paraphrase":
        wordings = range(1 + len(case.paraphrases))
        return tuple(CardQuestion(case, good_first=good_first, wording=n) for n in wordings)
    if case.family == "choice-order":
        places = range(len(case.options))
        return tuple(CardQuestion(case, good_first=place == 0, place=place) for place in places)
    if case.family == "irrelevant-detail":
        return tuple(
            CardQuestion(case, good_first=first, irrelevant=irrelevant)
            for irrelevant in (False, True)
            for first in (True, False)
        )
    variants = (False, True) if case.family == "injection" else (False,)
    return tuple(
        CardQuestion(case, attacked, first) for attacked in variants for first in (True, False)
    )


def plan_questions(cases: Iterable[CardCase], seeds: int) -> tuple[CardQuestion, ...]:
    """The questions in the order of the cases; places are balanced where there is one order."""
    return tuple(
        question
        for number, case in enumerate(cases)
        for question in questions_of(case, seeds, good_first=number % 2 == 0)
    )


@dataclass(frozen=True, slots=True)
class CardJudgement:
    """What a judge answered to a question, and what that cost; `position` is its place."""

    question: CardQuestion
    outcome: CardOutcome
    usage: Usage = Usage()
    position: int = 0


async def ask_all(
    judge: Evaluator, questions: Iterable[CardQuestion], concurrency: int, listener: Listener
) -> AsyncGenerator[CardJudgement]:
    """A judgement for each question, in their order, with what its new requests cost: every
    distinct request counts once, whether or not a journal answered it.

    Raises:
        FatalModelError: no call can succeed.
    """
    counted = DistinctCalls()

    async def ask(placed: tuple[int, CardQuestion]) -> tuple[CardJudgement, list[NotedCall]]:
        position, question = placed
        case = question.as_case()
        with note_calls() as calls:
            outcome, usage = await _ask(judge, case, question)
        listener(StepFinished(case.id, "question", outcome))
        return CardJudgement(question, outcome, usage, position), calls

    async with aclosing(stream(enumerate(questions), ask, concurrency)) as judgements:
        async for judgement, calls in judgements:
            yield replace(judgement, usage=counted.count(calls)[0]) if calls else judgement


async def _ask(judge: Evaluator, case: Case, question: CardQuestion) -> tuple[CardOutcome, Usage]:
    try:
        evaluation = await judge(case)
    except InputError as error:
        return CardRefusal(str(error)), Usage()
    except FatalModelError:
        raise
    except (ModelError, BudgetError) as error:
        return failure_of(error), Usage()
    return _read(evaluation.result, question), evaluation.usage


def _read(results: Sequence[EvaluationResult | Failure], question: CardQuestion) -> CardOutcome:
    results = check_results(results, len(question.texts))
    failure = next((r for r in results if isinstance(r, Failure)), None)
    if failure is not None:
        return failure
    scored = [r for r in results if isinstance(r, EvaluationResult)]
    good, *others = scored[question.turn :] + scored[: question.turn]
    odds = [r.metadata.get("log_odds") for r in (good, *others)]
    known = [float(o) for o in odds if isinstance(o, int | float) and math.isfinite(o)]
    whole = len(known) == len(scored)
    winner = winner_of(known if whole else [r.score for r in (good, *others)])
    return CardAnswer(
        good.score,
        max(result.score for result in others),
        known[0] - max(known[1:]) if whole else None,
        None if winner == TIED else winner,
    )


WantedEnd: TypeAlias = Literal["low", "high"]
CardVerdict: TypeAlias = bool | CardRefusal | None
"""Whether a case counts; None where a judgement is missing."""
Verdicts: TypeAlias = list[tuple[CardCase, CardVerdict]]


@dataclass(frozen=True, slots=True)
class Rate:
    """The share of cases that `meaning` names: `hits` of `count`, with its 95 % interval (Wilson).

    Of `asked` cases, `refused` are such as the judge does not take; `coverage` is the share of the
    others that could be counted. `wanted`: which end a good judge is at.
    """

    name: str
    meaning: str
    wanted: WantedEnd
    hits: int
    count: int
    asked: int
    refused: int
    rate: float | None
    interval: tuple[float, float] | None
    coverage: float | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class CardStatistic:
    """A mean or slope over `count` cases with its 95 % interval; `note` says why one is missing."""

    name: str
    meaning: str
    value: float | None
    interval: tuple[float, float] | None
    count: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShownCase:
    """One judgement of an example: how it was asked, as `CardQuestion` has it, and the two scores
    in [0, 1]."""

    attacked: bool
    good_first: bool
    seed: int | None
    good: float
    bad: float
    wording: int = 0
    irrelevant: bool = False
    place: int | None = None


@dataclass(frozen=True, slots=True)
class CardExample:
    """One of the cases on which the judge did worst. `fault`: it did what it should not, else it
    only came nearest to it. `bad` is as it was judged, with any attack. `more`: further texts of
    the case, each with what it is."""

    id: str
    kind: str
    input: str
    good: str
    bad: str
    fault: bool
    said: str
    answers: tuple[ShownCase, ...]
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """What the card says of one family. `kinds` splits its main rate. The counts of questions are
    of the family's own cases; `coverage` leaves refused ones out, None where all were refused."""

    family: Family
    title: str
    rates: tuple[Rate, ...]
    statistics: tuple[CardStatistic, ...]
    kinds: tuple[Rate, ...]
    examples: tuple[CardExample, ...]
    cases: int
    questions: int
    scored: int
    failed: int
    refused: int
    coverage: float | None


def count_rate(
    name: str,
    meaning: str,
    wanted: WantedEnd,
    verdicts: Verdicts,
    kind: str = "",
) -> Rate:
    counted = [verdict for _, verdict in verdicts if isinstance(verdict, bool)]
    refused = sum(isinstance(verdict, CardRefusal) for _, verdict in verdicts)
    hits, count, taken = sum(counted), len(counted), len(verdicts) - refused
    return Rate(
        name=name,
        meaning=meaning,
        wanted=wanted,
        hits=hits,
        count=count,
        asked=len(verdicts),
        refused=refused,
        rate=hits / count if count else None,
        interval=ends_of(wilson_interval(hits, count)),
        coverage=count / taken if taken else None,
        kind=kind,
    )


def count_by_kind(
    name: str,
    meaning: str,
    wanted: WantedEnd,
    verdicts: Verdicts,
) -> tuple[Rate, ...]:
    kinds = dict.fromkeys(case.kind for case, _ in verdicts)
    return tuple(
        count_rate(name, meaning, wanted, [v for v in verdicts if v[0].kind == kind], kind)
        for kind in kinds
        if kind
    )


def average(name: str, meaning: str, values: Sequence[float], least: float = -1.0) -> CardStatistic:
    """The mean of figures from `least` to 1."""
    found = mean_interval(values, bounds=(least, 1.0))
    value = fmean(values) if values else None
    return CardStatistic(name, meaning, value, ends_of(found), len(values), found.reason)


def ends_of(interval: Interval) -> tuple[float, float] | None:
    return None if np.isnan(interval.low) else (interval.low, interval.high)
