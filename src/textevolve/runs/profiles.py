"""Having a profile written as a run: asked once, kept, and checked as every profile is."""

from __future__ import annotations

from dataclasses import dataclass

from textevolve.debate.profile import Profile, parse_profile
from textevolve.evaluation import Case, Usage
from textevolve.events import Listener, silence
from textevolve.loops.profile_writing import WrittenProfile, check_subject, write_profile
from textevolve.runs.improving import open_means, specify_loop
from textevolve.runs.work import take_in
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits

SOURCE = "as generated"


@dataclass(frozen=True, slots=True)
class GeneratedProfile:
    """A profile that a model wrote, ready for a debate, and `text`: the same as YAML, in which the
    reasons for the weights stand as comments."""

    profile: Profile
    written: WrittenProfile
    run: str
    model: str

    @property
    def text(self) -> str:
        return self.written.text

    @property
    def usage(self) -> Usage:
        return self.written.usage


async def begin_profile(
    store: Store,
    settings: Settings,
    subject: str,
    agents: int,
    model: str | None,
    seed: int = 0,
    name: str = "",
    source: str = "Python",
) -> RunRecord:
    """The run that has a profile written for `subject`: a new one, or the one that is kept."""
    check_subject(subject, agents)
    parameters = {"agents": agents, "seed": seed}
    spec = await specify_loop(settings, "profile", (), model, parameters)
    return take_in(store, spec, [Case(subject, (), "1")], name=name, source=source)


async def write_kept_profile(
    store: Store,
    run: RunRecord,
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
) -> GeneratedProfile:
    """Have the profile of a run written, or read it from the journal.

    Raises:
        AnswerError: no usable profile came; says why. BudgetError: a limit was reached first.
    """
    (case,) = store.iterate_cases(run.id)
    parameters = run.spec["parameters"]
    async with open_means(store, run, settings, limits, listener) as means:
        written = await write_profile(
            means.model,
            case.input,
            _check,
            agents=parameters["agents"],
            seed=parameters["seed"],
            listener=listener,
        )
        store.finish_run(run.id, "finished")
    return GeneratedProfile(_check(written.text), written, run.id, run.spec["model"])


def _check(text: str) -> Profile:
    return parse_profile(text, SOURCE)
