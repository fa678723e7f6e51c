"""A journal and a ledger in memory, and models that ask the scripted server in batch jobs."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from textevolve.llm.batches.ledger import OPEN_STATES
from textevolve.llm.model import Message, Request
from textevolve.settings import Batches, Settings
from textevolve.wiring import open_models

QUICK = Batches(quiet=0.02, poll=(0.01, 0.05))


class MemoryJournal:
    def __init__(self):
        self.entries = []
        self.answers = {}

    async def find(self, key):
        await asyncio.sleep(0)
        response = self.answers.get(key)
        return None if response is None else replace(response, replayed=True)

    async def has_answer(self, model):
        return any(entry.model == model and entry.response for entry in self.entries)

    async def append(self, entry):
        await asyncio.sleep(0)
        self.entries.append(entry)
        if entry.response is not None:
            self.answers[entry.key] = entry.response


class MemoryLedger:
    """`states`: all that were noted, in order."""

    def __init__(self):
        self.kept = {}
        self.states = []

    async def keep(self, batch):
        self.kept[batch.mark] = batch
        self.states.append(batch.state)

    async def find_open(self, model):
        found = [value for value in self.kept.values() if value.state in OPEN_STATES]
        return [value for value in found if value.model == model]

    @property
    def open(self):
        return [value for value in self.kept.values() if value.state in OPEN_STATES]


def asked(number, **more):
    return Request(messages=(Message("user", (f"Question {number}?",)),), **more)


class BatchWorld:
    """What outlives a process: the server, the journal, the ledger. `heard`: events."""

    def __init__(self, server, **options):
        self.server, self.name = server, f"{server.url}#m"
        self.journal, self.ledger, self.heard = MemoryJournal(), MemoryLedger(), []
        self.options = QUICK.model_copy(update=options)
        self.settings = Settings(batch=True, batches=self.options)

    @asynccontextmanager
    async def process(self, limits=None, **changed):
        """The model of one process."""
        settings = self.settings.model_copy(update=changed)
        means = (settings, self.journal, limits, self.heard.append)
        async with open_models(*means, batches=self.ledger) as model_of:
            yield model_of(self.name)

    async def ask(self, requests, limits=None, **changed):
        """The outcome of each request, asked at once."""
        async with self.process(limits, **changed) as model:
            return await asyncio.gather(*map(model, requests), return_exceptions=True)

    async def submitted(self):
        """Until a job is noted with its id."""
        for _ in range(1000):
            if self.ledger.open and self.ledger.open[0].id:
                return
            await asyncio.sleep(0.01)

    @property
    def jobs(self):
        return list(self.server.batches.jobs.values())
