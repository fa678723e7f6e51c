"""The identity of runs: everything that influences a result, by what it holds, never by its name.

Here are the fingerprint by which the store finds a run again, and the ruler with which its scores
were made: two runs are compared only if one ruler scored both. Contents of code and objects come
from `textevolve.contents`. No identity of a run is put together elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from textevolve.contents import digest_data, digest_object
from textevolve.debate.context import debate_prompts, memory_prompts
from textevolve.debate.profile import Profile
from textevolve.errors import InputError
from textevolve.evaluation import CHECKS, TITLE, Case, refer_to_images
from textevolve.json_texts import as_object, is_mapping, is_sequence
from textevolve.judges.context import judge_prompts
from textevolve.judges.debates import DebateJudge
from textevolve.judges.plain import OwnJudge
from textevolve.mappings import drop_empty, omit, pick, read_fields
from textevolve.metrics.label_metrics import describe_metric
from textevolve.runs.stored import StoredSpec, StudyRun, explain_differences
from textevolve.runs.study import Asks, StudySpec
from textevolve.spec import identity_of
from textevolve.store.repository import Store
from textevolve.user_code import ENDINGS, OWN, digest_code, load_user_object


def describe_code(asks: Asks, objects: Mapping[str, object]) -> dict[str, str]:
    """Return the content of the metrics and functions of the user that a run calls, by their names
    in the specification. Objects that were not passed are left out, since a run that is only shown
    calls none."""
    described = {metric: _describe_metric(metric, objects) for metric in asks.metrics}
    described |= {name: _describe_function(name, objects) for name in asks.code}

    for judge in asks.judges:
        for leaf in judge.leaves():
            with suppress(InputError):  # an object that is not there
                if isinstance(leaf, OwnJudge):
                    described[leaf.text] = digest_object(leaf.load(objects))
                elif not type(leaf).__module__.startswith("textevolve."):
                    # A judge of another package may change without its text.
                    described[leaf.text] = digest_object(type(leaf))

    return drop_empty(described)


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

    # The content of the files of code and of chains, by the names that the run has for them.
    contents = {name: content for name, content in stored.code.items() if ".py:" in name}
    chains: Mapping[str, Any] = stored.described.get("chains", {})
    for name, chain in chains.items():
        if name.lower().endswith(ENDINGS) or ".py:" in name:
            contents[name] = digest_data({**chain, "version": ""})

    return _by_content({**parts, "spec": identity_of(spec)}, contents)


def identify_earlier(identity: Mapping[str, Any], asks: Asks) -> dict[str, Any]:
    """Return the identity that earlier versions gave a run, so that a store of then has it: they
    knew no prompts of single judges."""
    prompts = dict(asks.prompts)
    if asks.had_all_prompts:
        profiles = [profile for judge in asks.judges for profile in judge.profiles]
        prompts |= debate_prompts(profiles) | judge_prompts()
    prompts |= pick(identity["prompts"], memory_prompts())

    return {**identity, "prompts": prompts}


def _by_content(value: Any, contents: Mapping[str, str]) -> Any:
    """Return the parts of an identity with the contents of files instead of their names, and with
    the line endings that all systems share. A list keeps its names: they name variants or metrics
    in the results."""
    if isinstance(value, str):
        return contents.get(value, value).replace("\r\n", "\n")
    if is_mapping(value):
        return {
            contents.get(name, name): _by_content(part, contents) for name, part in value.items()
        }
    if is_sequence(value):
        return [_by_content(member, {}) for member in value]
    return value


class Fingerprint:
    """A hash of all that determines a run's results, for each of some identities: that of today,
    and that of earlier versions. `hashes` have the fingerprints so far."""

    def __init__(self, *identities: Mapping[str, Any]) -> None:
        self.hashes = [hashlib.sha256(_canonical(identity).encode()) for identity in identities]

    def add(self, content: object) -> None:
        """Add the next part: a case, or the versions of the agents and collections that rows
        name."""
        line = f"\n{_canonical(content)}".encode()
        for digest in self.hashes:
            digest.update(line)


def identify_case(case: Case) -> list[Any]:
    """Return the parts of a case that identify its run."""
    row: list[Any] = [
        case.id,
        case.input,
        case.candidates,
        omit(case.parameters, [TITLE]),
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


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode


# The ruler of a run: what decides on its scores. Figures of two rulers are never compared.

RULER = ("threshold", "rubric", "latency", "tokens", "consistency", "instruction", "good")
"""The fields of specifications that decide on scores or verdicts, besides judges and metrics."""
ANSWERS = ("human", "reference", "label", CHECKS)
"""The parameters of a case that hold its right answer, or the checks of what is right."""


def describe_scorers(run: StudyRun) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of each judge of a run, with everything that its verdicts depend on."""
    stored = run.stored
    spec = run.spec
    limits = read_fields(spec, "threshold", "rubric")
    profile = getattr(spec, "profile", None)
    judges: list[tuple[str, dict[str, Any]]] = []
    if isinstance(profile, Profile):
        judges.append((f"debate:{profile.name}", _describe_profile(profile, stored.model)))

    for judge in run.asks.judges:
        files = stored.judges.get(judge.text, {})
        # Runs of earlier versions may have stored no profile.
        if isinstance(judge, DebateJudge) and "profile" in files:
            threshold = limits["threshold"]
            changed = {} if threshold is None else {"threshold": threshold}
            own_profile = Profile.model_validate({**files["profile"], **changed})
            about = _describe_profile(own_profile, judge.model or stored.model)
        else:
            about = {"judge": judge.with_model(stored.model).text, "files": files, **limits}
        judges.append((judge.text, about))

    return judges


def _describe_profile(profile: Profile, model: str) -> dict[str, Any]:
    return {"profile": profile.model_dump(mode="json"), "models": list(profile.models(model))}


def describe_ruler(run: StudyRun) -> dict[str, Any]:
    """Return what decides on the scores of a run: judges and metrics with what they hold, and the
    limits from which something passes. In a measurement of judges they are what is measured, and
    people's labels are the ruler."""
    spec = run.spec
    asks = run.asks
    options = spec.model_dump(mode="json", include=set(RULER))
    ruler: dict[str, Any] = drop_empty(options)
    if spec.measures_judges:
        return ruler
    ruler |= pick(run.stored.described, [CHECKS])  # what the study's checks name, such as code

    scorers: dict[str, Any] = {}
    for name, about in describe_scorers(run):
        # Another seed is another draw of one ruler.
        about.get("profile", {}).pop("seed", None)
        scorers[name] = {"about": about, "code": run.stored.code.get(name, "")}
    for metric in asks.metrics:
        scorers[metric] = {"code": run.stored.code.get(metric, "")}
    if asks.decides:
        scorers = pick(scorers, [asks.decides])
    names = [
        scorer["about"].get("judge", name) if "about" in scorer else name
        for name, scorer in scorers.items()
    ]

    return {"scored by": sorted(names), "with": scorers, **ruler}


def require_same_ruler(run: StudyRun, other: StudyRun) -> None:
    """Require that the scores of two runs can be compared, since one ruler gave them.

    Raises:
        InputError: the runs are of different kinds, or something that decides on scores differs;
            names it.
    """
    if run.stored.kind != other.stored.kind:
        raise InputError(
            f"run {run.id} is of the kind {run.stored.kind}, and run {other.id} of the kind"
            f" {other.stored.kind}, so their scores cannot be compared"
        )

    before = describe_ruler(run)
    now = describe_ruler(other)
    if before.get("scored by") != now.get("scored by"):
        # What they hold differs then, too, and says no more.
        before.pop("with")
        now.pop("with")
    if text := explain_differences(before, now):
        raise InputError(
            f"the scores of the runs {run.id} and {other.id} cannot be compared, since they were"
            f" not given in the same way: {text}; run both with the same judges, metrics and limits"
        )


def require_same_cases(store: Store, run: StudyRun, other: StudyRun) -> None:
    """Require that cases of the same id in two runs have the same input and the same right answer,
    as far as the runs read them.

    Raises:
        InputError: a case differs; names it, and the column.
    """
    cases_by_id = {case.id: case for case in _read_cases(store, run)}
    for case in _read_cases(store, other):
        before = cases_by_id.get(case.id)
        difference = "" if before is None else _find_difference(before, case)
        if difference:
            raise InputError(
                f"runs {run.id} and {other.id}: case '{case.id}' has another {difference} in the"
                " second run, so their scores cannot be compared; give each case an id that stays"
                " the same, and compare runs on the same data"
            )


def _read_cases(store: Store, run: StudyRun) -> Iterator[Case]:
    """Yield the cases of a run with what is compared alone."""
    asks = run.asks
    reads = run.study.reads(run.spec)
    by_reference = bool(asks.metrics) or any(judge.reads_reference for judge in asks.judges)
    for case in store.iterate_cases(run.id):
        loaded_case = reads(case)
        answers = pick(loaded_case.parameters, ANSWERS)
        if by_reference:
            tools = loaded_case.trajectory.expected_tools if loaded_case.trajectory else None
            answers = {"reference": loaded_case.reference, "expected tools": tools, **answers}
        # The texts of a labelled item are the question; elsewhere they are what is tested.
        candidates = loaded_case.candidates if "human" in answers else ()
        yield Case(loaded_case.input, candidates, loaded_case.id, answers)


def _find_difference(before: Case, now: Case) -> str:
    """Return the part in which two cases differ; empty if they are the same."""
    if before.input != now.input:
        columns = [_read_columns(case.input) for case in (before, now)]
        if not all(columns):
            return "input"
        # A column that one of the runs does not read is the business of its prompts.
        differing = [n for n in columns[0] if columns[0][n] != columns[1].get(n, columns[0][n])]
        if differing or not columns[0].keys() & columns[1].keys():
            return f"value in the column '{differing[0]}'" if differing else "input"
    if before.candidates != now.candidates:
        return "text"
    if before.parameters.get(CHECKS) != now.parameters.get(CHECKS):
        return "list of checks"
    return "right answer" if before.parameters != now.parameters else ""


def _read_columns(text: str) -> dict[str, Any]:
    """Return the columns of a row that is stored as JSON; empty for any other text."""
    try:
        return as_object(json.loads(text))
    except ValueError:
        return {}
