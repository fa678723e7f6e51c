from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from textevolve.evaluation import Usage
from textevolve.llm.journal import JournalEntry
from textevolve.llm.model import Message, Request, Response, request_key
from textevolve.store import RunRecord, Store, open_store

MODEL = "scripted/judge"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as opened:
        yield opened


@pytest.fixture
def new_run(store: Store) -> Callable[..., RunRecord]:
    """Makes a run that differs from those before it."""
    made: list[RunRecord] = []

    def make(name: str = "") -> RunRecord:
        made.append(store.create_run({}, f"fingerprint {len(made)}", name))
        return made[-1]

    return make


@pytest.fixture(scope="session")
def make_entry() -> Callable[..., JournalEntry]:
    """A finished call: `number` makes the question, `answer` or `error` the outcome."""

    def make(
        number: int, answer: str = "yes", error: str | None = None, **changes: int
    ) -> JournalEntry:
        request = Request(
            messages=(Message("system", ("Judge.",)), Message("user", ("Case: ", str(number)))),
            schema='{"type": "object"}',
        )
        usage = Usage(**{"calls": 1, "prompt_tokens": 10, "completion_tokens": 2, **changes})
        response = Response(answer, "stop", usage) if error is None else None
        key = request_key(MODEL, request)
        return JournalEntry(key, MODEL, request, response, error, 1e9 + number, 0.5, 1)

    return make


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python processes on a script; those that still run at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
