"""A run of a benchmark's own: the same one again is answered from the journal, and asks only what
is missing. It has no records, so the figures are the benchmark's to make.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from textevolve.evaluation import Case
from textevolve.events import Listener, silence
from textevolve.judges.judge import parse_judge
from textevolve.settings import Settings, today
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench


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
