"""What earlier runs of the same kind have used: those that asked the same of other cases.

What follows from that for another run is reckoned in `estimates/expected.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from textevolve.estimates.expected import Used
from textevolve.settings import Settings
from textevolve.studies.stored import StoredSpec
from textevolve.studies.study import AnyStudy

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

MOST_RUNS, MOST_USED = 500, 20
"""So many of the newest runs are looked at, and so many of those that are alike are used."""


def find_earlier(study: AnyStudy, stored: StoredSpec, settings: Settings) -> list[Used]:
    """What finished runs used, the newest first: of this kind, with this model and these options,
    over whatever cases. Answers that a run found in the journal count like those that it asked for.
    """
    from textevolve.store.repository import open_store

    if isinstance(settings.store, Path) and not settings.store.exists():
        return []
    with open_store(settings.store) as store:
        alike = [run for run in store.list_runs(MOST_RUNS) if _is_alike(study, stored, run)]
        found = [_read_used(store, run) for run in alike[:MOST_USED]]
    return [one for one in found if one.usage.calls]


def _is_alike(study: AnyStudy, stored: StoredSpec, run: RunRecord) -> bool:
    if run.status != "finished" or not run.n_cases or run.spec.get("kind") != stored.kind:
        return False
    try:
        return _options(study, StoredSpec.model_validate(run.spec)) == _options(study, stored)
    except ValidationError:  # of an earlier version, which had other options
        return False


def _options(study: AnyStudy, stored: StoredSpec) -> dict[str, Any]:
    """What decides how much a case takes: all that makes a run but its prompts' exact words."""
    every = stored.identity(study)
    return {name: every[name] for name in ("kind", "model", "judges", "spec")}


def _read_used(store: Store, run: RunRecord) -> Used:
    totals = store.run_totals(run.id)
    seconds = None if totals.reused.calls else store.busy_seconds(run.id)
    return Used(run.n_cases or 0, totals.spent + totals.reused, seconds)
