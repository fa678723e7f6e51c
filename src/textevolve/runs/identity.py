"""The identity of runs: everything that influences a result, by what it holds, never by its name.

Here are the fingerprint by which the store finds a run again, and the ruler with which its scores
were made: two runs are compared only if one ruler scored both. Contents of code and objects come
from `textevolve.contents`. No identity of a run is put together elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textevolve.contents import digest_object
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluation import Case, refer_to_images
from textevolve.judges.debates import DebateJudge
from textevolve.judges.plain import OwnJudge
from textevolve.metrics.label_metrics import describe_metric
from textevolve.spec import identity_of
from textevolve.user_code import OWN, digest_code, load_user_object

if TYPE_CHECKING:
    from textevolve.runs.stored import StoredSpec, StudyRun
    from textevolve.runs.study import Asks, StudySpec


def describe_code(asks: Asks, objects: Mapping[str, object]) -> dict[str, str]:
    """Return the content of the metrics and functions of the user that a run calls, by their names
    in the specification. Objects that were not passed are left out, since a run that is only shown
    calls none."""
    described = {metric: _describe_metric(metric, objects) for metric in asks.metrics}
    described |= {name: _describe_function(name, objects) for name in asks.code}

    for leaf in (leaf for judge in asks.judges for leaf in judge.leaves()):
        with suppress(InputError):  # an object that is not there
            if isinstance(leaf, OwnJudge):
                described[leaf.text] = digest_object(leaf.load(objects))
            elif not type(leaf).__module__.startswith("textevolve."):
                described[leaf.text] = digest_object(type(leaf))

    return {name: content for name, content in described.items() if content}


def _describe_metric(metric: str, objects: Mapping[str, object]) -> str:
    if metric.startswith(OWN):
        return _describe_function(metric, objects)
    return describe_metric(metric)


def _describe_function(name: str, objects: Mapping[str, object]) -> str:
    if not name.startswith(OWN):
        return digest_code(name)
    with suppress(InputError):
        return digest_object(load_user_object(name, objects))
    return ""


# The fingerprint of a run.


def identify_run(stored: StoredSpec, spec: StudySpec) -> dict[str, Any]:
    """Return the inputs that identify a run, without its cases. The date in its prompts is not one
    of them: the same command on another day resumes the same run. `spec`: the specification as its
    study reads it."""
    parts = stored.model_dump(mode="json", include={"kind", "model", "judges", "prompts"})
    for name in ("described", "code", "fresh"):
        # An empty part is left out, so that fingerprints of earlier versions stay valid.
        value = getattr(stored, name)
        if value:
            parts[name] = value

    return {**parts, "spec": identity_of(spec)}


class Fingerprint:
    """A hash of all that determines a run's results. `text` is the fingerprint so far."""

    def __init__(self, identity: Mapping[str, Any]) -> None:
        self._hash = hashlib.sha256(_canonical(identity))

    def add(self, case: Case) -> None:
        self._hash.update(b"\n" + _canonical(identify_case(case)))

    @property
    def text(self) -> str:
        return self._hash.hexdigest()


def identify_case(case: Case) -> list[Any]:
    """Return the parts of a case that identify its run."""
    row: list[Any] = [
        case.id,
        case.input,
        case.candidates,
        dict(case.parameters),
        case.reference,
    ]
    if case.context is not None:
        row.append(case.context)
    if case.trajectory is not None:
        row.append(case.trajectory.as_row())
    if case.images or case.candidate_images:
        referring_case = refer_to_images(case)
        images = referring_case.images
        row.append({"images": images, "of_candidates": referring_case.candidate_images})

    return row


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str).encode()
