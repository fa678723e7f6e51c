"""`textevolve runs`: list, show, resume, compare, export and delete stored runs of all kinds."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from textevolve.cli import options, say
from textevolve.cli.late import gathering, trackers
from textevolve.cli.results import format_record, print_json, print_list, show_report
from textevolve.cli.spec_options import keyword
from textevolve.cli.study import RunOptions, shape_command, take_launch
from textevolve.cli.working import LIMIT_OPTIONS, execute
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.json_texts import write_text
from textevolve.llm.batches.ledger import BatchMeans, KeptBatch
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, main_score
from textevolve.runs import driver
from textevolve.runs.logs import is_log_target, write_logs
from textevolve.runs.report import (
    ListedRun,
    compare_stored,
    make_data,
    make_report,
    report_comparison,
)
from textevolve.runs.stored import StudyRun, decode_record, read_records, show_rows
from textevolve.runs.stored_runs import (
    check_outputs,
    find_runs,
    get_whole,
    is_complete,
    reread,
    run_data,
    study_kind,
    write_outputs,
)
from textevolve.runs.study import Row
from textevolve.settings import Settings, read_settings
from textevolve.spec import files_read
from textevolve.store.records import RecordFilter, StoredRecord
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord

WORDS = ("input", "people", "response", "A", "B", "text", "output")
"""The fields of a record's table row that say what was judged, for lists of records."""
RunName = Annotated[
    str, typer.Argument(help="The run's id, the start or end of it, its name, or 'last'.")
]


def list_runs(
    limit: Annotated[
        int, typer.Option(min=1, help="The number of runs to list, the newest first.")
    ] = 20,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="List also the runs that hold calls of servers, chats and memories."
        ),
    ] = False,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """List the stored runs, each with its result and the change since its study's previous run."""
    settings = read_settings(store=store)
    with open_store(settings.store) as opened:
        print_list(
            find_runs(opened, limit, everything=everything),
            lambda one: run_data(one, opened.run_totals(one.run.id)),
            lambda rows: show_report(report_runs(rows)),
            f"no runs in {settings.store}; make one with: textevolve evaluate"
            ' "Say hello." "Hello!" "No."',
            as_json=as_json,
        )


def tag(
    run: RunName,
    tags: Annotated[
        list[str] | None,
        typer.Argument(
            help="The new tags, which replace the old ones; without any the run has no tags."
        ),
    ] = None,
    store: options.StoreFile = None,
) -> None:
    """Set the tags of a run, which lists of runs show and find it by."""
    with open_store(read_settings(store=store).store) as opened:
        record = opened.get_run(run)
        opened.respecify(record.id, {"tags": list(dict.fromkeys(tags or ()))})
    typer.echo(f"run {record.id}: {', '.join(tags) if tags else 'no tags'}")


def show(
    run: RunName = "last",
    failed: Annotated[
        bool, typer.Option("--failed", help="Show only records without a score, with the reason.")
    ] = False,
    below: Annotated[
        float | None,
        typer.Option(
            help="Show only records with a score below this, from 0 to 1; default: all records."
        ),
    ] = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """Show a run's results, without a model call."""
    chosen = failed or below is not None
    matching = RecordFilter(("failed", "skipped") if failed else (), below)
    with _open(store) as (settings, opened):
        restored = _get_restored(opened, run, settings)
        study = restored.study
        records = read_records(opened, restored, matching)
        if as_json and (study.streams or chosen):
            for each in records():
                print(format_record(study, each))
        elif as_json:
            print_json(make_data(restored, records))
        elif chosen:
            show_report(list_records(opened, restored, matching))
        else:
            show_report(make_report(opened, restored, records))


RESUMED = ("output", "concurrency", "batch", "on", *LIMIT_OPTIONS, "as_json", "store")
"""The options that the command for resuming a run takes, among those of all runs."""


def _resume(run: str = "last", **values: Any) -> None:
    """Resume a run: only missing calls are made."""
    run_options = RunOptions(**values)
    settings = read_settings(
        store=run_options.store,
        concurrency=run_options.concurrency,
        batch=run_options.batch or None,
        on=run_options.on,
    )

    with open_store(settings.store) as opened:
        full_run = get_whole(opened, run)
        check_outputs(full_run.study, run_options.output or (), files_read(full_run.spec))
        complete = is_complete(opened, full_run)
        follow = partial(reread, opened, full_run) if complete else None  # metrics may take long
        raise typer.Exit(
            execute(opened, full_run, settings, take_launch(run_options), run_options, follow)
        )


resume = shape_command(_resume, [keyword("run", RunName, "last")], RESUMED)


def export(
    run: RunName,
    output: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files to write, by their endings: .json, .jsonl, .csv, .parquet, .html or .md; -"
            " is standard output."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Where the run is written as well: mlflow:URL, or a folder for files of another"
            " program: inspect:FOLDER, every-eval-ever:FOLDER, atif:FOLDER; default: nowhere.",
        ),
    ] = None,
    store: options.StoreFile = None,
) -> None:
    """Write a run's results to files: tables, JSON, or pages that open from disk."""
    if not output and to is None:
        raise InputError("name a file to write, such as results.csv")
    with _open(store) as (settings, opened):
        full_run = get_whole(opened, run)
        check_outputs(full_run.study, output or (), files_read(full_run.spec))
        _restore(opened, full_run, settings)
        for line in write_outputs(opened, full_run, read_records(opened, full_run), output or ()):
            say(line)
        if to is not None and is_log_target(to):
            for line in write_logs(opened, full_run, to):
                say(line)
        elif to is not None:
            say(f"written to {sync.run(trackers.write_run(opened, full_run, to, settings))}")


def annotate(
    run: RunName,
    target: Annotated[
        str, typer.Argument(help="The service that has the spans: phoenix:URL or mlflow:URL.")
    ],
    store: options.StoreFile = None,
) -> None:
    """Send a run's scores to the spans that they are of; earlier ones are replaced."""
    with _open(store) as (settings, opened):
        restored = _get_restored(opened, run, settings)
        say(sync.run(trackers.send_scores(opened, restored, target, settings)))


def compare(
    first: Annotated[str, typer.Argument(help="A run's id, the start or end of it, or its name.")],
    second: Annotated[
        str, typer.Argument(help="Another run with the same cases, by its id or name.")
    ],
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """Compare two runs over the same cases: paired differences of scores, with an interval."""
    with _open(store) as (settings, opened):
        runs = [_get_restored(opened, name, settings).record for name in (first, second)]
        for run in runs:
            if run.status != "finished":
                say(f"run {run.id}: is not finished; its figures cover the records so far")
        comparison = compare_stored(opened, runs[0], runs[1])
        if as_json:
            print_json(comparison.data)
        else:
            show_report(report_comparison(comparison, runs))


def delete(
    run: RunName,
    yes: options.Yes = False,
    store: options.StoreFile = None,
) -> None:
    """Remove a run, with the answers that no other run uses."""
    with open_store(read_settings(store=store).store) as opened:
        record = opened.get_run(run)
        options.confirm(f"Remove run {record.id} (cases: {record.n_cases or 0})?", yes)
        freed = opened.delete_run(record.id)

    typer.echo(
        f"removed run {record.id}: {wording.count(freed.cases, 'case')},"
        f" {wording.count(freed.calls, 'call')}; their place in the store is used again, or freed"
        " by `textevolve config store vacuum`"
    )


@contextmanager
def _open(store: str | None) -> Generator[tuple[Settings, Store]]:
    settings = read_settings(store=store)
    with open_store(settings.store) as opened:
        yield settings, opened


def _get_restored(store: Store, name: str, settings: Settings) -> StudyRun:
    """Return a run. Records that the store lacks are restored first, from the run's
    journal of model calls; if that is impossible, a message says why."""
    run = get_whole(store, name)
    _restore(store, run, settings)
    return run


def _restore(store: Store, run: StudyRun, settings: Settings) -> None:
    if reason := sync.run(driver.restore_records(store, run, settings)):
        say(f"the report shows the records as they were stored: {reason}")


SHOWN = 200


def report_runs(rows: Sequence[ListedRun]) -> Report:
    """Report the stored runs with their results."""
    names = ("run", "study", "prompts or judge", "result", "change", "begun")
    cells: list[tuple[str, ...]] = []
    for listed in rows:
        run = listed.run
        prompts = wording.shorten(", ".join(run.names), 30)
        cells.append(
            (
                " ".join([run.id, prompts, *listed.tags]),
                f"{study_kind(run)} {wording.shorten(listed.data or run.source, 30)}",
                wording.shorten(listed.subject, 44) or wording.DASH,
                _describe_result(listed) or wording.DASH,
                listed.change or wording.DASH,
                time.strftime("%m-%d", time.localtime(run.created)),
            )
        )

    return Report("Runs", "", [Table("", names, cells)])


def _describe_result(listed: ListedRun) -> str:
    status = listed.run.status
    return listed.result if status == "finished" else f"{listed.result} ({status})".lstrip()


def list_records(store: Store, run: StudyRun, matching: RecordFilter) -> Report:
    """Return a report that lists the first `SHOWN` matching records, one per line with the texts
    that were judged, and the number of all."""
    listed: list[dict[str, str | float | None]] = []
    total = 0
    for record in store.iterate_records(run.id, matching):
        total += 1
        if total <= SHOWN:
            listed.append(_describe_record(run, record))

    # A column without a text in any line says nothing.
    names = dict.fromkeys(name for line in listed for name, cell in line.items() if cell != "")
    columns = [Column(n, "score", 3) if n == "score" else Column(n) for n in names]
    rows = [[line.get(name, "") for name in names] for line in listed]
    hidden = wording.count(total - SHOWN, "more record")
    note = f"{hidden} left out; see all with --json" if total > SHOWN else ""

    return Report(
        f"Run {run.id}",
        wording.count(total, "record"),
        [Table("Records", columns, rows, note=note)],
    )


def _describe_record(run: StudyRun, record: StoredRecord) -> dict[str, str | float | None]:
    """Return the cells of a record's line, by the names of their columns."""
    name = Row(record.key, record.position, record.case, record.score).name
    texts: dict[str, str] = {}
    if run.study.rows is not None:
        row = show_rows(run, tuple(filter(None, [record.variant])), [record])[0]
        name = row.name
        # The score of a record is that of its best candidate.
        entries = row.present
        best = max(entries, key=lambda entry: main_score(entry) or 0.0, default=None)
        texts = {
            "input": row.words,
            "expected": row.reference,
            "output": "" if best is None else best.output,
        }
    else:
        # A record of such a study may have several table rows, and the first stands for it.
        table_rows = list(run.study.flat(decode_record(run.study, run.id, record)))
        fields: Mapping[str, Any] = table_rows[0] if table_rows else {}
        texts = {n: write_text(fields[n]) for n in WORDS if fields.get(n) not in (None, "")}

    return {
        "record": wording.shorten(name, 40),
        "variant": wording.shorten(wording.shorten_models(record.variant), 30),
        "score": record.score,
        "state": record.status,
        **{column: wording.shorten(text, 60) for column, text in texts.items()},
        "reason": wording.shorten(record.reason, 200),
    }


def cancel_batch(
    run: Annotated[
        str, typer.Argument(help="The run's id, the start or end of it, its name, or 'last'.")
    ],
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Discard the jobs without contact to the provider; a resumed run repeats their"
            " calls.",
        ),
    ] = False,
    store: options.StoreFile = None,
) -> None:
    """Cancel a run's batch jobs at their provider; existing answers can still be collected."""
    with _open(store) as (settings, opened):
        record = opened.get_run(run)
        jobs = opened.batches(record.id).all_open()
        if not jobs:
            typer.echo(f"run {record.id}: no batch job is open")
        for job in jobs:
            outcome = sync.run(_end(opened, record, job, settings, forget=forget))
            typer.echo(f"run {record.id}: batch {job.id or job.mark} {outcome}")


async def _end(
    store: Store, run: RunRecord, job: KeptBatch, settings: Settings, *, forget: bool
) -> str:
    ledger = store.batches(run.id)
    if forget:
        await ledger.keep(replace(job, state="void"))
        return "is forgotten"
    async with AsyncExitStack() as stack:
        return await gathering.cancel_job(
            job, BatchMeans(settings, ledger, store.journal(run.id), stack)
        )
