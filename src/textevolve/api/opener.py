"""The base class of clients: it runs studies, and opens objects that stay open between calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from textevolve.api.options import ClientOptions
from textevolve.api.results import JudgeOptions, Objects, collect_result
from textevolve.evaluation import Evaluator
from textevolve.judges.judge import Judge, read_judge
from textevolve.loading import late_module
from textevolve.mappings import drop_none
from textevolve.runs.study import StudySpec, find_study

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

    from textevolve.api import opened, running
    from textevolve.api.opened import OpenChain, OpenJudge
    from textevolve.llm.chains.chain import Chain
    from textevolve.loops.metrics import Metric, Pick
    from textevolve.store.runs import RunRecord
else:
    # They load models and the store, so that importing the package stays fast without them.
    opened = late_module("textevolve.api.opened")
    running = late_module("textevolve.api.running")

AnyJudge: TypeAlias = str | Evaluator | JudgeOptions | Judge
"""A judge: its name such as "probe+rules", any evaluator, or an object such as
`Debate(rounds=2)`."""

Rows: TypeAlias = str | Path | Iterable[Mapping[str, Any]]
"""The rows of a data set: the name of a file, or the rows themselves, each a mapping of columns."""

AskedModel: TypeAlias = "str | Chain | Callable[..., Any]"
"""The model that answers prompts, by its spec, or a chain that answers instead: its file, its
import path or the chain itself."""

AskedTarget: TypeAlias = "str | Mapping[str, Any] | Callable[..., Any]"
"""An application that answers rows: its address, `python:` path, `cmd:` program or description
file; a mapping with the fields of a `Target`; or a function."""


class Opener(ClientOptions):
    """The methods of a client that open judges and chains, and that wrap models and chains for
    other frameworks. `Client` and `AsyncClient` add the verbs."""

    def judge(self, spec: str | JudgeOptions, *, model: str | None = None) -> OpenJudge:
        """Return an evaluator for a judge's spec, such as "probe+rules"; it can be awaited on any
        thread and event loop. It opens with its first case, and stays open until it or the client
        is closed.

        Raises:
            InputError: there is no such judge, or it only compares texts with each other.
        """
        return opened.OpenJudge(self, read_judge(Objects().name(spec)), model)

    def as_metric(
        self,
        judge: AnyJudge,
        *,
        input: Pick = None,
        output: Pick = None,
        threshold: float | None = None,
        missing: float | None = None,
        model: str | None = None,
    ) -> Metric:
        """Return a judge as a metric for DSPy, GEPA and plain Python. `input`, `output`: the field
        of an example and of a prediction that has the text, or a function that returns it; None:
        all fields. `threshold`: the score from which a text passes; None: the judge's own.
        `missing`: the score of a text that could not be judged; None: raise an error. A judge given
        by its spec stays open until the metric or the client is closed.

        Raises:
            InputError: the judge or a number cannot be used.
        """
        evaluator: Any = judge
        if isinstance(judge, str | JudgeOptions | Judge):
            evaluator = self.judge(Objects().name(judge), model=model)

        return opened.make_metric(evaluator, input, output, threshold, missing)

    def open_chain(self, chain: object, *, model: str | None = None) -> OpenChain:
        """Return a chain whose models stay open until it or the client is closed. `chain`: a file,
        an import path or a chain, as `load_chain` takes it, or an object that can be a step.
        `model`: for steps that name none.

        Raises:
            InputError: there is no such chain.
        """
        return (
            chain if isinstance(chain, opened.OpenChain) else opened.OpenChain(self, chain, model)
        )

    def as_runnable(self, chain: object, *, model: str | None = None) -> Runnable[Any, Any]:
        """Return a chain as a LangChain Runnable, which maps a mapping of inputs to one of
        outputs."""
        from textevolve.llm.chains.langchain_runnables import ChainRunnable

        return ChainRunnable(self.open_chain(chain, model=model))

    def as_chat_model(
        self,
        model: str | None = None,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> BaseChatModel:
        """Return a model as a LangChain chat model whose calls are journaled and limited. Within a
        step of a chain the calls go to that chain's model, and count towards the step."""
        from textevolve.llm.chains.langchain_runnables import JournaledChatModel

        door = opened.open_model(self, model)
        options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        return JournaledChatModel(door=door, seed=seed, **options)

    def as_dspy_module(self, chain: object, *, model: str | None = None) -> Any:
        """Return a chain as a DSPy module, whose predictions hold the chain's outputs."""
        from textevolve.llm.chains.dspy_modules import ChainModule

        return ChainModule(self.open_chain(chain, model=model))

    def as_dspy_lm(self, model: str | None = None, **options: Any) -> Any:
        """Return a model as a `dspy.LM`, with calls as in `as_chat_model`. `options`: temperature,
        max_tokens."""
        from textevolve.llm.chains.dspy_modules import make_lm

        return make_lm(opened.open_model(self, model), **options)

    async def _run(
        self,
        spec: StudySpec,
        *,
        cases: Iterable[Any] | None = None,
        objects: Mapping[str, object] = {},
        name: str = "",
    ) -> Any:
        async with self._open_run(spec, cases, objects, name=name, ends=True) as (run, records):
            return await collect_result(find_study(spec.kind), spec, run, records)

    async def _run_kind(
        self,
        kind: str,
        name: str,
        cases: Iterable[Any] | None = None,
        objects: Objects | None = None,
        **fields: Any,
    ) -> Any:
        """Run a study of this kind, and return its result. Fields that are None stay at their
        defaults."""
        objects_by_name = objects.by_name if objects else {}
        return await self._run(
            specify(kind, **fields), cases=cases, objects=objects_by_name, name=name
        )

    def _open_run(
        self,
        spec: StudySpec,
        cases: Iterable[Any] | None,
        objects: Mapping[str, object],
        *,
        name: str,
        ordered: bool = True,
        ends: bool = False,
    ) -> AbstractAsyncContextManager[tuple[RunRecord, AsyncGenerator[Any]]]:
        """Open the run of a study, with its records as they come. `ordered`: in the order of the
        cases. `ends`: the caller reads all records at once, so other calls that need the same run
        may wait for it."""
        return running.open_run(
            self, spec, cases, dict(objects), name=name, ordered=ordered, ends=ends
        )


def specify(kind: str, **fields: Any) -> Any:
    """Return the specification of a study of this kind. Fields that are None stay at their
    defaults."""
    return find_study(kind).spec(**drop_none(fields))


def split_rows(data: Any) -> tuple[str, Any]:
    """Split the data of a verb into a file name and rows: (name, None) for a file, or ("",
    rows)."""
    return (str(data), None) if isinstance(data, str | Path) else ("", data)
