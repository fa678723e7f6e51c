"""The identity of runs: everything that influences a result, by what it holds, never by its name.

Here are the fingerprint by which the store finds a run again, and the ruler with which its scores
were made: two runs are compared only if one ruler scored both. Contents of code and objects come
from `textevolve.contents`. No identity of a run is put together elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from textevolve.contents import digest, digest_object
from textevolve.errors import InputError
from textevolve.evaluation import Case, refer_to_images
from textevolve.judges.plain import OwnJudge
from textevolve.metrics.label_metrics import describe_metric
from textevolve.spec import identity_of
from textevolve.user_code import ENDINGS, OWN, digest_code, load_user_object

if TYPE_CHECKING:
    from textevolve.runs.stored import StoredSpec
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

    return _by_content({**parts, "spec": identity_of(spec)}, _contents_of(stored))


def _contents_of(stored: StoredSpec) -> dict[str, str]:
    """Return the content of the files of code and of chains by the names that a run has for
    them."""
    contents = {name: content for name, content in stored.code.items() if ".py:" in name}
    chains: Mapping[str, Any] = stored.described.get("chains", {})
    for name, chain in chains.items():
        if name.lower().endswith(ENDINGS) or ".py:" in name:
            contents[name] = digest({**chain, "version": ""})

    return contents


def _by_content(value: Any, contents: Mapping[str, str]) -> Any:
    """Return the parts of an identity with contents in the place of names of files, and with the
    ends of lines that all systems share. A list keeps its names: they name variants or metrics in
    the results."""
    if isinstance(value, str):
        return contents.get(value, value).replace("\r\n", "\n")
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return {
            contents.get(name, name): _by_content(part, contents) for name, part in parts.items()
        }
    if isinstance(value, list | tuple):
        members = cast("Sequence[Any]", value)
        return [_by_content(member, {}) for member in members]
    return value


class Fingerprint:
    """A hash of all that determines a run's results. `reads`: keeps the part of a case that the run
    reads. `text` is the fingerprint so far."""

    def __init__(self, identity: Mapping[str, Any], reads: Callable[[Case], Case]) -> None:
        self._hash = hashlib.sha256(_canonical(identity))
        self._reads = reads

    def add(self, case: Case) -> None:
        self._hash.update(b"\n" + _canonical(identify_case(self._reads(case))))

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
