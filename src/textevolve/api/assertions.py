"""The run of a session of tests: open from its first assertion to its end, in one process or many.

Cases come one by one, so the run is no study that is started with all of them. Each is kept with
its record, in one transaction, as soon as it is judged. The process that registers the run holds
its lease; others of the same session, which know it by its key, write into it beside that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from textevolve.api.objects import Objects
from textevolve.engine.kept_open import KeptOpen
from textevolve.engine.local import cancel
from textevolve.errors import BudgetError, InputError, ModelError, SettingsError, StoreError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, Failure, failure_of
from textevolve.judge_specs import (
    METRIC,
    OPTIONS,
    check_absolute,
    judge_models,
    parse_evaluator,
    split_rules,
)
from textevolve.llm.providers import resolve
from textevolve.llm.wrappers import replay_models
from textevolve.settings import Settings, today
from textevolve.studies.assertions import (
    STUDY,
    Assertion,
    AssertionsSpec,
    Demand,
    judge_case,
    write_demand,
)
from textevolve.studies.stored import StoredSpec, keep_record
from textevolve.user_code import OWN, UserCodeError
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

Asked: TypeAlias = tuple[Case, Demand]

JUDGE = "probe+rules"
"""Who judges where nobody is named."""

OFFLINE = "the journal has no answer to this, and asking a model is forbidden"


@dataclass(frozen=True)
class _Opened:
    store: Store
    run: RunRecord
    bench: Workbench
    places: asyncio.Semaphore


class AssertionRun:
    """Judges texts for the tests of one session, which `key` names in all its processes.

    `judge`: serves where a test names none. `offline`: what the journal does not know is not asked.
    """

    def __init__(
        self,
        key: str,
        settings: Settings,
        *,
        judge: str | None = None,
        limits: Limits = Limits(),
        offline: bool = False,
    ) -> None:
        self._key, self._settings, self._judge = key, settings, judge
        self._limits, self._offline = limits, offline
        self._objects = Objects()
        self._models: dict[str, str] = {}
        self._choosing = asyncio.Lock()
        self._asks_model = False
        self._kept = KeptOpen(self._open, "the session of tests has ended")
        self.id = ""
        """Of the run; empty until something is judged."""

    def demand(
        self,
        judge: str | Evaluator | None,
        model: str | None = None,
        *,
        rubric: str = "",
        min_score: float | None = None,
        asserted: bool = True,
        reference: bool = False,
        context: bool = False,
    ) -> Demand:
        """What is asked of a text; `reference` and `context`: whether there is one of these.

        Raises:
            InputError: the judge, or the score, cannot be used.
        """
        if min_score is not None and not 0 <= min_score <= 1:
            raise InputError(f"min_score must be from 0 to 1, not {min_score!r:.40}")
        name = self._objects.name(judge) or self._judge or JUDGE
        check_absolute(name)
        name = _fit_judge(name, named=judge is not None, reference=reference, context=context)
        self._asks_model |= None in judge_models(name, model)
        return Demand(name, model or "", rubric, min_score, asserted)

    def wait(self, asked: Sequence[Asked]) -> list[Assertion]:
        """What `judge` gives, waited for."""
        return self._kept.wait(lambda opened: self._judge_all(asked, opened))

    async def judge(self, asked: Sequence[Asked]) -> list[Assertion]:
        """What the judges make of the cases, in their order, each kept in the store as it comes;
        a failure where no answer came.

        Raises:
            InputError: a case or a judge cannot be used. StoreError: it cannot be kept.
        """
        return await self._kept.do(lambda opened: self._judge_all(asked, opened))

    def close(self) -> None:
        """Let go of models and store."""
        self._kept.close()

    async def _open(self, stack: AsyncExitStack) -> _Opened:
        from textevolve.store.repository import open_store

        # Closed without a thread of its own, which the end of the program would refuse.
        store = stack.enter_context(open_store(self._settings.store))
        run, ours = self._register(store)
        self.id = run.id
        if ours:
            stack.enter_context(store.lease(run.id))
        journal = store.journal(run.id)
        models = replay_models(journal, dict) if self._offline else None
        named = self._settings.model or ""
        if self._asks_model and not self._offline:
            with suppress(SettingsError):  # which is said of each text that needs one
                named = (await choose_model(self._settings, None))[0]
        setting = Setting("", (named,), today(), self._objects.by_name)
        opened = open_workbench(setting, self._settings, journal, self._limits, models=models)
        bench = await stack.enter_async_context(opened)
        return _Opened(store, run, bench, asyncio.Semaphore(bench.concurrency))

    def _register(self, store: Store) -> tuple[RunRecord, bool]:
        """The session's run, and whether this process is the one that made it."""
        key = f"{STUDY.kind}-{self._key}"
        if (found := store.find_run(key)) is not None:
            return found, False
        prompts = STUDY.asks(AssertionsSpec()).prompts
        stored = StoredSpec(kind=STUDY.kind, spec={}, model="", today=today(), prompts=prompts)
        try:
            run = store.create_run(stored.model_dump(mode="json"), key, "", "pytest")
        except StoreError:
            if (found := store.find_run(key)) is None:
                raise
            return found, False  # another process was first
        return run, True

    async def _judge_all(self, asked: Sequence[Asked], opened: _Opened) -> list[Assertion]:
        tasks = [asyncio.ensure_future(self._judge_one(*one, opened)) for one in asked]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await cancel(tasks)

    async def _judge_one(self, case: Case, demand: Demand, opened: _Opened) -> Assertion:
        async with opened.places:
            try:
                if None in judge_models(demand.judge, None):
                    demand = replace(demand, model=await self._find_model(demand.model, opened))
                made = await judge_case(case, demand, opened.bench)
            except (ModelError, BudgetError, SettingsError) as error:
                cause = error.__cause__ if isinstance(error, UserCodeError) else None
                if isinstance(cause, Exception):  # the test shows where in the user's code
                    raise cause from None
                made = Assertion(case, demand, failure_of(error))
        failure = made.result if isinstance(made.result, Failure) else None
        if self._offline and failure is not None and failure.kind == "skipped":
            made = replace(made, result=failure_of(BudgetError(OFFLINE)))
        # What an evaluator of the program's own said stands in no journal.
        own = demand.judge.startswith(OWN) and isinstance(made.result, EvaluationResult)
        again = replace(demand, given=made.result) if own else demand
        kept = replace(case, parameters=write_demand(again))
        record = keep_record(STUDY, made, STUDY.row(made))
        await asyncio.shield(asyncio.to_thread(opened.store.append, opened.run.id, kept, record))
        return made

    async def _find_model(self, named: str, opened: _Opened) -> str:
        """The full name of a model, or of the session's own, which stands with the run then."""
        async with self._choosing:
            if named not in self._models:
                self._models[named], why = await self._choose_model(named)
                if not named:
                    found = {"model": self._models[named], "why": why}
                    await asyncio.to_thread(opened.store.respecify, opened.run.id, found)
        return self._models[named]

    async def _choose_model(self, named: str) -> tuple[str, str]:
        if not self._offline:
            return await choose_model(self._settings, named or None)
        wanted = named or self._settings.model
        if not wanted:
            raise SettingsError("name the model whose answers the journal has; none is looked for")
        with suppress(SettingsError):  # a provider that is not known here may be so elsewhere
            return resolve(wanted, self._settings, asks=False).spec, "named"
        return wanted, "named"


def _fit_judge(judge: str, *, named: bool, reference: bool, context: bool) -> str:
    """The judge, which looks at the reference and the context that there are. One that nobody
    `named` is made to look at the reference.

    Raises:
        InputError: it does not look at one of them.
    """
    _, model_judge = split_rules(judge)
    if model_judge is None:  # rules, or an evaluator of the user's own
        return judge
    parsed = parse_evaluator(model_judge)
    options = OPTIONS.get(parsed.name)
    if context and "context" not in parsed.needs and (options is not None or parsed.name == METRIC):
        raise InputError(
            f"judge '{judge}' does not look at the context: take one that does, such as"
            " faithfulness"
        )
    if not reference or parsed.reads_reference or options is None:
        return judge
    if "reference" not in options or named:
        raise InputError(
            f"judge '{judge}' does not look at the reference: take one that does, such as"
            " probe+rules+reference"
        )
    name, at, model = judge.partition("@")
    return f"{name}+reference{at}{model}"


@contextmanager
def open_ended(settings: Settings, run_id: str) -> Generator[tuple[Store, RunRecord]]:
    """The store and the run of a session that has ended in all its processes."""
    from textevolve.store.repository import open_store

    with open_store(settings.store) as store:
        if not store.count_records(run_id).get("skipped"):
            store.finish_run(run_id, "finished")
        yield store, store.get_run(run_id)
