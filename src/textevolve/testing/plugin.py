"""The pytest plugin: its options, its hooks, and the report at the end of a session.

pytest loads it in every project in which this package is installed, so it imports nothing heavy,
and creates nothing before a text is judged. With pytest-xdist each worker process judges texts and
stores the results. The workers report the id of the common run with their tests, and the controller
process prints one summary of it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from textevolve.errors import TextEvolveError
from textevolve.testing.session import JudgingSession, SessionOptions, find_session, sessions

OPTIONS = {
    "judge": "The judge of tests that name none, such as probe+rules.",
    "model": "The model of the judges, such as openai/gpt-6-luna.",
    "min-score": "The score, from 0 to 1, from which a text passes in tests that set none.",
    "max-cost": "The most US dollars that the judges of the session may spend.",
    "store": "The store of all calls: a file, or a postgresql:// address.",
}

_SESSION = pytest.StashKey[JudgingSession]()
_SUMMARY = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("textevolve", "texts judged by models (textevolve)")
    for name, help in OPTIONS.items():
        group.addoption(f"--textevolve-{name}", metavar=name.split("-")[-1].upper(), help=help)
        parser.addini(f"textevolve_{name.replace('-', '_')}", help, default=None)


def pytest_configure(config: pytest.Config) -> None:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    key = str(worker["testrunuid"]) if worker else os.urandom(16).hex()
    options = _read_options(config, int(worker["workercount"]) if worker else 1)
    config.stash[_SESSION] = JudgingSession(key, options)
    sessions.append(config.stash[_SESSION])


def pytest_unconfigure(config: pytest.Config) -> None:
    if (session := config.stash.get(_SESSION, None)) is not None:
        session.close()
        sessions.remove(session)


def _read_options(config: pytest.Config, workers: int) -> SessionOptions:
    """Read the session's options. The cost limit is divided by the number of processes
    (`workers`)."""
    options: dict[str, str | None] = {
        name: config.getoption(f"--textevolve-{name}")
        or config.getini(f"textevolve_{name.replace('-', '_')}")
        or None
        for name in OPTIONS
    }
    cost = _read_number("max-cost", options["max-cost"], float("inf"))
    start = config.invocation_params.dir
    store = options["store"]
    if store is not None and "://" not in store:
        # A path on the command line is relative to where pytest runs, that of a file to the file.
        base = start if config.getoption("--textevolve-store") else config.rootpath
        store = str(base / Path(store).expanduser())

    return SessionOptions(
        start=start,
        judge=options["judge"],
        model=options["model"],
        min_score=_read_number("min-score", options["min-score"], 1.0),
        max_cost=None if cost is None else cost / workers,
        store=store,
    )


def _read_number(name: str, text: str | None, most: float) -> float | None:
    try:
        value = None if text is None else float(text)
    except ValueError:
        value = -1.0

    if value is not None and not (0 <= value <= most and value < float("inf")):
        raise pytest.UsageError(f"textevolve: {name} must be from 0 to {most:g}, not '{text}'")
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_SESSION].begin_test(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if run := item.config.stash[_SESSION].find_run():
        report.textevolve_run = run
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if run := getattr(report, "textevolve_run", ""):
        find_session().run_id = run


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the session's run. If closing fails, the exit status is an error."""
    judging = session.config.stash[_SESSION]
    config = session.config
    judging.close()
    if hasattr(config, "workerinput"):
        return
    if judging.find_run():
        from textevolve.testing.messages import end_session

        try:
            config.stash[_SUMMARY] = end_session(judging)
        except TextEvolveError as error:
            config.stash[_SUMMARY] = [f"error: {error}"]
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(_SUMMARY, list[str]())
    if lines:
        terminalreporter.write_sep("=", "texts judged (textevolve)")
    for line in lines:
        terminalreporter.write_line(line, red=line.startswith("error: "))
