"""The public functions of the loops: generate a profile, innovate, guide; and judges as metrics.

Like those of `api.py` they read the settings, choose a model, open the store, and do a run; the
sync forms also work where an event loop runs already.
"""

from __future__ import annotations

from pathlib import Path

from textevolve.engine import sync
from textevolve.events import Listener, silence
from textevolve.runs.profiles import GeneratedProfile, begin_profile, write_kept_profile
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import open_store
from textevolve.wiring import Limits


async def agenerate_profile(
    subject: str,
    *,
    agents: int = 3,
    model: str | None = None,
    seed: int = 0,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
) -> GeneratedProfile:
    """A profile for judging `subject`, written by a model. The same call again is answered from
    the store.

    Raises:
        InputError: nothing is to be judged, or the number of agents is not 2 to 12.
        AnswerError: no usable profile came in two attempts; says what was wrong.
        BudgetError: a limit was reached before.
    """
    settings = _settings(settings, model, store)
    async with open_store(Path(store or settings.store)) as opened:
        run = await begin_profile(opened, settings, subject, agents, model, seed, name)
        return await write_kept_profile(opened, run, settings, limits, listener)


def generate_profile(
    subject: str,
    *,
    agents: int = 3,
    model: str | None = None,
    seed: int = 0,
    listener: Listener = silence,
    store: str | Path | None = None,
    limits: Limits = Limits(),
    settings: Settings | None = None,
    name: str = "",
) -> GeneratedProfile:
    """`agenerate_profile`, waited for; also where an event loop runs."""
    return sync.run(
        agenerate_profile(
            subject,
            agents=agents,
            model=model,
            seed=seed,
            listener=listener,
            store=store,
            limits=limits,
            settings=settings,
            name=name,
        )
    )


def _settings(settings: Settings | None, model: str | None, store: str | Path | None) -> Settings:
    given = {"model": model, "store": store}
    return settings or read_settings({k: v for k, v in given.items() if v is not None})[0]
