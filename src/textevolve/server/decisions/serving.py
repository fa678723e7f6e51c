"""The models and judges that the server offers, by their names and within limits.

Only models and judges named by the operator are served: a request must not make this machine call
another model, or read a file.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from textevolve.errors import SettingsError
from textevolve.evaluation import Evaluator, Failure
from textevolve.judges.judge import Judge
from textevolve.judges.opening import Judges, keep_whole
from textevolve.llm.model import JournalEntry, Model, Response
from textevolve.runs.stored import open_standing_run
from textevolve.server.decisions.deciders import (
    Decider,
    DecidingJudge,
    DecidingModel,
    RequestSpending,
    note_event,
)
from textevolve.server.errors import ApiError, as_api_error
from textevolve.server.options import ServerOptions, check_aliases
from textevolve.settings import Settings, today
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench

log = logging.getLogger("textevolve.server")

JUDGE = "judge/"
"""The prefix of a judge's name as clients see it."""
DEFAULT_ALIAS = "jev-latest"
"""The model name that clients of System One request by default; the first served model or judge
answers to it."""
MOST_IN_FLIGHT = 256
"""The most requests that are answered at a time; the next one is answered with 429."""
RUBRICS_KEPT = 256
"""The most rubrics (questions) for each of which one served judge stays open."""


@dataclass
class Serving:
    """The models and judges of a running server.

    Attributes:
        bench: The opened models and judges, with their store.
        deciders: The models and judges by their served names.
        aliases: Further names, each with the served name that it stands for.
        began: When the server started.
        in_flight: The number of requests that are being answered.
    """

    options: ServerOptions
    bench: Workbench
    deciders: dict[str, Decider]
    aliases: Mapping[str, str]
    began: datetime.datetime = field(default_factory=datetime.datetime.now)
    in_flight: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that a client may use, aliases last."""
        return (*self.deciders, *self.aliases)

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None]:
        """Limit the time of the block to the time limit of one request.

        Raises:
            ApiError: 504, the block took longer than the time limit of a request.
        """
        limit = asyncio.timeout(self.options.time_limit)

        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise ApiError(
                504,
                "timeout",
                f"not answered within the time limit of {self.options.time_limit:g} s",
            ) from None

    def find(self, name: str) -> Decider | None:
        """Return the model or the judge that is served by this name or alias; None if there is
        none."""
        return self.deciders.get(self.aliases.get(name, name))

    @contextmanager
    def place(self) -> Generator[None]:
        """Count a request as in flight within the block.

        Raises:
            ApiError: 429, the most requests are in flight.
        """
        if self.in_flight >= MOST_IN_FLIGHT:
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"{MOST_IN_FLIGHT} requests are being answered already",
                retry_after=1,
            )

        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


def failure_error(failure: Failure, spent: RequestSpending) -> ApiError:
    """Return the error for a request whose answers all failed: that of the first failed call if one
    is known, otherwise that of `failure`, the first answer."""
    if spent.causes:
        return as_api_error(spent.causes[0])
    if failure.kind == "skipped":
        return ApiError(429, "insufficient_quota", failure.reason)
    return ApiError(502, "upstream_error", failure.reason)


@asynccontextmanager
async def open_serving(options: ServerOptions, settings: Settings) -> AsyncGenerator[Serving]:
    """Open the models and judges to serve. Their calls are stored as a run of their own, and calls
    that the journal already has are not repeated.

    Raises:
        InputError: a judge or an alias cannot be used.
        SettingsError: a model is not available.
    """
    if not options.serves:
        nothing = Setting("", (), today())
        async with open_workbench(nothing, settings, _NoJournal(), models=_reject_model) as bench:
            yield _lay_out(options, bench, {})
        return

    setting, models = await _choose_models(options, settings)
    opened = open_standing_run(
        "server",
        {
            "judges": [judge.text for judge in options.judge],
            "models": list(setting.models),
            "model": setting.default_model,
            "today": setting.today,
        },
        setting,
        settings,
        source="HTTP",
        limits=Limits(options.max_cost, options.max_tokens, options.max_calls),
        listener=note_event,
    )
    async with opened as bench:
        yield _lay_out(options, bench, models)


def _reject_model(name: str) -> Model:
    raise ApiError(
        404,
        "model_not_found",
        f"{name}: this server calls no models; start `textevolve serve` for that",
    )


class _NoJournal:
    """The journal of a server without models: it stores and finds nothing."""

    async def find(self, key: str) -> Response | None:
        return None

    async def has_answer(self, model: str) -> bool:
        return False

    async def append(self, entry: JournalEntry) -> None:
        return None


async def _choose_models(
    options: ServerOptions, settings: Settings
) -> tuple[Setting, Mapping[str, str]]:
    """Return the setting of the judges' run, with the default model for judges that name none, and
    the full spec of each served model by its name."""
    models = {name: (await choose_model(settings, name))[0] for name in options.model}
    for judge in options.judge:
        judge.check()
        judge.describe()  # reads its files, so that errors in them are reported now
    judged = [name for judge in options.judge for name in judge.models(None)]
    default = next(iter(models.values()), "")
    needed = None in judged

    if not default and (needed or not options.judge):
        try:
            default, _ = await choose_model(settings, None)
            models = models or ({} if options.judge else {default: default})
        except SettingsError as error:
            if needed:
                raise
            log.warning("no model is served: %s", error)  # pages and agents can do without

    names = tuple(dict.fromkeys([*models.values(), *(name or default for name in judged)]))

    return Setting(default, names, today()), models


def _lay_out(options: ServerOptions, bench: Workbench, models: Mapping[str, str]) -> Serving:
    judges = Judges(
        bench.default_model,
        bench.model_of,
        note_event,
        bench.calls_per_case,
        bench.today,
        recall=bench.recall,
    )
    deciders: dict[str, Decider] = {
        f"{JUDGE}{judge}": open_judge(judge, judges) for judge in options.judge
    }
    for name, spec in models.items():
        deciders[name] = deciders[spec] = DecidingModel(bench.model_of(spec))
    check_aliases(options.alias, deciders)
    default = next(iter(deciders), None)
    aliases = {**({DEFAULT_ALIAS: default} if default else {}), **options.alias}

    return Serving(options, bench, deciders, aliases)


def open_judge(judge: Judge, judges: Judges) -> DecidingJudge:
    """Return a judge as a decider.

    Raises:
        InputError: the judge cannot be opened.
    """

    @lru_cache(maxsize=RUBRICS_KEPT)
    def open(rubric: str) -> Evaluator:
        return keep_whole(judges.open(judge, rubric))

    open("")

    return DecidingJudge(open, judge.takes_rubric, judge.needs)
