"""Asking judges about labelled items, in both orders, and what each made of each item.

How well that agrees with people is `agreement.py`. Judges are handed in and called as any other
`Evaluator`; nothing here knows how they judge.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, get_args

from textevolve.bench.items import Item
from textevolve.bench.statistics import top_credit
from textevolve.bench.winners import winner_of
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, Evaluation, Evaluator, Failure, Usage
from textevolve.events import Listener, StepFinished, StepStarted, silence

Order = Literal["given", "reversed"]
ORDERS: tuple[Order, ...] = get_args(Order)

IN_FLIGHT = 32
SAMPLE_SEEDS = 1000  # where the seeds of further samples begin: far from those that people choose
STEP = "verdict"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of an item's candidates in one order, in one sample.

    `scores` stand in the item's order whatever the order asked, None where there is none: the
    judge's log-odds where all its results have them, else its scores. `seconds`: the models' time
    where the judge knows it, else what went by.
    """

    judge: str
    item: str
    order: Order
    scores: tuple[float | None, ...]
    usage: Usage = Usage()
    seconds: float = 0.0
    failure: Failure | None = None
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a judge made of an item, its samples and orders averaged.

    `scores` in the item's order, () where one of the orders asked has no whole verdict. `winners`:
    the index of the best candidate, or `TIED`, in each order that has one; `winner` over all.
    `credit` in [0, 1] is that of the means, `single` the mean credit of verdicts taken singly.
    """

    judge: str
    item: str
    scores: tuple[float, ...] = ()
    winner: int | None = None
    winners: Mapping[Order, int] = field(default_factory=dict[Order, int])
    credit: float = math.nan
    single: float = math.nan


async def judge_items(
    items: Iterable[Item],
    judges: Mapping[str, Evaluator],
    *,
    orders: Literal["both", "given"] = "both",
    in_flight: int = IN_FLIGHT,
    samples: int | Mapping[str, int] = 1,
    listener: Listener = silence,
) -> list[Verdict]:
    """Each judge's verdicts on each item as given and reversed; what fails, fails alone.

    Item by item, so that a budget that runs out leaves all judges with the same items. `samples`:
    how often each judge, or each by its name, is asked the same, from the second time on with a
    seed in the case's parameters.

    Raises:
        InputError: no judge, a number out of range, or two items with one id.
        FatalModelError: no call can succeed.
    """
    if not judges:
        raise InputError("no judge: name at least one")
    known = index_items(items)
    times = {name: samples if isinstance(samples, int) else samples.get(name, 1) for name in judges}
    for name, number in (*times.items(), ("cases in flight", in_flight)):
        if number < 1:
            raise InputError(f"{name}: must be 1 or more, not {number}")
    wanted = ORDERS if orders == "both" else ORDERS[:1]

    def questions() -> Iterator[tuple[Item, str, Order, int]]:
        for item in known.values():
            for name in judges:
                for sample in range(times[name]):
                    for order in wanted:
                        yield item, name, order, sample

    async def ask(question: tuple[Item, str, Order, int]) -> Verdict:
        item, name, order, sample = question
        which = {"judge": name, "order": order, "sample": sample}
        listener(StepStarted(item.id, STEP, which))
        verdict = await _ask(judges[name], *question)
        listener(StepFinished(item.id, STEP, verdict))
        return verdict

    verdicts = stream(questions(), ask, in_flight)
    try:
        return [verdict async for verdict in verdicts]
    finally:
        await verdicts.aclose()


async def _ask(judge: Evaluator, item: Item, name: str, order: Order, sample: int) -> Verdict:
    texts = item.candidates if order == "given" else item.candidates[::-1]
    case = Case(item.input, texts, item.id, {"seed": SAMPLE_SEEDS + sample} if sample else {})
    started = time.monotonic()
    nothing: tuple[float | None, ...] = (None,) * len(texts)
    try:
        evaluation = await judge(case)
    except FatalModelError:
        raise
    except (InputError, ModelError, BudgetError) as error:
        kind = "skipped" if isinstance(error, BudgetError) else "failed"
        passed = time.monotonic() - started
        failure = Failure(kind, str(error))
        return Verdict(name, item.id, order, nothing, Usage(), passed, failure, sample)
    passed = float(getattr(evaluation, "seconds", time.monotonic() - started))
    scores, failure = _read_scores(evaluation, len(texts))
    if order == "reversed":
        scores = scores[::-1]
    return Verdict(name, item.id, order, scores, evaluation.usage, passed, failure, sample)


def _read_scores(
    evaluation: Evaluation, candidates: int
) -> tuple[tuple[float | None, ...], Failure | None]:
    """A number for each candidate as it was shown, and the first reason why one is missing."""
    results = evaluation.result
    nothing: tuple[float | None, ...] = (None,) * candidates
    if len(results) != candidates:
        reason = f"the judge gave {len(results)} results for {candidates} candidates"
        return nothing, Failure("failed", reason)
    scored = [r for r in results if not isinstance(r, Failure)]
    odds = bool(scored) and all(isinstance(r.metadata.get("log_odds"), float) for r in scored)
    scores = tuple(
        None if isinstance(r, Failure) else float(r.metadata["log_odds"] if odds else r.score)
        for r in results
    )
    if any(score is not None and not math.isfinite(score) for score in scores):
        return nothing, Failure("failed", "the judge gave a score that is no number")
    return scores, next((r for r in results if isinstance(r, Failure)), None)


def gather_outcomes(
    items: Iterable[Item], verdicts: Iterable[Verdict]
) -> dict[str, dict[str, Outcome]]:
    """For each judge, in order of its first verdict, the outcome of every item by the item's id.

    Raises:
        InputError: a verdict is on an item that is not there, or two items have one id.
    """
    known = index_items(items)
    given: dict[str, dict[str, list[Verdict]]] = {}
    asked: dict[str, set[Order]] = {}
    for verdict in verdicts:
        if verdict.item not in known:
            raise InputError(f"a verdict is on the item '{verdict.item}', which is not there")
        given.setdefault(verdict.judge, {}).setdefault(verdict.item, []).append(verdict)
        asked.setdefault(verdict.judge, set()).add(verdict.order)
    return {
        judge: {id: _outcome(judge, known[id], of.get(id, ()), asked[judge]) for id in known}
        for judge, of in given.items()
    }


def index_items(items: Iterable[Item]) -> dict[str, Item]:
    """
    Raises:
        InputError: two items have the same id, as they may where two files were put together.
    """
    found: dict[str, Item] = {}
    for item in items:
        if found.setdefault(item.id, item) is not item:
            raise InputError(f"two items have the id '{item.id}'; ids must differ")
    return found


def _outcome(judge: str, item: Item, verdicts: Sequence[Verdict], asked: set[Order]) -> Outcome:
    by_order: dict[Order, list[tuple[float, ...]]] = {}
    for verdict in verdicts:
        whole = tuple(score for score in verdict.scores if score is not None)
        if whole and len(whole) == len(item.candidates):
            by_order.setdefault(verdict.order, []).append(whole)
    means: dict[Order, tuple[float, ...]] = {o: _mean(of) for o, of in by_order.items()}
    winners: dict[Order, int] = {o: winner_of(scores) for o, scores in means.items()}
    if not asked or means.keys() != asked:
        return Outcome(judge, item.id, winners=winners)
    scores = _mean(list(means.values()))
    singles = [fmean(top_credit(s, item.human) for s in of) for of in by_order.values()]
    return Outcome(
        judge,
        item.id,
        scores,
        winner_of(scores),
        winners,
        top_credit(scores, item.human),
        fmean(singles),
    )


def _mean(of: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(fmean(column) for column in zip(*of, strict=True))
