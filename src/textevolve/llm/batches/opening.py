"""From a model's spec to the gatherer of its calls, or to what ends its batch jobs.

Loaded with the first call that the journal cannot answer.
"""

from __future__ import annotations

from dataclasses import replace

from textevolve.llm.batches.batched import BatchMeans, batch_price
from textevolve.llm.batches.dialects import DIALECTS
from textevolve.llm.batches.gathering import Gatherer
from textevolve.llm.batches.ledger import KeptBatch
from textevolve.llm.batches.service import BatchService
from textevolve.llm.batches.submission import Job, Submissions
from textevolve.llm.client import OpenAIClient
from textevolve.llm.connecting import connect
from textevolve.llm.providers import resolve


async def open_gatherer(spec: str, means: BatchMeans) -> Gatherer:
    """
    Raises:
        SettingsError: the endpoint cannot be had.
    """
    client, submissions = await _open_submissions(spec, means)
    gathers, until = means.settings.batch, means.deadline
    gatherer = Gatherer(client, submissions, means.journal, gathers=gathers, deadline=until)
    means.opened[spec] = gatherer
    means.stack.push_async_callback(gatherer.aclose)
    return gatherer


async def cancel_job(kept: KeptBatch, means: BatchMeans) -> str:
    """End a job at its endpoint, and say what became of it."""
    _, submissions = await _open_submissions(kept.model, means)
    return await submissions.cancel(Job(kept, set(kept.keys), resumed=True))


async def forget_job(kept: KeptBatch, means: BatchMeans) -> str:
    """Give up what a job may answer, so that it is asked anew."""
    await means.ledger.keep(replace(kept, state="void", detail="forgotten"))
    return "is forgotten"


async def _open_submissions(spec: str, means: BatchMeans) -> tuple[OpenAIClient, Submissions]:
    settings = means.settings
    endpoint = resolve(spec, settings)
    named = replace(endpoint, spec=spec)
    limits = settings.timeouts, settings.largest_answer
    client = connect(named, *limits, price_of=batch_price)
    await means.stack.enter_async_context(client)
    service = BatchService(spec, client.base_url, client.http, DIALECTS[endpoint.batches])
    own = means.ledger, settings.batches, means.listener
    return client, Submissions(spec, endpoint.model, service, *own)
