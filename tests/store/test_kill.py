"""Kill -9 at any moment: whatever a process was told to be durable is found afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from subprocess import Popen

import pytest

from postgres_server import address_of
from textevolve.settings import StoreLocation
from textevolve.store import Store, open_store

Python = Callable[..., Popen[str]]

APPEND = """
import asyncio, sys
from itertools import count
from textevolve.evaluation import Usage
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Message, Request, Response, request_key
from textevolve.store import open_store

def make(name, number):
    request = Request(messages=(Message("user", ("Judge.", name, f"case {number} " * 50)),))
    response = Response(f"answer to {name} {number}", "stop", Usage(1, 9, 0, 1))
    return JournalEntry(request_key("m", request), "m", request, response, None, 0.0, 0.1, 1)

async def work(store, name, limit):
    run = store.create_run({}, name, name)
    journal, numbers = store.journal(run.id), iter(range(limit) if limit else count())
    async def one():
        for number in numbers:
            entry = make(name, number)
            await journal.append(entry)
            sys.stdout.write(f"{entry.key} {entry.response.text}\\n")
            sys.stdout.flush()
    with store.lease(run.id):
        await asyncio.gather(*[one() for _ in range(32)])

async def main():
    async with open_store(sys.argv[1]) as store:
        await work(store, sys.argv[2], int(sys.argv[3]))

asyncio.run(main())
"""


def find_all(store: Store, run_id: str, told: list[str]) -> list[str]:
    """The lines again, from what the journal has under their keys."""
    journal = store.journal(run_id)

    async def find() -> list[str]:
        keys = [line.split(" ", 1)[0] for line in told]
        found = [(key, await journal.find(key)) for key in keys]
        return [f"{key} {answer.text if answer else None}" for key, answer in found]

    return asyncio.run(find())


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 20, 333, 1500])
def test_every_key_that_was_told_is_found_after_a_kill(
    location: StoreLocation, python: Python, lines: int
) -> None:
    process = python(APPEND, address_of(location), "run", "0")
    assert process.stdout is not None
    told = [process.stdout.readline().rstrip() for _ in range(lines)]
    process.kill()
    told += [line.rstrip() for line in process.stdout if line.endswith("\n")]
    process.wait()
    with open_store(location) as store:
        run = store.get_run("run")
        assert run.status == "interrupted"
        with store.lease(run.id):
            assert find_all(store, run.id, told) == told
        calls = list(store.calls(run.id))
        assert len(calls) >= len(told)
        for call in calls[:: max(1, len(calls) // 50)]:
            assert store.read_request(call).messages[0].parts[:2] == ("Judge.", "run")


@pytest.mark.slow
def test_two_processes_write_into_one_store(location: StoreLocation, python: Python) -> None:
    """They also open and create it at the same moment."""
    processes = {name: python(APPEND, address_of(location), name, "400") for name in ("one", "two")}
    told: dict[str, list[str]] = {}
    for name, process in processes.items():
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        told[name] = output.splitlines()
    with open_store(location) as store:
        for name, lines in told.items():
            run = store.get_run(name)
            assert len(lines) == store.run_totals(run.id).spent.calls == 400
            assert find_all(store, run.id, lines) == lines
