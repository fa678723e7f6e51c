"""Runs jobs when they are due, several at once, until it is cancelled. Any number of schedulers may
work on the same store, on one machine or on several."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from textevolve.errors import StoreError
from textevolve.jobs.performing import JobDesk, perform_claim
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import JobClaim

log = logging.getLogger("textevolve.jobs")

AT_ONCE = 4
"""How many jobs one scheduler works on at the same time."""
LOOK_SECONDS = 5.0
"""How often it is looked for jobs that others have made, or left behind."""


async def work_on_jobs(desk: JobDesk, at_once: int = AT_ONCE) -> None:
    """Never returns. What is under way when it is cancelled is given back, to be gone on with."""
    under_way, ended = set[asyncio.Task[None]](), asyncio.Event()

    def note_end(task: asyncio.Task[None]) -> None:
        under_way.discard(task)
        ended.set()

    try:
        while True:
            ended.clear()
            wait = LOOK_SECONDS
            try:
                while len(under_way) < at_once and (claim := await _claim(desk)) is not None:
                    task = asyncio.create_task(perform_claim(desk, claim))
                    under_way.add(task)
                    task.add_done_callback(note_end)
                wait = await _seconds_to_wait(desk, full=len(under_way) >= at_once)
            except StoreError as error:
                log.warning("no jobs can be looked for: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), wait)
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _claim(desk: JobDesk) -> JobClaim | None:
    """A job that is due; one that is claimed while this is cancelled is given back."""
    asked = asyncio.ensure_future(
        asyncio.to_thread(desk.resources.claim_due_job, desk.lease_seconds)
    )
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        with suppress(StoreError):
            if (claim := await asked) is not None:
                await asyncio.to_thread(desk.resources.write, stored_jobs.release_claim, claim)
        raise


async def _seconds_to_wait(desk: JobDesk, *, full: bool) -> float:
    seconds = (
        None if full else await asyncio.to_thread(desk.resources.read, stored_jobs.seconds_to_next)
    )
    return LOOK_SECONDS if seconds is None else min(max(seconds, 0.05), LOOK_SECONDS)
