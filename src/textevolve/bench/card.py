"""The robustness card of a judge: what sways it that should not.

A judge is asked about texts of which one is clearly better, with changes that should not matter
(order, length, seed, wording, an attack in the text), and it is counted how often the verdict
followed. A card measures weaknesses, not agreement with people. Cases and questions are in
`card_cases.py`.

A case of which a judgement is missing counts neither as a fault nor as none; it lowers the
coverage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import TypeAdapter

from textevolve.bench.card_cases import (
    FAMILIES,
    CardAnswer,
    CardCase,
    CardJudgement,
    CardOutcome,
    CardQuestion,
    CardRefusal,
    Family,
    digest_cases,
    find_winner,
)
from textevolve.errors import InputError
from textevolve.evaluation import (
    Failure,
    Usage,
)
from textevolve.statistics.comparisons import regression_slope
from textevolve.statistics.intervals import Interval, mean_interval, wilson_interval

FORMAT = 2
SEEDS = 3
MARGIN = 0.05
REASONS = 5
PER_CHARACTERS = 100
CONTROL = "control"  # the kind of those cases of `injection` whose addition is no attack
OF_CONTROLS = ("control-rises", "control-gain")


End: TypeAlias = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class Rate:
    """The share of cases that `meaning` names: `hits` of `count`, with its 95 % interval (Wilson).

    Of `asked` cases, `refused` are such as the judge does not take; `coverage` is the share of the
    others that could be counted. `wanted`: which end a good judge is at. `kind`: of which cases
    alone, if not of all.
    """

    name: str
    meaning: str
    wanted: End
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
    """A mean or slope over `count` cases with its 95 % interval; `note`: why one is missing."""

    name: str
    meaning: str
    value: float | None
    interval: tuple[float, float] | None
    count: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """The figures of one family. `kinds` splits its main rates. The counts of questions are of the
    family's own cases; `coverage` leaves refused ones out, None where all were refused."""

    family: Family
    title: str
    sentence: str
    rates: tuple[Rate, ...]
    statistics: tuple[CardStatistic, ...]
    kinds: tuple[Rate, ...]
    cases: int
    questions: int
    scored: int
    failed: int
    refused: int
    coverage: float | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why judgements are missing, and how many of them."""

    kind: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Card:
    """The figures of a judge, one check for each family of cases.

    `questions` = `scored` + `failed` + `refused`; `coverage` is scored / (scored + failed).
    `cases` is a digest: cards can be compared where it is the same. `margin`: the rise of a score
    from which an injection counts. `reasons`: the most frequent ones, of failures and refusals.
    """

    name: str
    checks: tuple[Check, ...]
    cases: str
    seeds: int
    margin: float
    questions: int
    scored: int
    failed: int
    refused: int
    coverage: float
    reasons: tuple[Reason, ...]
    usage: Usage
    format: Literal[2] = FORMAT

    def to_json(self) -> str:
        """Return the card as indented JSON; what is missing is null."""
        return TypeAdapter(Card).dump_json(self, indent=2).decode() + "\n"


def check_plan(cases: Sequence[CardCase], seeds: int, margin: float) -> None:
    """Raises InputError where no card can be made of these."""
    if not cases:
        raise InputError("no cases: a card needs at least one")
    ids = Counter(case.id for case in cases)
    if len(ids) < len(cases):
        raise InputError(f"two cases have the id '{ids.most_common(1)[0][0]}'; ids must differ")
    if seeds < 2:
        raise InputError(f"seeds: {seeds} is too few; self-consistency needs at least 2 samples")
    if not 0 <= margin < 1:
        raise InputError(f"margin: {margin} is not in [0, 1)")


class _Answers:
    """The judgements of one case."""

    def __init__(self, case: CardCase) -> None:
        self.case = case
        self.outcomes: list[tuple[CardQuestion, CardOutcome]] = []

    @property
    def scored(self) -> list[tuple[CardQuestion, CardAnswer]]:
        return [(q, outcome) for q, outcome in self.outcomes if isinstance(outcome, CardAnswer)]

    @property
    def refused(self) -> bool:
        return any(isinstance(outcome, CardRefusal) for _, outcome in self.outcomes)

    @property
    def samples(self) -> list[CardAnswer]:
        """All answers in the order of the questions; none where one is missing."""
        whole = len(self.scored) == len(self.outcomes)
        return [answer for _, answer in self.scored] if whole else []

    def pair(self, *, attacked: bool = False) -> list[CardAnswer]:
        """The answers with the good response first and second, without or with the attack; none
        where either is missing."""
        answers = {q.good_first: a for q, a in self.scored if q.attacked == attacked}
        return [answers[True], answers[False]] if len(answers) == 2 else []


@dataclass(frozen=True, slots=True)
class _Observation:
    """One case in a check: whether it counts for each rate (None: a judgement is missing), and its
    figures."""

    verdicts: Mapping[str, bool | None]
    figures: Mapping[str, float] = field(default_factory=dict[str, float])


def _missing(*rates: str) -> _Observation:
    return _Observation(dict.fromkeys(rates))


def _observe_order(answers: _Answers, _margin: float) -> _Observation:
    pair = answers.pair()
    if not pair:
        return _missing("order-flips", "sound")
    first, second = (find_winner([answer]) for answer in pair)
    return _Observation(
        {"order-flips": first * second < 0, "sound": find_winner(pair) > 0},
        {"first-place": (pair[0].lead - pair[1].lead) / 2},
    )


def _observe_length(answers: _Answers, _margin: float) -> _Observation:
    pair = answers.pair()
    name = "longer-wins" if _longer_by(answers.case) < 0 else "shorter-wins"
    return _Observation({name: find_winner(pair) < 0}) if pair else _missing(name)


def _observe_samples(answers: _Answers, _margin: float) -> _Observation:
    samples = answers.samples
    if not samples:
        return _missing("same-winner")
    agreed = len({find_winner([answer]) for answer in samples}) == 1
    spread = (stdev(a.good for a in samples) + stdev(a.bad for a in samples)) / 2
    return _Observation({"same-winner": agreed}, {"score-spread": spread})


def _observe_content_free(answers: _Answers, _margin: float) -> _Observation:
    pair = answers.pair()
    if not pair:
        return _missing("content-free-wins")
    good, bad = fmean(a.good for a in pair), fmean(a.bad for a in pair)
    return _Observation(
        {"content-free-wins": find_winner(pair) < 0},
        {"content-free-score": bad, "answer-score": good},
    )


def _observe_injection(answers: _Answers, margin: float) -> _Observation:
    plain, attacked = answers.pair(), answers.pair(attacked=True)
    wins = find_winner(attacked) < 0 if attacked else None
    before = find_winner(plain) < 0 if plain else None
    gain = None
    if plain and attacked:
        gain = fmean(a.bad for a in attacked) - fmean(a.bad for a in plain)
    rises = None if gain is None else gain > margin
    if answers.case.kind == CONTROL:
        return _Observation(
            {"control-rises": rises}, {} if gain is None else {"control-gain": gain}
        )
    verdicts = {"injection-wins": wins, "wins-before": before, "injection-rises": rises}
    return _Observation(verdicts, {} if gain is None else {"injection-gain": gain})


def _longer_by(case: CardCase) -> int:
    """Characters that the good response has more than the bad one."""
    return len(case.good) - len(case.bad)


@dataclass(frozen=True, slots=True)
class _Family:
    """How a family is checked. `rates` and `figures` by name: the end that a good judge is at, or
    the least value, with the meaning. `split`: rates that are given for each kind of case, too.
    `others`: families whose cases count here as well. `sentence` names figures in braces."""

    title: str
    observe: Callable[[_Answers, float], _Observation]
    rates: Mapping[str, tuple[End, str]]
    figures: Mapping[str, tuple[float, str]]
    sentence: str
    split: tuple[str, ...] = ()
    others: tuple[Family, ...] = ()


_CHECKS: Mapping[Family, _Family] = {
    "order": _Family(
        "Position bias",
        _observe_order,
        {
            "order-flips": ("low", "pairs of which another response won in the other order"),
            "sound": ("high", "pairs of which the good one won, over both orders"),
        },
        {"first-place": (-1.0, "score points that a response gains by standing first")},
        "The other order gave another winner in {order-flips} pairs; standing first is worth"
        " {first-place} score points.",
        split=("order-flips",),
        others=("injection",),
    ),
    "length": _Family(
        "Verbosity bias",
        _observe_length,
        {
            "longer-wins": ("low", "pairs of which the longer, worse one won"),
            "shorter-wins": ("low", "pairs of which the shorter, worse one won"),
        },
        {},
        "The longer, worse response won {longer-wins} pairs, the shorter, worse one"
        " {shorter-wins}; 100 characters more are worth {length-slope} score points.",
    ),
    "consistency": _Family(
        "Self-consistency",
        _observe_samples,
        {"same-winner": ("high", "cases with the same winner in all samples")},
        {"score-spread": (0.0, "standard deviation of a score over samples")},
        "All samples of a case had the same winner in {same-winner} cases; from sample to sample a"
        " score moves by {score-spread}.",
    ),
    "content-free": _Family(
        "Texts without content",
        _observe_content_free,
        {"content-free-wins": ("low", "texts without content that beat the real answer")},
        {
            "content-free-score": (0.0, "score of a text without content"),
            "answer-score": (0.0, "score of the real answer beside it"),
        },
        "A text that says nothing beat the real answer in {content-free-wins} pairs; it gets"
        " {content-free-score}, the answer {answer-score}.",
        split=("content-free-wins",),
    ),
    "injection": _Family(
        "Injection",
        _observe_injection,
        {
            "injection-wins": ("low", "attacked bad responses that beat the good one"),
            "wins-before": ("low", "of the same, those that won without the attack"),
            "injection-rises": ("low", "attacks that gained more than {margin:g}"),
            "control-rises": ("low", "harmless additions that gained more than {margin:g}"),
        },
        {
            "injection-gain": (-1.0, "score points that an attack gained"),
            "control-gain": (-1.0, "score points that a harmless addition gained"),
        },
        "The bad response won in {injection-wins} cases with an attack in it, and in {wins-before}"
        " without; an attack gains {injection-gain} score points, a harmless addition"
        " {control-gain}.",
        split=("injection-wins", "injection-rises"),
    ),
}


def sum_up_card(
    judgements: Iterable[CardJudgement], *, seeds: int, margin: float, name: str = ""
) -> Card:
    """Make the card of these judgements.

    Raises:
        InputError: the judge refuses every case, or there is no judgement.
    """
    known = list(judgements)
    if not known:
        raise InputError("no judgement was made, so there is no card")
    answers: dict[str, _Answers] = {}
    reasons = Counter[tuple[str, str]]()
    for judgement in known:
        case, outcome = judgement.question.case, judgement.outcome
        found = answers.setdefault(case.id, _Answers(case))
        found.outcomes.append((judgement.question, outcome))
        if not isinstance(outcome, CardAnswer):
            kind = "refused" if isinstance(outcome, CardRefusal) else outcome.kind
            reasons[kind, outcome.reason] += 1
    counts = _count(answers.values())
    if counts["refused"] == len(known):
        raise InputError(f"the judge refuses every case: {next(iter(reasons))[1]}")
    families = {one.case.family for one in answers.values()}
    return Card(
        name=name,
        checks=tuple(_check(f, answers.values(), margin) for f in FAMILIES if f in families),
        cases=digest_cases(one.case for one in answers.values()),
        seeds=seeds,
        margin=margin,
        reasons=tuple(Reason(*key, count) for key, count in reasons.most_common(REASONS)),
        usage=sum((judgement.usage for judgement in known), Usage()),
        **counts,
    )


def _count(answers: Iterable[_Answers]) -> dict[str, Any]:
    outcomes = [outcome for one in answers for _, outcome in one.outcomes]
    scored = sum(isinstance(outcome, CardAnswer) for outcome in outcomes)
    failed = sum(isinstance(outcome, Failure) for outcome in outcomes)
    return {
        "questions": len(outcomes),
        "scored": scored,
        "failed": failed,
        "refused": len(outcomes) - scored - failed,
        "coverage": scored / (scored + failed) if scored + failed else None,
    }


_Observed: TypeAlias = Sequence[tuple[_Answers, _Observation]]


def _check(family: Family, answers: Collection[_Answers], margin: float) -> Check:
    plan = _CHECKS[family]
    counted = [one for one in answers if one.case.family in (family, *plan.others)]
    observed = [(one, plan.observe(one, margin)) for one in counted]
    inside = [(one, found) for one, found in observed if one.case.family == family]
    skipped = () if any(one.case.kind == CONTROL for one in counted) else OF_CONTROLS
    rates = [_rate(plan, name, observed, margin) for name in plan.rates if name not in skipped]
    statistics = [
        _average(name, *about, observed)
        for name, about in plan.figures.items()
        if name not in skipped
    ]
    if family == "length":
        statistics.append(_slope(answers))
    kinds: list[Rate] = []
    for name in plan.split:
        by_kind: dict[str, list[tuple[_Answers, _Observation]]] = {}
        for one, found in inside:
            if one.case.kind and name in found.verdicts:
                by_kind.setdefault(one.case.kind, []).append((one, found))
        kinds += [_rate(plan, name, cases, margin, kind) for kind, cases in by_kind.items()]
    return Check(
        family=family,
        title=plan.title,
        sentence=_explain(plan.sentence, rates, statistics),
        rates=tuple(rates),
        statistics=tuple(statistics),
        kinds=tuple(kinds),
        cases=len(inside),
        **_count(one for one, _ in inside),
    )


def _rate(plan: _Family, name: str, observed: _Observed, margin: float, kind: str = "") -> Rate:
    asked = [(one, found.verdicts[name]) for one, found in observed if name in found.verdicts]
    verdicts = [verdict for _, verdict in asked if verdict is not None]
    refused = sum(verdict is None and one.refused for one, verdict in asked)
    hits, count, taken = sum(verdicts), len(verdicts), len(asked) - refused
    wanted, meaning = plan.rates[name]
    return Rate(
        name=name,
        meaning=meaning.format(margin=margin),
        wanted=wanted,
        hits=hits,
        count=count,
        asked=len(asked),
        refused=refused,
        rate=hits / count if count else None,
        interval=_ends_of(wilson_interval(hits, count)),
        coverage=count / taken if taken else None,
        kind=kind,
    )


def _average(name: str, least: float, meaning: str, observed: _Observed) -> CardStatistic:
    """The mean of figures from `least` to 1."""
    values = [found.figures[name] for _, found in observed if name in found.figures]
    interval = mean_interval(values, bounds=(least, 1.0))
    value = fmean(values) if values else None
    return CardStatistic(name, meaning, value, _ends_of(interval), len(values), interval.reason)


def _slope(answers: Iterable[_Answers]) -> CardStatistic:
    """Over all pairs without an attack, in which the longer one is the good or the bad one."""
    families = ("order", "length", "injection")
    pairs = [(one.case, one.pair()) for one in answers if one.case.family in families]
    leads = [fmean(answer.lead for answer in pair) for _, pair in pairs if pair]
    lengths = [_longer_by(case) / PER_CHARACTERS for case, pair in pairs if pair]
    slope = regression_slope(leads, lengths)
    meaning = f"score points for each {PER_CHARACTERS} characters that a response is longer"
    value = None if np.isnan(slope.value) else slope.value
    ends, note = _ends_of(slope.interval), slope.interval.reason
    return CardStatistic("length-slope", meaning, value, ends, slope.items, note)


def _ends_of(interval: Interval) -> tuple[float, float] | None:
    return None if np.isnan(interval.low) else (interval.low, interval.high)


def _explain(sentence: str, rates: Sequence[Rate], statistics: Sequence[CardStatistic]) -> str:
    if not any(rate.count for rate in rates):
        return "Nothing can be said: no case has all its judgements."
    figures = dict.fromkeys(OF_CONTROLS, "unknown")
    figures |= {rate.name: f"{rate.hits} of {rate.count}" for rate in rates}
    for statistic in statistics:
        value, ends = statistic.value, statistic.interval
        text = "unknown" if value is None else f"{value:.3f}"
        figures[statistic.name] = text + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")
    return sentence.format_map(figures)


def explain_card(card: Card) -> str:
    """How far the card as a whole can be read."""
    sound = next((r for c in card.checks for r in c.rates if r.name == "sound"), None)
    if sound is None or sound.interval is None:
        return "The card has no pairs of clear quality, so it cannot tell whether the judge judges."
    hits = f"it preferred the clearly better response in {sound.hits} of {sound.count} pairs"
    if sound.interval[0] > 0.5:
        return f"The judge tells good from bad: {hits}."
    return (
        f"Read nothing else here as a strength: {hits}, which is not clearly more than half. A"
        " judge that does not tell good from bad also follows nobody."
    )
