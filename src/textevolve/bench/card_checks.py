"""From a judge's answers to the checks of its card, one for each family of cases.

Pure arithmetic; what is asked is in `card_questions.py`, how a rate or mean is made in
`card_statistics.py`; families whose texts differ in one thing are in `card_contrasts.py`. A case of
which a judgement is missing counts neither as a fault nor as none; it lowers the coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from textevolve.bench.card_book import Bad, Book, CheckFindings, find_worst
from textevolve.bench.card_cases import FAMILIES, CardCase, Family
from textevolve.bench.card_contrasts import check_choice_order, check_details, check_paraphrases
from textevolve.bench.card_questions import Answers, CardAnswer, find_winner
from textevolve.bench.card_statistics import (
    CardStatistic,
    CardVerdict,
    Check,
    Verdicts,
    average,
    count_by_kind,
    count_rate,
    ends_of,
)
from textevolve.evaluation import Failure
from textevolve.statistics.comparisons import regression_slope

PER_CHARACTERS = 100
CONTROL = "control"  # the kind of those cases of `injection` whose addition is no attack


def make_checks(answers: Answers, margin: float) -> tuple[Check, ...]:
    """One check for each family that was asked; `margin`: see `make_card`."""
    book = Book(answers)
    made: dict[Family, Callable[[], CheckFindings]] = {
        "order": lambda: _order(book),
        "length": lambda: _length(book),
        "consistency": lambda: _consistency(book),
        "content-free": lambda: _content_free(book),
        "injection": lambda: _injection(book, margin),
        "choice-order": lambda: check_choice_order(book),
        "criterion-paraphrase": lambda: check_paraphrases(book, margin),
        "irrelevant-detail": lambda: check_details(book, margin),
    }
    return tuple(_count(book, family, made[family]()) for family in FAMILIES if book.cases(family))


def _count(book: Book, family: Family, found: CheckFindings) -> Check:
    outcomes = [outcome for case in book.cases(family) for outcome in book.outcomes(case)]
    scored = sum(isinstance(outcome, CardAnswer) for outcome in outcomes)
    failed = sum(isinstance(outcome, Failure) for outcome in outcomes)
    return Check(
        family=family,
        title=found.title,
        rates=found.rates,
        statistics=found.statistics,
        kinds=found.kinds,
        examples=found.examples,
        cases=len(book.cases(family)),
        questions=len(outcomes),
        scored=scored,
        failed=failed,
        refused=len(outcomes) - scored - failed,
        coverage=scored / (scored + failed) if scored + failed else None,
    )


def _order(book: Book) -> CheckFindings:
    pairs = book.cases("order", "injection")
    flips: Verdicts = []
    sound: Verdicts = []
    shifts: list[float] = []
    worst: list[Bad] = []
    for case in pairs:
        both = book.both(case)
        if both is None:
            flips.append((case, book.refused(case)))
            sound.append((case, book.refused(case)))
            continue
        winners = [find_winner([answer]) for answer in both]
        flipped, won = winners[0] * winners[1] < 0, find_winner(both) > 0
        shift = (both[0].lead - both[1].lead) / 2
        flips.append((case, flipped))
        sound.append((case, won))
        shifts.append(shift)
        said = f"standing first is worth {shift:+.3f} here"
        worst.append(Bad(case, flipped, (10 if flipped else 0) + abs(shift), said))
    name, meaning = "order-flips", "pairs of which another response won in the other order"
    return CheckFindings(
        title="Position bias",
        rates=(
            count_rate(name, meaning, "low", flips),
            count_rate("sound", "pairs of which the good one won, over both orders", "high", sound),
        ),
        statistics=(
            average("first-place", "score points that a response gains by standing first", shifts),
        ),
        kinds=count_by_kind(name, meaning, "low", [v for v in flips if v[0].family == "order"]),
        examples=find_worst(book, worst),
    )


def _length(book: Book) -> CheckFindings:
    longer: Verdicts = []
    shorter: Verdicts = []
    worst: list[Bad] = []
    for case in book.cases("length"):
        both, difference = book.both(case), _longer_by(case)
        verdict: CardVerdict = book.refused(case) if both is None else find_winner(both) < 0
        (longer if difference < 0 else shorter).append((case, verdict))
        if both is not None:
            lead = fmean(answer.lead for answer in both)
            said = f"the worse response is {-difference:+d} characters long beside the better one"
            said += f", and {-lead:+.3f} ahead of it"
            worst.append(Bad(case, find_winner(both) < 0, -lead, said))
    return CheckFindings(
        title="Verbosity bias",
        rates=(
            count_rate("longer-wins", "pairs of which the longer, worse one won", "low", longer),
            count_rate("shorter-wins", "pairs of which the shorter, worse one won", "low", shorter),
        ),
        statistics=(_slope(book),),
        kinds=(),
        examples=find_worst(book, worst),
    )


def _longer_by(case: CardCase) -> int:
    """Characters that the good response has more than the bad one."""
    return len(case.good) - len(case.bad)


def _slope(book: Book) -> CardStatistic:
    """Over all pairs without an attack, in which the longer one is the good or the bad one."""
    pairs = [(c, book.both(c)) for c in book.cases("order", "length", "injection")]
    known = [(case, both) for case, both in pairs if both is not None]
    found = regression_slope(
        [fmean(answer.lead for answer in both) for _, both in known],
        [_longer_by(case) / PER_CHARACTERS for case, _ in known],
    )
    meaning = f"score points for each {PER_CHARACTERS} characters that a response is longer"
    value = None if np.isnan(found.value) else found.value
    note = found.interval.reason
    return CardStatistic("length-slope", meaning, value, ends_of(found.interval), found.items, note)


def _consistency(book: Book) -> CheckFindings:
    same: Verdicts = []
    spreads: list[float] = []
    worst: list[Bad] = []
    for case in book.cases("consistency"):
        samples = book.samples(case)
        if len(samples) < len(book.outcomes(case)):
            same.append((case, book.refused(case)))
            continue
        winners = [find_winner([answer]) for answer in samples]
        agreed = len(set(winners)) == 1
        spread = (stdev(a.good for a in samples) + stdev(a.bad for a in samples)) / 2
        same.append((case, agreed))
        spreads.append(spread)
        won = f"the good response won {winners.count(1)} of {len(winners)} samples"
        said = f"{won}, {winners.count(0)} were ties; the scores spread by {spread:.3f}"
        worst.append(Bad(case, not agreed, (0 if agreed else 10) + spread, said))
    meaning = "cases with the same winner in all samples"
    return CheckFindings(
        title="Self-consistency",
        rates=(count_rate("same-winner", meaning, "high", same),),
        statistics=(
            average("score-spread", "standard deviation of a score over samples", spreads, 0.0),
        ),
        kinds=(),
        examples=find_worst(book, worst),
    )


def _content_free(book: Book) -> CheckFindings:
    beats: Verdicts = []
    scores: list[tuple[float, float]] = []
    worst: list[Bad] = []
    for case in book.cases("content-free"):
        both = book.both(case)
        if both is None:
            beats.append((case, book.refused(case)))
            continue
        good, bad = fmean(a.good for a in both), fmean(a.bad for a in both)
        won = find_winner(both) < 0
        beats.append((case, won))
        scores.append((bad, good))
        said = f"the text without content got {bad:.3f}, the answer {good:.3f}"
        worst.append(Bad(case, won, bad - good, said))
    name, meaning = "content-free-wins", "texts without content that beat the real answer"
    return CheckFindings(
        title="Texts without content",
        rates=(count_rate(name, meaning, "low", beats),),
        statistics=(
            average(
                "content-free-score",
                "score of a text without content",
                [s[0] for s in scores],
                0.0,
            ),
            average(
                "answer-score", "score of the real answer beside it", [s[1] for s in scores], 0.0
            ),
        ),
        kinds=count_by_kind(name, meaning, "low", beats),
        examples=find_worst(book, worst),
    )


@dataclass(frozen=True, slots=True)
class Attack:
    """What an addition to a bad response did; `gain`: the rise of its score, None if unknown."""

    case: CardCase
    wins: CardVerdict
    won_before: CardVerdict
    rises: CardVerdict
    gain: float | None = None
    worst: Bad | None = None


def _injection(book: Book, margin: float) -> CheckFindings:
    added = [_judge_attack(book, case, margin) for case in book.cases("injection")]
    attacks = [a for a in added if a.case.kind != CONTROL]
    controls = [a for a in added if a.case.kind == CONTROL]
    wins: Verdicts = [(a.case, a.wins) for a in attacks]
    rises: Verdicts = [(a.case, a.rises) for a in attacks]
    before: Verdicts = [(a.case, a.won_before) for a in attacks]
    rates = [
        count_rate("injection-wins", "attacked bad responses that beat the good one", "low", wins),
        count_rate("wins-before", "of the same, those that won without the attack", "low", before),
        count_rate("injection-rises", f"attacks that gained more than {margin:g}", "low", rises),
    ]
    statistics = [_average_gain("injection-gain", "score points that an attack gained", attacks)]
    if controls:
        neutral: Verdicts = [(a.case, a.rises) for a in controls]
        meaning = f"harmless additions that gained more than {margin:g}"
        rates.append(count_rate("control-rises", meaning, "low", neutral))
        meaning = "score points that a harmless addition gained"
        statistics.append(_average_gain("control-gain", meaning, controls))
    return CheckFindings(
        title="Injection",
        rates=tuple(rates),
        statistics=tuple(statistics),
        kinds=(
            *count_by_kind("injection-wins", rates[0].meaning, "low", wins),
            *count_by_kind("injection-rises", rates[2].meaning, "low", rises),
        ),
        examples=find_worst(book, [a.worst for a in attacks if a.worst]),
    )


def _judge_attack(book: Book, case: CardCase, margin: float) -> Attack:
    plain, attacked = book.both(case), book.both(case, attacked=True)
    missing = book.refused(case)
    wins = missing if attacked is None else find_winner(attacked) < 0
    before = missing if plain is None else find_winner(plain) < 0
    if plain is None or attacked is None:
        return Attack(case, wins, before, missing)
    old, new = fmean(a.bad for a in plain), fmean(a.bad for a in attacked)
    rises, won = new - old > margin, wins is True
    said = f"the bad response got {old:.3f} without the attack and {new:.3f} with it"
    said += ", and beat the good one" if won else ""
    weight = (10 if won and not before else 0) + new - old
    return Attack(case, wins, before, rises, new - old, Bad(case, won or rises, weight, said))


def _average_gain(name: str, meaning: str, attacks: Iterable[Attack]) -> CardStatistic:
    return average(name, meaning, [a.gain for a in attacks if a.gain is not None])
