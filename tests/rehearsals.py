"""An estimate of a study, as `--dry-run` makes it, for tests that have no command line."""

from types import SimpleNamespace

from textevolve.settings import read_settings
from textevolve.studies import driver
from textevolve.studies.kinds import find_study
from textevolve.studies.rehearsal import forecast


async def estimate_study(kind, cases, **fields):
    """The range for these cases; nothing listens where the model of the settings would be."""
    study, settings = find_study(kind), read_settings({"model": "http://127.0.0.1:9#scripted"})[0]
    spec = study.spec(**fields)
    stored = await driver.specify(study, spec, settings, asks_models=False)
    data = await forecast(study, stored, cases, settings)
    ends = {name: SimpleNamespace(**data[name]) for name in ("least", "most")}
    return SimpleNamespace(cases=data["cases"], **ends)


async def estimate_judge(case, judge):
    """The range for a case before a judge."""
    return await estimate_study("evaluate", [case], judge=judge)
