"""Settings, store and limits of a client, and what it keeps open between calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakSet

from textevolve.api.objects import JudgeOptions, Objects
from textevolve.evaluation import Evaluator
from textevolve.events import Listener, silence
from textevolve.settings import Settings, override_settings, read_settings
from textevolve.studies.kinds import find_study

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

    from textevolve.api.opened import OpenChain, OpenJudge
    from textevolve.engine.sync import KeptOpen
    from textevolve.llm.chains.chain import Chain
    from textevolve.loops.metrics import Metric, Pick
    from textevolve.studies.study import StudySpec
    from textevolve.wiring import Limits

T = TypeVar("T")

Judge: TypeAlias = str | Evaluator | JudgeOptions
"""A judge's name, such as "probe+rules", an evaluator, or an object such as `Debate(rounds=2)`."""

Rows: TypeAlias = str | Path | Iterable[Mapping[str, Any]]
"""A file of rows, or the rows themselves."""

AskedModel: TypeAlias = "str | Chain | Callable[..., Any]"
"""A model's spec; or a chain, by its file, its import path or itself."""


def load_opened():
    """Models and store are loaded with the first thing that stays open."""
    from textevolve.api import opened

    return opened


class Opener:
    """Opens what outlives a call: judges, chains, models of other frameworks. `Client` and
    `AsyncClient` add the verbs.

    `model`: for verbs that name none. `settings`: without them files and environment are read when
    a verb begins. `limits`: of money, tokens and calls, for each run. `time_limit`: in seconds, for
    each run. `concurrency`: calls in flight. `batch`: ask in batch jobs, each of which may take a
    day. `on`: the Ray cluster that cases are spread over, "ray" or ray://HOST:PORT; "none": this
    process. `server`: the address of a server that runs the studies; "none": this machine does,
    whatever the settings say. `listener`: hears each call, retry and step.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        store: str | Path | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        concurrency: int | None = None,
        batch: bool | None = None,
        on: str | None = None,
        listener: Listener = silence,
        server: str | None = None,
        time_limit: float | None = None,
    ) -> None:
        values = {"store": store, "concurrency": concurrency, "batch": batch, "on": on}
        self.model, self.limits, self.time_limit = model, limits, time_limit
        self.server, self.listener = server, listener
        self._settings = settings
        self._overrides = {name: value for name, value in values.items() if value is not None}
        self._open: WeakSet[KeptOpen[Any]] = WeakSet()

    def read_settings(self, model: str | None = None) -> Settings:
        """The settings in force, with what the client was given laid over them.

        Raises:
            SettingsError: a file or a value cannot be used.
        """
        named = model or self.model
        overrides = {**self._overrides, **({"model": named} if named else {})}
        if self._settings is None:
            return read_settings(overrides)[0]
        return override_settings(self._settings, overrides) if overrides else self._settings

    def keep(self, opened: KeptOpen[T]) -> KeptOpen[T]:
        """Have something closed with the client."""
        self._open.add(opened)
        return opened

    def judge(self, spec: str | JudgeOptions, *, model: str | None = None) -> OpenJudge:
        """An evaluator by its spec, such as "probe+rules", that can be awaited on any thread and
        loop. It is opened with its first case and stays open until it, or the client, is closed.

        Raises:
            InputError: there is no such judge, or it only compares texts with each other.
        """
        return load_opened().OpenJudge(self, Objects().name(spec) or "", model)

    def as_metric(
        self,
        judge: Judge,
        *,
        input: Pick = None,
        output: Pick = None,
        threshold: float | None = None,
        missing: float | None = None,
        model: str | None = None,
    ) -> Metric:
        """A judge as a metric for DSPy, GEPA and plain Python; see `Metric`. A judge by its spec
        stays open until the metric, or the client, is closed.

        Raises:
            InputError: the judge, or a number, cannot be used.
        """
        opened = self.judge(judge, model=model) if isinstance(judge, str | JudgeOptions) else judge
        return load_opened().make_metric(opened, input, output, threshold, missing)

    def open_chain(self, chain: object, *, model: str | None = None) -> OpenChain:
        """A chain whose models stay open until it, or the client, is closed. `chain`: as
        `load_chain` takes it, or whatever can be a step. `model`: for steps that name none.

        Raises:
            InputError: there is no such chain.
        """
        opened = load_opened()
        return (
            chain if isinstance(chain, opened.OpenChain) else opened.OpenChain(self, chain, model)
        )

    def as_runnable(self, chain: object, *, model: str | None = None) -> Runnable[Any, Any]:
        """A chain as a LangChain Runnable: a mapping of inputs in, of outputs out."""
        return load_opened().make_runnable(self.open_chain(chain, model=model))

    def as_chat_model(
        self,
        model: str | None = None,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> BaseChatModel:
        """A model of ours as a LangChain chat model, whose calls are journaled and limited. Within
        a step of a chain it is that chain's model, and its calls count with the step."""
        options = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        return load_opened().make_chat_model(self, model, options)

    def as_dspy_module(self, chain: object, *, model: str | None = None) -> Any:
        """A chain as a DSPy module, which gives a prediction with the chain's outputs."""
        return load_opened().make_dspy_module(self.open_chain(chain, model=model))

    def as_dspy_lm(
        self,
        model: str | None = None,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> Any:
        """A model of ours as `dspy.LM`, as `as_chat_model`."""
        options = {"temperature": temperature, "max_tokens": max_tokens}
        return load_opened().make_dspy_lm(self, model, options)

    def close(self) -> None:
        """Close what is open; what is asked meanwhile is ended."""
        for opened in list(self._open):
            opened.close()

    async def _run(
        self,
        spec: StudySpec,
        *,
        cases: Iterable[Any] | None = None,
        objects: Mapping[str, object] = {},
        name: str = "",
    ) -> Any:
        study = find_study(spec.kind)
        latest: dict[str, Any] = {}
        async with aclosing(self._stream(spec, cases, objects, name=name, ends=True)) as records:
            async for _, record in records:
                latest[study.row(record).key] = record
        ordered = sorted(latest.values(), key=lambda record: study.row(record).position)
        return study.summarise(spec, ordered)

    def _stream(
        self,
        spec: StudySpec,
        cases: Iterable[Any] | None = None,
        objects: Mapping[str, object] = {},
        *,
        name: str = "",
        ordered: bool = True,
        ends: bool = False,
    ) -> AsyncGenerator[tuple[str, Any]]:
        """The records of a study as they come, each with the id of its run. `ordered`: in the order
        of the cases. `ends`: all are read at once, so that the same call may wait for this one."""
        from textevolve.api.running import run_study

        return run_study(self, spec, cases, dict(objects), name=name, ordered=ordered, ends=ends)


def specify(kind: str, **fields: Any) -> Any:
    """The specification of a study, in which fields that are None stay at their defaults."""
    return find_study(kind).spec(**{n: value for n, value in fields.items() if value is not None})


def split_rows(data: Any) -> tuple[str, Any]:
    """The file that data names, or else the rows."""
    return (str(data), None) if isinstance(data, str | Path) else ("", data)
