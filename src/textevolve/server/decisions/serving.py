"""What a server serves: names, the models and judges behind them, and answers within limits.

Only what its operator named is served, unless it was started to serve anything: a request must not
make this machine ask a model, or read a file, that nobody here has chosen.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from textevolve.errors import InputError, SettingsError, TextEvolveError
from textevolve.evaluation import Evaluator, Failure
from textevolve.evaluators import Judges, keep_whole
from textevolve.judge_specs import describe_judge, judge_models, parse_evaluator, split_rules
from textevolve.llm.decisions import Decision, Question
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Model, Response
from textevolve.server.decisions.deciders import (
    Decider,
    DecidingJudge,
    DecidingModel,
    opens_with_rubric,
)
from textevolve.server.decisions.spending import RequestSpending, note_event, spending
from textevolve.server.errors import ApiError, as_api_error, no_model
from textevolve.server.options import ServerOptions, check_aliases
from textevolve.settings import Settings, today
from textevolve.studies.standing import open_standing_run
from textevolve.wiring import Limits, Setting, Workbench, choose_model, open_workbench

log = logging.getLogger("textevolve.server")

JUDGE = "judge/"
"""Begins the name of a judge, as a client sees it."""
DEFAULT_ALIASES = ("jev-latest", "gpt-6-luna")
"""What clients of System One and of OpenAI's Decisions API ask for where nobody tells them of
another model; the first one that is served answers."""
MOST_IN_FLIGHT = 256
"""Requests that are answered at once; one more is told to come again."""
RUBRICS_KEPT = 256
"""Judges that stay open, each for one judge's text and one question as its rubric."""


@dataclass(frozen=True, slots=True)
class Answered:
    """`model`: the name of what answered."""

    model: str
    decision: Decision
    spending: RequestSpending


@dataclass
class Serving:
    """What is open while a server runs. `deciders`: by the names that are served."""

    options: ServerOptions
    bench: Workbench
    judges: Judges
    deciders: dict[str, Decider]
    aliases: Mapping[str, str]
    began: datetime.datetime = field(default_factory=datetime.datetime.now)
    in_flight: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All that a client may name, aliases last."""
        return (*self.deciders, *self.aliases)

    async def answer(self, name: str, state: object, questions: Sequence[Question]) -> Answered:
        """
        Raises:
            ApiError: nothing of the name is served, or no question could be answered.
        """
        with self.place(), spending() as spent:
            try:
                async with self.in_time():
                    served, decider = await self._find(name)
                    decision = await decider(state, questions)
            except asyncio.CancelledError:
                raise ApiError(503, "server_unavailable", "the server is ending") from None
            except TextEvolveError as error:
                raise as_api_error(error) from error
        return Answered(served, decision, spent)

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None]:
        """
        Raises:
            ApiError: what is done within it took longer than one request may take.
        """
        limit = asyncio.timeout(self.options.time_limit)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            said = f"not answered within the time limit of {self.options.time_limit:g} s"
            raise ApiError(504, "timeout", said) from None

    async def find_model(self, name: str) -> str | None:
        """The full spec of a model that is served by this name; None where none is."""
        served = self.aliases.get(name, name)
        decider = self.deciders.get(served)
        if isinstance(decider, DecidingModel):
            return decider.model.name
        if decider is not None or not self.options.any or served.startswith(JUDGE):
            return None
        try:
            return (await choose_model(self.bench.settings, served))[0]
        except SettingsError:
            return None

    def find_judge(self, name: str) -> DecidingJudge | None:
        """The judge that is served by this name.

        Raises:
            InputError: any is served, and there is no such judge.
        """
        served = self.aliases.get(name, name)
        found = self.deciders.get(served)
        if found is None and self.options.any and served.startswith(JUDGE):
            return open_judge(served.removeprefix(JUDGE), self.judges)
        return found if isinstance(found, DecidingJudge) else None

    @contextmanager
    def place(self) -> Generator[None]:
        """One of those requests that are answered at once.

        Raises:
            ApiError: all are taken.
        """
        if self.in_flight >= MOST_IN_FLIGHT:
            said = f"{MOST_IN_FLIGHT} requests are being answered already"
            raise ApiError(429, "rate_limit_exceeded", said, retry_after=1)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def _find(self, name: str) -> tuple[str, Decider]:
        served = self.aliases.get(name, name)
        if served in self.deciders:
            return served, self.deciders[served]
        if self.options.any:
            try:
                return served, await self._open_any(served)
            except (InputError, SettingsError) as error:
                raise no_model(name) from error
        raise no_model(name)

    async def _open_any(self, name: str) -> Decider:
        if name.startswith(JUDGE):
            return open_judge(name.removeprefix(JUDGE), self.judges)
        spec, _ = await choose_model(self.bench.settings, name)
        return DecidingModel(self.bench.model_of(spec))


def refuse_unanswered(answered: Answered) -> None:
    """
    Raises:
        ApiError: no question has an answer, by what kept the first one from it.
    """
    failures = [one for one in answered.decision.answers.values() if isinstance(one, Failure)]
    if len(failures) < len(answered.decision.answers):
        return
    raise failure_error(failures[0], answered.spending)


def failure_error(failure: Failure, spent: RequestSpending) -> ApiError:
    """What a client is told where nothing came but failures, of which this is the first."""
    if spent.causes:
        return as_api_error(spent.causes[0])
    if failure.kind == "skipped":
        return ApiError(429, "insufficient_quota", failure.reason)
    return ApiError(502, "upstream_error", failure.reason)


@asynccontextmanager
async def open_serving(options: ServerOptions, settings: Settings) -> AsyncGenerator[Serving]:
    """Opens what is to be served. What is asked is kept as a run of its own, and what the journal
    knows is not asked again.

    Raises:
        InputError: a judge or an alias cannot be used.
        SettingsError: a model cannot be had.
    """
    if not options.serves:
        nothing = Setting("", (), today())
        async with open_workbench(nothing, settings, _NoJournal(), models=_refuse) as bench:
            yield _lay_out(options, bench, {})
        return
    setting, models = await _choose_models(options, settings)
    spec = {
        "judges": list(options.judge),
        "models": list(setting.models),
        "model": setting.model,
        "today": setting.today,
    }
    opened = open_standing_run(
        "server",
        spec,
        setting,
        settings,
        source="HTTP",
        limits=Limits(options.max_cost, options.max_tokens, options.max_calls),
        listener=note_event,
    )
    async with opened as bench:
        yield _lay_out(options, bench, models)


def _refuse(name: str) -> Model:
    raise ApiError(
        404, "model_not_found", f"{name}: nothing is asked here; start `textevolve serve` for that"
    )


class _NoJournal:
    """Where nothing is asked nothing is kept."""

    async def find(self, key: str) -> Response | None:
        return None

    async def append(self, entry: JournalEntry) -> None:
        return None


async def _choose_models(
    options: ServerOptions, settings: Settings
) -> tuple[Setting, Mapping[str, str]]:
    """Which model serves where a judge names none, and the full spec of each by its served name."""
    models: dict[str, str] = {}
    for name in options.model:
        models[name], _ = await choose_model(settings, name)
    for judge in options.judge:
        describe_judge(judge)  # its files are read, so that what is wrong with them is said now
    asked = [name for judge in options.judge for name in judge_models(judge, None)]
    first = next(iter(models.values()), "")
    needed = None in asked or options.any
    if not first and (needed or not options.judge):
        try:
            first, _ = await choose_model(settings, None)
            models = models or ({} if options.judge else {first: first})
        except SettingsError as error:
            if needed:
                raise
            log.warning("no model is served: %s", error)  # pages and agents can do without
    named = tuple(dict.fromkeys([*models.values(), *(name or first for name in asked)]))
    return Setting(first, named, today()), models


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
        f"{JUDGE}{text}": open_judge(text, judges) for text in options.judge
    }
    for name, spec in models.items():
        deciders[name] = deciders[spec] = DecidingModel(bench.model_of(spec))
    check_aliases(options.alias, deciders)
    first = next(iter(deciders), None)
    defaults = dict.fromkeys(DEFAULT_ALIASES, first) if first else {}
    aliases = {**defaults, **options.alias}
    return Serving(options, bench, judges, deciders, aliases)


def open_judge(text: str, judges: Judges) -> DecidingJudge:
    """A judge by its text, as a decision model.

    Raises:
        InputError: there is no such judge.
    """

    @lru_cache(maxsize=RUBRICS_KEPT)
    def open(rubric: str) -> Evaluator:
        return keep_whole(judges.open(text, rubric))

    open("")
    _, judge = split_rules(text)
    needs = () if judge is None else parse_evaluator(judge).needs
    return DecidingJudge(open, opens_with_rubric(open), needs)
