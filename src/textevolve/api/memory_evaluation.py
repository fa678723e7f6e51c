"""Measuring a memory system on a data set from Python, async and sync: `textevolve memory-eval`."""

from __future__ import annotations

from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from textevolve.engine import sync
from textevolve.evaluation import Usage
from textevolve.events import Listener, silence
from textevolve.export.files import open_target
from textevolve.memory_eval.dataset import Malformed
from textevolve.memory_eval.figures import Figures
from textevolve.memory_eval.system import MemorySystem
from textevolve.memory_eval.systems.adapter import Adapted
from textevolve.runs.memory_evaluation import (
    Plan,
    begin_memory_evaluation,
    do_memory_evaluation,
    find_system,
    specify_memory_evaluation,
)
from textevolve.runs.memory_records import Collection
from textevolve.runs.spec import name_callable
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import open_store
from textevolve.wiring import Limits


@dataclass(frozen=True, slots=True)
class MemoryEvaluation:
    """`figures` of what was judged; `skipped` says which limit kept the rest from being asked, and
    is empty where all was. `malformed`: lines of the data that are no users. `run`: its id."""

    figures: Figures
    usage: Usage
    skipped: str
    malformed: tuple[Malformed, ...]
    run: str


class Measuring(TypedDict, total=False):
    """How it is measured; as the options of the command. `records`: a file for a line of JSON for
    each judgement, with its texts and reason."""

    judge: str | None
    model: str | None
    answer_model: str | None
    users: int | None
    sessions: int | None
    fresh: str
    seed: int
    records: str | Path | None
    listener: Listener
    store: str | Path | None
    limits: Limits
    settings: Settings | None
    name: str


async def aevaluate_memory(
    data: str | Path, system: str | object, **how: Unpack[Measuring]
) -> MemoryEvaluation:
    """Feed a memory system the sessions of a data set, and judge what it kept, made up, updated and
    answers.

    `system`: as on the command line (`context`, `http://...`, `mem0`, ...), or an object with `add`
    and `search`, sync or async. The same call again goes on where it was stopped and asks nothing
    twice; an object is known by the name of its class, so where its code has changed, name another
    `fresh`.

    Raises:
        InputError: the data, the system or a number cannot be used.
        FatalModelError: no call can succeed, or the system fails again and again.
    """
    given = how.get("settings")
    settings = given or read_settings({"model": how.get("model"), "store": how.get("store")})[0]
    plan = Plan(
        system if isinstance(system, str) else name_callable(system),
        how.get("judge"),
        how.get("answer_model"),
        how.get("users"),
        how.get("sessions"),
        how.get("fresh", ""),
        how.get("seed", 0),
    )
    found = find_system(plan, settings) if isinstance(system, str) else _adapt(system, settings)
    spec = await specify_memory_evaluation(settings, plan, how.get("model"), found)
    async with open_store(Path(how.get("store") or settings.store)) as store:
        run, survey = begin_memory_evaluation(
            store, spec, str(data), plan, name=how.get("name", "")
        )
        with ExitStack() as stack:
            path = how.get("records")
            target = None if path is None else stack.enter_context(open_target(path))
            collected = Collection(target)
            judged = do_memory_evaluation(
                store,
                run,
                str(data),
                plan,
                survey,
                found,
                settings,
                how.get("limits", Limits()),
                how.get("listener", silence),
            )
            async with aclosing(judged) as items:
                async for item in items:
                    collected.take(item)
        return MemoryEvaluation(
            collected.figures(plan.seed),
            collected.usage,
            collected.skipped,
            tuple(survey.malformed),
            run.id,
        )


def evaluate_memory(
    data: str | Path, system: str | object, **how: Unpack[Measuring]
) -> MemoryEvaluation:
    """As `aevaluate_memory`, for plain code and notebooks."""
    return sync.run(aevaluate_memory(data, system, **how))


def _adapt(system: object, settings: Settings) -> MemorySystem:
    return Adapted(system, name_callable(system), settings.timeouts.deadline)
