"""A run of a benchmark's own: the same one again is answered from the journal, and asks only what
is missing. It has no records, so the figures are the benchmark's to make.

A local model keeps the prompt that it saw last, so calls that begin alike should follow each other.
Work that goes side by side waits in one queue, a whole judgement at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from textevolve.engine.local import gather_bounded
from textevolve.errors import BudgetError, UnavailableError
from textevolve.evaluation import Case, Evaluation, Evaluator
from textevolve.events import Listener, silence
from textevolve.judges.judge import parse_judge
from textevolve.llm.model import Model, Request, Response
from textevolve.settings import Settings, today
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


async def keep_run(
    store: Store,
    settings: Settings,
    model: str | None,
    parameters: Mapping[str, Any],
    cases: Iterable[Case],
    judge: str = "",
) -> RunRecord:
    """The run that these make; the one that is kept already, where there is one. `parameters`
    name the benchmark, and the `judge` is a spec as the command line takes it."""
    chosen, reason = await choose_model(settings, model)
    identity = {"judge": judge, "model": chosen, **parameters}
    fingerprint = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    run = store.find_run(fingerprint)
    if run is None:
        spec = {"kind": "metric", "why": reason, "today": today(), **identity}
        source = f"benchmarks/{parameters['benchmark']}.py"
        run = store.create_run(spec, fingerprint, "", source)
        store.add_cases(run.id, cases)
    return run


@asynccontextmanager
async def open_run(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> AsyncGenerator[Workbench]:
    """The models and judges of the run, which is held meanwhile.

    Raises:
        StoreError: another process works on this run.
    """
    model, judge = run.spec["model"], run.spec["judge"]
    names = [name or model for name in (parse_judge(judge).models(model) if judge else ())]
    setting = Setting(model, (model, *names), run.spec["today"])
    with store.lease(run.id):
        async with open_workbench(
            setting, settings, store.journal(run.id), limits, listener
        ) as bench:
            yield bench


@dataclass
class InTurn:
    """A model whose calls take their place in the queue."""

    model: Model
    queue: asyncio.Semaphore

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        async with self.queue:
            return await self.model(request)


async def work_in_turn(
    items: Sequence[Item],
    bench: Workbench,
    judge: str,
    work: Callable[[Item, Model, Evaluator], Awaitable[Outcome]],
) -> list[Outcome]:
    """Do the work on all items, in the order of its steps: all first answers, then all judgements
    of them, and so on. Return the outcomes of those for which nothing is missing."""
    queue = asyncio.Semaphore(bench.concurrency)
    model = InTurn(bench.model, queue)
    whole_judge = bench.whole_judge_of(parse_judge(judge))

    async def judge_in_turn(case: Case, /) -> Evaluation:
        async with queue:
            return await whole_judge(case)

    async def attempt(item: Item) -> Outcome | None:
        try:
            return await work(item, model, judge_in_turn)
        except BudgetError:
            return None
        except UnavailableError as error:
            print(f"not done: {error}", file=sys.stderr, flush=True)
            return None

    outcomes = await gather_bounded([lambda item=item: attempt(item) for item in items], len(items))
    return [outcome for outcome in outcomes if outcome is not None]


def add_options(parser: argparse.ArgumentParser, judges: Sequence[str]) -> None:
    parser.add_argument("--judges", nargs="+", default=list(judges))
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--no-ask", action="store_true", help="figures of what is there")
    parser.add_argument("--store", help="the file that keeps runs")
