"""A session of pytest within a test, which asserts texts."""

import pytest

# Loaded before the sessions inside are: they forget what they were first to load.
from textevolve.runs.stored import StudyRun, read_records
from textevolve.settings import read_settings
from textevolve.store.repository import open_store
from textevolve.testing import messages  # noqa: F401

THEIRS = ("langsmith_plugin", "anyio", "schemathesis", "hypothesispytest", "pytest_cov")
QUIET = (*THEIRS, "cacheprovider")
ASYNC = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")


@pytest.fixture
def session(home, pytester, model):
    """Runs a file of tests with the scripted model; `apart` in a process of its own."""

    def run(text, *arguments, apart=False):
        pytester.makepyfile(test_answers=text)
        texts = [word for name in QUIET for word in ("-p", f"no:{name}")]
        texts += [word for line in ASYNC for word in ("-o", line)]
        texts += [f"--textevolve-model={model}", *arguments]
        return (
            pytester.runpytest_subprocess(*texts) if apart else pytester.runpytest_inprocess(*texts)
        )

    return run


@pytest.fixture
def kept(home):
    """The runs of the store, oldest first, each with its rows."""

    def read():
        with open_store(read_settings().store) as store:
            runs = sorted(store.list_runs(), key=lambda run: run.created)
            return [(run, list(read_records(store, StudyRun(run))())) for run in runs]

    return read
