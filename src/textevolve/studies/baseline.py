"""The earlier run that a gate compares with: found before anything is asked, so that a name that
is wrong costs nothing."""

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
"""The kind of the runs that measure judges."""
LOOKED_AT = 1000
"""Among how many of the newest runs `last` is looked for."""


def find_baseline(
    store: Store, run: RunRecord, gates: Gates, settings: Settings
) -> RunRecord | None:
    """The run that `no_worse_than` names, with its records in the store. A name is that of the
    newest run of the kind that has it; `last` the newest but this one. None where a variant is
    meant, where there is no `last` yet, or where nothing is named.

    Raises:
        InputError: it names neither a variant nor a run of the same kind over the same inputs.
    """
    which, stored = gates.no_worse_than, read_stored(run)
    if which is None:
        return None
    study = find_study(stored.kind)
    variants = study.variants(read_spec(study, stored), stored.model)
    if which in variants:
        return None
    of_kind = [one for one in store.list_runs(LOOKED_AT) if one.spec.get("kind") == stored.kind]
    by_age = sorted(of_kind, key=lambda one: -one.updated)
    if which == LAST:
        others = (one for one in by_age if one.id != run.id and one.status == "finished")
        found = next(others, None)
        if found is None:
            return None
    else:
        named = next((one for one in by_age if one.name == which), None)
        try:
            found = named or store.get_run(which)
        except StoreAwayError:
            raise
        except StoreError as error:
            told = f"; variants: {', '.join(variants)}" if variants else ""
            raise InputError(f"--no-worse-than: {error}{told}") from None
    if (kind := read_stored(found).kind) != stored.kind:
        raise InputError(
            f"--no-worse-than: run {found.id} is of the kind {kind}, not {stored.kind}"
        )
    refuse_other_cases(store, found, run)
    sync.run(driver.restore_records(store, found, settings))
    return found


def check_judges(store: Store, run: RunRecord, gates: Gates) -> list[GateOutcome]:
    """Check each judge of a run by the agreement run that `measured_on` names, before anything is
    asked. A judge is the same if its text, its model, the files behind it and its threshold are.

    Raises:
        StoreError: the store cannot be read.
    """
    if gates.min_agreement is None:
        return []
    measurement = max(
        (one for one in store.list_runs(LOOKED_AT) if _measures(one, gates.measured_on)),
        key=lambda one: one.updated,
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
    """Tell whether a run is a finished measurement of this name or id, or on these labels."""
    finished = run.spec.get("kind") == MEASURES and run.status == "finished"
    return finished and name in (run.id, run.name, *run.spec["spec"].get("items", ()))


def _identify_judges(stored: StoredSpec) -> list[tuple[str, str]]:
    """Return the judges of a run by name, each with all that makes its verdicts, as JSON."""
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
            own = Profile.model_validate({**files["profile"], **changed})
            about = _describe(own, parsed.model or stored.model)
        judges.append((judge, about))
    return [(judge, json.dumps(about, sort_keys=True)) for judge, about in judges]


def _describe(profile: Profile, model: str) -> object:
    return [profile.model_dump(mode="json"), profile.models(model)]


def refuse_other_cases(store: Store, one: RunRecord, other: RunRecord) -> None:
    """Raises InputError where a case of two runs is not the same in both."""
    inputs = {case.id: case.input for case in store.iterate_cases(one.id)}
    for case in store.iterate_cases(other.id):
        if inputs.get(case.id, case.input) != case.input:
            raise InputError(
                f"runs {one.id} and {other.id}: case '{case.id}' is not the same in both, so their"
                " scores cannot be compared; give cases an id of their own that stays"
            )


def check_run(
    store: Store,
    run: RunRecord,
    rows: Iterable[Row],
    gates: Gates,
    baseline: RunRecord | None = None,
    judges: Sequence[GateOutcome] = (),
) -> Gated:
    """Check the gates of a run with these rows; the intervals are those of its report. `judges`:
    the outcomes of `check_judges`, which were known before anything was asked."""
    earlier = None
    if baseline is not None:
        study = find_study(read_stored(baseline).kind)
        earlier = map(study.row, read_records(store, baseline)())
    in_order = sorted(rows, key=lambda row: (row.position, row.key))
    itself = baseline is not None and baseline.id == run.id
    return Gated(gates, check_gates(in_order, gates, earlier, itself=itself, judges=judges))
