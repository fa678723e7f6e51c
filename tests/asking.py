"""Judges of tests asked about items and cards, without a run."""

from contextlib import aclosing

from textevolve.bench.card import SEEDS, ask_all, plan_questions, shipped_cases, sum_up_card
from textevolve.bench.verdicts import stream_verdicts
from textevolve.llm.meter import DistinctCalls


async def make_card(judge, cases=None, *, seeds=SEEDS, concurrency=8, name=""):
    chosen = shipped_cases() if cases is None else tuple(cases)
    async with aclosing(ask_all(judge, plan_questions(chosen, seeds), concurrency)) as judgements:
        answered = [judgement async for judgement in judgements]
    return sum_up_card(answered, seeds=seeds, name=name)


async def judge_items(items, judges, orders="both"):
    verdicts = stream_verdicts(
        items,
        judges,
        orders=orders,
        concurrency=32,
        samples=dict.fromkeys(judges, range(1)),
        counted={name: DistinctCalls() for name in judges},
        views=None,
    )
    async with aclosing(verdicts):
        return [verdict async for verdict in verdicts]
