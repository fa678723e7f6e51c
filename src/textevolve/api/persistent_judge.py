"""A judge that stays open between calls from anywhere: other threads, other event loops, no loop.

It is opened with its first case on an event loop of its own, so that a local model is started once
and connections are kept. Each opening is a run; answers of earlier runs cost nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import datetime
import secrets
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from textevolve.engine.sync import BackgroundLoop, cancel_others
from textevolve.errors import InputError
from textevolve.evaluation import Case, Evaluation, Evaluator
from textevolve.evaluators import check_absolute, describe_judge, judge_models
from textevolve.settings import Settings
from textevolve.studies.driver import METRIC
from textevolve.wiring import Limits, Setting, choose_model, open_workbench


class PersistentJudge:
    """An evaluator by its spec, until `close`, which the end of the program calls too."""

    def __init__(
        self,
        judge: str,
        settings: Settings,
        store: Path,
        *,
        model: str | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.judge = judge
        check_absolute(judge)
        describe_judge(judge)  # its files are read, so that what is wrong with them is said now
        self._settings, self._store = settings, store
        self._model, self._limits = model, limits
        self._guard = threading.Lock()
        self._loop: BackgroundLoop | None = None
        self._closed = False
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._evaluator: Evaluator | None = None
        # Not when it is opened: that may be while the program ends, which is too late.
        atexit.register(self.close)

    async def __call__(self, case: Case, /) -> Evaluation:
        """
        Raises:
            InputError: it is closed, also meanwhile, or the case cannot be used.
        """
        begun = self._begin(case)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            if not self._closed or _is_cancelled():
                raise
            raise self._refusal() from None

    def _begin(self, case: Case) -> Future[Evaluation]:
        with self._guard:
            if self._closed:
                raise self._refusal()
            if self._loop is None:
                self._loop = BackgroundLoop().__enter__()
            return self._loop.submit(self._evaluate(case))

    def _refusal(self) -> InputError:
        return InputError(f"the judge '{self.judge}' is closed; make a new one")

    async def _evaluate(self, case: Case) -> Evaluation:
        async with self._opening:
            if self._evaluator is None:
                self._evaluator = await self._open()
        return await self._evaluator(case)

    async def _open(self) -> Evaluator:
        from textevolve.store.repository import open_store

        models = judge_models(self.judge, self._model)
        model, why = "", ""
        if models:
            model, why = await choose_model(self._settings, self._model or models[0])
        asked = tuple(name or model for name in models)
        today = datetime.date.today().isoformat()
        spec = {"kind": METRIC, "judge": self.judge, "model": model, "why": why, "today": today}
        async with AsyncExitStack() as stack:
            # Closed without a thread of its own, which the end of the program would refuse.
            store = stack.enter_context(open_store(self._store))
            # Openings must not share a run: only one process, and one judge in it, may work on it.
            run = store.create_run(spec, f"metric-{secrets.token_hex(16)}", "", "Python")
            store.add_cases(run.id, [Case(self.judge, (), "1")])
            stack.enter_context(store.lease(run.id))
            bench = await stack.enter_async_context(
                open_workbench(
                    Setting(model, asked, today),
                    self._settings,
                    store.journal(run.id),
                    self._limits,
                )
            )
            judge = bench.whole_judge_of(self.judge)
            stack.callback(store.finish_run, run.id, "finished")
            self._stack = stack.pop_all()
        return judge

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of models and store; what it judges meanwhile is ended. Twice is once."""
        with self._guard:
            loop, self._loop, self._closed = self._loop, None, True
        atexit.unregister(self.close)
        if loop is not None:
            try:
                loop.wait(self._let_go())
            finally:
                loop.__exit__(None, None, None)

    async def _let_go(self) -> None:
        await cancel_others()
        await self._stack.aclose()


def _is_cancelled() -> bool:
    """Whether it is the caller who is cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
