"""Batch jobs on the command line: what is said of them, and how they are ended."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

import typer

from textevolve.cli import options
from textevolve.engine import sync
from textevolve.llm.batches.gathering import cancel_job, forget_job
from textevolve.llm.batches.ledger import BatchMeans, ConfirmingJournal, KeptBatch
from textevolve.report.wording import count
from textevolve.settings import Settings, read_settings
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord
from textevolve.studies.driver import models_asked
from textevolve.studies.kinds import find_study
from textevolve.studies.rehearsal import describe_batches
from textevolve.studies.stored import StoredSpec, read_spec


def describe_jobs(run: RunRecord, stored: StoredSpec, settings: Settings) -> str:
    """What is said before a study in batch jobs begins."""
    study = find_study(stored.kind)
    models = models_asked(study.asks(read_spec(study, stored)), stored)
    said = ". ".join(describe_batches(settings, models).values())
    return f"run {run.id}: {said}. Ctrl-C leaves what is submitted running"


def say_open_jobs(store: Store, run: RunRecord) -> str:
    """What goes on at the provider after a run was stopped; empty where nothing does."""
    jobs = [job for job in store.batches(run.id).all_open() if job.state != "cancelled"]
    if not jobs:
        return ""
    named = ", ".join(
        f"{job.id or 'just submitted'} ({count(len(job.keys), 'call')})" for job in jobs
    )
    return (
        f" --batch\nat the provider goes on: batch {named}. Its answers are collected when the run"
        f" goes on; end it with: textevolve runs cancel-batch {run.id}"
    )


def cancel_batch(
    run: Annotated[str, typer.Argument(help="The run's id, the start of it, its name, or 'last'.")],
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Ask nobody: give up what the jobs may answer, so that it is asked anew.",
        ),
    ] = False,
    store: options.StoreFile = None,
) -> None:
    """Cancel a run's batch jobs at their provider; what they answered can still be collected."""
    settings, _ = read_settings({"store": store})
    with open_store(settings.store) as opened:
        record = opened.get_run(run)
        jobs = opened.batches(record.id).all_open()
        if not jobs:
            typer.echo(f"run {record.id}: no batch job is open")
        for job in jobs:
            said = sync.run(_end(opened, record, job, settings, forget=forget))
            typer.echo(f"run {record.id}: batch {job.id or job.mark} {said}")


async def _end(
    store: Store, run: RunRecord, job: KeptBatch, settings: Settings, *, forget: bool
) -> str:
    async with AsyncExitStack() as stack:
        journal = ConfirmingJournal(store.journal(run.id))
        means = BatchMeans(settings, store.batches(run.id), journal, stack)
        return await (forget_job(job, means) if forget else cancel_job(job, means))
