"""The registry of all kinds of studies. Other packages add theirs by an entry point in the group
`textevolve.studies` that names a `Study`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from textevolve.errors import InputError
from textevolve.studies.study import AnyStudy
from textevolve.user_code import load_point

# The group of the entry points by which other packages add kinds of studies.
GROUP = "textevolve.studies"

KINDS: Mapping[str, str] = {
    "evaluate": "textevolve.studies.evaluate",
    "compare": "textevolve.studies.compare",
    "compare-quants": "textevolve.studies.compare_quants",
    "calibrate": "textevolve.studies.calibrate",
    "chain": "textevolve.studies.run_chain",
    "agreement": "textevolve.studies.agreement",
    "ablation": "textevolve.studies.ablation",
    "escalation": "textevolve.studies.escalation",
    "robustness": "textevolve.studies.robustness",
    "fit": "textevolve.studies.fit",
    "rates": "textevolve.studies.rates",
    "assertions": "textevolve.studies.assertions",
    "nodes": "textevolve.studies.nodes",
    "memory-eval": "textevolve.studies.memory_eval",
    "optimize": "textevolve.studies.optimize",
    "innovate": "textevolve.studies.innovate",
    "guide": "textevolve.studies.guide",
    "profile": "textevolve.studies.profile",
    "summarize": "textevolve.studies.summarize",
    "create-memories": "textevolve.studies.create_memories",
    "integrate-memories": "textevolve.studies.integrate_memories",
    "read-corpus": "textevolve.studies.read_corpus",
    "evolve-persona": "textevolve.studies.evolve_persona",
}
"""The module that holds the `STUDY` of each kind. A module is loaded only when its kind is used."""


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds of studies, this package's own first."""
    external = {point.name for point in entry_points(group=GROUP)} - set(KINDS)
    return (*KINDS, *sorted(external))


def find_study(kind: str) -> AnyStudy:
    """Return the study of a kind.

    Raises:
        InputError: there is no such kind; lists the kinds.
    """
    if kind in KINDS:
        return cast(AnyStudy, import_module(KINDS[kind]).STUDY)
    for point in entry_points(group=GROUP):
        if point.name == kind:
            return cast(AnyStudy, load_point(point))
    raise InputError(f"no kind of study is named '{kind}'; there are: {', '.join(kinds())}")
