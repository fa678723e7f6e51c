"""A judge that stays open between calls from anywhere. Each opening is a run; answers of earlier
runs cost nothing.
"""

from __future__ import annotations

import datetime
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from textevolve.engine.kept_open import KeptOpen
from textevolve.evaluation import Case, Evaluation, Evaluator
from textevolve.judge_specs import check_absolute, describe_judge, judge_models
from textevolve.settings import Settings, StoreLocation
from textevolve.studies.standing import open_standing_run
from textevolve.wiring import Limits, Setting, choose_model


class PersistentJudge:
    """An evaluator by its spec, until `close`, which the end of the program calls too."""

    def __init__(
        self,
        judge: str,
        settings: Settings,
        store: StoreLocation,
        *,
        model: str | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.judge = judge
        check_absolute(judge)
        describe_judge(judge)  # its files are read, so that what is wrong with them is said now
        self._settings, self._store = settings, store
        self._model, self._limits = model, limits
        self._kept = KeptOpen(self._open, f"the judge '{judge}' is closed; make a new one")

    async def __call__(self, case: Case, /) -> Evaluation:
        """
        Raises:
            InputError: it is closed, also meanwhile, or the case cannot be used.
        """

        async def judge(opened: Evaluator) -> Evaluation:
            return await opened(case)

        return await self._kept.do(judge)

    async def _open(self, stack: AsyncExitStack) -> Evaluator:
        models = judge_models(self.judge, self._model)
        model, why = "", ""
        if models:
            own = None if None in models else models[0]
            model, why = await choose_model(self._settings, self._model or own)
        asked = tuple(name or model for name in models)
        today = datetime.date.today().isoformat()
        spec = {"judge": self.judge, "model": model, "why": why, "today": today}
        opened = open_standing_run(
            "metric",
            spec,
            Setting(model, asked, today),
            self._settings.model_copy(update={"store": self._store}),
            source="Python",
            cases=[Case(self.judge, (), "1")],
            limits=self._limits,
        )
        bench = await stack.enter_async_context(opened)
        return bench.whole_judge_of(self.judge)

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
        self._kept.close()
