"""What is told of a run: the report that people see, and the same as data for programs.

How records come about, and where they are kept, is in `driver.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.studies.aggregates import Aggregates, aggregates_data, draw_aggregates
from textevolve.studies.driver import Records, read_spec, read_stored
from textevolve.studies.gates import UNGATED, Gated, draw_gates
from textevolve.studies.study import AnyStudy, StudySpec

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord


@dataclass(frozen=True)
class _Again:
    """Records that a summary may keep to go through them once more, without their being in memory
    all at once."""

    records: Records

    def __iter__(self) -> Iterator[Any]:
        return self.records()


def make_report(
    study: AnyStudy, store: Store, run: RunRecord, records: Records, gated: Gated = UNGATED
) -> Report:
    """What a person is shown of a run: gates and aggregates, the study's report, and the facts of
    the run."""
    stored = read_stored(run)
    spec = read_spec(study, stored)
    result, sums = _summarise(study, spec, records, gated)
    made = study.report(spec, result)
    totals = store.run_totals(run.id)
    facts = {
        "Model": f"{stored.model} ({stored.why})" if stored.why else stored.model,
        "Spent": wording.spent(totals.spent),
        "Costs": "; ".join(stored.prices),
        "From the journal": wording.count(totals.reused.calls, "answer"),
        "Run": f"{run.id} in {store.place}",
    }
    blocks = chain(draw_gates(gated.outcomes), draw_aggregates(sums), made.blocks)
    return replace(
        made, blocks=blocks, facts={**made.facts, **{n: v for n, v in facts.items() if v}}
    )


def make_data(
    study: AnyStudy, run: RunRecord, records: Records, gated: Gated = UNGATED
) -> dict[str, Any]:
    """The same for programs, as JSON-ready data."""
    stored = read_stored(run)
    spec = read_spec(study, stored)
    result, sums = _summarise(study, spec, records, gated)
    found = {"kind": stored.kind, "run": run.id, "model": stored.model, **study.data(spec, result)}
    found |= {"costs": "; ".join(stored.prices)} if stored.prices else {}
    found |= {"aggregates": aggregates_data(sums)} if sums else {}
    return found | ({"gates": gated.outcomes} if gated.outcomes else {})


def _summarise(
    study: AnyStudy, spec: StudySpec, records: Records, gated: Gated
) -> tuple[Any, dict[str, Aggregates]]:
    """What the study makes of the records, and what their rows come to by variant, read once."""
    sums: dict[str, Aggregates] = {}

    def added() -> Iterator[Any]:
        for record in records():
            row = study.row(record)
            sums.setdefault(row.variant, Aggregates(gated.gates.pass_threshold)).add(row)
            yield record

    result = study.summarise(spec, added() if study.aggregates else _Again(records))
    return result, {variant: one for variant, one in sums.items() if one.records}
