"""Reports on stored runs: for readers, as data for programs, and as output files.

`driver.py` makes and stores the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.mappings import drop_empty
from textevolve.reach import is_confined
from textevolve.report import wording
from textevolve.report.blocks import Block, Matrix, Report, Section
from textevolve.report.data import WRITERS, choose_writer, plain, write_rows
from textevolve.report.html import write_html
from textevolve.report.markdown import write_markdown
from textevolve.studies.aggregates import Aggregates, aggregates_data, collect_figures
from textevolve.studies.driver import models_asked
from textevolve.studies.gates import UNGATED, Gated, draw_gates
from textevolve.studies.results import draw_results
from textevolve.studies.run_list import field_names
from textevolve.studies.stored import Records, StoredSpec, read_spec, read_stored
from textevolve.studies.study import AnyStudy, StudySpec

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord


@dataclass
class _CountedRecords:
    """An iterable of records that reads them anew in each iteration, so that they are never in
    memory all at once. After an iteration `number` is their number, and `sums` are their aggregates
    by variant."""

    study: AnyStudy
    records: Records
    threshold: float | None
    number: int = 0
    sums: dict[str, Aggregates] = empty_default(dict)

    def __iter__(self) -> Iterator[Any]:
        sums = dict[str, Aggregates]()
        for number, record in enumerate(self.records(), 1):
            row = self.study.row(record)
            sums.setdefault(row.variant, Aggregates(self.threshold)).add(row)
            self.number = number
            yield record
        self.sums = {variant: figures for variant, figures in sums.items() if figures.records}


def make_report(
    study: AnyStudy, store: Store, run: RunRecord, records: Records, gated: Gated = UNGATED
) -> Report:
    """Return the report of a run: the verdict in a sentence, gates, results, the study's own
    blocks, and the facts of the run. The facts precede the matrix, which may be long."""
    spec = read_spec(study, read_stored(run))
    counted = _CountedRecords(study, records, gated.gates.pass_threshold)
    study_report = study.report(spec, study.summarise(spec, counted))
    results: list[Block] = []
    if study.aggregates or study.rows is not None:
        results = draw_results(study, spec, store, run.id, counted.sums)

    def order() -> Iterator[Block]:
        present_facts = {**study_report.facts, **describe_run(study, spec, store, run)}
        facts = drop_empty(present_facts)
        yield from (*draw_gates(gated.outcomes), *results)
        for block in study_report.blocks:
            if facts and isinstance(block, Matrix):
                yield Section("About this run", (), facts)
                facts = {}
            yield block
        yield from [Section("About this run", (), facts)] if facts else []

    sentence = wording.shorten_models(study_report.sentence)
    return replace(study_report, sentence=sentence, blocks=order(), facts={})


def describe_run(study: AnyStudy, spec: StudySpec, store: Store, run: RunRecord) -> dict[str, str]:
    """Return facts about a run: its models, settings, cost and store. Some may be empty."""
    stored = read_stored(run)
    totals = store.run_totals(run.id)
    spent = replace(totals.spent, **stored.answers)
    models = [
        f"{stored.model} ({stored.why})" if stored.why else stored.model,
        *_list_other_models(study, spec, stored),
    ]
    return {
        "Model": wording.shorten_models(", ".join(filter(None, models))),
        "Other models": wording.shorten_models(wording.other_models(spent)),
        "Settings": wording.shorten_models(_describe_settings(spec)),
        "Spent": wording.spent(spent),
        "Costs": "; ".join(stored.prices),
        "Reused answers": f"{reused:,}" if (reused := totals.reused.calls) else "",
        "Run": run.id if is_confined() else f"{run.id} in {store.place}",
    }


def _describe_settings(spec: StudySpec) -> str:
    """Describe the options that differ from their defaults, except models, which are separate
    facts."""
    options = spec.model_dump(mode="json", exclude_defaults=True, exclude={"model", "models"})
    texts = {
        name: str(value) if isinstance(value, int | float) else ", ".join(field_names(value))
        for name, value in options.items()
    }
    return "; ".join(
        f"{name.replace('_', ' ')} {wording.shorten(text, 80)}"
        for name, text in texts.items()
        if text
    )


def _list_other_models(study: AnyStudy, spec: StudySpec, stored: StoredSpec) -> list[str]:
    """Return the models that the run calls besides its main one; empty if a judge's file is
    missing."""
    same = (stored.model, stored.model.partition("/")[0])
    try:
        return [model for model in models_asked(study.asks(spec), stored) if model not in same]
    except InputError:
        return []


def make_data(
    study: AnyStudy, run: RunRecord, records: Records, gated: Gated = UNGATED
) -> dict[str, Any]:
    """Return the report as JSON-ready data for programs."""
    stored = read_stored(run)
    spec = read_spec(study, stored)
    counted = _CountedRecords(study, records, gated.gates.pass_threshold)
    data = study.data(spec, study.summarise(spec, counted))
    content = {"kind": stored.kind, "run": run.id, "model": stored.model, **data}
    content |= {"costs": "; ".join(stored.prices)} if stored.prices else {}
    content |= {"answers": dict(stored.answers)} if stored.answers else {}
    sums = aggregates_data(counted.sums) if study.aggregates else {}
    content["aggregates"] = dict(
        collect_figures(plain({"records": counted.number, **sums, **data}))
    )
    return content | ({"gates": gated.outcomes} if gated.outcomes else {})


ROWS = (".jsonl", ".csv", ".parquet")
WHOLE = (".json", ".html", ".md")
"""The endings of output formats: those in `ROWS` are written row by row, those in `WHOLE` as one
document."""


def check_format(ending: str) -> None:
    """Raise SettingsError if the package that writes a format is missing."""
    if ending in WRITERS:
        choose_writer(ending)


def write_output(
    study: AnyStudy,
    store: Store,
    run: RunRecord,
    records: Records,
    ending: str,
    target: IO[bytes],
    *,
    gated: Gated = UNGATED,
) -> None:
    """Write the result in the format of an ending, one of `ROWS` and `WHOLE`."""
    if ending in ROWS:
        write_records(study, records, target, ending)
    elif ending == ".html":
        write_html(make_report(study, store, run, records, gated), target)
    elif ending == ".md":
        write_markdown(make_report(study, store, run, records, gated), target)
    else:
        target.write(json_line(make_data(study, run, records, gated)))


def write_records(study: AnyStudy, records: Records, target: IO[bytes], ending: str) -> None:
    """Write the records as lines of JSON, or as the rows of a table."""
    if ending == ".jsonl" and study.line is not None:
        for record in records():
            target.write((study.line(record) + "\n").encode())
    else:
        write_rows(lambda: chain.from_iterable(map(study.flat, records())), target, ending)


def json_line(data: Any) -> bytes:
    """Return data as one line of JSON in UTF-8; a missing figure is null."""
    text = json.dumps(plain(data), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")
