"""From a judge's answers to the checks of its card, one for each family of cases.

The book of answers comes first, then checks on cases whose texts differ in one thing (the order of
options, the wording, a detail: what should not matter must not move the verdict, and what decides
must), then the others. Pure arithmetic; what is asked is in `card_questions.py`. A case of which a
judgement is missing counts neither as a fault nor as none; it lowers the coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from textevolve.bench.card_cases import FAMILIES, CardCase, Family
from textevolve.bench.card_questions import (
    Answers,
    CardAnswer,
    CardExample,
    CardOutcome,
    CardQuestion,
    CardRefusal,
    CardStatistic,
    CardVerdict,
    Check,
    Rate,
    ShownCase,
    Verdicts,
    average,
    count_by_kind,
    count_rate,
    ends_of,
    find_winner,
)
from textevolve.evaluation import Failure
from textevolve.statistics.comparisons import regression_slope


def check_choice_order(book: Book) -> CheckFindings:
    """Whether the same option wins wherever the right one stands."""
    flips: Verdicts = []
    sound: Verdicts = []
    spreads: list[float] = []
    worst: list[Bad] = []
    for case in book.cases("choice-order"):
        answers = book.samples(case)
        if len(answers) < len(book.outcomes(case)):
            flips.append((case, book.refused(case)))
            sound.append((case, book.refused(case)))
            continue
        chosen = {answer.chosen for answer in answers} - {None}
        flipped, spread = len(chosen) > 1, _range([answer.good for answer in answers])
        flips.append((case, flipped))
        sound.append((case, find_winner(answers) > 0))
        spreads.append(spread)
        said = f"{len(chosen)} of {len(case.options)} options won, each in some order; the score of"
        said += f" the right one spreads by {spread:.3f}"
        worst.append(Bad(case, flipped, (10 if flipped else 0) + spread, said))
    meaning = "choices of which another option won in another order"
    right = "choices of which the right option won, over all orders"
    spread = "from the lowest to the highest score of the right option over the orders"
    return CheckFindings(
        title="Order of options",
        rates=(
            count_rate("choice-flips", meaning, "low", flips),
            count_rate("choice-sound", right, "high", sound),
        ),
        statistics=(average("choice-spread", spread, spreads, 0.0),),
        kinds=(),
        examples=find_worst(book, worst),
    )


def check_paraphrases(book: Book, margin: float) -> CheckFindings:
    """Whether the same is said where the same is asked in other words."""
    flips: Verdicts = []
    moves: Verdicts = []
    spreads: list[float] = []
    worst: list[Bad] = []
    for case in book.cases("criterion-paraphrase"):
        answers = book.samples(case)
        if len(answers) < len(book.outcomes(case)):
            flips.append((case, book.refused(case)))
            moves.append((case, book.refused(case)))
            continue
        winners = {find_winner([answer]) for answer in answers} - {0}
        flipped = len(winners) > 1
        spread = max(_range([a.good for a in answers]), _range([a.bad for a in answers]))
        flips.append((case, flipped))
        moves.append((case, spread > margin))
        spreads.append(spread)
        said = f"over {len(answers)} wordings a score spreads by {spread:.3f}"
        said += ", and another response wins" if flipped else ""
        fault = flipped or spread > margin
        worst.append(Bad(case, fault, (10 if flipped else 0) + spread, said))
    meaning = "cases of which another response won under another wording"
    moved = f"cases of which a score moved by more than {margin:g} with the wording"
    spread = "from the lowest to the highest score of a response over the wordings"
    return CheckFindings(
        title="Wording of the criterion",
        rates=(
            count_rate("paraphrase-flips", meaning, "low", flips),
            count_rate("paraphrase-moves", moved, "low", moves),
        ),
        statistics=(average("paraphrase-spread", spread, spreads, 0.0),),
        kinds=(),
        examples=find_worst(book, worst),
    )


def check_details(book: Book, margin: float) -> CheckFindings:
    """Whether a detail that decides moves the score, and one that does not matter does not."""
    decisive: Verdicts = []
    irrelevant: Verdicts = []
    apart: Verdicts = []
    fell_by: list[float] = []
    moved_by: list[float] = []
    worst: list[Bad] = []
    for case in book.cases("irrelevant-detail"):
        changed, same = book.both(case), book.both(case, irrelevant=True)
        if changed is None or same is None:
            for verdicts in (decisive, irrelevant, apart):
                verdicts.append((case, book.refused(case)))
            continue
        fell = fmean(answer.lead for answer in changed)
        moved = abs(fmean(answer.lead for answer in same))
        decisive.append((case, fell > margin))
        irrelevant.append((case, moved > margin))
        apart.append((case, fell > moved))
        fell_by.append(fell)
        moved_by.append(moved)
        said = f"the detail that decides cost {fell:.3f}, the other one moved the score by"
        said += f" {moved:.3f}"
        worst.append(Bad(case, moved > margin or fell <= margin, moved - fell, said))
    decides = f"details that decide which cost the response more than {margin:g}"
    idle = f"details that do not matter which moved the score by more than {margin:g}"
    said = "cases of which the detail that decides moved the score more than the other"
    return CheckFindings(
        title="Details",
        rates=(
            count_rate("decisive-moves", decides, "high", decisive),
            count_rate("irrelevant-moves", idle, "low", irrelevant),
            count_rate("told-apart", said, "high", apart),
        ),
        statistics=(
            average("decisive-gap", "score points that a detail that decides cost", fell_by),
            average("irrelevant-gap", "score points that one that does not matter moved", moved_by),
        ),
        kinds=(),
        examples=find_worst(book, worst),
    )


def _range(scores: Sequence[float]) -> float:
    return max(scores) - min(scores)


EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class CheckFindings:
    """What a family's check is made of, before its questions are counted."""

    title: str
    rates: tuple[Rate, ...]
    statistics: tuple[CardStatistic, ...]
    kinds: tuple[Rate, ...]
    examples: tuple[CardExample, ...]


@dataclass(frozen=True, slots=True)
class Bad:
    """How bad a case is: `weight` puts the worst first."""

    case: CardCase
    fault: bool
    weight: float
    said: str


class Book:
    """The answers by case."""

    def __init__(self, answers: Answers) -> None:
        self._of: dict[str, list[tuple[CardQuestion, CardOutcome]]] = {}
        self._cases: dict[str, CardCase] = {}
        for question, outcome in answers.items():
            self._cases[question.case.id] = question.case
            self._of.setdefault(question.case.id, []).append((question, outcome))

    def cases(self, *families: Family) -> list[CardCase]:
        return [case for case in self._cases.values() if case.family in families]

    def outcomes(self, case: CardCase) -> list[CardOutcome]:
        return [outcome for _, outcome in self._of[case.id]]

    def both(
        self, case: CardCase, *, attacked: bool = False, irrelevant: bool = False
    ) -> tuple[CardAnswer, CardAnswer] | None:
        """The answers with the good response first and second; None where either is missing."""
        found = {
            q.good_first: outcome
            for q, outcome in self._of[case.id]
            if (q.attacked, q.irrelevant) == (attacked, irrelevant)
            and isinstance(outcome, CardAnswer)
        }
        return (found[True], found[False]) if len(found) == 2 else None

    def samples(self, case: CardCase) -> list[CardAnswer]:
        """The answers in the order of the questions."""
        return [outcome for outcome in self.outcomes(case) if isinstance(outcome, CardAnswer)]

    def refused(self, case: CardCase) -> CardRefusal | None:
        return next((o for o in self.outcomes(case) if isinstance(o, CardRefusal)), None)

    def shown(self, case: CardCase) -> tuple[ShownCase, ...]:
        return tuple(
            ShownCase(
                q.attacked,
                q.good_first,
                q.seed,
                outcome.good,
                outcome.bad,
                q.wording,
                q.irrelevant,
                q.place,
            )
            for q, outcome in self._of[case.id]
            if isinstance(outcome, CardAnswer)
        )


def find_worst(book: Book, worst: Iterable[Bad]) -> tuple[CardExample, ...]:
    """The cases on which the judge did worst, as they are shown."""
    ranked = sorted(worst, key=lambda bad: -bad.weight)[:EXAMPLES]
    return tuple(
        CardExample(
            id=bad.case.id,
            kind=bad.case.kind,
            input=bad.case.input,
            good=bad.case.good,
            bad=bad.case.attacked,
            fault=bad.fault,
            said=bad.said,
            answers=book.shown(bad.case),
            more=(
                *((f"Wording {n}", text) for n, text in enumerate(bad.case.paraphrases, 2)),
                *((f"Option {n}", text) for n, text in enumerate(bad.case.others, 3)),
                *([("A detail that does not matter", bad.case.same)] if bad.case.same else []),
            ),
        )
        for bad in ranked
    )


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
