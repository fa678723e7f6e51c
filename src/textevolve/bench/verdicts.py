"""The verdicts of judges on labelled items, with the candidates in both orders, and their average
for each item.

`agreement.py` measures how far they agree with people. A judge is any `Evaluator`; this module does
not know how it judges.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, get_args

from textevolve.bench.items import Item, label_credit, top_credit, winner_of
from textevolve.engine.local import stream
from textevolve.errors import InputError
from textevolve.evaluation import (
    PASSES,
    Case,
    Evaluation,
    EvaluationResult,
    Evaluator,
    Failure,
    PlainEvaluation,
    Usage,
    attempt,
    check_results,
    empty_default,
    reaches,
)
from textevolve.judges.opening import has_log_odds, ranks_of
from textevolve.llm.meter import DistinctCalls, Tab
from textevolve.mappings import map_values
from textevolve.spans import span

TextOrder = Literal["given", "reversed"]
ORDERS: tuple[TextOrder, ...] = get_args(TextOrder)

SAMPLE_SEEDS = 1000  # where the seeds of further samples begin: far from those that people choose

View = tuple[str, Callable[[Evaluation], Evaluation]]
"""The name of a judge, and a function of its evaluations. The function's results are verdicts of a
further, virtual judge, such as the first round of a debate."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's verdict on the candidates of an item, in one order and one sample.

    Attributes:
        order: The order in which the candidates were shown.
        scores: The scores in the item's own order; None for a missing score. They are the judge's
            log-odds if all its results have them (`log_odds`), otherwise its scores.
        usage: The usage of requests that no earlier verdict of the judge has made. Summed over its
            verdicts, each distinct request counts once, as if the judge alone had been run on a new
            store.
        seconds: The time of the models for these requests if the judge reports it, otherwise the
            elapsed time.
        sample: The number of the sample, from 0.
        score: For a single response, the judge's own score in [0, 1].
        passed: For a single response, the judge's verdict.
    """

    judge: str
    item: str
    order: TextOrder
    scores: tuple[float | None, ...]
    usage: Usage = Usage()
    seconds: float = 0.0
    failure: Failure | None = None
    sample: int = 0
    log_odds: bool = False
    score: float | None = None
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """A judge's outcome for an item, averaged over samples and orders.

    Attributes:
        scores: The scores in the item's order; empty if one of the orders has no complete verdict.
        winner: The index of the best candidate by the averaged scores, or `TIED`. For a single
            response, 1 if at least half of the samples pass it, otherwise 0.
        winners: The winner in each order that has a complete verdict.
        credit: The agreement of the winner with people's, in [0, 1].
        score: For a single response, the mean of the judge's own scores.
    """

    judge: str
    item: str
    scores: tuple[float, ...] = ()
    winner: int | None = None
    winners: Mapping[TextOrder, int] = empty_default(dict)
    credit: float = math.nan
    score: float = math.nan

    @property
    def flipped(self) -> bool:
        """Tell whether the two orders have different winners."""
        return len(set(self.winners.values())) > 1


async def stream_verdicts(
    items: Iterable[Item],
    judges: Mapping[str, Evaluator],
    *,
    orders: Literal["both", "given"],
    concurrency: int,
    samples: Mapping[str, range],
    counted: Mapping[str, DistinctCalls],
    views: Mapping[str, View] | None,
) -> AsyncGenerator[Verdict]:
    """Call each judge on each item, in the given and, if `orders` is "both" and there are several
    candidates, the reversed order, and yield the verdicts. A failed request affects only its own
    verdict.

    The items come one after the other, so that all judges have the same items if a budget runs out.
    `samples`: the numbers of the samples by judge; later samples than the first have a seed in the
    case's parameters. `counted`: the requests of each judge that were made before and are not
    counted again. `views`: further judges by name, whose verdicts are computed from another
    judge's evaluations without new calls.

    Raises:
        FatalModelError: no call can succeed.
    """

    def list_questions() -> Iterator[ItemQuestion]:
        for item in items:
            for name in judges:
                for sample in samples[name]:
                    for order in orders_of(item, orders):
                        yield ItemQuestion(item, order, name, sample)

    async def ask(question: ItemQuestion) -> tuple[list[Verdict], Tab]:
        with Tab() as tab, span("case", f"case {question.item.id}"):
            return await _ask(judges[question.judge], question, views or {}), tab

    async with aclosing(stream(list_questions(), ask, concurrency)) as answers:
        async for (verdict, *further), tab in answers:
            if tab.is_used:  # counted in the order of the questions, so that all runs count alike
                usage, seconds = counted[verdict.judge].count(tab)
                verdict = replace(verdict, usage=usage, seconds=seconds)
            yield verdict
            for viewed in further:
                yield viewed


def orders_of(item: Item, orders: Literal["both", "given"]) -> tuple[TextOrder, ...]:
    """Return the orders in which the candidates of an item are shown: one if it has a single
    candidate."""
    return ORDERS if orders == "both" and not item.is_single else ORDERS[:1]


@dataclass(frozen=True, slots=True)
class ItemQuestion:
    """One question to a judge: an item, with its candidates in one order, in one sample."""

    item: Item
    order: TextOrder = "given"
    judge: str = ""
    sample: int = 0

    @property
    def case(self) -> Case:
        item = self.item
        texts = item.candidates if self.order == "given" else item.candidates[::-1]
        seed = {"seed": SAMPLE_SEEDS + self.sample} if self.sample else {}
        return Case(item.input, texts, item.id, seed, item.reference, item.context)


async def _ask(
    judge: Evaluator, question: ItemQuestion, views: Mapping[str, View]
) -> list[Verdict]:
    """Call the judge; return its verdict, and those of the views on the same evaluation."""
    started = time.monotonic()
    evaluation = await attempt(judge(question.case), InputError)
    elapsed = time.monotonic() - started
    viewers = {name: view for name, (viewed, view) in views.items() if viewed == question.judge}
    evaluations: dict[str, Evaluation]
    if isinstance(evaluation, Failure):
        failed = PlainEvaluation((evaluation,) * len(question.item.candidates))
        evaluations = dict.fromkeys((question.judge, *viewers), failed)
    else:
        evaluations = {question.judge: evaluation}
        evaluations |= {name: view(evaluation) for name, view in viewers.items()}

    return [
        read_verdict(evaluation, replace(question, judge=name), elapsed)
        for name, evaluation in evaluations.items()
    ]


def read_verdict(evaluation: Evaluation, question: ItemQuestion, elapsed: float = 0.0) -> Verdict:
    """Return the verdict that an evaluation contains. `elapsed`: the seconds that it took, for
    judges that do not report the time of their models."""
    item = question.item
    results = check_results(evaluation.result, len(item.candidates))
    scores = ranks_of(results)
    verdict = Verdict(
        judge=question.judge,
        item=item.id,
        order=question.order,
        scores=scores if question.order == "given" else scores[::-1],
        usage=evaluation.usage,
        seconds=float(getattr(evaluation, "seconds", elapsed)),
        failure=next((result for result in results if isinstance(result, Failure)), None),
        sample=question.sample,
        log_odds=has_log_odds(evaluation.result),
    )
    if item.is_single and isinstance(result := results[0], EvaluationResult):
        return replace(verdict, score=result.score, passed=result.passed)

    return verdict


def credit_of(item: Item, verdict: Verdict) -> float:
    """Return the credit of a verdict, its agreement with people from 0 to 1; NaN without a complete
    verdict, or without people's labels."""
    if item.is_single:
        return label_credit(verdict.passed, item.human[0])
    scores = [math.nan if score is None else score for score in verdict.scores]
    return top_credit(scores, item.human)


def count_samples(verdicts: Sequence[Verdict], judges: Sequence[str]) -> dict[str, int]:
    """Return for each judge the number of samples that cost at most as many tokens as one sample of
    the most expensive judge; at least 1.

    The estimate uses the mean tokens of items without a failed verdict. A judge whose tokens are
    unknown has one sample.
    """
    tokens_of: dict[str, float] = {}
    for name in judges:
        of_judge = [verdict for verdict in verdicts if verdict.judge == name]
        failed = {verdict.item for verdict in of_judge if verdict.failure}
        complete = [verdict for verdict in of_judge if verdict.item not in failed]
        tokens = sum(verdict.usage.tokens for verdict in complete)
        tokens_of[name] = tokens / count_asked(complete)

    most = max(tokens_of.values(), default=0.0)

    return {name: max(1, int(most / tokens)) if tokens else 1 for name, tokens in tokens_of.items()}


def count_asked(verdicts: Iterable[Verdict]) -> int:
    """Return the number of items with any request, but at least 1, so that it can be a divisor."""
    return len({v.item for v in verdicts if not v.failure or v.usage.calls}) or 1


def gather_outcomes(
    items: Iterable[Item], verdicts: Iterable[Verdict], threshold: float | None = None
) -> dict[str, dict[str, ItemOutcome]]:
    """Return the outcome of every item by its id, for each judge in the order of their first
    verdicts. `threshold`: the score from which a single response passes, instead of the judge's own
    verdict."""
    by_id = {item.id: item for item in items}
    by_judge: dict[str, dict[str, list[Verdict]]] = {}
    orders: dict[str, set[TextOrder]] = {}
    for verdict in verdicts:
        by_judge.setdefault(verdict.judge, {}).setdefault(verdict.item, []).append(verdict)
        orders.setdefault(verdict.judge, set()).add(verdict.order)

    outcomes: dict[str, dict[str, ItemOutcome]] = {}
    for judge, of_items in by_judge.items():
        outcomes[judge] = {
            id: _outcome(judge, item, of_items.get(id, ()), orders[judge], threshold)
            for id, item in by_id.items()
        }

    return outcomes


def _outcome(
    judge: str,
    item: Item,
    verdicts: Sequence[Verdict],
    orders: set[TextOrder],
    threshold: float | None,
) -> ItemOutcome:
    by_order: dict[TextOrder, list[tuple[float, ...]]] = {}
    for verdict in verdicts:
        present = tuple(score for score in verdict.scores if score is not None)
        if len(present) == len(item.candidates):
            by_order.setdefault(verdict.order, []).append(present)

    means: dict[TextOrder, tuple[float, ...]] = map_values(_mean, by_order)
    winners: dict[TextOrder, int] = map_values(winner_of, means)
    if means.keys() != orders:
        return ItemOutcome(judge, item.id, winners=winners)

    scores = _mean(list(means.values()))

    if item.is_single:
        score = fmean(verdict.score for verdict in verdicts if verdict.score is not None)
        if threshold is None:
            shares = [verdict.passed for verdict in verdicts if verdict.passed is not None]
            passed = fmean(shares) >= PASSES
        else:
            passed = reaches(score, threshold)
        credit = label_credit(passed, item.human[0])
        return ItemOutcome(judge, item.id, scores, int(passed), credit=credit, score=score)

    credit = top_credit(scores, item.human)

    return ItemOutcome(judge, item.id, scores, winner_of(scores), winners, credit)


def _mean(scores: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(fmean, zip(*scores, strict=True)))
