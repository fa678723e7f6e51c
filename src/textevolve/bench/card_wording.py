"""What each check of a robustness card says, in plain sentences.

Only what the statistics and their intervals bear out is said; no statistic is made here. A sentence
may name a case's kind, so whoever shows it escapes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from textevolve.bench.card import Card
from textevolve.bench.card_cases import Family
from textevolve.bench.card_questions import CardStatistic, Check, Rate


def explain_check(check: Check) -> str:
    """What the statistics of one family mean."""
    if not check.scored:
        missing = "refused by the judge" if check.refused and not check.failed else "missing"
        return f"Nothing can be said: every judgement of this family is {missing}."
    if not any(rate.count for rate in check.rates):
        return "Nothing can be said: of no case are all judgements there."
    said = _EXPLAIN[check.family](_Statistics(check))
    if check.refused:
        said += f" {check.refused} of {check.questions} judgements were refused, which is no fault."
    if check.failed:
        said += f" {check.failed} of {check.questions} judgements are missing."
    return said


def explain_card(card: Card) -> str:
    """How far the card as a whole can be read."""
    sound = next((r for c in card.checks for r in c.rates if r.name == "sound"), None)
    if sound is None or sound.rate is None or sound.interval is None:
        return "The card has no pairs of clear quality, so it cannot tell whether the judge judges."
    shown = f"it preferred the clearly better response in {_of(sound)} pairs"
    if sound.interval[0] > 0.5:
        return f"The judge tells good from bad: {shown}."
    return (
        f"Read nothing else here as a strength: {shown}, which is not clearly more than half. A"
        " judge that does not tell good from bad also follows nobody."
    )


class _Statistics:
    """The rates and statistics of a check by name."""

    def __init__(self, check: Check) -> None:
        self._rates = {rate.name: rate for rate in check.rates}
        self._statistics = {statistic.name: statistic for statistic in check.statistics}

    def rate(self, name: str) -> Rate:
        return self._rates[name]

    def statistic(self, name: str) -> CardStatistic:
        return self._statistics[name]

    def has(self, name: str) -> bool:
        return name in self._rates


def _of(rate: Rate) -> str:
    return f"{rate.hits} of {rate.count}"


def _still(rate: Rate) -> str:
    """What a rate of none leaves possible."""
    if rate.interval is None or rate.hits:
        return ""
    return f" (up to {rate.interval[1] * 100:.0f} % cannot be ruled out)"


def _sign(statistic: CardStatistic) -> int:
    """1 or -1 where the interval has no 0 in it, else 0."""
    if statistic.interval is None:
        return 0
    low, high = statistic.interval
    return 1 if low > 0 else -1 if high < 0 else 0


def _order(found: _Statistics) -> str:
    flips, place = found.rate("order-flips"), found.statistic("first-place")
    said = f"The other order gave another winner in {_of(flips)} pairs{_still(flips)}"
    sign = _sign(place)
    if sign and place.value is not None:
        where = "first" if sign > 0 else "last"
        return f"{said}; standing {where} is worth {abs(place.value):.3f} score points."
    if flips.hits:
        return f"{said}; no position bias is seen that could be told, which points to chance."
    return f"{said}, and no position bias is seen that could be told."


def _length(found: _Statistics) -> str:
    rates = {"longer": found.rate("longer-wins"), "shorter": found.rate("shorter-wins")}
    slope = found.statistic("length-slope")
    won = [f"the {way}, worse response won {_of(r)} pairs" for way, r in rates.items() if r.count]
    said = " and ".join(won).capitalize()
    sign = _sign(slope)
    if not sign or slope.value is None:
        return f"{said}; no verbosity bias can be told."
    liking = "longer" if sign > 0 else "shorter"
    return f"{said}; 100 characters {liking} are worth {abs(slope.value):.3f} score points."


def _consistency(found: _Statistics) -> str:
    same, spread = found.rate("same-winner"), found.statistic("score-spread")
    said = f"All samples of a case had the same winner in {_of(same)} cases"
    if spread.value is None:
        return f"{said}."
    return f"{said}; from sample to sample a score moves by {spread.value:.3f}."


def _content_free(found: _Statistics) -> str:
    wins = found.rate("content-free-wins")
    empty, answer = found.statistic("content-free-score"), found.statistic("answer-score")
    said = f"A text that says nothing beat the real answer in {_of(wins)} pairs{_still(wins)}"
    if empty.value is None or answer.value is None:
        return f"{said}."
    return f"{said}; it gets {empty.value:.2f} where the answer gets {answer.value:.2f}."


def _injection(found: _Statistics) -> str:
    wins, before = found.rate("injection-wins"), found.rate("wins-before")
    rises, gain = found.rate("injection-rises"), found.statistic("injection-gain")
    said = (
        f"The bad response won in {_of(wins)} cases with an attack in it{_still(wins)},"
        f" and in {_of(before)} without; the attack raised its score in {_of(rises)}"
    )
    if found.has("control-rises"):
        said += f", a harmless addition in {_of(found.rate('control-rises'))}"
    if _sign(gain) > 0 and gain.value is not None:
        return f"{said}. On average an attack gains {gain.value:.3f} score points."
    return f"{said}. No gain can be told on average."


def _choice_order(found: _Statistics) -> str:
    flips, sound = found.rate("choice-flips"), found.rate("choice-sound")
    spread = found.statistic("choice-spread")
    said = f"Another option won in another order in {_of(flips)} choices{_still(flips)}, and the"
    said += f" right one won over all orders in {_of(sound)}"
    if spread.value is None:
        return f"{said}."
    return f"{said}; by its place alone its score moves by {spread.value:.3f}."


def _criterion_paraphrase(found: _Statistics) -> str:
    flips, moves = found.rate("paraphrase-flips"), found.rate("paraphrase-moves")
    spread = found.statistic("paraphrase-spread")
    said = f"Asked the same in other words, another response won in {_of(flips)} cases"
    said += f"{_still(flips)}, and a score moved by more than the margin in {_of(moves)}"
    if spread.value is None:
        return f"{said}."
    return f"{said}; from wording to wording a score moves by {spread.value:.3f}."


def _irrelevant_detail(found: _Statistics) -> str:
    decisive, idle = found.rate("decisive-moves"), found.rate("irrelevant-moves")
    apart = found.rate("told-apart")
    fell, moved = found.statistic("decisive-gap"), found.statistic("irrelevant-gap")
    said = (
        f"A detail that decides cost the response more than the margin in {_of(decisive)} cases,"
        " and one that does not matter moved its score by more than that in"
        f" {_of(idle)}{_still(idle)}; the first moved it more than the second in {_of(apart)}"
    )
    if fell.value is None or moved.value is None:
        return f"{said}."
    return f"{said}. On average they are worth {fell.value:.3f} and {moved.value:.3f} score points."


_EXPLAIN = cast(
    "dict[Family, Callable[[_Statistics], str]]",
    {
        "order": _order,
        "length": _length,
        "consistency": _consistency,
        "content-free": _content_free,
        "injection": _injection,
        "choice-order": _choice_order,
        "criterion-paraphrase": _criterion_paraphrase,
        "irrelevant-detail": _irrelevant_detail,
    },
)
