"""Judge the traces of a folder while they are written, and watch their pass rate.

The complete traces of each look are a run of their own, with the name of the watch. There is no
other checkpoint: a watch that is started again finishes its interrupted runs, computes the evidence
of a fall from the records of all its runs, and leaves out the traces that these contain.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from textevolve.errors import InputError
from textevolve.evaluation import Usage
from textevolve.node_eval.following import Look, TraceFolder
from textevolve.runs import driver
from textevolve.runs.identity import identify_run
from textevolve.runs.stored import StudyRun, read_records
from textevolve.runs.study import Row
from textevolve.settings import Settings
from textevolve.spec import Frozen, option
from textevolve.statistics.comparisons import CASES_BETWEEN_FALSE_ALARMS, add_evidence
from textevolve.store import served
from textevolve.store.repository import Store
from textevolve.store.served import RunSearch
from textevolve.studies.node_report import JudgedNode, Record, find_node_row
from textevolve.studies.nodes import NodesSpec, node_cases, types_of

TraceVerdict: TypeAlias = bool | str
"""Whether a trace passed; a text is the reason why it has no verdict."""
RECENT = 100
"""The number of the latest traces whose pass rate is reported with an alarm."""
MOST_RUNS = 1_000_000
GROUP = "Following"


class FollowSpec(Frozen):
    """The options of a watch over a folder of traces."""

    follow: bool = option(
        False,
        "Judge the traces of a folder, or of a file, while they are written, until Ctrl-C.",
        group=GROUP,
    )
    sample: float = option(
        1.0, "The share of traces that are judged, chosen by their ids.", group=GROUP, gt=0, le=1
    )
    every: float = option(
        60.0,
        "The seconds between two looks. A trace that has not grown between two is judged.",
        group=GROUP,
        ge=0,
    )
    expected: float | None = option(
        None,
        "The share of traces that pass while all is well. An alarm is raised if it falls; default:"
        " no alarm.",
        group=GROUP,
        gt=0,
        lt=1,
    )


@dataclass(slots=True)
class PassRateWatch:
    """The verdicts of a watch so far, with the evidence that the pass rate has fallen.

    `expected`: the pass rate while all is well; None: there is no alarm. `judged`: the number of
    traces with a verdict. `passed`: the number of traces that passed. `missing`: the number of
    traces without a verdict, which are no evidence. `recent`: the latest verdicts.
    """

    expected: float | None
    judged: int = 0
    passed: int = 0
    missing: int = 0
    evidence: float = 0.0
    recent: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=RECENT))

    def add(self, verdicts: Iterable[TraceVerdict]) -> bool:
        """Add the verdicts of traces, and tell whether one of them raises an alarm. The evidence
        begins anew after an alarm."""
        has_alarm = False
        for passed in verdicts:
            if isinstance(passed, str):
                self.missing += 1
                continue
            self.judged += 1
            self.passed += passed
            self.recent.append(passed)
            if self.expected is None:
                continue
            self.evidence = float(add_evidence(self.evidence, passed, self.expected))
            if self.evidence >= CASES_BETWEEN_FALSE_ALARMS:
                self.evidence = 0.0
                has_alarm = True

        return has_alarm


def read_verdicts(records: Iterable[Record]) -> dict[str, TraceVerdict]:
    """Return the verdict of each trace: it passed if all of its judged nodes did. There is no
    verdict if a judgement is missing, or if nothing in the trace was judged."""
    rows: dict[str, list[Row]] = {}
    for record in records:
        if isinstance(record, JudgedNode):
            rows.setdefault(record.episode, []).append(find_node_row(record))

    verdicts: dict[str, TraceVerdict] = {}
    for trace, nodes in rows.items():
        passed = [row.passed for row in nodes if row.passed is not None]
        unscored = [row.reason for row in nodes if row.status != "scored"]
        if passed and not unscored:
            verdicts[trace] = all(passed)
        else:
            reasons = [*unscored, *(row.reason for row in nodes)]
            verdicts[trace] = next(filter(None, reasons), "no judge judges its steps")

    return verdicts


@dataclass(frozen=True, slots=True)
class WatchedLook:
    """The result of a look whose traces were judged.

    `run`: the id of its run; empty without one. `verdicts`: those of its traces. `is_alarm`:
    whether they raise an alarm. `is_limited`: whether a limit of calls, tokens or cost was reached.
    """

    look: Look
    run: str = ""
    verdicts: tuple[TraceVerdict, ...] = ()
    is_alarm: bool = False
    is_limited: bool = False


async def follow_traces(
    spec: NodesSpec,
    options: FollowSpec,
    watch: PassRateWatch,
    store: Store,
    settings: Settings,
    launch: driver.Launch,
) -> AsyncGenerator[WatchedLook]:
    """Yield each look at a folder of traces that has brought something. The watch ends after the
    look that reaches a limit or the time limit of the launch. The limits hold for all runs of this
    start together.

    Raises:
        InputError: the folder cannot be read, nothing judges, or earlier runs of this name have
            other judges.
        FatalModelError: no call can succeed.
    """
    plan = await driver.plan_run(spec, settings, launch, ())
    identity = identify_run(plan.stored, plan.spec)
    spent = Usage()
    verdicts: dict[str, TraceVerdict] = {}
    deadline = None if launch.time_limit is None else time.monotonic() + launch.time_limit

    async def judge(run: StudyRun) -> bool:
        """Judge the traces of a run; return whether a limit was reached."""
        nonlocal spent
        before = store.run_totals(run.id).spent
        limits = replace(launch.limits, spent=spent)
        launched = replace(launch, limits=limits, time_limit=None)
        async with aclosing(driver.perform(store, run, settings, launched)) as records:
            async for _ in records:
                pass
        spent += store.run_totals(run.id).spent - before

        return store.get_run(run.id).status != "finished"

    for run in _find_runs(store, launch.name):
        if identify_run(run.stored, run.spec) != identity:
            raise InputError(
                f"the runs of the name '{launch.name}' have other judges or another model than this"
                " command, so that their pass rates cannot be compared; choose another --name"
            )
        is_open = run.record.status != "finished"
        is_limited = is_open and await judge(run)
        earlier = read_verdicts(read_records(store, run)())
        verdicts |= earlier
        is_alarm = watch.add(earlier.values())
        if is_open:
            yield WatchedLook(Look(), run.id, tuple(earlier.values()), is_alarm, is_limited)
        if is_limited:
            return

    folder = TraceFolder(spec.trace, types_of(spec), options.sample, options.every, set(verdicts))
    while True:
        look = await asyncio.to_thread(folder.look)
        is_limited = False
        if look.episodes:
            run = replace(plan, cases=node_cases(look.episodes)).register(store)
            is_limited = await judge(run)
            judged = tuple(read_verdicts(read_records(store, run)()).values())
            is_alarm = watch.add(judged)
            yield WatchedLook(look, run.id, judged, is_alarm, is_limited)
        else:
            yield WatchedLook(look)

        if is_limited or (deadline is not None and time.monotonic() >= deadline):
            return
        await asyncio.sleep(options.every)


def _find_runs(store: Store, name: str) -> list[StudyRun]:
    """Return the earlier runs of a watch, the oldest first."""
    search = RunSearch(NodesSpec.kind, accepts=lambda run: name in run.names)
    matches = store.read(served.search_runs, None, search, 0, MOST_RUNS)
    return [StudyRun(run) for run in reversed(matches.runs)]
