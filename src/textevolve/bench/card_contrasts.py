"""Checks of a card on cases whose texts differ in one thing: the order of options, the wording of
what is asked, a detail. What should not matter must not move the verdict, and what decides must.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from textevolve.bench.card_book import Bad, Book, CheckFindings, find_worst
from textevolve.bench.card_questions import find_winner
from textevolve.bench.card_statistics import Verdicts, average, count_rate


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
