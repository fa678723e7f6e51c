"""The run of a test session, which is open from the first judged text to the end of the session, in
one process or several.

Since texts come one by one, the run does not start with all cases, as the runs of other studies do.
Each text is stored with its record, in one transaction, as soon as it is judged. The process that
creates the run holds its lease; other processes of the session find it by its key, and write to it
as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from textevolve.api.results import Objects
from textevolve.engine.local import gather_bounded
from textevolve.engine.sync import KeptOpen
from textevolve.errors import BudgetError, InputError, ModelError, SettingsError, StoreError
from textevolve.evaluation import Case, EvaluationResult, failure_of
from textevolve.judges.checks import ChecksJudge
from textevolve.judges.judge import Judge, parse_judge, read_judge, require_absolute
from textevolve.judges.plain import HybridJudge, OwnJudge, RulesJudge
from textevolve.loops.rules import asks_model, read_check_list
from textevolve.runs.stored import StoredSpec, keep_record
from textevolve.settings import Settings, today
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord
from textevolve.studies.assertions import (
    STUDY,
    Assertion,
    AssertionsSpec,
    Demand,
    judge_case,
    write_demand,
)
from textevolve.user_code import OWN, UserCodeError
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench

JUDGE = "probe+rules"
"""The default judge."""


@dataclass(frozen=True)
class SessionRun:
    """The open run of a session, with its store and the workbench (open models and judges)."""

    store: Store
    run: RunRecord
    bench: Workbench


class AssertionRun:
    """The run of one test session, which judges the texts of its tests.

    `key`: the key of the session, the same in all its processes. `judge`: the judge for tests that
    name none. `id`: the id of the run; empty until the first text is judged.
    """

    def __init__(self, key: str, settings: Settings, judge: str | None, limits: Limits) -> None:
        self._key = key
        self._settings = settings
        self._limits = limits
        self._judge = judge or JUDGE
        self._objects = Objects()
        self._choosing = asyncio.Lock()
        self._models: dict[str, str] = {}
        self.kept = KeptOpen(self._open, "the session of tests has ended")
        self.id = ""

    def demand(self, judge: object, case: Case, **demanded: Any) -> Demand:
        """Return what a case must satisfy: a minimum score by a judge that reads the reference and
        the context of the case, if it has them.

        Raises:
            InputError: the judge, or the score, cannot be used.
        """
        checks = tuple(cast("Sequence[Any]", judge)) if isinstance(judge, list | tuple) else ()
        if checks:
            read_check_list(checks)
            judge = "checks"
        name = self._objects.name(judge) or self._judge
        require_absolute(read_judge(name))
        fitted = _fit_judge(name, case, is_named=judge is not None)
        demand = Demand(fitted, checks=checks, **demanded)
        if demand.min_score is not None and not 0 <= demand.min_score <= 1:
            raise InputError(f"min_score must be from 0 to 1, not {demand.min_score!r:.40}")

        return demand

    async def judge(self, texts: Sequence[tuple[Case, Demand]]) -> list[Assertion]:
        """Judge cases, and store each result as soon as it is available. Return the results in the
        order of the cases; a case whose judge failed, or was not called because of a limit, has a
        Failure.

        Raises:
            InputError: a case or a judge cannot be used. StoreError: a result cannot be stored.
                Exceptions of the test's own judge pass through.
        """

        async def judge_all(opened: SessionRun) -> list[Assertion]:
            work = [partial(self._judge_one, case, demand, opened) for case, demand in texts]
            return await gather_bounded(work, opened.bench.concurrency)

        return await self.kept.do(judge_all)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[SessionRun]:
        setting = Setting("", (self._settings.model or "",), today(), self._objects.by_name)
        with open_store(self._settings.store) as store, self._hold(store) as run:
            self.id = run.id
            journal = store.journal(run.id)
            async with open_workbench(setting, self._settings, journal, self._limits) as bench:
                yield SessionRun(store, run, bench)

    @contextmanager
    def _hold(self, store: Store) -> Generator[RunRecord]:
        """Yield the run of the session. The first process of the session creates it, and holds its
        lease within the block."""
        key = f"{STUDY.kind}-{self._key}"
        if (run := store.find_run(key)) is not None:
            yield run
            return
        prompts = STUDY.asks(AssertionsSpec()).prompts
        stored = StoredSpec(kind=STUDY.kind, spec={}, model="", today=today(), prompts=prompts)

        try:
            run = store.create_run(stored.model_dump(mode="json"), key, "", "pytest")
        except StoreError:
            if (run := store.find_run(key)) is None:
                raise
            lease = nullcontext()  # another process was first, and has it
        else:
            lease = store.lease(run.id)

        with lease:
            yield run

    async def _judge_one(self, case: Case, demand: Demand, opened: SessionRun) -> Assertion:
        try:
            parsed = parse_judge(demand.judge)
            if None in parsed.models(None) or asks_model(demand.checks):
                demand = replace(demand, model=await self._find_model(demand.model))
            assertion = await judge_case(case, demand, opened.bench)
        except (ModelError, BudgetError, SettingsError) as error:
            cause = error.__cause__ if isinstance(error, UserCodeError) else None
            if isinstance(cause, Exception):  # the test shows where in the user's code
                raise cause from None
            assertion = Assertion(case, demand, failure_of(error))

        is_own = demand.judge.startswith(OWN) and isinstance(assertion.result, EvaluationResult)
        # No journal has the answers of the program's own evaluators.
        parameters = write_demand(replace(demand, given=assertion.result if is_own else None))
        stripped = replace(case, parameters=parameters)
        record = keep_record(STUDY, assertion, STUDY.row(assertion))
        await asyncio.shield(
            asyncio.to_thread(opened.store.append, opened.run.id, stripped, record)
        )

        return assertion

    async def _find_model(self, name: str) -> str:
        """Return the full name of a model; an empty name means the session's model."""
        async with self._choosing:
            if name not in self._models:
                chosen = name or self._settings.model
                self._models[name] = (await choose_model(self._settings, chosen, asks=False))[0]

        return self._models[name]


def write_with_reference(judge: Judge) -> str:
    """Return the text of a judge that also reads the reference, whatever signs its options have."""
    if isinstance(judge, HybridJudge):
        inner = parse_judge(write_with_reference(judge.judge))
        return replace(judge, judge=inner, source="").text
    changes: Any = {"reference": True, "source": ""}
    return replace(judge, **changes).text


def _fit_judge(judge: str, case: Case, *, is_named: bool) -> str:
    """Return the judge if it reads the context and the reference that the case has. A default judge
    (not `is_named`) is replaced by its form that reads the reference. Rules and the test's own
    judges are returned unchecked.

    Raises:
        InputError: the judge ignores the context or the reference.
    """
    parsed_judge = parse_judge(judge)
    parsed = parsed_judge.judge if isinstance(parsed_judge, HybridJudge) else parsed_judge
    if isinstance(parsed, RulesJudge | OwnJudge | ChecksJudge):
        return judge
    missing = other = ""

    if case.context is not None and "context" not in parsed.needs:
        missing = "context"
        other = "faithfulness"
    elif case.reference is not None and not parsed.reads_reference:
        if not is_named and hasattr(parsed, "reference"):
            return write_with_reference(parsed_judge)
        missing = "reference"
        other = "probe+rules+reference"

    if other:
        raise InputError(
            f"judge '{judge}' does not use the {missing}: use a judge that does, such as {other}"
        )

    return judge
