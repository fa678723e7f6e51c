"""Cases taken in for runs of the kinds that are no studies."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from textevolve.evaluation import Case
from textevolve.runs.spec import Fingerprint, MeasurementSpec
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord


def take_in(
    store: Store,
    spec: MeasurementSpec,
    cases: Iterable[Case],
    *,
    name: str = "",
    source: str = "",
) -> RunRecord:
    """Keep the cases; gives the run that they and the specification make, perhaps an old one."""
    fingerprint = Fingerprint(spec.identity)

    def noted() -> Iterable[Case]:
        for case in cases:
            fingerprint.add(case)
            yield case

    draft = store.create_run(
        spec.model_dump(mode="json"), f"draft-{secrets.token_hex(16)}", name, source
    )
    try:
        store.add_cases(draft.id, noted())
        return store.settle_run(draft.id, fingerprint.hexdigest())
    except BaseException:
        store.delete_run(draft.id)
        raise
