"""The earlier runs that gates depend on: the run that scores are compared with, and the runs in
which the judges' agreement with people was measured. Both are looked up before the first model
call, so that a wrong name costs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textevolve.debate.profile import Profile
from textevolve.engine import sync
from textevolve.errors import InputError, StoreAwayError, StoreError
from textevolve.evaluators import parse_evaluator, with_model
from textevolve.report.blocks import Estimate
from textevolve.settings import Settings
from textevolve.studies import driver
from textevolve.studies.cells import estimate
from textevolve.studies.gates import (
    LAST,
    Gated,
    GateOutcome,
    Gates,
    check_agreement,
    check_gates,
)
from textevolve.studies.kinds import find_study
from textevolve.studies.stored import StoredSpec, read_records, read_spec, read_stored
from textevolve.studies.study import Row

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord

MEASURES = "agreement"
"""The kind of study that measures how far judges agree with people."""
LOOKED_AT = 1000
"""The number of runs, the newest first, among which a name is looked up."""


def find_baseline(
    store: Store, run: RunRecord, gates: Gates, settings: Settings
) -> RunRecord | None:
    """Return the run that the gate `no_worse_than` names by name or id, with its records in the
    store. If several runs of the same kind have the name, the newest counts; the name `last` means
    the newest finished run of the kind other than this one. Return None without such a gate, if the
    name is that of a variant, or if there is no `last` run yet.

    Raises:
        InputError: there is neither a variant nor a run of the same kind and inputs of that name.
    """
    name, stored = gates.no_worse_than, read_stored(run)
    if name is None:
        return None
    study = find_study(stored.kind)
    variants = study.variants(read_spec(study, stored), stored.model)
    if name in variants:
        return None
    of_kind = [
        listed_run
        for listed_run in store.list_runs(LOOKED_AT)
        if listed_run.spec.get("kind") == stored.kind
    ]
    by_age = sorted(of_kind, key=lambda listed_run: -listed_run.updated)
    if name == LAST:
        earlier_runs = (
            listed_run
            for listed_run in by_age
            if listed_run.id != run.id and listed_run.status == "finished"
        )
        baseline = next(earlier_runs, None)
        if baseline is None:
            return None
    else:
        named_run = next((listed_run for listed_run in by_age if listed_run.name == name), None)
        try:
            baseline = named_run or store.get_run(name)
        except StoreAwayError:
            raise
        except StoreError as error:
            hint = f"; variants: {', '.join(variants)}" if variants else ""
            raise InputError(f"--no-worse-than: {error}{hint}") from None
    if (kind := read_stored(baseline).kind) != stored.kind:
        raise InputError(
            f"--no-worse-than: run {baseline.id} is of the kind {kind}, not {stored.kind}"
        )
    require_same_cases(store, baseline, run)
    sync.run(driver.restore_records(store, baseline, settings))
    return baseline


def check_judges(store: Store, run: RunRecord, gates: Gates) -> list[GateOutcome]:
    """Check for each judge of a run that it agreed with people often enough in the newest finished
    agreement run that `measured_on` names; return an outcome for each judge, none without the gate
    `min_agreement`. A measured judge is the same judge if its text, model, files, threshold and
    rubric are the same. The check precedes the first model call.

    Raises:
        StoreError: the store cannot be read.
    """
    if gates.min_agreement is None:
        return []
    measurement = max(
        (
            listed_run
            for listed_run in store.list_runs(LOOKED_AT)
            if _measures(listed_run, gates.measured_on)
        ),
        key=lambda listed_run: listed_run.updated,
        default=None,
    )
    figures, blind = dict[str, Estimate](), ("", 0.0)
    if measurement is not None:
        study, measured = find_study(MEASURES), read_stored(measurement)
        records = read_records(store, measurement)()
        summary = study.summarise(read_spec(study, measured), records).summary
        for judge, about in _identify_judges(measured):
            figures[about] = estimate(summary.judge(judge).accuracy)
        blind = max(summary.blind_answers, key=lambda answer: answer[1])
    judges = _identify_judges(read_stored(run)) or [("no judge", "")]
    return [check_agreement(judge, figures.get(about), blind, gates) for judge, about in judges]


def _measures(run: RunRecord, name: str | None) -> bool:
    """Tell whether a run is a finished measurement of judges that has this name or id, or that used
    the labels in a file of this name."""
    finished = run.spec.get("kind") == MEASURES and run.status == "finished"
    return finished and name in (run.id, run.name, *run.spec["spec"].get("items", ()))


def _identify_judges(stored: StoredSpec) -> list[tuple[str, str]]:
    """Return the name of each judge of a run, with everything that its verdicts depend on as
    JSON."""
    study = find_study(stored.kind)
    spec = read_spec(study, stored)
    threshold, rubric = getattr(spec, "threshold", None), getattr(spec, "rubric", None)
    profile, judges = getattr(spec, "profile", None), list[tuple[str, object]]()
    if isinstance(profile, Profile):
        judges.append((f"debate:{profile.name}", _describe(profile, stored.model)))
    for judge in study.asks(spec).judges:
        parsed, files = parse_evaluator(judge), stored.judges.get(judge, {})
        about: object = [with_model(judge, stored.model), files, threshold, rubric]
        if parsed.is_debate:
            changed = {} if threshold is None else {"threshold": threshold}
            judge_profile = Profile.model_validate({**files["profile"], **changed})
            about = _describe(judge_profile, parsed.model or stored.model)
        judges.append((judge, about))
    return [(judge, json.dumps(about, sort_keys=True)) for judge, about in judges]


def _describe(profile: Profile, model: str) -> object:
    return [profile.model_dump(mode="json"), profile.models(model)]


def require_same_cases(store: Store, run: RunRecord, other: RunRecord) -> None:
    """Raise InputError if the two runs have cases with the same id but different inputs."""
    inputs = {case.id: case.input for case in store.iterate_cases(run.id)}
    for case in store.iterate_cases(other.id):
        if inputs.get(case.id, case.input) != case.input:
            raise InputError(
                f"runs {run.id} and {other.id}: case '{case.id}' has another input in the second"
                " run, so their scores cannot be compared; give each case an id that stays the"
                " same"
            )


def check_run(
    store: Store,
    run: RunRecord,
    rows: Iterable[Row],
    gates: Gates,
    baseline: RunRecord | None = None,
    judges: Sequence[GateOutcome] = (),
) -> Gated:
    """Check the gates of a run with these rows, by the same intervals as in the run's report.
    `judges`: the outcomes of `check_judges`."""
    earlier = None
    if baseline is not None:
        study = find_study(read_stored(baseline).kind)
        earlier = map(study.row, read_records(store, baseline)())
    in_order = sorted(rows, key=lambda row: (row.position, row.key))
    itself = baseline is not None and baseline.id == run.id
    return Gated(gates, check_gates(in_order, gates, earlier, itself=itself, judges=judges))
