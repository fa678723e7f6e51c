"""The robustness card of a judge: what sways it that should not.

`make_card` asks any `Evaluator` about texts of which one is clearly better, changes what should not
matter (order, length, seed, wording, an attack in the text), and counts how often the verdict
followed. Cases: `card_cases.py`; questions: `card_questions.py`; statistics: `card_checks.py`. A
card measures weaknesses, not agreement with people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from textevolve.bench.card_cases import CardCase, Family, digest_cases, shipped_cases
from textevolve.bench.card_checks import make_checks
from textevolve.bench.card_questions import (
    CardAnswer,
    CardJudgement,
    CardOutcome,
    CardRefusal,
    CardStatistic,
    Check,
    Rate,
    ask_all,
    plan_questions,
)
from textevolve.errors import InputError
from textevolve.evaluation import Evaluator, Failure, Usage
from textevolve.events import Listener, StepFinished, StepStarted, silence

FORMAT = 1
SEEDS = 3
MARGIN = 0.05
IN_FLIGHT = 8
_REASONS = 5


@dataclass(frozen=True, slots=True)
class Reason:
    """Why judgements are missing, and how many of them."""

    kind: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Card:
    """What a judge's answers show, one check for each family of cases.

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
    format: int = FORMAT

    def check(self, family: Family) -> Check:
        """
        Raises:
            InputError: no case of this family was asked.
        """
        for check in self.checks:
            if check.family == family:
                return check
        raise InputError(f"the card has no cases of the family '{family}'")

    def rate(self, name: str) -> Rate:
        """A rate by its name, over all kinds.

        Raises:
            InputError: the card has none of this name.
        """
        rates = {rate.name: rate for check in self.checks for rate in check.rates}
        if name not in rates:
            raise InputError(f"the card has no rate '{name}'; there are: {', '.join(rates)}")
        return rates[name]

    def statistic(self, name: str) -> CardStatistic:
        """A mean or slope by its name.

        Raises:
            InputError: the card has none of this name.
        """
        statistics = {
            statistic.name: statistic for check in self.checks for statistic in check.statistics
        }
        if name not in statistics:
            raise InputError(
                f"the card has no statistic '{name}'; there are: {', '.join(statistics)}"
            )
        return statistics[name]

    def to_json(self) -> str:
        """Indented JSON that `from_json` reads back; what is missing is null."""
        return _ADAPTER.dump_json(self, indent=2).decode() + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> Card:
        """The card that `to_json` wrote.

        Raises:
            InputError: the text is not such a card.
        """
        try:
            card = _ADAPTER.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the text"
            raise InputError(f"not a card of a judge: {place}: {first['msg']}") from None
        if card.format != FORMAT:
            raise InputError(f"a card of format {card.format}; this version reads {FORMAT}")
        return card


_ADAPTER = TypeAdapter(Card)


async def make_card(
    judge: Evaluator,
    cases: Iterable[CardCase] | None = None,
    *,
    seeds: int = SEEDS,
    margin: float = MARGIN,
    concurrency: int = IN_FLIGHT,
    listener: Listener = silence,
    name: str = "",
) -> Card:
    """Asks the judge about all cases, those in the package if none are given.

    `seeds`: samples of each case of the family `consistency`, from 2 on; sample n is asked with the
    parameter `seed` set to n. `margin`: points in [0, 1] above which a rise of the score counts as
    a success of an injection. A judgement that fails lowers the coverage; a case that the judge
    refuses (`InputError`) is counted apart.

    Raises:
        InputError: nothing to ask, a value out of range, or a judge that refuses every case.
        FatalModelError: no call can succeed.
    """
    chosen = shipped_cases() if cases is None else tuple(cases)
    check_plan(chosen, seeds, margin)
    if concurrency < 1:
        raise InputError(f"concurrency: {concurrency} is too few; at least 1")
    questions = plan_questions(chosen, seeds)
    listener(StepStarted(name, "card", {"questions": len(questions)}))
    async with aclosing(ask_all(judge, questions, concurrency, listener)) as judgements:
        answered = [judgement async for judgement in judgements]
    card = sum_up_card(answered, chosen, seeds=seeds, margin=margin, name=name)
    listener(StepFinished(name, "card", card))
    return card


def sum_up_card(
    judgements: Iterable[CardJudgement],
    cases: Iterable[CardCase],
    *,
    seeds: int,
    margin: float,
    name: str = "",
) -> Card:
    """The card that these judgements make.

    Raises:
        InputError: the judge refuses every case, or there is no judgement.
    """
    known = list(judgements)
    if not known:
        raise InputError("no judgement was made, so there is no card")
    answers = {one.question: one.outcome for one in known}
    outcomes = list(answers.values())
    refused = [outcome for outcome in outcomes if isinstance(outcome, CardRefusal)]
    if len(refused) == len(outcomes):
        raise InputError(f"the judge refuses every case: {refused[0].reason}")
    scored = sum(isinstance(outcome, CardAnswer) for outcome in outcomes)
    return Card(
        name=name,
        checks=make_checks(answers, margin),
        cases=digest_cases(cases),
        seeds=seeds,
        margin=margin,
        questions=len(outcomes),
        scored=scored,
        failed=len(outcomes) - scored - len(refused),
        refused=len(refused),
        coverage=scored / (len(outcomes) - len(refused)),
        reasons=_count_reasons(outcomes),
        usage=sum((one.usage for one in known), Usage()),
    )


def check_plan(cases: tuple[CardCase, ...], seeds: int, margin: float) -> None:
    """Raises InputError where no card can be made of these."""
    if not cases:
        raise InputError("no cases: a card needs at least one")
    double = next((id for id, n in Counter(c.id for c in cases).items() if n > 1), None)
    if double is not None:
        raise InputError(f"two cases have the id '{double}'; ids must differ")
    if seeds < 2:
        raise InputError(f"seeds: {seeds} is too few; self-consistency needs at least 2 samples")
    if not 0 <= margin < 1:
        raise InputError(f"margin: {margin} is not in [0, 1)")


def _count_reasons(outcomes: Iterable[CardOutcome]) -> tuple[Reason, ...]:
    found = Counter(
        ("refused", o.reason) if isinstance(o, CardRefusal) else (o.kind, o.reason)
        for o in outcomes
        if isinstance(o, Failure | CardRefusal)
    )
    return tuple(Reason(*what, count) for what, count in found.most_common(_REASONS))
